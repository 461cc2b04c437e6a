"""``marin://`` for MLflow: reads from the artifact store, every byte hashed again on its way out.

    marin://artifact/<64 hex>[/path]                     a stored blob or tree
    marin://mlflow/<experiment>/<run>/artifacts[/path]   what an MLflow run shows (see :mod:`marin.tracking.shelf`)
    marin://mlflow/<experiment>/models/m-<id>/artifacts[/path]

MLflow finds this class by its entry point ``mlflow.artifact_repository``, constructs it also on sub-paths, and asks it
on the server for the UI, or in a user's own process for ``mlflow.artifacts.download_artifacts``. The root is the one
that ``MARIN_ROOT`` names, or ``.marin``. Writing is refused: what a view is told is not in the ledger.
"""

from __future__ import annotations

import shutil
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    DATA_LOSS,
    INVALID_PARAMETER_VALUE,
    PERMISSION_DENIED,
    RESOURCE_DOES_NOT_EXIST,
)
from mlflow.store.artifact.artifact_repo import ArtifactRepository

from ledger import LedgerError, NotFound, Store
from marin.root import open_root
from marin.tracking.shelf import Shelf, Shelves

Parts = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A file or a folder to be listed: ``size`` is None for a folder."""

    name: str
    size: int | None


class StoredView:
    """One stored artifact as folders and files."""

    def __init__(self, store: Store, digest: str) -> None:
        self._store = store
        self._digest = digest

    def nodes(self, at: Parts) -> list[Node] | None:
        """What lies directly below a folder; None for a file. NotFound for neither."""
        if self._store.kind(self._digest) == "blob":
            if at:
                raise NotFound("no such file in the artifact", where=f"{self._digest}/{'/'.join(at)}",
                               expected="nothing below it: it is a single file")
            return None
        found: dict[str, Node] = {}
        for entry in self._store.manifest(self._digest):
            path = tuple(entry.path.split("/"))
            if path == at:
                return None
            if path[:len(at)] == at:
                name = path[len(at)]
                found.setdefault(name, Node(name, entry.size if len(path) == len(at) + 1 else None))
        if at and not found:
            raise NotFound("no such file in the artifact", where=f"{self._digest}/{'/'.join(at)}")
        return list(found.values())

    def size(self) -> int | None:
        """The size of a blob; None for a tree."""
        return self._store.artifact(self._digest).size if self._store.kind(self._digest) == "blob" else None

    def open(self, at: Parts) -> BinaryIO:
        """A verified stream over a file."""
        return self._store.open_file(self._digest, "/".join(at)) if at else self._store.open(self._digest)


class ShelfView:
    """What an MLflow run or model shows: its pages and its mounted artifacts."""

    def __init__(self, store: Store, shelves: Shelves, identity: str, shelf: Shelf) -> None:
        self._store, self._shelves, self._identity, self._shelf = store, shelves, identity, shelf

    def nodes(self, at: Parts) -> list[Node] | None:
        """As :meth:`StoredView.nodes`."""
        if not at and "" not in self._shelf.mounts:
            pages = [Node(name, size) for name, size in self._shelf.pages.items()]
            return pages + [Node(name, self._size(digest)) for name, digest in self._shelf.mounts.items()]
        if len(at) == 1 and at[0] in self._shelf.pages:
            return None
        view, rest = self._mounted(at)
        return view.nodes(rest)

    def open(self, at: Parts) -> BinaryIO:
        """As :meth:`StoredView.open`; a page is opened as it is, it proves nothing."""
        if len(at) == 1 and at[0] in self._shelf.pages:
            return self._shelves.page_path(self._identity, at[0]).open("rb")
        view, rest = self._mounted(at)
        return view.open(rest)

    def _mounted(self, at: Parts) -> tuple[StoredView, Parts]:
        if "" in self._shelf.mounts:
            return StoredView(self._store, self._shelf.mounts[""]), at
        if at and at[0] in self._shelf.mounts:
            return StoredView(self._store, self._shelf.mounts[at[0]]), at[1:]
        raise NotFound("the run has no such artifact", where="/".join(at),
                       expected=", ".join((*self._shelf.pages, *self._shelf.mounts)) or "none")

    def _size(self, digest: str) -> int | None:
        """A mount whose bytes are not here is listed as a folder; opening it says what is missing."""
        try:
            return StoredView(self._store, digest).size()
        except NotFound:
            return None


class MarinArtifactRepository(ArtifactRepository):  # type: ignore[misc]  # MLflow publishes no types
    """MLflow's port for artifacts, over the store of a root."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        parsed = urllib.parse.urlsplit(artifact_uri)
        self._kind = parsed.netloc
        self._address = _parts(urllib.parse.unquote(parsed.path).strip("/"))
        with _as_mlflow(artifact_uri):
            root = open_root()
            self._store = root.store()
            self._shelves = Shelves(root.local / "projections" / "mlflow")

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        """What lies directly below ``path``; nothing for a file, and nothing for a run that shows nothing."""
        below = _parts(path or "")
        with _as_mlflow(f"{self.artifact_uri}/{path or ''}"):
            try:
                view, prefix = self._view()
            except NotFound:
                if below or self._kind == "artifact":
                    raise
                return []
            nodes = view.nodes(prefix + below)
        return [FileInfo("/".join((*below, node.name)), node.size is None, node.size)
                for node in sorted(nodes or [], key=lambda node: node.name)]

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        with _as_mlflow(f"{self.artifact_uri}/{remote_file_path}"):
            view, prefix = self._view()
            with view.open(prefix + _parts(remote_file_path)) as source, Path(local_path).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Refused."""
        raise _read_only(self.artifact_uri)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Refused."""
        raise _read_only(self.artifact_uri)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        """Refused."""
        raise _read_only(self.artifact_uri)

    def _view(self) -> tuple[StoredView | ShelfView, Parts]:
        """Whose files this address names, and the part of the path that it has used up already."""
        match self._kind, self._address:
            case "artifact", (digest, *rest):
                return StoredView(self._store, f"sha256:{digest.removeprefix('sha256:')}"), tuple(rest)
            case "mlflow", (_, "models", identity, "artifacts", *rest):
                return self._shelf(identity), tuple(rest)
            case "mlflow", (_, identity, "artifacts", *rest):
                return self._shelf(identity), tuple(rest)
            case _:
                raise NotFound("not an address of an artifact", where=self.artifact_uri,
                               expected="marin://artifact/<64 hex> or what MLflow shows as a run's artifact URI")

    def _shelf(self, identity: str) -> ShelfView:
        return ShelfView(self._store, self._shelves, identity, self._shelves.read(identity))


def _parts(path: str) -> Parts:
    """A relative path as its parts. Nothing climbs: parts are looked up by name in manifests and never joined to a folder."""
    parts = tuple(part for part in PurePosixPath(path).parts if part != ".")
    if any(part in ("..", "/") or "\x00" in part for part in parts):
        raise MlflowException(f"invalid path: {path!r}: expected a path below the artifact", INVALID_PARAMETER_VALUE)
    return parts


def _read_only(uri: str) -> MlflowException:
    return MlflowException(
        f"artifacts of the ledger cannot be changed through MLflow: {uri}; MLflow is a view: put files with `marin store put`, "
        "or log to another MLflow server", PERMISSION_DENIED)


@contextmanager
def _as_mlflow(where: str) -> Iterator[None]:
    """MLflow's clients and server know MlflowException alone: the line stays ours, the code says which kind."""
    try:
        yield
    except NotFound as error:
        raise MlflowException(str(error), RESOURCE_DOES_NOT_EXIST) from error
    except LedgerError as error:
        raise MlflowException(f"{where}: {error}", DATA_LOSS) from error
