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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import marin
from ledger import canonical_digest, digest_bytes
from marin.errors import MissingEvidence
from marin.provenance.git import git, quiet

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


Known = dict[str, str]
"""Relative path -> digest of the bytes, of files that were read a moment ago: the next question need not read them again."""


def files_digest(folder: Path, paths: Iterable[str], known: Known | None = None) -> str:
    """One digest of the named files and of everything below the named folders: that of :func:`files_listing`."""
    return canonical_digest(files_listing(folder, paths, known))


def files_listing(folder: Path, paths: Iterable[str], known: Known | None = None) -> list[tuple[str, str]]:
    """The named files and everything below the named folders: sorted relative paths and digests of their bytes.

    Compiled files are left out: they follow from the sources. Raises :class:`MissingEvidence` for a path that is
    not there, because an identity of absent code would equal that of other absent code.
    """
    listed: dict[str, str] = {}
    known = {} if known is None else known
    for path in paths:
        found = False
        for file in [path] if path in known else _files(folder, path):
            found = True
            listed[file] = _digest_of(folder, file, known)
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
    return _file_digest(str(lock)) if lock.is_file() else NO_LOCK


def provenance(folder: Path, known: Known | None = None) -> Provenance:
    """Commit, tree and difference of the code in ``folder``. What is read is put into ``known``."""
    known = {} if known is None else known
    try:
        settings = quiet(folder, seconds=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        settings = {}
    git_here = partial(_git, folder, settings)
    # In a repository without a commit the first question has no answer.
    inside = ("rev-parse", "--is-inside-work-tree")
    told = (git_here(*inside, "HEAD") or git_here(*inside) or b"").split()
    if told[:1] != [b"true"]:
        present = [name for name in ("ledger", "marin", LOCK) if (folder / name).exists()]
        return Provenance(commit="", tree=files_digest(folder, present, known), dirty=False, diff=b"")
    exclude = [f":(exclude){name}" for name in GENERATED]
    commit = b"".join(told[1:]).decode()
    tracked = (git_here("ls-files", "-z", "--", ".", *exclude) or b"").split(b"\0")
    paths = sorted(os.fsdecode(path) for path in tracked if path)
    files = (path for path in paths if os.path.isfile(f"{folder}/{path}"))
    tree = canonical_digest([[path, _digest_of(folder, path, known)] for path in files])
    against = [commit] if commit else []
    diff = git_here("diff", "--binary", "--no-color", "--relative", *against, "--", ".", *exclude) or b""
    kept = b"" if os.environ.get(NO_DIFF_VARIABLE) else diff
    return Provenance(commit=commit, tree=tree, dirty=bool(diff), diff=kept)


def _files(folder: Path, path: str) -> Iterator[str]:
    if os.path.isfile(f"{folder}/{path}"):
        yield PurePosixPath(path).as_posix()
        return
    for parent, folders, names in os.walk(folder / path):
        folders[:] = sorted(name for name in folders if name not in _IGNORED_FOLDERS and not name.startswith("."))
        for name in sorted(names):
            if Path(name).suffix not in _IGNORED_SUFFIXES and not name.startswith("."):
                yield (Path(parent) / name).relative_to(folder).as_posix()


def _digest_of(folder: Path, path: str, known: Known) -> str:
    if path not in known:
        known[path] = _file_digest(f"{folder}/{path}")
    return known[path]


def _file_digest(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > _AT_ONCE:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        return digest_bytes(file.readall())


def _git(folder: Path, settings: Mapping[str, str], *arguments: str) -> bytes | None:
    """What Git prints, or None where there is no Git, no repository, or Git refuses."""
    try:
        done = git(folder, *arguments, seconds=_GIT_SECONDS, settings=settings)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
