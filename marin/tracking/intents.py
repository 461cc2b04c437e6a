"""The vocabulary of intended writes: what the fold wants MLflow to show, as values.

Each is idempotent: applying one twice leaves what applying it once left. So a projection that was killed in the middle
of a round simply does the round again. ``run`` is always an MLflow run id (see :mod:`marin.tracking.identity`).
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
class Points:
    """Points of one metric: (step, value) pairs that share the time of the event that told them."""

    run: str
    key: str
    time: int
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Status:
    """RUNNING, FINISHED or FAILED, with the time it ended where it has."""

    run: str
    status: str
    ended: int | None


@dataclass(frozen=True)
class DataUsed:
    """A data set that the run reads or makes. ``digest`` is the full ``sha256:`` digest of its content."""

    run: str
    name: str
    digest: str
    artifact: str
    context: str
    profile: Mapping[str, object]


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
    artifact: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class ModelRegistered:
    """A version of the registered model ``name``, one per model. The registry numbers them in the order of the log."""

    name: str
    model: str
    run: str
    time: int
    artifact: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class AliasSet:
    """The alias points at the version of ``name`` that was registered for ``model``."""

    name: str
    alias: str
    model: str


Intent = (
    OpenExperiment | OpenRun | Params | Tags | Points | Status | DataUsed | ModelMade | ModelRegistered | AliasSet
)
