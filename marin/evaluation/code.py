"""Which files decide a number that is measured of a state: their digest is recorded with it. They are computed, as those of a
step are (:mod:`marin.work.code`)."""

from __future__ import annotations

from collections.abc import Iterable

from marin.provenance.code import code_folder, files_digest, lock_digest
from marin.provenance.plugins import own_file
from marin.recipe.arithmetic import profile_plugins
from marin.recipe.model import model_plugins
from marin.recipe.schema import Recipe
from marin.work.code import code_of

CONTRACT = "marin/process/arithmetic.py"
"""Puts the arithmetic contract in force: the command that measures imports it, and not the file in which measuring begins."""


def deciding(starts: Iterable[str], recipe: Recipe) -> tuple[str, ...]:
    """What is executed by executing the files ``starts``, under the profile of the recipe and with the parts of its model.

    Raises:
        NotInstalled: the plugin that computes them is not there.
    """
    named = (*profile_plugins(recipe.arithmetic), *model_plugins(recipe))
    own = (own_file(group, name, "the recipe's profile and model") for group, name in named)
    return code_of((*starts, CONTRACT, *own))


def deciding_digest(starts: Iterable[str], recipe: Recipe) -> str:
    """Its digest."""
    return files_digest(code_folder(), deciding(starts, recipe))


def other_code(code: str, lock: str, starts: Iterable[str], recipe: Recipe) -> str:
    """What of this software is not what recorded a number under ``recipe``: its files are not the ``code`` of then, or its
    lock is another; "" where both are the same."""
    installed, locked = deciding_digest(starts, recipe), lock_digest(code_folder())
    if installed != code:
        return f"it was recorded by other code: recorded {code}, installed {installed}"
    return f"it was recorded with lock {lock}, installed is {locked}" if locked != lock else ""
