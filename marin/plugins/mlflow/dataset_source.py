"""Stored artifacts as sources of MLflow's data sets: ``mlflow.data.get_source(...)`` and
``from_…(source="marin://…")``.

MLflow finds the class by its entry point ``mlflow.dataset_source``.
"""

from __future__ import annotations

import re
from typing import Any, Self

import mlflow
from mlflow.data.dataset_source import DatasetSource

_ADDRESS = re.compile(r"^(marin://artifact/|sha256:)[0-9a-f]{64}(/.*)?$")


class MarinDatasetSource(DatasetSource):  # type: ignore[misc]  # MLflow publishes no types
    """A stored artifact, or a path in one, by its address."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @staticmethod
    def _get_source_type() -> str:
        return "marin"

    def load(self, dst_path: str | None = None) -> str:
        """Download, every byte verified; returns the local path."""
        return str(mlflow.artifacts.download_artifacts(artifact_uri=self.uri, dst_path=dst_path))

    @staticmethod
    def _can_resolve(raw_source: Any) -> bool:
        return isinstance(raw_source, str) and _ADDRESS.match(raw_source) is not None

    @classmethod
    def _resolve(cls, raw_source: Any) -> Self:
        return cls(str(raw_source).replace("sha256:", "marin://artifact/"))

    def to_dict(self) -> dict[str, Any]:
        """What MLflow keeps of it."""
        return {"uri": self.uri}

    @classmethod
    def from_dict(cls, source_dict: dict[Any, Any]) -> Self:
        """The inverse of :meth:`to_dict`."""
        return cls(str(source_dict["uri"]))
