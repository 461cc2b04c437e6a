"""Which recorded evaluations are the ones that a recipe asks for while it trains.

A state may have others beside them: of other tasks, or of the same under other settings, asked by hand. A recipe names tasks
and not their bytes, so the first evaluation of a due state that has the recipe's names and settings decides what all of them
are of: its configurations, its data, its groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.recorded.benchmark import is_of_harness
from marin.plugins.evaluation.recorded.records import Settings, current_settings, recorded_settings
from marin.recipe.evaluation import TasksDuring
from marin.record.events import CheckpointSaved


def settings_of(asked: TasksDuring) -> Settings:
    """The settings that a recipe asks for, without groups."""
    return current_settings(num_fewshot=asked.num_fewshot, limit=asked.limit)


def is_requested(asked: TasksDuring, body: EvaluationRecorded) -> bool:
    """Whether ``body`` is of the names that a recipe asks for, and under its settings.

    Each name is a task or a group of ``body``, which has no others but those in them. (A tag is recorded as a group.)
    """
    settings, now = recorded_settings(body.settings), settings_of(asked)
    if settings is None or not is_of_harness(body.harness):
        return False
    # Errors were of fewer resamples until there were rules, and never since.
    resamples = now.bootstrap if settings.rules > 1 else Settings().bootstrap
    if settings != msgspec.structs.replace(now, rules=settings.rules, bootstrap=resamples, groups=settings.groups):
        return False
    groups = {group.name: group.tasks for group in settings.groups}
    whole, reached, names = {*body.tasks, *groups}, set[str](), list(asked.names)
    while names:
        name = names.pop()
        if name not in reached:
            reached.add(name)
            names += groups.get(name, [])
    return reached == whole


def first_requested(
    asked: TasksDuring, due: Sequence[CheckpointSaved], bodies: Iterable[EvaluationRecorded]
) -> EvaluationRecorded | None:
    """The first of the ``bodies``, in the order of the log, of a state that is ``due`` and of what a recipe asks for; None
    where there is none."""
    states = {(saved.step, saved.state) for saved in due}
    return next((body for body in bodies if (body.step, body.state) in states and is_requested(asked, body)), None)


def without_tasks(
    asked: TasksDuring, due: Sequence[CheckpointSaved], bodies: Sequence[EvaluationRecorded]
) -> list[CheckpointSaved]:
    """Those of the ``due`` states that have no evaluation of what a recipe asks for."""
    first = first_requested(asked, due, bodies)
    had = {(body.step, body.state) for body in bodies if first is not None and _alike(first, body)}
    return [saved for saved in due if (saved.step, saved.state) not in had]


def _alike(one: EvaluationRecorded, other: EvaluationRecorded) -> bool:
    """Whether two evaluations are of the same tasks, data and groups, under the same settings."""
    return recorded_settings(one.settings) == recorded_settings(other.settings) and _tasks(one) == _tasks(other)


def _tasks(body: EvaluationRecorded) -> dict[str, tuple[str, dict[str, str]]]:
    return {name: (task.config, task.data) for name, task in body.tasks.items()}
