"""The fold of what users log through MLflow's own interface (:mod:`marin.plugins.mlflow.folding.operations`).

A write to a run that has ended changes history. It is kept as what it is, a later event, and the run says so in its
tags ``marin.edited`` (the last such event, by whom and what) and ``marin.edits`` (how many).

What events of the ledger's own types say is not changed by any of these: a run, model, registered model or experiment
that such an event made takes no values from here, and names that verdicts and runs are known by (tags, params and metrics
``marin.…``, tag and alias ``verified``) are not given from here. MLflow's interface refuses such a write
(:meth:`LoggedFold.contradicts`); where an event of it lies in a log all the same, it is told in ``marin.edits`` and has no
other effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ledger import Event
from marin.history.labels import speaks_for_the_ledger
from marin.plugins.mlflow.folding import intents, operations
from marin.process.text import visible
from marin.record.events import TrackingLogged

ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
OF_THE_REGISTRY = (
    operations.RegisteredValues,
    operations.RegisteredChangedValues,
    operations.VersionChangedValues,
    operations.AliasValues,
    operations.AliasGoneValues,
)
"""What is done in the registry only names the run that it comes from."""
OF_CONTEXT = frozenset({"marin.run", "marin.step", "marin.root", "marin.status"})
"""Tags that say where something was logged from, and how it went."""


def is_reserved(name: str) -> bool:
    """Whether a tag or alias of this name speaks for the ledger."""
    return name not in OF_CONTEXT and speaks_for_the_ledger(name)


def refusal(why: str) -> str:
    """What a client is told whose write would change what the ledger says."""
    return f"refused: {why}, and what is shown of it follows from the ledger alone; log to a run or model of your own"


class LoggedFold:
    """Folds what was logged by plain MLflow, and knows which MLflow runs have ended."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._edits: dict[str, int] = {}
        self._recorded: set[tuple[str, str]] = set()
        self._pieces = operations.Pieces()

    def watch(self, batch: list[intents.Intent]) -> None:
        """Take note of what the ledger's own events made, and of the states of its runs."""
        for intent in batch:
            match intent:
                case intents.OpenRun():
                    self._recorded.add(("run", intent.run))
                case intents.ModelLogged():
                    self._recorded.add(("model", intent.model))
                case intents.ModelRegistered():
                    self._recorded.add(("registered model", intent.name))
                case intents.OpenExperiment():
                    self._recorded.add(("experiment", intent.name))
        self._note_ended(batch)

    def contradicts(self, run: str, values: msgspec.Struct) -> str:
        """Why these values would change what the ledger says, as a clause; empty where they do not."""
        target, named = ("run", run), _names_in(values)
        match values:
            case operations.ExperimentValues() | operations.ExperimentChangedValues():
                target = ("experiment", values.name)
            case operations.ModelChangedValues():
                target = ("model", values.model)
            case operations.ModelValues() if ("run", run) not in self._recorded:
                target = ("model", values.model)
            case (
                operations.RegisteredValues()
                | operations.RegisteredChangedValues()
                | operations.VersionChangedValues()
                | operations.AliasValues()
                | operations.AliasGoneValues()
            ):
                target = ("registered model", values.name)
            case operations.ModelMetricsValues() if ("run", run) not in self._recorded:
                models = (("model", point[0].removeprefix("m-")) for point in values.metrics)
                target = next((model for model in models if model in self._recorded), target)
        renamed = (target[0], getattr(values, "renamed", None))
        if taken := next((one for one in (target, renamed) if one in self._recorded), None):
            return f"the {taken[0]} {taken[1]} is the ledger's own"
        return next((f"the name {name} speaks for the ledger" for name in named if is_reserved(name)), "")

    def apply(self, index: int, event: Event, time: int, body: TrackingLogged) -> list[intents.Intent] | None:
        """What MLflow should be told; None for values that do not fit."""
        values = _values_in(body.operation, body.values)
        if isinstance(values, operations.PieceValues):
            whole = self._pieces.whole(body.run, values)
            if whole is None:
                return []
            values = _values_in(values.of, whole)
        if values is None or isinstance(values, operations.PieceValues):
            return None
        refused = self.contradicts(body.run, values)
        known = body.run in self._ended or ("run", body.run) in self._recorded
        edited = known and (refused or not isinstance(values, OF_THE_REGISTRY))
        found: list[intents.Intent] = [] if refused else list(self._intents(index, event, time, body.run, values))
        if edited:
            self._edits[body.run] = self._edits.get(body.run, 0) + 1
            said = visible(f"event {index}, {event.time[:19]}Z, by {event.actor}: {_gist(values)}")
            found.append(
                intents.Tags(
                    body.run,
                    {
                        "marin.edits": str(self._edits[body.run]),
                        "marin.edited": f"{said} (without effect: {visible(refused)})"[:4000]
                        if refused
                        else said[:4000],
                    },
                )
            )
        self._note_ended(found)
        return found

    def _note_ended(self, batch: list[intents.Intent]) -> None:
        for intent in batch:
            if isinstance(intent, intents.Status):
                (self._ended.add if intent.status in ENDED else self._ended.discard)(intent.run)

    def _intents(self, index: int, event: Event, time: int, run: str, values: Any) -> Iterator[intents.Intent]:
        # One case an operation. What belongs to an experiment opens it first: one that a run named has no event of its own.
        match values:
            case operations.ExperimentValues():
                yield intents.OpenExperiment(values.name, time, {"marin.event": str(index)} | values.tags)
                yield intents.ExperimentTags(values.name, values.tags)
            case operations.ExperimentChangedValues():
                yield intents.ExperimentChanged(values.name, time, values.stage, values.renamed, values.untagged)
            case operations.RunValues():
                yield intents.OpenExperiment(values.experiment, time)
                own = {key: value for key, value in values.tags.items() if key != "mlflow.runName"}
                yield intents.OpenRun(run, values.experiment, values.name, values.start, values.user, logged=True)
                yield intents.Tags(run, {"marin.event": str(index), **own})
            case operations.LogValues():
                for key, value, at, step in values.metrics:
                    yield intents.Points(run, key, at, [(step, float.fromhex(value))])
                if values.params:
                    yield intents.Params(run, values.params)
                if values.untagged:
                    yield intents.TagsGone(run, values.untagged)
                if values.tags:
                    yield intents.Tags(run, values.tags)
            case operations.StateValues():
                if values.status is not None:
                    yield intents.Status(run, values.status, values.ended, logged=True)
                if values.name is not None:
                    yield intents.Tags(run, {"mlflow.runName": values.name})
            case operations.LifecycleValues():
                yield intents.Lifecycle(run, values.stage, time)
            case operations.DataValues():
                yield intents.OpenExperiment(values.experiment, time)
                for item in values.datasets:
                    yield intents.DataUsed(
                        run,
                        values.experiment,
                        item.name,
                        item.digest,
                        "",
                        item.context,
                        item.profile or None,
                        kind=item.kind,
                        source=item.source,
                        schema=item.schema or None,
                        tags=item.tags,
                    )
            case operations.ModelValues():
                yield intents.OpenExperiment(values.experiment, time)
                yield intents.ModelLogged(
                    values.model,
                    run,
                    values.experiment,
                    values.name,
                    values.kind,
                    time,
                    values.step,
                    {"marin.event": str(index), **values.tags},
                    values.params,
                    values.status,
                )
            case operations.ModelChangedValues():
                yield intents.ModelChanged(values.model, time, values.status, values.stage, values.untagged)
            case operations.ModelMetricsValues():
                yield intents.OpenExperiment(values.experiment, time)
                points = [
                    (model, key, float.fromhex(value), at, step, name, digest)
                    for model, key, value, at, step, name, digest in values.metrics
                ]
                yield intents.ModelPoints(run, values.experiment, points)
            case operations.ModelsValues():
                yield intents.ModelsUsed(run, index, values.read, values.made)
            case _:
                yield from _of_the_registry(index, time, run, values)


def _of_the_registry(index: int, time: int, run: str, values: Any) -> Iterator[intents.Intent]:
    match values:
        case operations.RegisteredValues():
            tags = {"marin.event": str(index), **values.tags}
            yield intents.ModelRegistered(
                values.name,
                values.model,
                run,
                time,
                values.source,
                tags,
                location=values.location,
                run_link=values.run_link,
                description=values.description,
            )
        case operations.RegisteredChangedValues():
            yield intents.RegisteredChanged(
                values.name, time, values.description, values.tags, values.untagged, values.renamed, values.gone
            )
        case operations.VersionChangedValues():
            yield intents.VersionChanged(
                values.name, values.model, time, values.description, values.stage, values.untagged, values.gone
            )
        case operations.AliasValues():
            yield intents.AliasSet(values.name, values.alias, values.model)
        case operations.AliasGoneValues():
            yield intents.AliasGone(values.name, values.alias)


def _values_in(operation: str, values: object) -> Any:
    kind = operations.OPERATIONS.get(operation)
    if kind is None:
        return None
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        return None


def _names_in(values: Any) -> list[str]:
    """The names that these values give or take away, of tags, parameters, metrics and aliases."""
    named = [*getattr(values, "tags", ()), *getattr(values, "params", ()), *getattr(values, "untagged", ())]
    match values:
        case operations.LogValues():
            named += [point[0] for point in values.metrics]
        case operations.ModelMetricsValues():
            named += [point[1] for point in values.metrics]
        case operations.AliasValues() | operations.AliasGoneValues():
            named.append(values.alias)
    return named


def _gist(values: msgspec.Struct) -> str:
    plain = msgspec.to_builtins(values)
    return ", ".join(f"{name} {value}" for name, value in plain.items() if value not in (None, {}, [], ""))
