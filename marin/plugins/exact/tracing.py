"""How jax is asked what a function does, while ``reading`` reads it. All of jax that has no promise stands here: its private
names, and those of its primitives' parameters. A release may lack any of them:

* A setting (:data:`DECIDED`) that is not there changes nothing that is traced: it came later, or jax has one way left. Where
  that way is another than before, the program has another digest, and nobody takes it for the recorded one.
* Where an operation was written is told to people; without the name there is no line to tell.
* Anything else that is gone is refused, with its name (:func:`named_if_gone`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import jax

from marin.errors import UsageError

DECIDED = {
    "enable_x64": False,
    "disable_jit": False,
    "eager_constant_folding": False,
    "use_simplified_jaxpr_constants": False,
    "enable_custom_prng": False,
    "default_prng_impl": "threefry2x32",
    "threefry_partitionable": True,
    "random_seed_offset": 0,
    "use_high_dynamic_range_gumbel": False,
    "softmax_custom_jvp": False,
    "numpy_dtype_promotion": "standard",
    "numpy_rank_promotion": "allow",
    "legacy_prng_key": "allow",
    "explicit_x64_dtypes": "warn",
    "use_direct_linearize": True,
    "scan3": False,
    "remat3": False,
    "custom_vjp3": False,
    "custom_jvp3": False,
    "remat_barrier_no_cotangents": False,
    "error_checking_behavior_nan": "ignore",
    "error_checking_behavior_divide": "ignore",
    "error_checking_behavior_oob": "ignore",
}
"""Settings of jax (its own names) that change what is traced, and what they are while a function is read: jax's defaults.
A user may set each by a variable of the environment."""
NEEDED = ("enable_x64",)
"""Without these a program could be of other numbers; every release had them."""


def private(name: str) -> ModuleType | None:
    """The module ``jax._src.NAME``; None where this jax has none."""
    try:
        return import_module(f"jax._src.{name}")
    except ModuleNotFoundError:
        return None


def absent(name: str) -> UsageError:
    """The error for a name that this jax lacks and a reader needs."""
    return UsageError(
        "this jax lacks what functions are read by",
        where="profile exact",
        expected=f"{name} of jax",
        found=f"none in jax {jax.__version__}",
        cure="install a jax that docs/exact.md lists",
    )


@contextmanager
def named_if_gone(primitive: str) -> Iterator[None]:
    """What is read of an operation of jax: a parameter or an attribute that is not there is refused with its name.

    Raises:
        UsageError: this jax lacks one.
    """
    try:
        yield
    except KeyError as error:
        raise absent(f"the parameter {error} of {primitive}") from error
    except AttributeError as error:
        raise absent(f"the attribute {error.name} of {primitive}") from error


def loop_parts(parameters: Mapping[str, Any], inputs: Sequence[int]) -> tuple[int, int]:
    """Of a ``scan`` with these inputs: how many of them each turn has the same, and how many go round."""
    if "num_consts" in parameters:  # jax 0.10
        return int(parameters["num_consts"]), int(parameters["num_carry"])
    consts, carry, _ = parameters["ft_in"].update(inputs).unpack()
    return len(list(consts)), len(list(carry))


def settings() -> dict[str, Callable[[Any], AbstractContextManager[Any]]]:
    """Those of :data:`DECIDED` that this jax has, by name.

    Raises:
        UsageError: one of :data:`NEEDED` is not among them.
    """
    module = private("config")
    found = {name: getattr(module, name) for name in DECIDED if hasattr(module, name)}
    if lacking := [name for name in NEEDED if name not in found]:
        raise absent(f"the setting {lacking[0]}")
    return found


_reading = jax.make_user_context(False)
"""Whether this thread reads a function. A context of jax, so that its caches keep apart what a ``jit`` inside of the function
was traced to then and elsewhere."""


@cache
def _asked_first() -> None:
    """From here on, jax computes nothing ahead of a program for the thread that reads one; others are left alone."""
    ahead: Callable[[], AbstractContextManager[Any]] = jax.ensure_compile_time_eval
    jax.ensure_compile_time_eval = lambda: nullcontext() if _reading.value else ahead()
    if hasattr(jax.core, "ensure_compile_time_eval"):
        jax.core.ensure_compile_time_eval = jax.ensure_compile_time_eval  # its other name


@contextmanager
def as_decided() -> Iterator[None]:
    """jax traces as if nobody had configured it, and computes nothing ahead."""
    _asked_first()
    with ExitStack() as decided:
        for name, setting in settings().items():
            decided.enter_context(setting(DECIDED[name]))
        decided.enter_context(_reading(True))
        yield


def written_at(equation: Any) -> str:
    """Where the operation of an equation was written: package, file, line and function; empty where this jax does not say."""
    summarize = getattr(private("source_info_util"), "summarize", None)
    if summarize is None:
        return ""
    text: str = summarize(equation.source_info)
    _, cut, rest = text.partition("site-packages/")
    return rest if cut else text.rpartition("/marin/")[1].lstrip("/") + text.rpartition("/marin/")[2]
