"""What users log through MLflow's own interface: the events of it, and their fold.

``tracking.logged/v1`` holds MLflow's run id, an operation and its values (floats as hex strings):

    experiment   name, tags                                      made, or its tags set
    run          experiment, name, user, start, tags             begun; ``start`` in ms since 1970
    log          metrics [[key, value, time, step]…], params, tags, untagged [key…]
    state        status, ended, name                             a field that is None stays as it is
    lifecycle    stage                                           deleted (put away) or active
    data         experiment, datasets [{name, digest, kind, source, …}…]
    artifact     path, artifact, size                            a file that went into the store; the artifact
                                                                 repository reads these from the ledger itself
    model        model, experiment, name, kind, step, tags, params
    registered   name, artifact or source, model, tags           a version of a registered model
    alias        name, alias, model

A write to a run that has ended changes history. It is kept as what it is, a later event, and the run says so in its
tags ``marin.edited`` (the last such event, by whom and what) and ``marin.edits`` (how many).

What events of the ledger's own types say is not changed by any of these: a run, model, registered model or experiment
that such an event made takes no values from here, and names that verdicts and runs are known by (tags ``marin.…``, tag
and alias ``verified``) are not given from here. MLflow's interface refuses such a write (:meth:`LoggedFold.contradicts`);
where an event of it lies in a log all the same, it is told in ``marin.edits`` and has no other effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ledger import Event
from marin.history.projection.intents import (
    AliasSet,
    DataUsed,
    ExperimentTags,
    Intent,
    Lifecycle,
    ModelMade,
    ModelRegistered,
    OpenExperiment,
    OpenRun,
    Params,
    Points,
    Status,
    Tags,
    TagsGone,
)
from marin.record.events import HexFloat, Json, TrackingLogged

ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
Named = dict[str, str]


OF_CONTEXT = frozenset({"marin.run", "marin.step", "marin.root", "marin.status"})
"""Tags that say where something was logged from, and how it went."""


def is_reserved(name: str) -> bool:
    """Whether a tag or alias of this name speaks for the ledger."""
    plain = name.strip().casefold()
    return (plain.startswith("marin.") and name not in OF_CONTEXT) or plain == "verified"


def refusal(why: str) -> str:
    """What a client is told whose write would change what the ledger says."""
    return f"refused: {why}, and what is shown of it follows from the ledger alone; log to a run or model of your own"


class ExperimentValues(msgspec.Struct, frozen=True):
    """An experiment that was made, or its tags."""

    name: str
    tags: Named = {}


class RunValues(msgspec.Struct, frozen=True):
    """A run that began; ``start`` in milliseconds since 1970."""

    experiment: str
    name: str
    user: str
    start: int
    tags: Named = {}


class LogValues(msgspec.Struct, frozen=True):
    """A batch; a metric is (key, value, time in ms, step)."""

    metrics: list[tuple[str, HexFloat, int, int]] = []
    params: Named = {}
    tags: Named = {}
    untagged: list[str] = []


class StateValues(msgspec.Struct, frozen=True):
    """A run's new state, end or name."""

    status: str | None = None
    ended: int | None = None
    name: str | None = None


class LifecycleValues(msgspec.Struct, frozen=True):
    """A run put away or brought back."""

    stage: str


class DatasetValues(msgspec.Struct, frozen=True):
    """A data set as MLflow describes one."""

    name: str
    digest: str
    kind: str
    source: str
    context: str = ""
    schema: str = ""
    profile: str = ""


class DataValues(msgspec.Struct, frozen=True):
    """Data sets that a run reads."""

    experiment: str
    datasets: list[DatasetValues]


class ArtifactValues(msgspec.Struct, frozen=True):
    """A file that went into the store, and where the run shows it."""

    path: str
    artifact: str
    size: int


class ModelValues(msgspec.Struct, frozen=True):
    """A LoggedModel (id without ``m-``)."""

    model: str
    experiment: str
    name: str
    kind: str = ""
    step: int = 0
    tags: Named = {}
    params: Named = {}


class RegisteredValues(msgspec.Struct, frozen=True):
    """A version of a registered model; ``model`` tells versions apart."""

    name: str
    model: str
    source: str
    tags: Named = {}


class AliasValues(msgspec.Struct, frozen=True):
    """An alias of a registered model."""

    name: str
    alias: str
    model: str


OPERATIONS: Mapping[str, type[msgspec.Struct]] = {
    "experiment": ExperimentValues,
    "run": RunValues,
    "log": LogValues,
    "state": StateValues,
    "lifecycle": LifecycleValues,
    "data": DataValues,
    "artifact": ArtifactValues,
    "model": ModelValues,
    "registered": RegisteredValues,
    "alias": AliasValues,
}


def stream_of(identity: str) -> str:
    """The stream of what was logged to an MLflow run or model, or (empty) to none."""
    return f"tracking/{identity or 'experiments'}"


def described(operation: str, values: msgspec.Struct) -> Json:
    """The values of an operation as an event's body has them; what is empty is left out."""
    assert type(values) is OPERATIONS[operation]
    plain: Json = {name: value for name, value in msgspec.to_builtins(values).items() if value not in (None, {}, [])}
    return plain


class LoggedFold:
    """Folds what was logged by plain MLflow, and knows which MLflow runs have ended."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._edits: dict[str, int] = {}
        self._recorded: set[tuple[str, str]] = set()

    def watch(self, intents: list[Intent]) -> None:
        """Take note of what the ledger's own events made, and of the states of its runs."""
        for intent in intents:
            match intent:
                case OpenRun():
                    self._recorded.add(("run", intent.run))
                case ModelMade():
                    self._recorded.add(("model", intent.model))
                case ModelRegistered():
                    self._recorded.add(("registered model", intent.name))
                case OpenExperiment():
                    self._recorded.add(("experiment", intent.name))
        self._note_ended(intents)

    def contradicts(self, run: str, values: msgspec.Struct) -> str:
        """Why these values would change what the ledger says, as a clause; empty where they do not."""
        named: list[str] = []
        target = ("run", run)
        match values:
            case ExperimentValues():
                target, named = ("experiment", values.name), [*values.tags]
            case RunValues():
                named = [*values.tags]
            case LogValues():
                named = [*values.tags, *values.untagged]
            case ModelValues():
                named = [*values.tags]
                if ("run", run) not in self._recorded:
                    target = ("model", values.model)
            case RegisteredValues():
                target, named = ("registered model", values.name), [*values.tags]
            case AliasValues():
                target, named = ("registered model", values.name), [values.alias]
        if target in self._recorded:
            return f"the {target[0]} {target[1]} is the ledger's own"
        return next((f"the name {name} speaks for the ledger" for name in named if is_reserved(name)), "")

    def apply(self, index: int, event: Event, time: int, body: TrackingLogged) -> list[Intent] | None:
        """What MLflow should be told; None for values that do not fit."""
        kind = OPERATIONS.get(body.operation)
        if kind is None:
            return None
        try:
            values = msgspec.convert(body.values, kind)
        except msgspec.ValidationError:
            return None
        refused = self.contradicts(body.run, values)
        known = body.run in self._ended or ("run", body.run) in self._recorded
        # A version and an alias only name the run that they come from.
        edited = known and (refused or not isinstance(values, RegisteredValues | AliasValues))
        intents = [] if refused else list(self._told(index, event, time, body.run, values))
        if edited:
            self._edits[body.run] = self._edits.get(body.run, 0) + 1
            said = f"event {index}, {event.time[:19]}Z, by {event.actor}: {_gist(values)}"
            intents.append(
                Tags(
                    body.run,
                    {
                        "marin.edits": str(self._edits[body.run]),
                        "marin.edited": f"{said} (without effect: {refused})"[:4000] if refused else said[:4000],
                    },
                )
            )
        self._note_ended(intents)
        return intents

    def _note_ended(self, intents: list[Intent]) -> None:
        for intent in intents:
            if isinstance(intent, Status):
                (self._ended.add if intent.status in ENDED else self._ended.discard)(intent.run)

    def _told(self, index: int, event: Event, time: int, run: str, values: Any) -> Iterator[Intent]:
        match values:
            case ExperimentValues():
                yield OpenExperiment(values.name, time, {"marin.event": str(index)} | values.tags)
                yield ExperimentTags(values.name, values.tags)
            case RunValues():
                yield OpenExperiment(values.experiment, time)
                own = {key: value for key, value in values.tags.items() if key != "mlflow.runName"}
                yield OpenRun(run, values.experiment, values.name, values.start, values.user)
                yield Tags(run, {"marin.event": str(index), **own})
            case LogValues():
                for key, value, at, step in values.metrics:
                    yield Points(run, key, at, [(step, float.fromhex(value))])
                if values.params:
                    yield Params(run, values.params)
                if values.untagged:
                    yield TagsGone(run, values.untagged)
                if values.tags:
                    yield Tags(run, values.tags)
            case StateValues():
                if values.status is not None:
                    yield Status(run, values.status, values.ended)
                if values.name is not None:
                    yield Tags(run, {"mlflow.runName": values.name})
            case LifecycleValues():
                yield Lifecycle(run, values.stage, time)
            case DataValues():
                for item in values.datasets:
                    yield DataUsed(
                        run,
                        values.experiment,
                        item.name,
                        item.digest,
                        "",
                        item.context,
                        _object(item.profile),
                        kind=item.kind,
                        source=item.source,
                        schema=item.schema or None,
                    )
            case ModelValues():
                yield OpenExperiment(values.experiment, time)
                yield ModelMade(
                    values.model,
                    run,
                    values.experiment,
                    values.name,
                    values.kind,
                    time,
                    values.step,
                    {"marin.event": str(index), **values.tags},
                    values.params,
                )
            case RegisteredValues():
                yield ModelRegistered(
                    values.name, values.model, run, time, values.source, {"marin.event": str(index), **values.tags}
                )
            case AliasValues():
                yield AliasSet(values.name, values.alias, values.model)


def _object(text: str) -> dict[str, object]:
    """A JSON object from text that anybody may have written; what is none is kept as text."""
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {"profile": text}


def _gist(values: msgspec.Struct) -> str:
    plain = msgspec.to_builtins(values)
    return ", ".join(f"{name} {value}" for name, value in plain.items() if value not in (None, {}, [], ""))
