"""What users do through MLflow's own interface, as ``tracking.logged/v1`` holds it: MLflow's run id, an operation and its
values (floats as hex strings).

    experiment           name, tags                              made, or its tags set
    experiment_changed   name, stage, renamed, untagged          put away or brought back with its runs, or renamed
    run                  experiment, name, user, start, tags     begun; ``start`` in ms since 1970
    log                  metrics [[key, value, time, step]…], params, tags, untagged [key…]
    state                status, ended, name                     a field that is None stays as it is
    lifecycle            stage                                   deleted (put away) or active
    data                 experiment, datasets [{name, digest, kind, source, …}…]
    artifact             path, artifact, size                    a file that went into the store; the artifact repository
                                                                 reads these from the ledger itself
    model                model, experiment, name, kind, step, tags, params; with a status since that is told too
    model_changed        model, status, stage, untagged
    model_metrics        experiment, metrics [[model, key, value, time, step, data set, digest]…]
    models               experiment, read [model…], made [[model, step]…]     what a run reads and makes
    registered           name, artifact or source, model, tags   a version of a registered model
    registered_changed   name, description, tags, untagged, renamed, gone
    version_changed      name, model, description, stage, untagged, gone
    alias                name, alias, model
    alias_gone           name, alias
    piece                of, token, number, count, text          a part of the values of the operation ``of``, as JSON: all
                                                                 of them are one operation that is too large for an event

Text is what was logged, to the character: what draws it makes it visible. An operation that a reader does not know changes
nothing for that client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from marin.record.events import HexFloat, Json

Named = dict[str, str]
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that a database takes."""
RunStatus = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]
Stage = Literal["active", "deleted"]
ModelStatus = Literal["UNSPECIFIED", "PENDING", "READY", "FAILED"]
VersionStage = Literal["None", "Staging", "Production", "Archived"]
LARGEST = 48_000
"""Bytes of an operation's values that an event takes; what is larger goes in pieces."""
LETTERS_IN_A_PIECE = 12_000
"""None of them takes more than four bytes."""


class ExperimentValues(msgspec.Struct, frozen=True):
    """An experiment that was made, or its tags."""

    name: str
    tags: Named = {}


class ExperimentChangedValues(msgspec.Struct, frozen=True):
    """An experiment put away, brought back, renamed, or without some of its tags."""

    name: str
    stage: Stage | None = None
    renamed: str | None = None
    untagged: list[str] = []


class RunValues(msgspec.Struct, frozen=True):
    """A run that began; ``start`` in milliseconds since 1970."""

    experiment: str
    name: str
    user: str
    start: Whole
    tags: Named = {}


class LogValues(msgspec.Struct, frozen=True):
    """A batch; a metric is (key, value, time in ms, step)."""

    metrics: list[tuple[str, HexFloat, Whole, Whole]] = []
    params: Named = {}
    tags: Named = {}
    untagged: list[str] = []


class StateValues(msgspec.Struct, frozen=True):
    """A run's new state, end or name."""

    status: RunStatus | None = None
    ended: Whole | None = None
    name: str | None = None


class LifecycleValues(msgspec.Struct, frozen=True):
    """A run put away or brought back."""

    stage: Stage


class DatasetValues(msgspec.Struct, frozen=True):
    """A data set as MLflow describes one. ``tags``: of its use, beside the context."""

    name: str
    digest: str
    kind: str
    source: str
    context: str = ""
    schema: str = ""
    profile: str = ""
    tags: Named = {}


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
    """A LoggedModel (id without ``m-``). Without a status, as all were recorded once, it is ready and an output of its
    run."""

    model: str
    experiment: str
    name: str
    kind: str = ""
    step: Whole = 0
    tags: Named = {}
    params: Named = {}
    status: ModelStatus | None = None


class ModelChangedValues(msgspec.Struct, frozen=True):
    """A LoggedModel's new status or stage, or some of its tags gone."""

    model: str
    status: ModelStatus | None = None
    stage: Stage | None = None
    untagged: list[str] = []


class ModelMetricsValues(msgspec.Struct, frozen=True):
    """Metrics of LoggedModels: (model, key, value, time in ms, step, name and digest of the data set or None)."""

    experiment: str
    metrics: list[tuple[str, str, HexFloat, Whole, Whole, str | None, str | None]]


class ModelsValues(msgspec.Struct, frozen=True):
    """LoggedModels that a run reads, and those that it makes: (model, step)."""

    experiment: str
    read: list[str] = []
    made: list[tuple[str, Whole]] = []


class RegisteredValues(msgspec.Struct, frozen=True):
    """A version of a registered model; ``model`` tells versions apart. ``location``: where its files lie, if not at
    ``source``."""

    name: str
    model: str
    source: str
    tags: Named = {}
    location: str = ""
    run_link: str | None = None
    description: str | None = None


class RegisteredChangedValues(msgspec.Struct, frozen=True):
    """What is said of a registered model, its new name, or that it is gone."""

    name: str
    description: str | None = None
    tags: Named = {}
    untagged: list[str] = []
    renamed: str | None = None
    gone: bool = False


class VersionChangedValues(msgspec.Struct, frozen=True):
    """What is said of a version of a registered model, its stage, or that it is gone."""

    name: str
    model: str
    description: str | None = None
    stage: VersionStage | None = None
    untagged: list[str] = []
    gone: bool = False


class AliasValues(msgspec.Struct, frozen=True):
    """An alias of a registered model."""

    name: str
    alias: str
    model: str


class AliasGoneValues(msgspec.Struct, frozen=True):
    """An alias of a registered model that was taken away."""

    name: str
    alias: str


class PieceValues(msgspec.Struct, frozen=True):
    """One of ``count`` parts of the JSON of an operation's values; ``token`` is the same for all of them."""

    of: str
    token: str
    number: int
    count: int
    text: str


OPERATIONS: Mapping[str, type[msgspec.Struct]] = {
    "experiment": ExperimentValues,
    "experiment_changed": ExperimentChangedValues,
    "run": RunValues,
    "log": LogValues,
    "state": StateValues,
    "lifecycle": LifecycleValues,
    "data": DataValues,
    "artifact": ArtifactValues,
    "model": ModelValues,
    "model_changed": ModelChangedValues,
    "model_metrics": ModelMetricsValues,
    "models": ModelsValues,
    "registered": RegisteredValues,
    "registered_changed": RegisteredChangedValues,
    "version_changed": VersionChangedValues,
    "alias": AliasValues,
    "alias_gone": AliasGoneValues,
    "piece": PieceValues,
}


def stream_of(identity: str) -> str:
    """The stream of what was logged to an MLflow run or model, or (empty) to none."""
    return f"tracking/{identity or 'experiments'}"


def described(operation: str, values: msgspec.Struct) -> Json:
    """The values of an operation as an event's body has them; what is empty is left out."""
    assert type(values) is OPERATIONS[operation]
    plain: Json = {name: value for name, value in msgspec.to_builtins(values).items() if value not in (None, {}, [])}
    return plain


def in_events(operation: str, values: msgspec.Struct, token: str) -> Iterator[tuple[str, Json]]:
    """Operations with their values as events take them: one, or the pieces of it, which ``token`` names."""
    plain = described(operation, values)
    whole = msgspec.json.encode(plain).decode()
    if len(whole.encode()) <= LARGEST:
        yield operation, plain
        return
    pieces = [whole[start : start + LETTERS_IN_A_PIECE] for start in range(0, len(whole), LETTERS_IN_A_PIECE)]
    for number, text in enumerate(pieces):
        yield "piece", described("piece", PieceValues(operation, token, number, len(pieces), text))


class Pieces:
    """Gathers the pieces of large operations."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], list[str]] = {}

    def whole(self, run: str, piece: PieceValues) -> Json | None:
        """The values of the operation when this is its last piece. Pieces come in their order; one that does not follow
        the others is dropped with them."""
        texts = self._begun.pop((run, piece.token), [])
        if piece.number != len(texts) or not 0 <= piece.number < piece.count:
            return None
        texts.append(piece.text)
        if len(texts) < piece.count:
            self._begun[run, piece.token] = texts
            return None
        try:
            found = msgspec.json.decode("".join(texts))
        except msgspec.DecodeError:
            return None
        return found if isinstance(found, dict) else None
