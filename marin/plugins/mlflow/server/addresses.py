"""Where artifacts are, as the server says it: a client over HTTP has no ledger, so it brings and fetches files through the
server, as through MLflow's own.

    in the ledger     marin://mlflow/<experiment>/<run>/artifacts
    over HTTP         mlflow-artifacts:/<experiment>/<run>/artifacts, which MLflow's client asks the server for

The source of a version that a client registers comes back in the second form and is recorded in the first.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from mlflow.entities import Experiment, LoggedModel, Run, RunInfo
from mlflow.entities.model_registry import ModelVersion, RegisteredModel

from marin.plugins.mlflow.projection.database import ARTIFACT_ROOT
from marin.plugins.mlflow.stores.registry import LedgerRegistryStore
from marin.plugins.mlflow.stores.tracking import LedgerTrackingStore

SERVED = "mlflow-artifacts:"
_TRACKING = (
    "_search_runs",
    "create_logged_model",
    "create_run",
    "finalize_logged_model",
    "get_experiment",
    "get_experiment_by_name",
    "get_logged_model",
    "get_run",
    "search_experiments",
    "search_logged_models",
    "search_runs",
    "update_run_info",
)
_REGISTRY = (
    "create_model_version",
    "get_latest_versions",
    "get_model_version",
    "get_model_version_by_alias",
    "get_model_version_download_uri",
    "get_registered_model",
    "search_model_versions",
    "search_registered_models",
    "transition_model_version_stage",
    "update_model_version",
    "update_registered_model",
)


_request = threading.local()


def served(address: str) -> str:
    """An address of the ledger as a client over HTTP is told it; any other address as it is."""
    below = f"{ARTIFACT_ROOT}/"
    return f"{SERVED}/{address.removeprefix(below)}" if address.startswith(below) else address


def recorded(address: str) -> str:
    """The same the other way round."""
    below = f"{SERVED}/"
    names_host = address.startswith(f"{SERVED}//")
    return f"{ARTIFACT_ROOT}/{address.removeprefix(below)}" if address.startswith(below) and not names_host else address


class ServedTrackingStore(LedgerTrackingStore):
    """Runs, experiments and models with the addresses that the server is asked by."""

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> Any:
        """As the ledger's."""
        return super().create_experiment(name, artifact_location and recorded(artifact_location), tags)


class ServedRegistryStore(LedgerRegistryStore):
    """Versions with the addresses that the server is asked by."""


def _served(found: Any) -> Any:
    """What a store found, with other addresses: its entities are made for each question."""
    match found:
        case str():
            return served(found)
        case Run():
            _served(found.info)
        case RunInfo() if found.artifact_uri:
            found._artifact_uri = served(found.artifact_uri)
        case Experiment() | LoggedModel() if found.artifact_location:
            found._artifact_location = served(found.artifact_location)
        case ModelVersion() if found.source:
            found._source = served(found.source)
        case RegisteredModel():
            _served(found.latest_versions)
        case list() | tuple():
            for one in found:
                _served(one)
    return found


def _saying(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method``, whose answer goes out over HTTP; what the stores ask of themselves meanwhile stays the ledger's."""

    @functools.wraps(method)
    def say(self: object, *args: Any, **kwargs: Any) -> Any:
        if getattr(_request, "already", False):
            return method(self, *args, **kwargs)
        _request.already = True
        try:
            return _served(method(self, *args, **kwargs))
        finally:
            _request.already = False

    return say


def _recording(method: Callable[..., Any]) -> Callable[..., Any]:
    """``create_model_version``, whose source is an address."""

    @functools.wraps(method)
    def record(self: object, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        return method(self, name, recorded(source), *args, **kwargs)

    return record


for _name in _TRACKING:
    setattr(ServedTrackingStore, _name, _saying(getattr(LedgerTrackingStore, _name)))
for _name in _REGISTRY:
    setattr(ServedRegistryStore, _name, _saying(getattr(LedgerRegistryStore, _name)))
ServedRegistryStore.create_model_version = _recording(ServedRegistryStore.create_model_version)  # type: ignore[method-assign]
