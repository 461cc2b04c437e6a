"""Benchmarks beside the tasks of lm-evaluation-harness: entry points of the group ``marin.evaluations``.

The name of an entry point is its option of ``marin eval``. Only Marin's own are asked: what one finds becomes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.provenance.plugins import own_points

if TYPE_CHECKING:
    from marin.plugins.evaluation.recorded.evaluated import Evaluated

GROUP = "marin.evaluations"


@dataclass(frozen=True)
class Benchmark:
    """Tasks of a user's own, and how a state is asked them.

    Args:
        title: what it is called in a sentence.
        version: as its events name it; it begins with a letter, and a new way to ask gets a new one.
        help: of its option.
        read: the tasks at a path, of these names; all without names.
        checked: the task, or ``DataError``: a stored one is data, nothing of it is executed.
        load: the function that asks a state; called when jax may be imported.
        is_file: whether its data are one file, and not a folder.
    """

    title: str
    version: str
    help: str
    read: Callable[[Path, Sequence[str]], Sequence[EvaluationTask]]
    checked: Callable[[EvaluationTask, str], EvaluationTask]
    load: Callable[[], Callable[..., Evaluated]]
    is_file: bool = False


def benchmarks() -> dict[str, Benchmark]:
    """Those that are there, by the name of their option."""
    return {name: point.load() for name, point in sorted(own_points(GROUP).items())}


def is_of_harness(version: str) -> bool:
    """Whether an evaluation is one of lm-evaluation-harness, which is recorded by its version alone."""
    return version[:1].isdecimal()
