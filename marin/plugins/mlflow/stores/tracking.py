"""MLflow's tracking store over the ledger: ``mlflow.set_tracking_uri("marin://")``, and what `marin ui` serves.

Reading is MLflow's own store on the projection's database. Writing makes events (see
:mod:`marin.plugins.mlflow.folding.operations`). MLflow finds the class by its entry point ``mlflow.tracking_store``.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import batched
from typing import Any

from mlflow.entities import Experiment, LifecycleStage, RunStatus, ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils import validation
from mlflow.utils.async_logging.async_logging_queue import (
    ASYNC_LOGGING_STATUS_CHECK_THREAD_PREFIX,
    ASYNC_LOGGING_WORKER_THREAD_PREFIX,
    AsyncLoggingQueue,
)
from mlflow.utils.name_utils import _generate_random_name

from marin.history.projection.text import LOSS
from marin.plugins.mlflow.folding import operations
from marin.plugins.mlflow.projection.database import ARTIFACT_ROOT, database_uri
from marin.plugins.mlflow.stores.recorder import Recorder, refusing, root_at, user_of

METRICS_PER_EVENT = 300
LETTERS_PER_EVENT = 30_000
UNNAMED = "0"
"""The experiment that MLflow makes in every database, which the cursor of the projection stands on."""
LOOKED_FOR = ("evaluate.loss", "evaluate.perplexity", "evaluate.bits_per_byte", LOSS)
OF_THE_MODEL = ("evaluate.", "evaluation/", "train/", "train.")
"""Beginnings of the names of metrics that say something of the model, which follow those that are looked for first."""
HISTORY_TAG = "mlflow.log-model.history"


@refusing
class LedgerTrackingStore(SqlAlchemyStore):  # type: ignore[misc]  # MLflow publishes no types
    """MLflow's port for tracking, whose memory is the ledger of a root."""

    def __init__(self, store_uri: str, artifact_uri: str | None = None) -> None:
        root = root_at(store_uri)
        self._recorder = Recorder(root)
        super().__init__(database_uri(self._recorder.projection.folder), ARTIFACT_ROOT)
        self._async_logging_queue = _InOrder(logging_func=self.log_batch)

    def get_run(self, run_id: str) -> Any:
        """As MLflow's, with what the model is worth before what else was measured: pages show metrics in the order given."""
        found = super().get_run(run_id)
        found.data._metric_objs.sort(key=_place)
        return found

    def search_experiments(self, view_type: int = ViewType.ACTIVE_ONLY, *others: Any, **named: Any) -> Any:
        """As MLflow's, without its "Default" while no run stands in it: every experiment here has a name of its own."""
        asked = dict(zip(("max_results", "filter_string", "order_by", "page_token"), others, strict=False)) | named
        if not self.search_runs([UNNAMED], None, ViewType.ALL, max_results=1):
            own = f"name != '{Experiment.DEFAULT_EXPERIMENT_NAME}'"
            asked["filter_string"] = " AND ".join(filter(None, (asked.get("filter_string"), own)))
        return super().search_experiments(view_type, **asked)

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
        """As MLflow's; artifacts always go to the store."""
        validation._validate_experiment_name(name)
        for tag in tags or []:
            validation._validate_experiment_tag(tag.key, tag.value)
        self._check_is_new(name)
        if artifact_location and not artifact_location.startswith("marin:"):
            raise MlflowException(
                f"artifacts of the ledger lie in its store, not in {artifact_location}",
                databricks_pb2.INVALID_PARAMETER_VALUE,
            )
        self._recorder.record("", ("experiment", operations.ExperimentValues(name, _by_name(tags))))
        return str(self.get_experiment_by_name(name).experiment_id)

    def rename_experiment(self, experiment_id: str, new_name: str) -> None:
        """As MLflow's; the events before say the name that it had."""
        validation._validate_experiment_name(new_name)
        experiment = self.get_experiment(experiment_id)
        if experiment.lifecycle_stage != LifecycleStage.ACTIVE:
            raise MlflowException("Cannot rename a non-active experiment.", databricks_pb2.INVALID_STATE)
        if new_name != experiment.name:
            self._check_is_new(new_name, databricks_pb2.BAD_REQUEST)
            self._change_experiment(operations.ExperimentChangedValues(experiment.name, renamed=new_name))

    def delete_experiment(self, experiment_id: str) -> None:
        """Put an experiment away with its runs; nothing of them goes."""
        self._keep_experiment(experiment_id, LifecycleStage.ACTIVE, LifecycleStage.DELETED)

    def restore_experiment(self, experiment_id: str) -> None:
        """Bring an experiment back with its runs."""
        self._keep_experiment(experiment_id, LifecycleStage.DELETED, LifecycleStage.ACTIVE)

    def set_experiment_tag(self, experiment_id: str, tag: Any) -> None:
        validation._validate_experiment_tag(tag.key, tag.value)
        experiment = self.get_experiment(experiment_id)
        self._check_experiment_is_active(experiment)
        self._recorder.record(
            "", ("experiment", operations.ExperimentValues(experiment.name, {tag.key: str(tag.value)}))
        )

    def delete_experiment_tag(self, experiment_id: str, key: str) -> None:
        """As MLflow's; the event that set it stays."""
        experiment = self.get_experiment(experiment_id)
        self._check_experiment_is_active(experiment)
        if key not in experiment.tags:
            raise MlflowException(
                f"No tag with name: {key} in experiment with id {experiment_id}", databricks_pb2.RESOURCE_DOES_NOT_EXIST
            )
        self._change_experiment(operations.ExperimentChangedValues(experiment.name, untagged=[key]))

    def create_run(self, experiment_id: str, user_id: str, start_time: int, tags: Any, run_name: str) -> Any:
        """As MLflow's; its id is drawn here and kept in the event."""
        experiment = self.get_experiment(experiment_id)
        self._check_experiment_is_active(experiment)
        named = _by_name(tags)
        tagged = named.get("mlflow.runName")
        if run_name and tagged and run_name != tagged:
            raise MlflowException(
                "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values "
                f"(run_name='{run_name}', mlflow.runName='{tagged}').",
                databricks_pb2.INVALID_PARAMETER_VALUE,
            )
        name = run_name or tagged or _generate_random_name()
        run, user = uuid.uuid4().hex, user_of(user_id or named.get("mlflow.user"))
        begun = operations.RunValues(experiment.name, name, user, int(start_time or 0), named)
        self._recorder.record(run, ("run", begun), user=user)
        return self.get_run(run)

    def update_run_info(self, run_id: str, run_status: int | None, end_time: int | None, run_name: str | None) -> Any:
        self._active(run_id)
        status: Any = None if run_status is None else RunStatus.to_string(run_status)
        values = operations.StateValues(status, end_time, run_name or None)
        if values != operations.StateValues():
            self._recorder.record(run_id, ("state", values))
        return self.get_run(run_id).info

    def log_metric(self, run_id: str, metric: Any) -> None:
        validation._validate_metric(metric.key, metric.value, metric.timestamp, metric.step)
        self.log_batch(run_id, [metric], [], [])

    def log_param(self, run_id: str, param: Any) -> None:
        """As MLflow's: a value that stands is not overwritten."""
        self.log_batch(run_id, [], [validation._validate_param(param.key, param.value)], [])

    def set_tag(self, run_id: str, tag: Any) -> None:
        self.log_batch(run_id, [], [], [validation._validate_tag(tag.key, tag.value)])

    def delete_tag(self, run_id: str, key: str) -> None:
        """As MLflow's; the event that set it stays."""
        if key not in self._active(run_id).data.tags:
            raise MlflowException(
                f"No tag with name: {key} in run with id {run_id}", databricks_pb2.RESOURCE_DOES_NOT_EXIST
            )
        self._recorder.record(run_id, ("log", operations.LogValues(untagged=[key])))

    def log_batch(self, run_id: str, metrics: Any, params: Any, tags: Any) -> None:
        """As MLflow's: one durable batch."""
        validation._validate_run_id(run_id)
        metrics, params, tags = validation._validate_batch_log_data(metrics, params, tags)
        validation._validate_batch_log_limits(metrics, params, tags)
        validation._validate_param_keys_unique(params)
        run = self._active(run_id)
        known = run.data.params
        for param in params:
            if known.get(param.key, str(param.value)) != str(param.value):
                raise MlflowException(
                    f"Changing param values is not allowed. Param with key='{param.key}' was already logged "
                    f"with value='{known[param.key]}' for run ID='{run_id}'.",
                    databricks_pb2.INVALID_PARAMETER_VALUE,
                )
        points = [
            (metric.key, float(metric.value).hex(), int(metric.timestamp), int(metric.step or 0)) for metric in metrics
        ]
        new = {key: value for key, value in _by_name(params).items() if key not in known}
        parts: list[tuple[str, Any]] = [
            ("log", operations.LogValues(metrics=list(some))) for some in batched(points, METRICS_PER_EVENT)
        ]
        parts += [("log", operations.LogValues(params=some)) for some in _split(new)]
        parts += [("log", operations.LogValues(tags=some)) for some in _split(_by_name(tags))]
        of_models = [
            (metric.model_id, *point, metric.dataset_name, metric.dataset_digest)
            for metric, point in zip(metrics, points, strict=True)
            if metric.model_id
        ]
        if of_models:
            experiment = self.get_experiment(run.info.experiment_id).name
            parts += [
                ("model_metrics", operations.ModelMetricsValues(experiment, list(some)))
                for some in batched(of_models, METRICS_PER_EVENT)
            ]
        if parts:
            self._recorder.record(run_id, *parts)

    def log_inputs(self, run_id: str, datasets: Any = None, models: Any = None) -> None:
        validation._validate_run_id(run_id)
        if datasets is not None:
            if not isinstance(datasets, list):
                raise TypeError(f"Argument 'datasets' should be a list, got '{type(datasets)}'")
            validation._validate_dataset_inputs(datasets)
        run = self._active(run_id)
        experiment = self.get_experiment(run.info.experiment_id).name
        first = {(some.dataset.name, some.dataset.digest): some for some in reversed(datasets or [])}
        for known in run.inputs.dataset_inputs:
            first.pop((known.dataset.name, known.dataset.digest), None)
        described = []
        for some in reversed(first.values()):
            data, tags = some.dataset, _by_name(some.tags)
            context = tags.pop("mlflow.data.context", "")
            described.append(
                operations.DatasetValues(
                    data.name,
                    data.digest,
                    data.source_type,
                    data.source,
                    context,
                    data.schema or "",
                    data.profile or "",
                    tags,
                )
            )
        parts: list[tuple[str, Any]] = [("data", operations.DataValues(experiment, [one])) for one in described]
        if models:
            parts.append(("models", operations.ModelsValues(experiment, read=[model.model_id for model in models])))
        if parts:
            self._recorder.record(run_id, *parts)

    def log_outputs(self, run_id: str, models: Any) -> None:
        run = self._active(run_id)
        experiment = self.get_experiment(run.info.experiment_id).name
        made = [(model.model_id, int(model.step)) for model in models]
        if made:
            self._recorder.record(run_id, ("models", operations.ModelsValues(experiment, made=made)))

    def delete_run(self, run_id: str) -> None:
        """Put a run away; nothing of it goes."""
        self._lifecycle(run_id, LifecycleStage.DELETED)

    def restore_run(self, run_id: str) -> None:
        """Bring a run back."""
        self._lifecycle(run_id, LifecycleStage.ACTIVE)

    def record_logged_model(self, run_id: str, mlflow_model: Any) -> None:
        """As MLflow's: the history of models in a tag."""
        history = json.loads(self._active(run_id).data.tags.get(HISTORY_TAG, "[]"))
        history.append(mlflow_model.get_tags_dict())
        tag = validation._validate_tag(HISTORY_TAG, json.dumps(history))
        self._recorder.record(run_id, ("log", operations.LogValues(tags={tag.key: tag.value})))

    def create_logged_model(
        self,
        experiment_id: str,
        name: str | None = None,
        source_run_id: str | None = None,
        tags: Any = None,
        params: Any = None,
        model_type: str | None = None,
    ) -> Any:
        """As MLflow's; its id is drawn here and kept in the event."""
        validation._validate_logged_model_name(name)
        experiment = self.get_experiment(experiment_id)
        self._check_experiment_is_active(experiment)
        model = uuid.uuid4().hex
        values = operations.ModelValues(
            model,
            experiment.name,
            name or _generate_random_name(),
            model_type or "",
            0,
            _by_name(tags),
            _by_name(params),
            "PENDING",
        )
        self._recorder.record(source_run_id or "", ("model", values))
        return self.get_logged_model(f"m-{model}")

    def finalize_logged_model(self, model_id: str, status: Any) -> Any:
        self._change_model(model_id, status=status.name)
        return self.get_logged_model(model_id, allow_deleted=True)

    def delete_logged_model(self, model_id: str) -> None:
        """Put a model away; nothing of it goes."""
        self._change_model(model_id, stage=LifecycleStage.DELETED)

    def set_logged_model_tags(self, model_id: str, tags: Any) -> None:
        self._describe(model_id, tags=_by_name(tags))

    def delete_logged_model_tag(self, model_id: str, key: str) -> None:
        """As MLflow's; the event that set it stays."""
        if key not in self.get_logged_model(model_id, allow_deleted=True).tags:
            raise MlflowException(
                f"No tag with key {key!r} found for model with ID {model_id!r}.", databricks_pb2.RESOURCE_DOES_NOT_EXIST
            )
        self._change_model(model_id, untagged=[key])

    def log_logged_model_params(self, model_id: str, params: Any) -> None:
        """As MLflow's: a value that stands is not overwritten."""
        known = self.get_logged_model(model_id, allow_deleted=True).params
        named = _by_name(params)
        if twice := sorted(set(named) & set(known)):
            raise MlflowException(
                f"Changing param values is not allowed. Params {', '.join(twice)} of {model_id} were logged already.",
                databricks_pb2.INVALID_PARAMETER_VALUE,
            )
        self._describe(model_id, params=named)

    def _change_model(self, model_id: str, **changed: Any) -> None:
        model = self.get_logged_model(model_id, allow_deleted=True)
        values = operations.ModelChangedValues(model_id.removeprefix("m-"), **changed)
        self._recorder.record(model.source_run_id or "", ("model_changed", values))

    def _describe(
        self, model_id: str, *, tags: dict[str, str] | None = None, params: dict[str, str] | None = None
    ) -> None:
        model = self.get_logged_model(model_id, allow_deleted=True)
        experiment = self.get_experiment(model.experiment_id).name
        status: Any = str(model.status)
        values = operations.ModelValues(
            model_id.removeprefix("m-"),
            experiment,
            model.name,
            model.model_type or "",
            0,
            tags or {},
            params or {},
            status,
        )
        self._recorder.record(model.source_run_id or "", ("model", values))

    def _check_is_new(self, name: str, code: int = databricks_pb2.RESOURCE_ALREADY_EXISTS) -> None:
        if self.get_experiment_by_name(name) is not None:
            raise MlflowException(f"Experiment(name={name}) already exists.", code)

    def _change_experiment(self, values: operations.ExperimentChangedValues) -> None:
        self._recorder.record("", ("experiment_changed", values))

    def _keep_experiment(self, experiment_id: str, before: str, after: Any) -> None:
        experiment = self.get_experiment(experiment_id)
        if experiment.lifecycle_stage != before:
            raise MlflowException(
                f"No Experiment with id={experiment_id} exists", databricks_pb2.RESOURCE_DOES_NOT_EXIST
            )
        self._change_experiment(operations.ExperimentChangedValues(experiment.name, stage=after))

    def _active(self, run_id: str) -> Any:
        run = self.get_run(run_id)
        if run.info.lifecycle_stage != LifecycleStage.ACTIVE:
            raise MlflowException(
                f"The run {run_id} must be in the 'active' state. Current state is {run.info.lifecycle_stage}.",
                databricks_pb2.INVALID_PARAMETER_VALUE,
            )
        return run

    def _lifecycle(self, run_id: str, stage: Any) -> None:
        if self.get_run(run_id).info.lifecycle_stage != stage:
            self._recorder.record(run_id, ("lifecycle", operations.LifecycleValues(stage)))


class _InOrder(AsyncLoggingQueue):  # type: ignore[misc]  # MLflow publishes no types
    """MLflow's queue of what is logged while the program goes on, with one worker instead of ten: the log has an order."""

    def _set_up_logging_thread(self) -> None:
        """As MLflow's. The worker is there before the thread that hands work to it: one that took its place later would
        leave the first work to those that nobody waits for."""
        with self._lock:
            self._batch_logging_thread = threading.Thread(
                target=self._logging_loop, name="MLflowAsyncLoggingLoop", daemon=True
            )
            self._batch_logging_worker_threadpool = ThreadPoolExecutor(1, ASYNC_LOGGING_WORKER_THREAD_PREFIX)
            self._batch_status_check_threadpool = ThreadPoolExecutor(10, ASYNC_LOGGING_STATUS_CHECK_THREAD_PREFIX)
            self._batch_logging_thread.start()


def _place(metric: Any) -> tuple[int, str]:
    """Where a metric stands among those of its run."""
    if metric.key in LOOKED_FOR:
        return LOOKED_FOR.index(metric.key), ""
    machine, model = metric.key.startswith("system/"), metric.key.startswith(OF_THE_MODEL)
    return len(LOOKED_FOR) + (2 if machine else 0 if model else 1), metric.key


def _by_name(items: Any) -> dict[str, str]:
    """MLflow's tags or parameters by name."""
    return {item.key: str(item.value) for item in items or []}


def _split(named: dict[str, str]) -> Iterator[dict[str, str]]:
    """In parts that fit into one event."""
    part: dict[str, str] = {}
    letters = 0
    for key, value in named.items():
        size = len(key.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace")) + 8
        if part and letters + size > LETTERS_PER_EVENT:
            yield part
            part, letters = {}, 0
        part[key] = value
        letters += size
    if part:
        yield part
