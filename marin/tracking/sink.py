"""Intents -> an MLflow database (sqlite), through MLflow's own stores and never by SQL against its schema.

Writes of a round are gathered per run and leave as few ``log_batch`` calls as MLflow's limits allow (1,000 metrics, 100
parameters or tags): one call per metric would cost 25 ms each, a thousand in a batch cost 60 ms.

The cursor (how much of which log is in here) is a tag of MLflow's default experiment, written last in a round: it is in
the same database as what it speaks of, so the two can not part. Everything before it is idempotent.

Durability is nobody's concern here, the ledger has it: sqlite runs with a write-ahead log and without fsync.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import mlflow.store.model_registry.sqlalchemy_store as registry_module
import mlflow.store.tracking.sqlalchemy_store as tracking_module
import sqlalchemy
from mlflow.entities import (
    Dataset,
    DatasetInput,
    ExperimentTag,
    InputTag,
    LoggedModelOutput,
    LoggedModelStatus,
    LoggedModelTag,
    Metric,
    Param,
    RunStatus,
    RunTag,
)
from mlflow.entities.model_registry import ModelVersionTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import IntegrityError, OperationalError

from ledger import Locked
from marin.errors import MarinError
from marin.tracking import identity
from marin.tracking.intents import (
    AliasSet,
    DataUsed,
    Intent,
    ModelMade,
    ModelRegistered,
    OpenExperiment,
    OpenRun,
    Params,
    Points,
    Status,
    Tags,
)

SCHEME = "marin"
OUTSIDE = "outside the ledger"
CURSOR_TAG = "marin.cursor"
METRICS_PER_BATCH = 1000
OTHERS_PER_BATCH = 100
DATASET_DIGEST_LENGTH = 36

_log = logging.getLogger(__name__)

identity.install(tracking_module, registry_module)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
logging.getLogger("alembic").setLevel(logging.WARNING)


def artifact_uri(digest: str) -> str:
    """The address of stored bytes for MLflow's clients: ``marin://artifact/<64 hex>``."""
    return f"{SCHEME}://artifact/{digest.removeprefix('sha256:')}"


def database_uri(folder: Path) -> str:
    """How MLflow and SQLAlchemy name the database of a projection."""
    return f"sqlite:///{folder / 'mlflow.db'}"


@dataclass
class _Batch:
    """What waits to be written for one run. ``opened`` when the run itself has to be made first."""

    opened: OpenRun | None = None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    status: Status | None = None


class Sink:
    """One open MLflow database. Not for several threads at a time; the projection holds a lock around it."""

    def __init__(self, folder: Path, *, created: int = 0) -> None:
        self.folder = folder
        uri = database_uri(folder)
        with identity.derived(identity.mlflow_id("experiment", "Default"), created), _explained(folder):
            _check(folder / "mlflow.db")
            for store in (tracking_module.SqlAlchemyStore, registry_module.SqlAlchemyStore):
                _prepare(store._get_or_create_engine(uri))
            self._tracking = tracking_module.SqlAlchemyStore(uri, f"{SCHEME}://mlflow")
            self._registry = registry_module.SqlAlchemyStore(uri)
            if self._tracking.get_experiment("0").name == "Default":
                # What somebody logs by plain MLflow lands there; the pipeline may well be called default.
                self._tracking.rename_experiment("0", OUTSIDE)
        self._experiments: dict[str, str] = {}
        self._runs: set[str] = set()
        self._waiting_experiments: dict[str, OpenExperiment] = {}
        self._batches: dict[str, _Batch] = {}
        self._waiting: list[Intent] = []

    def close(self) -> None:
        """Let go of the database, also on behalf of a server in this process: its next query connects anew."""
        self._tracking.engine.dispose()
        self._registry.engine.dispose()

    @property
    def created(self) -> int:
        """The time that was given when the database was made."""
        with _explained(self.folder):
            return int(self._tracking.get_experiment("0").creation_time)

    def read_cursor(self) -> dict[str, Any] | None:
        """What :meth:`write_cursor` wrote last, or None in a new database."""
        with _explained(self.folder):
            tags = self._tracking.get_experiment("0").tags
        try:
            cursor = json.loads(tags.get(CURSOR_TAG, "null"))
        except ValueError:
            return None
        return cursor if isinstance(cursor, dict) else None

    def write_cursor(self, cursor: dict[str, Any]) -> None:
        """Remember how far this database is. Call after :meth:`flush`."""
        with _explained(self.folder), identity.derived(identity.mlflow_id("cursor"), int(cursor.get("time", 0))):
            self._tracking.set_experiment_tag("0", ExperimentTag(CURSOR_TAG, json.dumps(cursor, sort_keys=True)))

    def apply(self, intents: Iterable[Intent]) -> None:
        """Gather intents until :meth:`flush`."""
        for intent in intents:
            match intent:
                case OpenExperiment():
                    self._waiting_experiments[intent.name] = intent
                case OpenRun():
                    if intent.run not in self._runs:
                        self._runs.add(intent.run)
                        self._batch(intent.run).opened = intent
                case Params():
                    self._batch(intent.run).params.update(intent.values)
                case Tags():
                    self._batch(intent.run).tags.update(intent.values)
                case Points():
                    points = (Metric(intent.key, value, intent.time, step) for step, value in intent.points)
                    self._batch(intent.run).metrics.extend(points)
                case Status():
                    self._batch(intent.run).status = intent
                case _:
                    self._waiting.append(intent)

    def flush(self) -> None:
        """Write everything that was gathered: experiments, runs with what they hold, data sets and models, states."""
        with _explained(self.folder):
            for experiment in self._waiting_experiments.values():
                self._open_experiment(experiment)
            for run, batch in self._batches.items():
                self._write(run, batch)
            for intent in self._waiting:
                self._attach(intent)
            for run, batch in self._batches.items():
                if batch.status is not None:
                    self._tracking.update_run_info(run, RunStatus.from_string(batch.status.status), batch.status.ended, None)
        self._waiting_experiments.clear()
        self._batches.clear()
        self._waiting.clear()

    def _write(self, run: str, batch: _Batch) -> None:
        tags = [RunTag(key, value) for key, value in batch.tags.items()]
        if batch.opened is not None and self._open_run(batch.opened, tags):
            tags = []
        wanted = [Param(key, value) for key, value in batch.params.items()]
        columns = (_chunks(batch.metrics, METRICS_PER_BATCH), _chunks(wanted, OTHERS_PER_BATCH),
                   _chunks(tags, OTHERS_PER_BATCH))
        for metrics, params, others in zip_longest(*columns, fillvalue=()):
            # MLflow takes 1,000 things of all kinds in one call.
            head = METRICS_PER_BATCH - len(params) - len(others)
            self._tracking.log_batch(run, metrics=list(metrics[:head]), params=list(params), tags=list(others))
            if metrics[head:]:
                self._tracking.log_batch(run, metrics=list(metrics[head:]), params=[], tags=[])

    def _attach(self, intent: Intent) -> None:
        match intent:
            case DataUsed():
                self._data_used(intent)
            case ModelMade():
                self._model_made(intent)
            case ModelRegistered():
                self._model_registered(intent)
            case AliasSet():
                self._alias_set(intent)

    def _batch(self, run: str) -> _Batch:
        return self._batches.setdefault(run, _Batch())

    def _open_experiment(self, intent: OpenExperiment) -> None:
        tags = [ExperimentTag(key, value) for key, value in intent.tags.items()]
        existing = self._tracking.get_experiment_by_name(intent.name)
        with identity.derived(identity.mlflow_id("experiment", intent.name), intent.time):
            if existing is None:
                self._experiments[intent.name] = self._tracking.create_experiment(
                    intent.name, tags=tags)
                return
            self._experiments[intent.name] = existing.experiment_id
            for tag in tags:
                self._tracking.set_experiment_tag(existing.experiment_id, tag)

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            existing = self._tracking.get_experiment_by_name(name)
            if existing is None:
                raise MarinError("experiment is missing in the MLflow projection", where=str(self.folder), expected=name,
                                 found="none", cure=f"delete {self.folder} and run: marin sync")
            self._experiments[name] = existing.experiment_id
        return self._experiments[name]

    def _open_run(self, intent: OpenRun, tags: Sequence[RunTag]) -> bool:
        """Make a run with its first tags; False when an interrupted round had made it."""
        own = [RunTag("mlflow.user", intent.user)]
        if intent.parent is not None:
            own.append(RunTag("mlflow.parentRunId", intent.parent))
        experiment = self._experiment(intent.experiment)
        with identity.derived(intent.run, intent.time):
            return self._once(lambda: self._tracking.create_run(experiment, intent.user, intent.time, [*own, *tags], intent.name))

    def _data_used(self, intent: DataUsed) -> None:
        source = json.dumps({"uri": artifact_uri(intent.artifact)})
        dataset = Dataset(name=intent.name, digest=intent.digest.removeprefix("sha256:")[:DATASET_DIGEST_LENGTH],
                          source_type=SCHEME, source=source, profile=json.dumps(intent.profile, sort_keys=True))
        tags = [InputTag("mlflow.data.context", intent.context), InputTag("marin.digest", intent.digest),
                InputTag("marin.artifact", intent.artifact)]
        with identity.derived(identity.mlflow_id("data", intent.run, intent.name, intent.digest), 0):
            self._tracking.log_inputs(intent.run, datasets=[DatasetInput(dataset, tags)])

    def _model_made(self, intent: ModelMade) -> None:
        model = f"m-{intent.model}"
        tags = [LoggedModelTag(key, value) for key, value in intent.tags.items()]
        with identity.derived(intent.model, intent.time):
            self._once(lambda: self._tracking.create_logged_model(self._experiment(intent.experiment), intent.name, intent.run,
                                                                  tags, [], intent.kind))
            self._tracking.finalize_logged_model(model, LoggedModelStatus.READY)
        outputs = self._tracking.get_run(intent.run).outputs
        if model not in {output.model_id for output in (outputs.model_outputs if outputs else [])}:
            with identity.derived(identity.mlflow_id("output", intent.model), intent.time):
                self._tracking.log_outputs(intent.run, [LoggedModelOutput(model_id=model, step=intent.step)])

    def _version_of(self, name: str, model: str) -> str | None:
        found = self._registry.search_model_versions(f"name='{name}' and tag.`marin.mlflow.model`='m-{model}'", max_results=1)
        return str(found[0].version) if found else None

    def _model_registered(self, intent: ModelRegistered) -> None:
        with identity.derived(intent.model, intent.time):
            self._once(lambda: self._registry.create_registered_model(
                intent.name, description="Models exported by runs. The alias `verified` points at the last model whose run was "
                                         "re-executed and gave the same bits."))
            if self._version_of(intent.name, intent.model) is None:
                tags = [ModelVersionTag(key, value) for key, value in intent.tags.items()]
                tags.append(ModelVersionTag("marin.mlflow.model", f"m-{intent.model}"))
                self._registry.create_model_version(intent.name, artifact_uri(intent.artifact), intent.run, tags)

    def _alias_set(self, intent: AliasSet) -> None:
        version = self._version_of(intent.name, intent.model)
        if version is not None:
            self._registry.set_registered_model_alias(intent.name, intent.alias, version)

    def _once(self, create: Callable[[], object]) -> bool:
        """Create; False where an interrupted round had created it."""
        try:
            create()
        except IntegrityError:
            return False
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS" and "UNIQUE constraint failed" not in str(error):
                raise
            return False
        return True


def _check(database: Path) -> None:
    """Raise sqlite's own error for a file that is damaged or is no database: MLflow would retry on it for minutes."""
    if not database.exists():
        return
    with contextlib.closing(sqlite3.connect(f"file:{urllib.parse.quote(str(database))}?mode=rw", uri=True)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _prepare(engine: sqlalchemy.Engine) -> None:
    """MLflow keeps one engine per address and process. Connections to a file that is gone by now are dropped; new ones get
    settings of sqlite itself: readers do not wait for the writer, and nothing waits for the disk."""
    if not sqlalchemy.event.contains(engine, "connect", _settings):
        sqlalchemy.event.listen(engine, "connect", _settings)
    engine.dispose()


def _settings(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")


def _chunks[T](items: Sequence[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


class _explained:
    """Turns what sqlite says of a locked database into one line that says what to do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, OperationalError | MlflowException) and "database is locked" in str(error):
            raise Locked(what="the MLflow projection is held by another process", where=str(self._folder / "mlflow.db"),
                         expected="to write within 20 s", found="database is locked",
                         cure="stop the other marin ui or MLflow, then run: marin sync") from error
