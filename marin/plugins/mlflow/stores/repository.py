"""``marin://`` for MLflow: reads from the artifact store, every byte hashed again on its way out; writes into it.

    marin://artifact/<64 hex>[/path]                     a stored blob or tree
    marin://mlflow/<experiment>/<run>/artifacts[/path]   what an MLflow run shows (see
    :mod:`marin.plugins.mlflow.projection.shelf`) marin://mlflow/<experiment>/models/m-<id>/artifacts[/path]

MLflow finds this class by its entry point ``mlflow.artifact_repository``, constructs it also on sub-paths, and asks it
on the server for the UI, or in a user's own process for ``mlflow.artifacts.download_artifacts``. The root is the one
that ``MARIN_ROOT`` names, or ``.marin``. A file that is logged goes into the store, and an event of the ledger says to
which MLflow run and under which path. What is listed includes it at once, projection or not. Nothing can be deleted.
"""

from __future__ import annotations

import shutil
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import DATA_LOSS, INVALID_PARAMETER_VALUE, PERMISSION_DENIED, RESOURCE_DOES_NOT_EXIST
from mlflow.store.artifact.artifact_repo import ArtifactRepository

from ledger import Draft, LedgerError, NotFound, Store
from marin.plugins.mlflow.folding.logged import refusal
from marin.plugins.mlflow.folding.operations import ArtifactValues, described, stream_of
from marin.plugins.mlflow.projection.shelf import Shelf, Shelves
from marin.record.events import TRACKING_LOGGED, TrackingLogged, write
from marin.record.root import Root, open_root
from marin.reporting.lineage.samples import Inspector
from marin.reporting.pages import draw

Parts = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A file or a folder to be listed."""

    name: str
    size: int | None
    folder: bool = False


class Absent(NotFound):
    """A path at which a run or model shows nothing."""


class StoredView:
    """One stored artifact as folders and files."""

    def __init__(self, store: Store, digest: str) -> None:
        self._store = store
        self._digest = digest

    def nodes(self, at: Parts) -> list[Node] | None:
        """What lies directly below a folder; None for a file. NotFound for neither."""
        if self._store.kind(self._digest) == "blob":
            if at:
                raise NotFound(
                    "no such file in the artifact",
                    where=f"{self._digest}/{'/'.join(at)}",
                    expected="nothing below it: it is a single file",
                )
            return None
        found: dict[str, Node] = {}
        for entry in self._store.manifest(self._digest):
            path = tuple(entry.path.split("/"))
            if path == at:
                return None
            if path[: len(at)] == at:
                name = path[len(at)]
                inner = len(path) > len(at) + 1
                found.setdefault(name, Node(name, None if inner else entry.size, folder=inner))
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
    """What an MLflow run or model shows: of the ledger's own, its pages and its mounted artifacts alone; of others, what
    was logged to it."""

    def __init__(self, root: Root, identity: str) -> None:
        self._root, self._store, self._identity = root, root.store(), identity
        self._shelves = Shelves(root.views() / "mlflow")
        logged: Mapping[str, str] = {}
        try:
            self._shelf = self._shelves.read(identity)
        except NotFound as error:
            logged = logged_artifacts(root, identity)
            if not logged:
                raise Absent(error.what, where=error.where, expected=error.expected, cure=error.cure) from None
            self._shelf = Shelf()
        self._mounts = {tuple(path.split("/")) if path else (): digest for path, digest in self._shelf.mounts.items()}
        self._mounts |= {_parts(path): digest for path, digest in logged.items()}

    def nodes(self, at: Parts) -> list[Node] | None:
        if len(at) == 1 and at[0] in self._shelf.pages:
            return None
        found: dict[str, Node] = {}
        for path, digest in self._mounts.items():
            if len(path) > len(at) and path[: len(at)] == at:
                name, size = path[len(at)], self._size(digest) if len(path) == len(at) + 1 else None
                found[name] = Node(name, size, folder=size is None)
        inside = self._mount_of(at)
        if inside is not None:
            below = StoredView(self._store, inside[0]).nodes(inside[1])
            if below is None:
                return None
            found = {node.name: node for node in below} | found
        elif at and not found:
            raise self._missing(at)
        if not at:
            found = {name: Node(name, self._page_size(name)) for name in self._shelf.pages} | found
        return list(found.values())

    def open(self, at: Parts) -> BinaryIO:
        """As :meth:`StoredView.open`; a page is drawn from the ledger if it has to be, and opened as it is: it proves
        nothing."""
        if len(at) == 1 and at[0] in self._shelf.pages:
            return self._page(at[0]).open("rb")
        inside = self._mount_of(at)
        if inside is None:
            raise self._missing(at)
        return StoredView(self._store, inside[0]).open(inside[1])

    def draw_pages(self, inspector: Inspector, ended: threading.Event) -> None:
        """Draw what is not drawn yet, so that nobody waits for it, until ``ended``. ``inspector``: for the pages of several
        runs.

        Raises:
            CancelledError: the inspector was stopped; the page that it was asked for is not drawn.
        """
        for name in self._shelf.pages:
            if ended.is_set():
                return
            self._page(name, inspector)

    def _page_size(self, name: str) -> int | None:
        """None for a page that cannot be drawn; opening it says why."""
        try:
            return self._page(name).stat().st_size
        except (LedgerError, OSError):
            return None

    def _page(self, name: str, inspector: Inspector | None = None) -> Path:
        return self._shelves.page(
            self._identity, self._shelf, name, lambda: draw(self._root, self._shelf.run, name, inspector=inspector)
        )

    def _mount_of(self, at: Parts) -> tuple[str, Parts] | None:
        """The stored artifact that holds ``at``, the deepest of them, and the path inside of it."""
        for length in range(len(at), -1, -1):
            if at[:length] in self._mounts:
                return self._mounts[at[:length]], at[length:]
        return None

    def _missing(self, at: Parts) -> Absent:
        names = [*self._shelf.pages, *("/".join(path) for path in self._mounts)]
        return Absent("the run has no such artifact", where="/".join(at), expected=", ".join(names) or "none")

    def _size(self, digest: str) -> int | None:
        """A mount whose bytes are not here is listed as a folder; opening it says what is missing."""
        try:
            return StoredView(self._store, digest).size()
        except NotFound:
            return None


def logged_artifacts(root: Root, identity: str) -> dict[str, str]:
    """What was logged to an MLflow run or model through its interface: path to digest, the later one where two
    agree."""
    found: dict[str, str] = {}
    for _, event in root.history().events(stream=stream_of(identity)):
        values = event.body.get("values")
        if event.type == TRACKING_LOGGED and event.body.get("operation") == "artifact" and isinstance(values, Mapping):
            path, digest = values.get("path"), values.get("artifact")
            if isinstance(path, str) and isinstance(digest, str) and not set(path.split("/")) & {"", ".", ".."}:
                found[path] = digest
    return found


class MarinArtifactRepository(ArtifactRepository):  # type: ignore[misc]  # MLflow publishes no types
    """MLflow's port for artifacts, over the store of a root."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        parsed = urllib.parse.urlsplit(artifact_uri)
        self._kind = parsed.netloc
        self._address = _parts(urllib.parse.unquote(parsed.path).strip("/"))
        with _as_mlflow(artifact_uri):
            self._root = open_root()
            self._store = self._root.store()

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        """What lies directly below ``path``; nothing for a file, and nothing for a run that shows nothing."""
        below = _parts(path or "")
        with _as_mlflow(f"{self.artifact_uri}/{path or ''}"):
            try:
                view, path_inside = self._view(below)
                nodes = view.nodes(path_inside)
            except Absent:
                return []
        return [
            FileInfo("/".join((*below, node.name)), node.folder, node.size)
            for node in sorted(nodes or [], key=lambda node: node.name)
        ]

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        with _as_mlflow(f"{self.artifact_uri}/{remote_file_path}"):
            view, inside = self._view(_parts(remote_file_path))
            with view.open(inside) as source, Path(local_path).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """A part of a file, verified: of a stored file only the parts that it lies in are read and hashed."""
        with _as_mlflow(f"{self.artifact_uri}/{path}"):
            view, inside = self._view(_parts(path))
            with view.open(inside) as source:
                source.seek(start)
                return source.read(length)

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Put a file into the store and record it as an artifact of this run or model."""
        with _as_mlflow(self.artifact_uri):
            self._record([(Path(local_file), _parts(artifact_path or ""))])

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """As :meth:`log_artifact`, for every file below a folder."""
        folder, below = Path(local_dir), _parts(artifact_path or "")
        with _as_mlflow(self.artifact_uri):
            self._record(
                [
                    (path, below + path.relative_to(folder).parts[:-1])
                    for path in sorted(folder.rglob("*"))
                    if path.is_file()
                ]
            )

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        """Refused: what the ledger names stays."""
        raise _permission_denied(
            f"artifacts of the ledger are not deleted: {self.artifact_uri}; `marin store gc` collects what no "
            "event names"
        )

    def _record(self, files: list[tuple[Path, Parts]]) -> None:
        drafts = []
        targets = [self._target(below) for _, below in files]
        for identity in {identity for identity, _ in targets}:
            if self._is_recorded(identity):
                raise _permission_denied(refusal(f"the artifacts of {identity} are the ledger's own"))
        for (path, _), (identity, inside) in zip(files, targets, strict=True):
            stored = self._store.put_file(path)
            name = "/".join((*inside, *_parts(path.name)))
            body = TrackingLogged(
                run=identity,
                operation="artifact",
                values=described("artifact", ArtifactValues(path=name, artifact=stored.digest, size=stored.size)),
            )
            drafts.append(Draft(TRACKING_LOGGED, stream_of(identity), write(body)))
        if drafts:
            self._root.append(drafts)

    def _is_recorded(self, identity: str) -> bool:
        """Whether events of the ledger's own types made this run or model: then it has a shelf."""
        try:
            Shelves(self._root.views() / "mlflow").read(identity)
        except NotFound:
            return False
        return True

    def _target(self, below: Parts) -> tuple[str, Parts]:
        """Whose artifacts this address and a path below it name, for writing: an MLflow id, and the path below its
        artifacts."""
        match self._kind, self._address + below:
            case "mlflow", (_, "models", identity, "artifacts", *rest):
                return identity, tuple(rest)
            case "mlflow", (_, identity, "artifacts", *rest):
                return identity, tuple(rest)
        raise _permission_denied(
            f"stored artifacts do not change: {self.artifact_uri}; log to a run, or use `marin store put`"
        )

    def _view(self, below: Parts) -> tuple[StoredView | ShelfView, Parts]:
        """Whose files this address and a path below it name, and the path inside of it. MLflow cuts an address
        anywhere."""
        match self._kind, self._address + below:
            case "artifact", (digest, *rest):
                return StoredView(self._store, f"sha256:{digest.removeprefix('sha256:')}"), tuple(rest)
            case "mlflow", (_, "models", identity, "artifacts", *rest):
                return ShelfView(self._root, identity), tuple(rest)
            case "mlflow", (_, identity, "artifacts", *rest):
                return ShelfView(self._root, identity), tuple(rest)
            case _:
                raise NotFound(
                    "not an address of an artifact",
                    where=self.artifact_uri,
                    expected="marin://artifact/<64 hex> or what MLflow shows as a run's artifact URI",
                )


def _parts(path: str) -> Parts:
    """A relative path as its parts. Nothing climbs: parts are looked up by name in manifests and never joined to a
    folder."""
    parts = tuple(part for part in PurePosixPath(path).parts if part != ".")
    if any(part in ("..", "/") or "\x00" in part for part in parts):
        raise MlflowException(f"invalid path: {path!r}: expected a path below the artifact", INVALID_PARAMETER_VALUE)
    return parts


def _permission_denied(line: str) -> MlflowException:
    return MlflowException(line, PERMISSION_DENIED)


@contextmanager
def _as_mlflow(where: str) -> Iterator[None]:
    """MLflow's clients and server know MlflowException alone: the line stays ours, the code says which kind."""
    try:
        yield
    except NotFound as error:
        raise MlflowException(str(error), RESOURCE_DOES_NOT_EXIST) from error
    except LedgerError as error:
        raise MlflowException(f"{where}: {error}", DATA_LOSS) from error
