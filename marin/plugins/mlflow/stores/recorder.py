"""Writes of users to MLflow's interface, as events: appended to the ledger first, shown from it afterwards.

MLflow's own classes answer every question from the projection's database. What would write to it goes through a
:class:`Recorder` instead, which returns when the event is durable and the projection shows it, so that a client reads
what it wrote.
"""

from __future__ import annotations

import os
import threading
import urllib.parse
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE, NOT_IMPLEMENTED, PERMISSION_DENIED

from ledger import Draft, LedgerError
from marin.plugins.mlflow.folding.logged import refusal
from marin.plugins.mlflow.folding.operations import in_events, stream_of
from marin.plugins.mlflow.projection.follow import MlflowProjection
from marin.record.events import TRACKING_LOGGED, TrackingLogged, write
from marin.record.root import Root, open_root

WRITES = (
    "_hard_delete_",
    "add_",
    "archive_",
    "attach_",
    "create_",
    "delete_",
    "deprecated_",
    "detach_",
    "finalize_",
    "get_or_create_",
    "link_",
    "log_",
    "record_",
    "register_",
    "remove_",
    "rename_",
    "restore_",
    "set_",
    "start_",
    "test_",
    "transition_",
    "unlink_",
    "update_",
    "upsert_",
)
"""How methods of MLflow's stores begin that change something."""
COMPOSED = frozenset(
    {
        "create_prompt",
        "create_prompt_version",
        "delete_prompt",
        "delete_prompt_alias",
        "delete_prompt_tag",
        "delete_prompt_version",
        "delete_prompt_version_tag",
        "link_prompt_version_to_model",
        "link_prompt_version_to_run",
        "log_batch_async",
        "log_metric_async",
        "log_param_async",
        "set_model_versions_tags",
        "set_prompt_alias",
        "set_prompt_tag",
        "set_prompt_version_tag",
        "set_tag_async",
    }
)
"""Those of them that only call others of the same stores."""

_projections: dict[Path, MlflowProjection] = {}
_making = threading.Lock()


def root_at(uri: str) -> Root:
    """The root of a tracking URI: ``marin:///absolute/path``, or ``marin://`` for the one that MARIN_ROOT names."""
    path = urllib.parse.unquote(urllib.parse.urlsplit(uri).path)
    try:
        return open_root(path or None)
    except LedgerError as error:
        raise MlflowException(str(error), INTERNAL_ERROR) from error


def projection_of(root: Root) -> MlflowProjection:
    """The projection of a root in this process: one, because server, follower and stores take turns at it."""
    folder = root.views() / "mlflow"
    with _making:
        if folder not in _projections:
            _projections[folder] = MlflowProjection(
                folder, root.reader(), own=root.is_own(), written=lambda: root.history().written
            )
        return _projections[folder]


class Recorder:
    """Appends operations of users to the ledger of a root, and brings its projection up to them."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.projection = projection_of(root)
        self._caught_up(limit=0 if self.projection.followed else None)

    def record(self, run: str, *operations: tuple[str, msgspec.Struct], user: str | None = None) -> None:
        """Append one batch of operations on an MLflow run or model; returns when they are durable and shown.

        Refused where they would change what the ledger's own events say, and where they hold text that is not Unicode.
        """
        drafts = []
        for operation, values in operations:
            if why := self.projection.contradicts(run, values):
                raise MlflowException(refusal(why), PERMISSION_DENIED)
            _check_text(msgspec.to_builtins(values))
            drafts += [
                Draft(
                    TRACKING_LOGGED,
                    stream_of(run),
                    write(TrackingLogged(run=run, operation=part, values=plain)),
                    actor=user or None,
                )
                for part, plain in in_events(operation, values, uuid.uuid4().hex)
            ]
        try:
            self._root.append(drafts)
        except LedgerError as error:
            raise MlflowException(f"not recorded, so not logged: {error}", PERMISSION_DENIED) from error
        self._caught_up()

    def _caught_up(self, *, limit: int | None = None) -> None:
        try:
            self.projection.catch_up(limit=limit)
        except LedgerError as error:
            raise MlflowException(str(error), INTERNAL_ERROR) from error


def refusing[T: type](store: T) -> T:
    """Class decorator: every write of MLflow's store that the class does not define is refused, so that nothing can
    live in the view alone."""
    for name in dir(store.__base__):
        if name.startswith(WRITES) and name not in vars(store) and name not in COMPOSED:
            setattr(store, name, _refusal(name))
    return store


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: object, *args: object, **kwargs: object) -> Any:
        raise MlflowException(
            f"{name} has no event in Marin's ledger, so it is refused: what MLflow shows here is folded from "
            "the ledger and would forget it; use another MLflow server for it",
            NOT_IMPLEMENTED,
        )

    refuse.__name__ = name
    return refuse


def _check_text(value: object) -> None:
    """A lone surrogate is half a character: MLflow's own store fails on it too."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise MlflowException(
                f"not recorded, so not logged: {ascii(value)[:80]} has half a character (a lone surrogate) at {error.start}; "
                "decode the text properly before it is logged",
                INVALID_PARAMETER_VALUE,
            ) from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_text(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_text(item)


def user_of(given: str | None) -> str:
    """The user that a client names, or the one of this process."""
    return given or os.environ.get("USER") or "unknown"
