"""Which files decide a log-likelihood: their digest is recorded with every number that is made of some."""

from __future__ import annotations

from collections.abc import Iterable

from marin.provenance.code import code_folder, files_digest, other_software
from marin.provenance.plugins import own_file
from marin.recipe.arithmetic import profile_plugins
from marin.recipe.schema import Recipe
from marin.work.code import code_of

SCORING = (
    "marin/data/tokenizer.py",
    "marin/evaluation/marks.py",
    "marin/evaluation/scoring.py",
    "marin/evaluation/folder_subject.py",
    "marin/evaluation/subject.py",
    "marin/process/arithmetic.py",
    "marin/recipe/arithmetic.py",
    "marin/recipe/evaluation.py",
    "marin/recipe/mixture.py",
    "marin/recipe/model.py",
    "marin/recipe/schema.py",
    "marin/recipe/section.py",
    "marin/training/imported.py",
    "marin/data/borrowed/tensor_files.py",
    "marin/training/model.py",
    "marin/training/runtime/products.py",
    "marin/training/state.py",
)


def deciding(files: Iterable[str], recipe: Recipe) -> tuple[str, ...]:
    """These files, and those of the plugin that computes under the recipe's profile.

    Raises:
        NotInstalled: it is not there.
    """
    starts = [own_file(group, name, "the recipe's profile") for group, name in profile_plugins(recipe.arithmetic)]
    return (*files, *code_of(starts)) if starts else tuple(files)


def deciding_digest(files: Iterable[str], recipe: Recipe) -> str:
    """Their digest."""
    return files_digest(code_folder(), deciding(files, recipe))


def other_code(code: str, lock: str, files: Iterable[str], recipe: Recipe) -> str:
    """What of this software is not what recorded a number under ``recipe`` (:func:`marin.provenance.code.other_software`)."""
    return other_software(code, lock, deciding(files, recipe))
