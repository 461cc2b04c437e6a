"""The vocabulary of intended writes: what the fold wants MLflow to show, as values.

Each is idempotent: applying one twice leaves what applying it once left. So a projection that was killed in the middle
of a round simply does the round again. ``run`` is always an MLflow run id (see
:mod:`marin.history.projection.identity`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from marin.process.text import visible


@dataclass(frozen=True)
class OpenExperiment:
    """An experiment by name; ``tags`` are set again each time."""

    name: str
    time: int
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentTags:
    """Tags of an experiment that was opened: the latest value holds."""

    name: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class OpenRun:
    """A run, or a nested run when ``parent`` is given. Its MLflow id is ``run``."""

    run: str
    experiment: str
    name: str
    time: int
    user: str
    parent: str | None = None


@dataclass(frozen=True)
class Params:
    """Parameters of a run: never changed once written."""

    run: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Tags:
    """Tags of a run: the latest value holds."""

    run: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class TagsGone:
    """Tags of a run that were taken off."""

    run: str
    keys: Sequence[str]


@dataclass(frozen=True)
class Lifecycle:
    """A run is put away (``deleted``) or brought back (``active``); nothing of it goes."""

    run: str
    stage: str
    time: int


@dataclass(frozen=True)
class Points:
    """Points of one metric: (step, value) pairs that share the time of the event that told them."""

    run: str
    key: str
    time: int
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Status:
    """RUNNING, FINISHED, FAILED or KILLED, with the time it ended where it has."""

    run: str
    status: str
    ended: int | None


@dataclass(frozen=True)
class DataUsed:
    """A data set that the run reads or makes. ``digest`` is the full ``sha256:`` digest of its content. ``kind`` and
    ``source`` are MLflow's source type and description; without a source it is the stored artifact."""

    run: str
    experiment: str
    name: str
    digest: str
    artifact: str
    context: str
    profile: Mapping[str, object]
    kind: str = "marin"
    source: str | None = None
    schema: str | None = None


@dataclass(frozen=True)
class ModelMade:
    """A model that a run made: an MLflow LoggedModel with id ``model``."""

    model: str
    run: str
    experiment: str
    name: str
    kind: str
    time: int
    step: int
    tags: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelRegistered:
    """A version of the registered model ``name``, one per model. The registry numbers them in the order of the log."""

    name: str
    model: str
    run: str
    time: int
    artifact: str
    tags: Mapping[str, str]
    about: str = ""


@dataclass(frozen=True)
class AliasSet:
    """The alias points at the version of ``name`` that was registered for ``model``."""

    name: str
    alias: str
    model: str


@dataclass(frozen=True)
class AliasGone:
    """The alias points at no version of ``name`` any more."""

    name: str
    alias: str


@dataclass(frozen=True)
class Shelve:
    """What an MLflow run or model (``identity``, with ``m-`` for a model) shows as artifacts: stored artifacts by the
    path at which they stand, and pages by name. ``run`` is the ledger's run, ``at`` its last event."""

    identity: str
    run: str
    at: int
    mounts: Mapping[str, str]
    pages: Sequence[str] = ()


Intent = (
    OpenExperiment
    | ExperimentTags
    | OpenRun
    | Params
    | Tags
    | TagsGone
    | Lifecycle
    | Points
    | Status
    | DataUsed
    | ModelMade
    | ModelRegistered
    | AliasSet
    | AliasGone
    | Shelve
)


def shown(intent: Intent) -> Intent:
    """The intent with all its text visible (:mod:`marin.process.text`), as a page may show it: newlines and tabs stay. Paths of
    a shelf stay as they are, because they are looked up again."""
    if isinstance(intent, Shelve):
        return intent
    changed: dict[str, Any] = {
        part.name: new for part in fields(intent) if (new := _shown(old := getattr(intent, part.name))) is not old
    }
    return replace(intent, **changed) if changed else intent


def _shown(value: object) -> object:
    if isinstance(value, str):
        return visible(value, keep="\n\t")
    if isinstance(value, Mapping) and not all(
        _shown(key) is key and (not isinstance(item, str) or _shown(item) is item) for key, item in value.items()
    ):
        return {_shown(key): _shown(item) for key, item in value.items()}
    return value
