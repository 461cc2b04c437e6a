"""Where MLflow's entry points for stores lead: MLflow loads them while it is itself being imported, so the stores,
which need MLflow whole, are imported when one is asked for."""

from __future__ import annotations

from typing import Any

from marin.provenance.extras import need


def tracking_store(store_uri: str, artifact_uri: str | None = None) -> Any:
    """The tracking store behind ``marin://``; see :mod:`marin.plugins.mlflow.stores.tracking`."""
    need("sqlalchemy")  # mlflow-skinny has none
    from marin.plugins.mlflow.stores.tracking import LedgerTrackingStore

    return LedgerTrackingStore(store_uri, artifact_uri)


def registry_store(store_uri: str) -> Any:
    """The model registry behind ``marin://``; see :mod:`marin.plugins.mlflow.stores.registry`."""
    need("sqlalchemy")
    from marin.plugins.mlflow.stores.registry import LedgerRegistryStore

    return LedgerRegistryStore(store_uri)
