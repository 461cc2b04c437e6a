"""Which code executes: the identity of this project's files, with and without Git.

Two questions are kept apart. *What decides a result?* The bytes of the files that a step lists: :func:`files_digest`,
part of the step's identity, the same with or without Git. *Where did they come from?* :func:`provenance`: commit, a
digest of all tracked files, and, when they differ from the commit, the difference itself, so that a dirty tree can
be rebuilt. The second is recorded and never compared.

Git is only asked to read; diff drivers and text conversions that a repository might configure are switched off.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import marin
from ledger import canonical_digest, digest_bytes
from marin.errors import MissingEvidence
from marin.provenance.git import git

GENERATED = ("artifacts", "dvc.lock", "params.yaml")
"""Tracked files that the pipeline itself writes, or that are the recipe: they are results and parameters, not code."""

LOCK = "requirements.lock"
NO_LOCK = digest_bytes(b"")
"""What stands for the lock of code that has none: an installed wheel."""
NO_DIFF_VARIABLE = "MARIN_NO_DIFF"
"""Set, the difference to the commit is not kept: that there is one is recorded, and the digest of all files."""
_GIT_SECONDS = 60
_AT_ONCE = 1 << 20
"""A file of at most so many bytes is read whole; one that grew meanwhile is still read to its end."""
_IGNORED_FOLDERS = frozenset({"__pycache__"})
_IGNORED_SUFFIXES = frozenset({".pyc", ".pyo"})


@dataclass(frozen=True)
class Provenance:
    """Where the code came from. ``commit`` is empty outside Git; ``diff`` are the bytes of the difference, if any."""

    commit: str
    tree: str
    dirty: bool
    diff: bytes

    def describe(self) -> dict[str, Any]:
        """As the body of ``run.started`` holds it."""
        return {
            "commit": self.commit,
            "tree": self.tree,
            "dirty": self.dirty,
            "diff": digest_bytes(self.diff) if self.diff else "",
        }


def code_folder() -> Path:
    """The folder that holds the packages which are really imported, whatever the working folder is."""
    return Path(marin.__file__).resolve().parent.parent


def files_digest(folder: Path, paths: Iterable[str]) -> str:
    """One digest of the named files and of everything below the named folders: that of :func:`files_listing`."""
    return canonical_digest(files_listing(folder, paths))


def files_listing(folder: Path, paths: Iterable[str]) -> list[tuple[str, str]]:
    """The named files and everything below the named folders: sorted relative paths and digests of their bytes.

    Compiled files are left out: they follow from the sources. Raises :class:`MissingEvidence` for a path that is
    not there, because an identity of absent code would equal that of other absent code.
    """
    listed: dict[str, str] = {}
    for path in paths:
        found = False
        for file in _files(folder / path):
            found = True
            listed[file.relative_to(folder).as_posix()] = _file_digest(file)
        if not found:
            raise MissingEvidence(
                "code of a step is missing",
                where=str(folder / path),
                expected="a file or a package",
                found="nothing",
                cure="reinstall Marin, or run it from a complete checkout",
            )
    return sorted(listed.items())


def lock_digest(folder: Path) -> str:
    """Digest of the locked dependencies, or :data:`NO_LOCK`."""
    lock = folder / LOCK
    return _file_digest(lock) if lock.is_file() else NO_LOCK


def provenance(folder: Path) -> Provenance:
    """Commit, tree and difference of the code in ``folder``."""
    inside = _git(folder, "rev-parse", "--is-inside-work-tree")
    if inside is None or inside.strip() != b"true":
        present = [name for name in ("ledger", "marin", LOCK) if (folder / name).exists()]
        return Provenance(commit="", tree=files_digest(folder, present), dirty=False, diff=b"")
    exclude = [f":(exclude){name}" for name in GENERATED]
    commit = (_git(folder, "rev-parse", "--verify", "--quiet", "HEAD") or b"").decode().strip()
    tracked = (_git(folder, "ls-files", "-z", "--", ".", *exclude) or b"").split(b"\0")
    paths = sorted(os.fsdecode(path) for path in tracked if path)
    files = ((path, folder / path) for path in paths)
    tree = canonical_digest([[path, _file_digest(file)] for path, file in files if file.is_file()])
    against = [commit] if commit else []
    diff = _git(folder, "diff", "--binary", "--no-color", "--relative", *against, "--", ".", *exclude) or b""
    kept = b"" if os.environ.get(NO_DIFF_VARIABLE) else diff
    return Provenance(commit=commit, tree=tree, dirty=bool(diff), diff=kept)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for parent, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _IGNORED_FOLDERS and not name.startswith("."))
        for name in sorted(names):
            if Path(name).suffix not in _IGNORED_SUFFIXES and not name.startswith("."):
                yield Path(parent) / name


def _file_digest(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > _AT_ONCE:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        return digest_bytes(file.readall())


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What Git prints, or None where there is no Git, no repository, or Git refuses."""
    try:
        done = git(folder, *arguments, seconds=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
