"""Evaluation while a run trains: every recorded state that its recipe wants measured, as soon as the ledger has it.

A journal stands between training and ledger anyway. This one looks at what became durable, takes the state back from the
store, proven to be the recorded one, measures it, and records what came out in the stream ``evaluation/RUN``. So nothing is
measured that was not recorded, the training's code knows nothing of it, and no bit of a state can depend on it.

What is missing is found from the ledger alone, so a killed training goes on without a gap and without a point twice. Where
no process of this machine trains (Ray), and where a training was taken over, all points are measured at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ledger import Store, canonical_digest
from marin.errors import DataError, UsageError
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant
from marin.execution.leases.step import StepLease
from marin.execution.step import Journal
from marin.history.run import Run
from marin.history.runs import load, started_runs
from marin.history.table.evaluations import recorded_evaluations
from marin.kinds.families import measured as measurements
from marin.plugins.evaluation.harness.installed import check_installed
from marin.plugins.evaluation.heldout.asked import first_requested, settings_of, without_tasks
from marin.plugins.evaluation.heldout.sets import check_files, read_sets
from marin.plugins.evaluation.samples.task import settings_of as settings_of_samples
from marin.plugins.evaluation.samples.task import task_of, without_samples
from marin.plugins.evaluation.samples.texts import texts_of
from marin.process.arithmetic import apply
from marin.process.progress import bar
from marin.recipe.evaluation import TasksDuring
from marin.recipe.schema import Execution, Recipe, digest
from marin.record import events
from marin.record.root import Root

if TYPE_CHECKING:
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject
    from marin.plugins.evaluation.harness.tasks import NamedTasks
    from marin.plugins.evaluation.recorded.evaluated import Evaluated
    from marin.plugins.evaluation.recorded.records import Settings, TaskGroup
    from marin.plugins.evaluation.recorded.task import EvaluationTask

log = logging.getLogger(__name__)

SETS, TASKS, SAMPLES = "sets", "tasks", "samples"
"""What a recipe may ask of a state."""


def due(recipe: Recipe, step: int) -> bool:
    """Whether the state before train step ``step`` is to be measured: after every so many steps, and the last one."""
    every = recipe.evaluation.every
    done = step - recipe.first_step
    return every is not None and done > 0 and (done % every == 0 or step == recipe.last_step)


class HeldoutCompanion:
    """What stands beside the step ``train`` for recipes that ask for it (:class:`marin.pipeline.companions.Beside`)."""

    def check(self, root: Root, recipe: Recipe) -> None:
        """See there. Files of a recipe that began here before may be gone: what was measured is in the store."""
        if recipe.evaluation.tasks is not None:
            check_installed("evaluation.tasks")
        if next(started_runs(root.history(), recipe=digest(recipe)), None) is None:
            check_files(recipe)

    def lacks(self, root: Root, recipe: Recipe, identity: str) -> bool:
        """See there: states of an equal training may have been recorded in a run that was asked for less."""
        history = root.history()
        views = (load(history, fact.body.run) for fact in started_runs(history, recipe=digest(recipe)))
        return all(
            view.steps["train"].identity != identity or bool(_missing(root, view, recipe.last_step))
            for view in views
            if "train" in view.steps
        )

    @contextmanager
    def following(self, journal: Journal, root: Root, run: str) -> Iterator[Journal]:
        """See there. What is to be measured is read before the training begins: a mistake in it costs no training."""
        view = load(root.history(), run)
        measuring = Measuring.begun(journal, root, view)
        yield _Watched(journal, measuring)
        measuring.catch_up(view.recipe.last_step)

    def completed(self, root: Root, run: str, journal: Journal) -> None:
        """See there: what nobody measured, of a training that was taken over; by one executor at a time."""
        view = load(root.history(), run)
        last, is_done = view.recipe.last_step, False
        key = canonical_digest({"evaluation": run})
        lease = StepLease(root, HeldLeases(root, Claimant.of_process()), key, "evaluation")
        while not is_done and _missing(root, view, last):
            with lease.taken([], lambda changed: not changed or bool(_missing(root, view, last))) as is_done:
                if is_done:
                    Measuring.begun(journal, root, view).catch_up(last)
            lease.wait()


class _Watched:
    """The journal of a training, measured as it goes on."""

    def __init__(self, journal: Journal, measuring: Measuring) -> None:
        self._journal, self._measuring, self._reached = journal, measuring, -1

    def record(self, kind: str, body: events.Body) -> int:
        """Record; after what closes a segment, measure its last state if that is due."""
        index = self._journal.record(kind, body)
        if kind == events.TRAIN_STARTED and isinstance(body, events.TrainStarted):
            self._measuring.catch_up(body.first_step)
        elif kind == events.TRAIN_SEGMENT and isinstance(body, events.TrainSegment):
            self._reached = body.end
        elif kind == events.METRICS_RECORDED and due(self._measuring.recipe, self._reached):
            self._measuring.catch_up(self._reached)
        return index

    def history(self, kind: str) -> Sequence[events.Body]:
        return self._journal.history(kind)


@dataclass
class Measuring:
    """One run, and what its states are measured on. ``asked``: tasks and settings, where the recipe has tasks."""

    journal: Journal
    root: Root
    run: str
    recipe: Recipe
    sets: dict[str, bytes]
    asked: tuple[list[EvaluationTask], Settings] | None = None
    _scorer: Scorer | None = None

    @classmethod
    def begun(cls, journal: Journal, root: Root, view: Run) -> Measuring:
        """Read everything that will be needed.

        Raises:
            MissingEvidence: lm-evaluation-harness is not installed.
            LedgerError: a set or a task is not there, or a task is not what it was.
        """
        recorded = list(recorded_evaluations(root.history(), view.run))
        measured = [body for body in recorded if isinstance(body, measurements.EvaluationMeasured)]
        kept = {name: one.data for name, one in measured[-1].sets.items()} if measured else {}
        named = view.recipe.evaluation.tasks
        asked = None
        if named is not None:
            check_installed("evaluation.tasks")
            evaluated = [body for body in recorded if isinstance(body, measurements.EvaluationRecorded)]
            asked = tasks_of(named, root.store(), first_requested(named, _due(view, view.recipe.last_step), evaluated))
        return cls(journal, root, view.run, view.recipe, read_sets(view, root.store(), kept), asked)

    def catch_up(self, until: int) -> None:
        """Measure every recorded state up to the one before train step ``until`` that is due and was not measured."""
        view = load(self.root.history(), self.run)
        missing = _missing(self.root, view, until)
        if not missing:
            return
        apply(self.recipe.arithmetic, Execution(devices=1))
        from marin.evaluation.scoring import Scorer
        from marin.evaluation.subject import open_subject

        for saved, wanted in missing:
            if not self.root.store().has(saved.artifact):
                log.warning("the state before train step %d is not in the store: not measured", saved.step)
                continue
            subject = open_subject(view, self.root.store(), saved.step)
            self._scorer = self._scorer.holding(subject.model) if self._scorer else Scorer(subject.model, self.recipe)
            if SETS in wanted:
                self._measure(subject, self._scorer)
            if TASKS in wanted:
                self._evaluate(subject, self._scorer)
            if SAMPLES in wanted:
                self._sample(subject, self._scorer)

    def _measure(self, subject: Subject, scorer: Scorer) -> None:
        from marin.plugins.evaluation.heldout.measuring import measure_sets

        with bar(f"evaluate {subject.step}", sum(data.count(b"\n") for data in self.sets.values())) as progress:
            body = measure_sets(subject, scorer, self.root.store(), self.sets, lambda done, name: progress(done, name))
        self.journal.record(measurements.EVALUATION_MEASURED, body)
        for name, one in body.sets.items():
            told = ", ".join(f"{key} {float.fromhex(value):.4f}" for key, value in one.numbers.items())
            log.info("before train step %d, %s: %s", subject.step, name, told)

    def _evaluate(self, subject: Subject, scorer: Scorer) -> None:
        from marin.plugins.evaluation.harness.recording import evaluated

        assert self.asked is not None, "tasks are evaluated where the recipe has some"
        tasks, settings = self.asked
        self._record(subject, evaluated(subject, scorer, tasks, settings))

    def _sample(self, subject: Subject, scorer: Scorer) -> None:
        from marin.plugins.evaluation.samples.drawing import evaluated

        asked = self.recipe.evaluation.samples
        assert asked is not None, "samples are drawn where the recipe has prompts"
        with bar(f"samples {subject.step}", len(asked.prompts)) as progress:
            tasks, settings = [task_of(asked)], settings_of_samples(asked)
            found = evaluated(subject, scorer, tasks, settings, progress=lambda done: progress(done, ""))
        self._record(subject, found)
        for text in texts_of(found.samples):
            log.info("before train step %d: %s", subject.step, text)

    def _record(self, subject: Subject, found: Evaluated) -> None:
        from marin.plugins.evaluation.recorded.evaluated import numbers
        from marin.plugins.evaluation.recorded.records import write_tree

        with TemporaryDirectory(prefix="marin-eval-") as base:
            write_tree(Path(base), found.tasks, found.samples, numbers(found.results), found.settings.groups)
            artifact = self.root.store().put_tree(Path(base)).digest
        self.journal.record(measurements.EVALUATION_RECORDED, found.body(subject, artifact))


def tasks_of(
    asked: TasksDuring, store: Store, first: measurements.EvaluationRecorded | None
) -> tuple[list[EvaluationTask], Settings]:
    """What a recipe asks for, with the settings: as the ``first`` evaluation of it stored it, else from the task files.

    Raises:
        DataError: the first one is not in the store any more, and the files are not what it was of. Others as ``read_named``.
    """
    from marin.plugins.evaluation.harness.tasks import checked, read_named
    from marin.plugins.evaluation.recorded.records import config_digest, digests_of, read_task, recorded_settings

    folder = Path(asked.path)
    if first is None:
        named = read_named(asked.names, folder)
        return named.tasks, replace(settings_of(asked), groups=_groups(named))
    if store.has(first.samples):
        with TemporaryDirectory(prefix="marin-eval-") as base:
            store.checkout(first.samples, tree := Path(base) / "tree")
            found = [read_task(tree, name, sorted(told.data)) for name, told in first.tasks.items()]
        tasks = [checked(task, f"the stored task {task.name}") for task in found]
    else:
        tasks = read_named(asked.names, folder).tasks
    before = {name: (told.config, told.data) for name, told in first.tasks.items()}
    now = {task.name: (config_digest(task), digests_of(task)) for task in tasks}
    if other := sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)):
        raise DataError(
            "the tasks have changed since this run's first evaluation",
            where=f"evaluation.tasks, {folder}",
            expected=f"the tasks and data before train step {first.step}, once stored as {first.samples}",
            found=f"others of {', '.join(other)[:200]}",
            cure="bring that artifact or those files back; all points of a curve are of the same documents",
        )
    settings = recorded_settings(first.settings)
    assert settings is not None, "an evaluation that is asked for has settings"
    return tasks, settings


def _groups(named: NamedTasks) -> list[TaskGroup]:
    """The groups among the names, and each tag as a group without means: anyone who has the record alone knows what it was of.

    Raises:
        UsageError: a tag that is not a name.
    """
    from marin.plugins.evaluation.recorded.records import TaskGroup, wrong_groups

    groups = [*named.groups, *(TaskGroup(tag, tasks, []) for tag, tasks in named.tags.items())]
    if wrong := wrong_groups(groups, {task.name: task for task in named.tasks}):
        raise UsageError(
            "no groups of tasks", where="evaluation.tasks.names", expected="names and members", found=wrong
        )
    return groups


def _due(view: Run, until: int) -> list[events.CheckpointSaved]:
    """The recorded states up to the one before train step ``until`` that are to be measured."""
    return [fact.body for fact in view.checkpoints if fact.body.step <= until and due(view.recipe, fact.body.step)]


def _missing(root: Root, view: Run, until: int) -> list[tuple[events.CheckpointSaved, set[str]]]:
    """Recorded states that are due, with what the recipe asks of them and they do not have."""
    recorded, asked = list(recorded_evaluations(root.history(), view.run)), view.recipe.evaluation.tasks
    measured = {(body.step, body.state) for body in recorded if isinstance(body, measurements.EvaluationMeasured)}
    evaluated = [body for body in recorded if isinstance(body, measurements.EvaluationRecorded)]
    # Up to any state: the first evaluation of what is asked for may be of a later one.
    unasked = set(without_tasks(asked, _due(view, view.recipe.last_step), evaluated) if asked is not None else ())
    samples = view.recipe.evaluation.samples
    silent = without_samples(samples, _due(view, until), evaluated) if samples is not None else []
    found = []
    for saved in _due(view, until):
        wanted = set() if (saved.step, saved.state) in measured else {SETS}
        wanted |= {TASKS} if saved in unasked else set()
        wanted |= {SAMPLES} if saved in silent else set()
        if wanted:
            found.append((saved, wanted))
    return found


COMPANION = HeldoutCompanion()
