"""The vocabulary of intended writes: what the fold wants MLflow to show, as values.

Each is idempotent: applying one twice leaves what applying it once left. So a projection that was killed in the middle
of a round simply does the round again. ``run`` is always an MLflow run id (see
:mod:`marin.history.projection.identity`). Text is what was recorded; what draws it makes it visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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
class ExperimentChanged:
    """An experiment that was put away (``deleted``) or brought back (``active``) with its runs, that has another name, or
    some of whose tags were taken off."""

    name: str
    time: int
    stage: str | None = None
    renamed: str | None = None
    untagged: Sequence[str] = ()


@dataclass(frozen=True)
class OpenRun:
    """A run, or a nested run when ``parent`` is given. Its MLflow id is ``run``. ``logged``: by plain MLflow, whose client
    says by a tag whose it is."""

    run: str
    experiment: str
    name: str
    time: int
    user: str
    parent: str | None = None
    logged: bool = False


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
class PointsGone:
    """Points of one metric, by step, that stand no more."""

    run: str
    key: str
    steps: Sequence[int]


@dataclass(frozen=True)
class Status:
    """RUNNING, FINISHED, FAILED or KILLED, with the time it ended where it has. ``logged``: by plain MLflow, where a run keeps
    the end that it had."""

    run: str
    status: str
    ended: int | None
    logged: bool = False


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
    profile: Mapping[str, object] | str | None
    kind: str = "marin"
    source: str | None = None
    schema: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelLogged:
    """A model that a run made: an MLflow LoggedModel with id ``model``. ``status``: MLflow's word for how far it is; without
    one it is ready, and an output of the run."""

    model: str
    run: str
    experiment: str
    name: str
    kind: str
    time: int
    step: int
    tags: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)
    status: str | None = None


@dataclass(frozen=True)
class ModelChanged:
    """A LoggedModel's new status or stage, or some of its tags taken off."""

    model: str
    time: int
    status: str | None = None
    stage: str | None = None
    untagged: Sequence[str] = ()


@dataclass(frozen=True)
class ModelPoints:
    """Metrics of LoggedModels: (model, key, value, time in ms, step, name and digest of the data set)."""

    run: str
    experiment: str
    points: Sequence[tuple[str, str, float, int, int, str | None, str | None]]


@dataclass(frozen=True)
class ModelsUsed:
    """LoggedModels that a run reads, and those that it makes with their step; ``at`` tells two such events apart."""

    run: str
    at: int
    read: Sequence[str]
    made: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class ModelRegistered:
    """A version of the registered model ``name``, one per model. The registry numbers them in the order of the log.
    ``location``: where its files lie, if not at ``artifact``."""

    name: str
    model: str
    run: str
    time: int
    artifact: str
    tags: Mapping[str, str]
    about: str = ""
    location: str = ""
    run_link: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class RegisteredChanged:
    """What is said of a registered model, its new name, or that it is gone with its versions."""

    name: str
    time: int
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    untagged: Sequence[str] = ()
    renamed: str | None = None
    gone: bool = False


@dataclass(frozen=True)
class VersionChanged:
    """What is said of the version that was registered for ``model``, its stage, or that it is gone."""

    name: str
    model: str
    time: int
    description: str | None = None
    stage: str | None = None
    untagged: Sequence[str] = ()
    gone: bool = False


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
    | ExperimentChanged
    | OpenRun
    | Params
    | Tags
    | TagsGone
    | Lifecycle
    | Points
    | PointsGone
    | Status
    | DataUsed
    | ModelLogged
    | ModelChanged
    | ModelPoints
    | ModelsUsed
    | ModelRegistered
    | RegisteredChanged
    | VersionChanged
    | AliasSet
    | AliasGone
    | Shelve
)
