"""MLflow's model registry over the ledger, beside :mod:`marin.plugins.mlflow.stores.tracking`: versions, aliases and prompts are
events.

MLflow finds the class by its entry point ``mlflow.model_registry_store``.
"""

from __future__ import annotations

import uuid
from copy import copy
from typing import Any

from mlflow.entities.model_registry.model_version_stages import (
    DEFAULT_STAGES_FOR_GET_LATEST_VERSIONS,
    STAGE_ARCHIVED,
    get_canonical_stage,
)
from mlflow.exceptions import MlflowException
from mlflow.prompt.registry_utils import has_prompt_tag
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, NOT_IMPLEMENTED, RESOURCE_ALREADY_EXISTS
from mlflow.store.artifact.utils.models import _parse_model_uri
from mlflow.store.model_registry.dbmodels.models import SqlModelVersionTag
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as TrackingStore
from mlflow.utils import validation

from marin.plugins.mlflow.folding import operations
from marin.plugins.mlflow.folding.logged import OF_CONTEXT, is_reserved
from marin.plugins.mlflow.projection.database import ARTIFACT_ROOT, database_uri
from marin.plugins.mlflow.stores.recorder import Recorder, refusing, root_at

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
        validation._validate_model_name(name)
        for tag in tags or []:
            validation._validate_registered_model_tag(tag.key, tag.value)
        if deployment_job_id:
            raise MlflowException(
                "a deployment job of a registered model has no event in Marin's ledger, so it is refused",
                NOT_IMPLEMENTED,
            )
        if (known := self._known(name)) is not None:
            kind = "Prompt" if has_prompt_tag(known._tags) else "Registered Model"
            raise MlflowException(f"{kind} (name={name}) already exists.", RESOURCE_ALREADY_EXISTS)
        named = {tag.key: str(tag.value) for tag in tags or []}
        more = operations.RegisteredChangedValues(name, description, named)
        self._recorder.record(
            "",
            ("registered", operations.RegisteredValues(name, "", "")),
            *([("registered_changed", more)] if more != operations.RegisteredChangedValues(name) else []),
        )
        return self.get_registered_model(name)

    def update_registered_model(self, name: str, description: str | None, deployment_job_id: str | None = None) -> Any:
        self.get_registered_model(name)
        self._change(operations.RegisteredChangedValues(name, description or ""))
        return self.get_registered_model(name)

    def rename_registered_model(self, name: str, new_name: str) -> Any:
        """As MLflow's; the events before say the name that it had."""
        validation._validate_model_renaming(new_name)
        self.get_registered_model(name)
        if new_name != name:
            if self._known(new_name) is not None:
                raise MlflowException(f"Registered Model (name={new_name}) already exists.", RESOURCE_ALREADY_EXISTS)
            self._change(operations.RegisteredChangedValues(name, renamed=new_name))
        return self.get_registered_model(new_name)

    def delete_registered_model(self, name: str) -> None:
        """As MLflow's; its events stay."""
        self.get_registered_model(name)
        self._change(operations.RegisteredChangedValues(name, gone=True))

    def set_registered_model_tag(self, name: str, tag: Any) -> None:
        validation._validate_registered_model_tag(tag.key, tag.value)
        self.get_registered_model(name)
        self._change(operations.RegisteredChangedValues(name, tags={tag.key: str(tag.value)}))

    def delete_registered_model_tag(self, name: str, key: str) -> None:
        """As MLflow's; the event that set it stays."""
        validation._validate_tag_name(key)
        if key in self.get_registered_model(name).tags:
            self._change(operations.RegisteredChangedValues(name, untagged=[key]))

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
        """As MLflow's; where the files of a source ``models:/…`` lie is kept beside it."""
        validation._validate_model_name(name)
        for tag in tags or []:
            validation._validate_model_version_tag(tag.key, tag.value)
        self.get_registered_model(name)
        location = source
        if source.startswith("models:/"):
            parsed = _parse_model_uri(source)
            if parsed.model_id is not None:
                model = self._logged_model(parsed.model_id)
                location, run_id = model.artifact_location, run_id or model.source_run_id
            else:
                location = self.get_model_version_download_uri(parsed.name, parsed.version)
        if not run_id and model_id:
            run_id = self._logged_model(model_id).source_run_id
        token = uuid.uuid4().hex
        # A client that copies a version over HTTP brings what was added to the tags of the first.
        named = {tag.key: str(tag.value) for tag in tags or [] if tag.key not in (MODEL_TAG, "marin.event")}
        values = operations.RegisteredValues(
            name, token, source, named, "" if location == source else location, run_link, description
        )
        self._recorder.record(run_id or "", ("registered", values))
        return self.get_model_version(name, self._version_of(token))

    def copy_model_version(self, src_mv: Any, dst_name: str) -> Any:
        """As MLflow's, without what the ledger says of the version that is copied."""
        plain = copy(src_mv)
        plain._tags = {
            key: value for key, value in src_mv.tags.items() if not is_reserved(key) and key not in OF_CONTEXT
        }
        return super().copy_model_version(plain, dst_name)

    def update_model_version(self, name: str, version: Any, description: str | None = None) -> Any:
        self._change_version(name, version, description=description or "")
        return self.get_model_version(name, version)

    def transition_model_version_stage(
        self, name: str, version: Any, stage: str, archive_existing_versions: bool
    ) -> Any:
        new: Any = get_canonical_stage(stage)
        if archive_existing_versions and new not in DEFAULT_STAGES_FOR_GET_LATEST_VERSIONS:
            raise MlflowException(
                "Model version transition cannot archive existing model versions because "
                f"'{stage}' is not an Active stage. Valid stages are {DEFAULT_STAGES_FOR_GET_LATEST_VERSIONS}"
            )
        found = self.get_model_version(name, version)
        parts = [("version_changed", operations.VersionChangedValues(name, self._token(found), stage=new))]
        if archive_existing_versions:
            parts += [
                ("version_changed", operations.VersionChangedValues(name, self._token(other), stage=STAGE_ARCHIVED))
                for other in self.get_latest_versions(name, [new])
                if str(other.version) != str(found.version)
            ]
        self._recorder.record("", *parts)
        return self.get_model_version(name, version)

    def delete_model_version(self, name: str, version: Any) -> None:
        """As MLflow's; its events stay, and its number is not given again."""
        self._change_version(name, version, gone=True)

    def set_model_version_tag(self, name: str, version: Any, tag: Any) -> None:
        validation._validate_model_version_tag(tag.key, tag.value)
        found = self.get_model_version(name, version)
        self._recorder.record(
            found.run_id or "",
            (
                "registered",
                operations.RegisteredValues(name, self._token(found), found.source, {tag.key: str(tag.value)}),
            ),
        )

    def delete_model_version_tag(self, name: str, version: Any, key: str) -> None:
        """As MLflow's; the event that set it stays."""
        validation._validate_tag_name(key)
        if key in self.get_model_version(name, version).tags:
            self._change_version(name, version, untagged=[key])

    def set_registered_model_alias(self, name: str, alias: str, version: Any) -> None:
        validation._validate_model_alias_name(alias)
        validation._validate_model_alias_name_reserved(alias)
        found = self.get_model_version(name, version)
        self._recorder.record(found.run_id or "", ("alias", operations.AliasValues(name, alias, self._token(found))))

    def delete_registered_model_alias(self, name: str, alias: str) -> None:
        """As MLflow's; the event that set it stays."""
        validation._validate_model_alias_name(alias)
        if alias in self.get_registered_model(name).aliases:
            self._recorder.record("", ("alias_gone", operations.AliasGoneValues(name, alias)))

    def _change(self, values: operations.RegisteredChangedValues) -> None:
        self._recorder.record("", ("registered_changed", values))

    def _change_version(self, name: str, version: Any, **changed: Any) -> None:
        found = self.get_model_version(name, version)
        self._recorder.record(
            "", ("version_changed", operations.VersionChangedValues(name, self._token(found), **changed))
        )

    def _known(self, name: str) -> Any:
        try:
            return self.get_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _version_of(self, token: str) -> int:
        """The number that a version has that was just registered; a search by its name would not find a prompt."""
        with self.ManagedSessionMaker() as session:
            tags = session.query(SqlModelVersionTag).filter_by(key=MODEL_TAG, value=f"m-{token}")
            return int(tags.one().version)

    def _logged_model(self, model_id: str) -> Any:
        tracking = TrackingStore(database_uri(self._recorder.projection.folder), ARTIFACT_ROOT)
        return tracking.get_logged_model(model_id)

    def _token(self, version: Any) -> str:
        token = version.tags.get(MODEL_TAG)
        if token is None:
            raise MlflowException(
                f"version {version.version} of {version.name} is not the ledger's", INVALID_PARAMETER_VALUE
            )
        return str(token).removeprefix("m-")
