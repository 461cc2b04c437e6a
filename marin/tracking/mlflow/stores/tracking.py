"""MLflow's tracking store over the ledger: ``mlflow.set_tracking_uri("marin://")``, and what `marin ui` serves.

Reading is MLflow's own store on the projection's database. Writing makes events (see
:mod:`marin.history.projection.logged`). MLflow finds the class by its entry point ``mlflow.tracking_store``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from itertools import batched
from typing import Any

from mlflow.entities import LifecycleStage, RunStatus, ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    INVALID_PARAMETER_VALUE,
    INVALID_STATE,
    RESOURCE_ALREADY_EXISTS,
    RESOURCE_DOES_NOT_EXIST,
)
from mlflow.store.entities.paged_list import PagedList
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.name_utils import _generate_random_name
from mlflow.utils.validation import (
    _validate_batch_log_data,
    _validate_batch_log_limits,
    _validate_experiment_name,
    _validate_logged_model_name,
    _validate_param_keys_unique,
    _validate_run_id,
)

from marin.history.projection.logged import (
    DatasetValues,
    DataValues,
    ExperimentValues,
    LifecycleValues,
    LogValues,
    ModelValues,
    RunValues,
    StateValues,
)
from marin.history.projection.text import LOSS
from marin.tracking.mlflow.projection.database import ARTIFACT_ROOT, database_uri
from marin.tracking.mlflow.stores.recorder import Recorder, refusing, root_at, user_of

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

    def get_run(self, run_id: str) -> Any:
        """As MLflow's, with what the model is worth before what else was measured: pages show metrics in the order given."""
        found = super().get_run(run_id)
        found.data._metric_objs.sort(key=_place)
        return found

    def search_experiments(self, *args: Any, **kwargs: Any) -> Any:
        """As MLflow's, without its "Default" while no run stands in it: every experiment here has a name of its own."""
        found = super().search_experiments(*args, **kwargs)
        shown = [one for one in found if str(one.experiment_id) != UNNAMED or self._has_runs(UNNAMED)]
        return PagedList(shown, found.token)

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
        """As MLflow's; artifacts always go to the store."""
        _validate_experiment_name(name)
        if self.get_experiment_by_name(name) is not None:
            raise MlflowException(f"Experiment(name={name}) already exists.", RESOURCE_ALREADY_EXISTS)
        if artifact_location and not artifact_location.startswith("marin:"):
            raise MlflowException(
                f"artifacts of the ledger lie in its store, not in {artifact_location}", INVALID_PARAMETER_VALUE
            )
        self._recorder.record("", ("experiment", ExperimentValues(name, _by_name(tags))))
        return str(self.get_experiment_by_name(name).experiment_id)

    def set_experiment_tag(self, experiment_id: str, tag: Any) -> None:
        """As MLflow's."""
        name = self.get_experiment(experiment_id).name
        self._recorder.record("", ("experiment", ExperimentValues(name, {tag.key: str(tag.value)})))

    def create_run(self, experiment_id: str, user_id: str, start_time: int, tags: Any, run_name: str) -> Any:
        """As MLflow's; its id is drawn here and kept in the event."""
        experiment = self.get_experiment(experiment_id)
        self._check_experiment_is_active(experiment)
        named = _by_name(tags)
        name = run_name or named.get("mlflow.runName") or _generate_random_name()
        run, user = uuid.uuid4().hex, user_of(user_id or named.get("mlflow.user"))
        self._recorder.record(run, ("run", RunValues(experiment.name, name, user, int(start_time), named)), user=user)
        return self.get_run(run)

    def update_run_info(self, run_id: str, run_status: int | None, end_time: int | None, run_name: str | None) -> Any:
        """As MLflow's."""
        self._active(run_id)
        status = None if run_status is None else RunStatus.to_string(run_status)
        self._recorder.record(run_id, ("state", StateValues(status, end_time, run_name or None)))
        return self.get_run(run_id).info

    def log_metric(self, run_id: str, metric: Any) -> None:
        """As MLflow's."""
        self.log_batch(run_id, [metric], [], [])

    def log_param(self, run_id: str, param: Any) -> None:
        """As MLflow's: a value that stands is not overwritten."""
        self.log_batch(run_id, [], [param], [])

    def set_tag(self, run_id: str, tag: Any) -> None:
        """As MLflow's."""
        self.log_batch(run_id, [], [], [tag])

    def delete_tag(self, run_id: str, key: str) -> None:
        """As MLflow's; the event that set it stays."""
        if key not in self._active(run_id).data.tags:
            raise MlflowException(f"No tag with name: {key} in run with id {run_id}", RESOURCE_DOES_NOT_EXIST)
        self._recorder.record(run_id, ("log", LogValues(untagged=[key])))

    def log_batch(self, run_id: str, metrics: Any, params: Any, tags: Any) -> None:
        """As MLflow's: one durable batch."""
        _validate_run_id(run_id)
        metrics, params, tags = _validate_batch_log_data(metrics, params, tags)
        _validate_batch_log_limits(metrics, params, tags)
        _validate_param_keys_unique(params)
        known = self._active(run_id).data.params
        for param in params:
            if known.get(param.key, str(param.value)) != str(param.value):
                raise MlflowException(
                    f"Changing param values is not allowed. Param with key='{param.key}' was already logged "
                    f"with value='{known[param.key]}' for run ID='{run_id}'.",
                    INVALID_PARAMETER_VALUE,
                )
        points = [
            (metric.key, float(metric.value).hex(), int(metric.timestamp), int(metric.step or 0)) for metric in metrics
        ]
        parts = [LogValues(metrics=list(some)) for some in batched(points, METRICS_PER_EVENT)]
        parts += [LogValues(params=some) for some in _split(_by_name(params))]
        parts += [LogValues(tags=some) for some in _split(_by_name(tags))]
        if parts:
            self._recorder.record(run_id, *(("log", part) for part in parts))

    def log_inputs(self, run_id: str, datasets: Any = None, models: Any = None) -> None:
        """As MLflow's, for data sets."""
        run = self._active(run_id)
        if models:
            raise MlflowException("models as inputs of a run have no event in Marin's ledger", INVALID_PARAMETER_VALUE)
        experiment = self.get_experiment(run.info.experiment_id).name
        for some in datasets or []:
            data, context = some.dataset, {tag.key: tag.value for tag in some.tags}.get("mlflow.data.context", "")
            described = DatasetValues(
                data.name,
                data.digest,
                data.source_type,
                data.source,
                context,
                (data.schema or "")[:LETTERS_PER_EVENT],
                (data.profile or "")[: LETTERS_PER_EVENT // 2],
            )
            self._recorder.record(run_id, ("data", DataValues(experiment, [described])))

    def log_outputs(self, run_id: str, models: Any) -> None:
        """As MLflow's: a model is recorded as an output of the run that it was made in."""
        for model in models:
            if self.get_logged_model(model.model_id).source_run_id != run_id:
                raise MlflowException(f"{model.model_id} was made by another run", INVALID_PARAMETER_VALUE)

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
        self._recorder.record(run_id, ("log", LogValues(tags={HISTORY_TAG: json.dumps(history)})))

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
        _validate_logged_model_name(name)
        experiment = self.get_experiment(experiment_id)
        self._check_experiment_is_active(experiment)
        model = uuid.uuid4().hex
        values = ModelValues(
            model,
            experiment.name,
            name or _generate_random_name(),
            model_type or "",
            0,
            _by_name(tags),
            _by_name(params),
        )
        self._recorder.record(source_run_id or "", ("model", values))
        return self.get_logged_model(f"m-{model}")

    def finalize_logged_model(self, model_id: str, status: Any) -> Any:
        """A model is ready when it is recorded; another end of it is kept as a tag."""
        if status.name != "READY":
            self._describe(model_id, tags={"marin.status": status.name})
        return self.get_logged_model(model_id)

    def set_logged_model_tags(self, model_id: str, tags: Any) -> None:
        """As MLflow's."""
        self._describe(model_id, tags=_by_name(tags))

    def log_logged_model_params(self, model_id: str, params: Any) -> None:
        """As MLflow's."""
        self._describe(model_id, params=_by_name(params))

    def _describe(
        self, model_id: str, *, tags: dict[str, str] | None = None, params: dict[str, str] | None = None
    ) -> None:
        model = self.get_logged_model(model_id)
        experiment = self.get_experiment(model.experiment_id).name
        self._recorder.record(
            model.source_run_id or "",
            (
                "model",
                ModelValues(
                    model_id.removeprefix("m-"),
                    experiment,
                    model.name,
                    model.model_type or "",
                    0,
                    tags or {},
                    params or {},
                ),
            ),
        )

    def _has_runs(self, experiment: str) -> bool:
        return bool(self.search_runs([experiment], None, ViewType.ALL, max_results=1))

    def _active(self, run_id: str) -> Any:
        run = self.get_run(run_id)
        if run.info.lifecycle_stage != LifecycleStage.ACTIVE:
            raise MlflowException(f"The run {run_id} must be in the 'active' state.", INVALID_PARAMETER_VALUE)
        return run

    def _lifecycle(self, run_id: str, stage: str) -> None:
        if self.get_run(run_id).info.lifecycle_stage == stage:
            raise MlflowException(f"The run {run_id} is {stage} already.", INVALID_STATE)
        self._recorder.record(run_id, ("lifecycle", LifecycleValues(stage)))


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
        size = len(key.encode()) + len(value.encode()) + 8
        if part and letters + size > LETTERS_PER_EVENT:
            yield part
            part, letters = {}, 0
        part[key] = value
        letters += size
    if part:
        yield part
