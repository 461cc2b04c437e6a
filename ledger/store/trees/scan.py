"""Walking a folder that is to become a tree: which files it holds, and what may not be in it.

Regular files are taken, with their executable bit. A link to a file inside the folder is taken as the file
that it points to. A link that leaves the folder, dangles or points to a folder is refused, and so is anything
that is neither file, folder nor link: a tree holds bytes, and what it holds must not depend on the machine
that it was put from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from ledger.errors import NotFound, Refused, StorageFailed
from ledger.storage.port import TEMPORARY
from ledger.store.blobs.hashing import hash_file
from ledger.store.parts import large_digest
from ledger.store.trees.manifest import Manifest, ManifestEntry


class ScannedFile(NamedTuple):
    """A file in a folder: its path in the tree, where it lies, and what the system says of it. A tuple, for 100,000 of
    them."""

    path: str
    location: str
    status: os.stat_result

    @property
    def executable(self) -> bool:
        return bool(self.status.st_mode & stat.S_IXUSR)


_path = attrgetter("path")


def scan(folder: Path) -> list[ScannedFile]:
    """Every file below ``folder``, in the order of the UTF-8 bytes of their paths.

    Raises:
        NotFound: there is no such folder.
        StorageFailed: a folder cannot be read.
    """
    if not folder.is_dir():
        raise NotFound("folder to put", where=str(folder), expected="a folder", cure="check the path")
    try:
        found = list(_walk(os.fspath(folder), "", os.path.realpath(folder)))
    except OSError as error:
        raise StorageFailed(
            "could not read a folder", where=str(error.filename or folder), found=str(error.strerror)
        ) from error
    found.sort(key=_path)  # by code points, which is the order of their UTF-8; what is not UTF-8 is refused later
    return found


def describe_tree(folder: Path, like: Manifest | None = None) -> Manifest:
    """The manifest that putting ``folder`` would publish. Every byte is hashed; nothing is stored or remembered.

    Large files that ``like``, an older manifest, names by their plain sha256 are named so here: what is the same, looks
    it.
    """
    plain = {e.path for e in like or () if e.parts is not None and e.digest != large_digest(e.size, e.parts)}
    entries = []
    for file in scan(folder):
        with open(file.location, "rb") as stream:
            hashed = hash_file(stream, plain=file.path in plain)
        root = hashed.parts.root if hashed.parts else None
        digest = hashed.plain or hashed.digest
        entries.append(ManifestEntry(file.path, hashed.size, digest, file.executable, root))
    return Manifest.of(entries)


def _walk(folder: str, base: str, root: str) -> Iterator[ScannedFile]:
    # By its descriptor, so that the system need not walk to the folder for each file.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = entry.name
                path, location = base + name, f"{folder}/{name}"
                if entry.is_file(follow_symlinks=False):
                    yield ScannedFile(path, location, entry.stat(follow_symlinks=False))
                elif entry.is_symlink():
                    yield _through(location, path, root)
                elif entry.is_dir():
                    if not name.startswith(TEMPORARY):
                        yield from _walk(location, path + "/", root)
                else:
                    raise Refused(
                        "neither file nor folder",
                        where=location,
                        expected="regular files",
                        cure="remove it from the folder",
                    )
    finally:
        os.close(descriptor)


def _through(location: str, path: str, root: str) -> ScannedFile:
    target = os.path.realpath(location)
    if not target.startswith(root + os.sep):
        raise Refused(
            "a link leaves the tree",
            where=location,
            expected="a link to a file inside the folder",
            found=target,
            cure="put a copy of the file there",
        )
    if not os.path.isfile(target):
        raise Refused(
            "a link to no file",
            where=location,
            expected="a file inside the folder",
            found=target,
            cure="remove the link",
        )
    return ScannedFile(path, target, os.stat(target))
