"""Beginnings and ends: what MLflow is told when a run or a graph begins and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marin.history.labels import Labels
from marin.history.names import data_of, model_of
from marin.history.projection.text import flatten
from marin.history.run import plan_of
from marin.history.table.sweeps import RECIPES, VARIED
from marin.kinds.families.graph import GraphCompleted, GraphStarted
from marin.plugins.mlflow.folding.experiments import Experiments
from marin.plugins.mlflow.folding.intents import Intent, Lifecycle, OpenRun, Params, Shelve, Status, Tags, TagsGone
from marin.plugins.mlflow.folding.projected import ProjectedRun, RecordedEvent
from marin.preregistration.called import run_name
from marin.process.text import short
from marin.record.events import RunCompleted, RunLabelled, RunStarted
from marin.record.verdicts import NEVER

EXECUTIONS = "executions of the graph"
"""The run below which MLflow shows how an experiment's file was executed."""
COMMANDS = "executions of sweeps"
"""The experiment in which MLflow shows graphs of a command line: the runs that came of them stand in their own, without these."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#8c564b")
"""Of the curves of runs, one after another: MLflow draws colours by chance, and two runs the same. The first six are those of
Okabe and Ito, which colour-blind people tell apart."""
GRAPH_ENDED = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def run_started(
    recorded: RecordedEvent,
    projected: ProjectedRun,
    body: RunStarted,
    experiments: Experiments,
    varied: Sequence[str] = (),
) -> Iterator[Intent]:
    """A run, called by the keys that set it apart from others of its sweep (``varied``), or by its arm; with
    its recipe as parameters. Its tags are what people read and filter by; digests, events and code are in its
    ``record.json``."""
    run, experiment = projected.id(), projected.experiment
    yield from experiments.opened(experiment, recorded.time)
    yield OpenRun(run, experiment, run_name(body, varied, experiments.cited(body)), recorded.time, recorded.event.actor)
    yield Params(run, flatten(body.recipe))
    tags = {
        "marin.run": body.run,
        "marin.recipe": short(body.recipe_digest),
        "marin.verified": NEVER,
        "marin.model": model_of(body.recipe),
        "marin.data": data_of(body.recipe),
        "mlflow.source.name": plan_of(body.pipeline),
        "mlflow.source.type": "PROJECT",
        "mlflow.runColor": COLOURS[projected.number % len(COLOURS)],
        "mlflow.note.content": experiments.note(experiment, body),
    }
    if isinstance(commit := body.code.get("commit"), str) and commit:
        tags["mlflow.source.git.commit"] = commit
    yield Tags(run, {**Labels.first(body.recipe).tags, **{name: value for name, value in tags.items() if value}})


def run_completed(recorded: RecordedEvent, projected: ProjectedRun, body: RunCompleted) -> Iterator[Intent]:
    """All steps have their output."""
    yield Status(projected.id(), "FINISHED", recorded.time)


def labelled(recorded: RecordedEvent, projected: ProjectedRun, body: RunLabelled) -> Iterator[Intent]:
    """Somebody archives, describes or tags the run. With an archived one its steps leave the lists too."""
    before = projected.fold.labels
    projected.fold.label(body)
    run, now = projected.id(), projected.fold.labels
    if gone := [name for name in before.tags if name not in now.tags]:
        yield TagsGone(run, gone)
    if now.tags != before.tags:
        yield Tags(run, now.tags)
    if now.archived != before.archived:
        for each in (run, *map(projected.id, projected.fold.states)):
            yield Lifecycle(each, "deleted" if now.archived else "active", recorded.time)


def graph_started(
    recorded: RecordedEvent, projected: ProjectedRun, body: GraphStarted, experiments: Experiments
) -> Iterator[Intent]:
    """An execution of an experiment file, or of a command line: a run whose steps are nodes of its graph, by address."""
    name = projected.experiment
    yield from experiments.opened(name, recorded.time)
    run, above = projected.id(), projected.ids.executions(name)
    # One row of a list for all executions, however many: the rows that matter are the runs of the arms.
    yield OpenRun(above, name, EXECUTIONS, recorded.time, recorded.event.actor)
    yield Tags(
        above,
        {
            "mlflow.source.name": body.file or body.name,
            "mlflow.source.type": "PROJECT",
            "mlflow.note.content": f"Every execution is nested here; the last is {body.graph}.",
        },
    )
    yield Status(above, "RUNNING", None)
    yield Shelve(above, "", recorded.index, {})
    yield OpenRun(run, name, f"graph · {body.graph}", recorded.time, recorded.event.actor, parent=above)
    options = {name: value for name, value in body.options.items() if name not in (RECIPES, VARIED)}
    yield Params(run, flatten(options) | {"file": body.file, "steps": str(body.steps)})
    tags = {
        "marin.run": body.graph,
        "mlflow.source.name": body.file or body.name,
        "mlflow.source.type": "PROJECT",
        "mlflow.note.content": "An execution of the experiment's graph; its nodes are nested runs, pipeline steps are in "
        "the runs of their arms.",
    }
    yield Tags(run, tags)


def graph_completed(recorded: RecordedEvent, projected: ProjectedRun, body: GraphCompleted) -> Iterator[Intent]:
    """The graph is through, however."""
    run = projected.id()
    yield Tags(
        run,
        {
            "marin.outcome": body.outcome,
            "marin.results": short(body.results),
            **{f"marin.steps.{name}": str(count) for name, count in body.counts.items()},
        },
    )
    ended = GRAPH_ENDED.get(body.outcome, "FAILED")
    yield Status(run, ended, recorded.time)
    yield Status(projected.ids.executions(projected.experiment), ended, recorded.time)
