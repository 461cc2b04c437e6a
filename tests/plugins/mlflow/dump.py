"""Everything that MLflow answers about a projection, as plain values: two projections are equal when their dumps
are."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import ViewType

from marin.plugins.mlflow.projection.database import database_uri


def client(folder: Path) -> MlflowClient:
    uri = database_uri(folder)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def dump(folder: Path) -> dict[str, Any]:
    mlflow = client(folder)
    experiments = {item.experiment_id: dict(item) for item in mlflow.search_experiments(view_type=ViewType.ALL)}
    runs = {run.info.run_id: _run(mlflow, run) for run in mlflow.search_runs(list(experiments), max_results=50000)}
    models = {model.model_id: model.to_dictionary() for model in mlflow.search_logged_models(list(experiments))}
    registered = {item.name: _registered(mlflow, item) for item in mlflow.search_registered_models()}
    return {
        "experiments": experiments,
        "runs": runs,
        "models": models,
        "registered": registered,
        "tables": tables(folder),
    }


def _run(mlflow: MlflowClient, run: Any) -> dict[str, Any]:
    history = {
        key: [dict(point) for point in mlflow.get_metric_history(run.info.run_id, key)] for key in run.data.metrics
    }
    inputs = [item.to_dictionary() for item in run.inputs.dataset_inputs]
    outputs = [item.to_dictionary() for item in run.outputs.model_outputs] if run.outputs else []
    return {
        "info": dict(run.info),
        "params": run.data.params,
        "tags": run.data.tags,
        "history": history,
        "inputs": inputs,
        "outputs": outputs,
    }


def _registered(mlflow: MlflowClient, item: Any) -> dict[str, Any]:
    versions = mlflow.search_model_versions(f"name='{item.name}'")
    return {
        "created": item.creation_timestamp,
        "updated": item.last_updated_timestamp,
        "description": item.description,
        "aliases": item.aliases,
        "versions": {version.version: dict(version) for version in versions},
    }


def tables(folder: Path) -> dict[str, list[Any]]:
    """Every row of every table that MLflow's database has, without the file's own order."""
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
