"""Arithmetic that is a plugin: what computes under a profile, or in another form of the train step, found by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from jax.sharding import Mesh

from marin.provenance.plugins import load_plugin
from marin.recipe.arithmetic import PROFILES
from marin.recipe.schema import Arithmetic, Recipe

if TYPE_CHECKING:
    from marin.training.state import TrainState
    from marin.training.step.contract import Step

KNOWN_STEPS = "known-steps"


class Named(Protocol):
    """What is computed, and nothing about how."""

    @property
    def digest(self) -> str:
        """Equal where the same is computed."""


class Fixed(Protocol):
    """A function with every rounding fixed, for arguments of one shape."""

    @property
    def program(self) -> Named:
        """What it computes."""

    def __call__(self, z: Any, *arguments: Any) -> Any:
        """To be traced, where 64-bit types are allowed: with ``z`` as :meth:`Profile.zero` gives it."""

    def jitted(self, **options: Any) -> Callable[..., Any]:
        """The function compiled at its first call, without ``z``; ``options`` are those of ``jax.jit``."""


class Profile(Protocol):
    """Arithmetic whose operations are its own."""

    def check(self) -> None:
        """Refuse to go on where this machine does not give the known answers.

        Raises:
            Unsupported: it gives others.
        """

    def zero(self) -> Any:
        """The first argument of what was traced."""

    def fixed(self, function: Callable[..., Any], *examples: Any, recipe: Recipe | None = None) -> Fixed:
        """``function`` for arguments shaped like ``examples``; contractions as ``recipe`` says, or as the profile does.

        Raises:
            UsageError: an operation has no such form.
        """

    def causal_logits(self, model: Any, tokens: Any, places: Any) -> Any:
        """float32[batch, count, vocabulary] after ``places``, int32[batch, count], of ``tokens``, int32[batch, length]: to be
        traced into what :meth:`fixed` takes. No bit depends on later tokens, or on how many there are."""

    def step(self, recipe: Recipe, mesh: Mesh, example: TrainState) -> Step:
        """The train step."""

    def differences(self, recipe: Recipe, vocab_size: int, recorded: Mapping[str, bytes]) -> Mapping[str, str]:
        """Where programs of ``recipe`` are first another than the recorded ones, by name, for people. ``recorded``: their plain
        forms, which anybody may have written."""


def check_known(arithmetic: Arithmetic) -> None:
    """``Unsupported`` where this machine does not give the known answers, which decide no bits: no step imports them."""
    for name in ("canary", KNOWN_STEPS):
        load_plugin(PROFILES, name, f"arithmetic.profile={arithmetic.profile}").check(arithmetic)


def check_recorded(arithmetic: Arithmetic, recorded: object) -> None:
    """Refuse to replay what another compiler made: see :func:`marin.training.step.known.check_recorded`."""
    load_plugin(PROFILES, KNOWN_STEPS, f"arithmetic.profile={arithmetic.profile}").check_recorded(arithmetic, recorded)


def exact_profile() -> Profile:
    """The plugin that computes under profile ``exact``.

    Raises:
        NotInstalled: it is not there.
    """
    found: Profile = load_plugin(PROFILES, "exact", "arithmetic.profile=exact")
    return found


def layered_step(recipe: Recipe, mesh: Mesh, example: TrainState) -> Step:
    """The train step in which no device holds all parameters.

    Raises:
        NotInstalled: the plugin that has it is not there.
    """
    found: Callable[[Recipe, Mesh, TrainState], Step] = load_plugin(PROFILES, "layered", "arithmetic.gather=layer")
    return found(recipe, mesh, example)
