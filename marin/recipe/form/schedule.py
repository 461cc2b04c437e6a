"""How many train steps the rate rises, stays and falls: what the optimizer does, and what a dry run says before."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from marin.errors import UsageError

Recipe = Any
"""A recipe, whose own checks ask here."""


@dataclass(frozen=True)
class Schedule:
    """Train steps of the whole schedule, and of them those in which the rate rises, stays and falls."""

    whole: int
    warmup: int
    stable: int
    decay: int


def whole(recipe: Recipe) -> int:
    """Train steps over which the schedule goes: of this phase, or of all up to its end."""
    phase = recipe.phase
    steps: int = recipe.trainer.num_steps if phase is not None and phase.schedule == "restart" else recipe.last_step
    return steps


def decay_steps(recipe: Recipe) -> int | None:
    """Train steps that ``optimizer.decay`` asks for; None where it says nothing."""
    share, steps = recipe.optimizer.decay, whole(recipe)
    if share is None:
        return None
    # A record's 0.29 is 29 of 100: the decimal that was written, which no binary number is.
    return round(Fraction(repr(share)) * steps) if recipe.optimizer.rounding == "nearest" else int(share * steps)


def schedule_of(recipe: Recipe) -> Schedule:
    """The schedule as Levanter's optimizers have it: a warm-up is at most the whole, a decay what the warm-up leaves."""
    steps = whole(recipe)
    warmup = min(recipe.optimizer.warmup_steps, steps)
    asked = decay_steps(recipe)
    decay = (
        0
        if recipe.optimizer.schedule == "constant"
        else min(steps - warmup if asked is None else asked, steps - warmup)
    )
    return Schedule(steps, warmup, steps - warmup - decay, decay)


def check_schedule(recipe: Recipe, where: str) -> None:
    """Raises UsageError where a decay is asked for that is less than half a train step: none at all."""
    optimizer = recipe.optimizer
    if optimizer.decay is not None and optimizer.rounding == "nearest" and not decay_steps(recipe):
        steps = whole(recipe)
        raise UsageError(
            "a decay of no train step",
            where=f"{where}: optimizer.decay",
            expected=f"at least 1 of {steps} train steps, which is {1 / steps:.3g}",
            found=f"{optimizer.decay!r}, which is {optimizer.decay * steps:.3g} of a step",
            cure="raise it, train for more steps, or choose optimizer.schedule=constant",
        )


def in_words(recipe: Recipe) -> str:
    """One line for people: the steps, and what was asked for and cannot be."""
    found = schedule_of(recipe)
    steps = f"rises for {found.warmup} train steps, stays for {found.stable}, falls for {found.decay} of {found.whole}"
    return "; ".join([f"learning rate: {steps}", *too_long(recipe)])


def too_long(recipe: Recipe) -> list[str]:
    """What of the schedule is longer than the train steps that it has, in words."""
    found, optimizer, asked = schedule_of(recipe), recipe.optimizer, decay_steps(recipe)
    words = []
    if found.warmup < optimizer.warmup_steps:
        words.append(
            f"optimizer.warmup_steps={optimizer.warmup_steps} is cut to {found.warmup}, in which the rate only rises"
        )
    if asked is not None and found.decay < asked:
        words.append(
            f"optimizer.decay={optimizer.decay!r} ({asked} steps) is cut to the {found.decay} behind the warm-up"
        )
    return words
