"""MLflow's model registry over the ledger, beside :mod:`marin.tracking.mlflow.stores.tracking`: versions and aliases are events.

MLflow finds the class by its entry point ``mlflow.model_registry_store``.
"""

from __future__ import annotations

import uuid
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, NOT_IMPLEMENTED, RESOURCE_ALREADY_EXISTS
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as TrackingStore
from mlflow.utils.validation import (
    _validate_model_alias_name,
    _validate_model_alias_name_reserved,
    _validate_model_name,
)

from marin.history.projection.logged import AliasValues, RegisteredValues
from marin.tracking.mlflow.projection.database import ARTIFACT_ROOT, database_uri
from marin.tracking.mlflow.stores.recorder import Recorder, refusing, root_at

MODEL_TAG = "marin.mlflow.model"


@refusing
class LedgerRegistryStore(SqlAlchemyStore):  # type: ignore[misc]  # MLflow publishes no types
    """MLflow's port for registered models, whose memory is the ledger of a root."""

    def __init__(self, store_uri: str) -> None:
        self._recorder = Recorder(root_at(store_uri))
        super().__init__(database_uri(self._recorder.projection.folder))

    def create_registered_model(
        self, name: str, tags: Any = None, description: str | None = None, deployment_job_id: str | None = None
    ) -> Any:
        """As MLflow's, of a name alone."""
        _validate_model_name(name)
        _without(description=description, tags=tags, deployment_job_id=deployment_job_id)
        if any(model.name == name for model in self.search_registered_models(f"name='{name}'")):
            raise MlflowException(f"Registered Model (name={name}) already exists.", RESOURCE_ALREADY_EXISTS)
        self._recorder.record("", ("registered", RegisteredValues(name, "", "")))
        return self.get_registered_model(name)

    def create_model_version(
        self,
        name: str,
        source: str,
        run_id: str | None = None,
        tags: Any = None,
        run_link: str | None = None,
        description: str | None = None,
        local_model_path: str | None = None,
        model_id: str | None = None,
    ) -> Any:
        """As MLflow's, without a description; a source that is a LoggedModel is kept as the address of its files."""
        _validate_model_name(name)
        _without(description=description)
        self.get_registered_model(name)
        if source.startswith("models:/"):
            tracking = TrackingStore(database_uri(self._recorder.projection.folder), ARTIFACT_ROOT)
            model = tracking.get_logged_model(source.removeprefix("models:/"))
            source, run_id = model.artifact_location, run_id or model.source_run_id
        token = uuid.uuid4().hex
        named = {tag.key: str(tag.value) for tag in tags or []}
        self._recorder.record(run_id or "", ("registered", RegisteredValues(name, token, source, named)))
        return next(
            version
            for version in self.search_model_versions(f"name='{name}'")
            if version.tags.get(MODEL_TAG) == f"m-{token}"
        )

    def set_model_version_tag(self, name: str, version: str, tag: Any) -> None:
        """As MLflow's."""
        found = self.get_model_version(name, version)
        self._recorder.record(
            found.run_id or "",
            ("registered", RegisteredValues(name, self._token(found), found.source, {tag.key: str(tag.value)})),
        )

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> None:
        """As MLflow's."""
        _validate_model_alias_name(alias)
        _validate_model_alias_name_reserved(alias)
        found = self.get_model_version(name, version)
        self._recorder.record(found.run_id or "", ("alias", AliasValues(name, alias, self._token(found))))

    def _token(self, version: Any) -> str:
        token = version.tags.get(MODEL_TAG)
        if token is None:
            raise MlflowException(
                f"version {version.version} of {version.name} is not the ledger's", INVALID_PARAMETER_VALUE
            )
        return str(token).removeprefix("m-")


def _without(**given: Any) -> None:
    """What is given here would be forgotten, so it is refused."""
    for what, value in given.items():
        if value:
            raise MlflowException(
                f"{what} of a registered model or its versions has no event in Marin's ledger, so it is refused",
                NOT_IMPLEMENTED,
            )
