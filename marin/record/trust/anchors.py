"""Anchors in Git: the log's root in a note or a trailer of a commit, which anyone who has a clone keeps.

A note (``refs/notes/marin``) holds the whole signed checkpoint; a trailer is one line of a commit message:

    Marin-Log: marin.local/1a2b3c4d 41 6f1c…

Either says that the events below that size existed when the commit (or the note) was made. The date is what its
maker wrote; what makes it hard to change afterwards is that others have fetched it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ledger import LedgerError, LogCheckpoint, LogReader, Tampered, Unavailable
from marin.errors import UsageError
from marin.provenance.git import git, identity

TRAILER = "Marin-Log"
NOTES = "marin"
_VALUE = re.compile(r"(\S+) (0|[1-9][0-9]{0,18}) ([0-9a-f]{64})\Z")
_MOST = 10_000


@dataclass(frozen=True)
class GitAnchor:
    """A root that a commit names: in its message (``trailer``) or in a note on it."""

    kind: str
    commit: str
    time: str
    origin: str
    size: int
    root: bytes


def trailer_of(checkpoint: LogCheckpoint) -> str:
    """The trailer line for a commit message."""
    return f"{TRAILER}: {checkpoint.origin} {checkpoint.size} {checkpoint.root.hex()}"


def write_note(repository: Path, commit: str, note: bytes) -> str:
    """Put the signed checkpoint into a note on ``commit``, replacing an older one; the commit's full name."""
    name = _git(repository, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}").strip()
    _git(repository, *identity(), "notes", f"--ref={NOTES}", "add", "--force", "--file=-", name, given=note)
    return name


def find_anchors(repository: Path, origin: str) -> Iterator[GitAnchor]:
    """Every anchor of this log in the repository, trailers first."""
    form = f"--format=%H%x00%cI%x00%(trailers:key={TRAILER},valueonly,separator=%x01)%x02"
    found = _git(repository, "log", "--all", f"--max-count={_MOST}", f"--grep=^{TRAILER}: ", form)
    for item in found.split("\x02"):
        commit, _, rest = item.strip("\n").partition("\x00")
        time, _, values = rest.partition("\x00")
        for value in values.split("\x01"):
            match = _VALUE.match(value.strip())
            if match and match[1] == origin:
                yield GitAnchor("trailer", commit, time, origin, int(match[2]), bytes.fromhex(match[3]))
    for line in _git(repository, "notes", f"--ref={NOTES}", "list").splitlines():
        blob, commit = line.split()
        try:
            checkpoint = LogCheckpoint.parse(_git(repository, "cat-file", "blob", blob).partition("\n\n")[0] + "\n")
        except LedgerError:
            continue  # a note of someone else's
        if checkpoint.origin == origin:
            time = _git(repository, "log", "-1", "--format=%cI", f"--find-object={blob}", f"refs/notes/{NOTES}").strip()
            yield GitAnchor("note", commit, time, origin, checkpoint.size, checkpoint.root)


def check_anchor(reader: LogReader, anchor: GitAnchor) -> None:
    """Raise ``Tampered`` unless the log had this root at this size."""
    newest = reader.checkpoint().size
    where = f"Git {anchor.kind} on {anchor.commit[:12]}"
    if anchor.size > newest:
        raise Tampered(
            "a commit names a longer log",
            where=where,
            expected=f"at least {anchor.size} entries",
            found=f"{newest}",
            cure="the log was rolled back: restore its newest copy",
        )
    root = reader.root(anchor.size)
    if root != anchor.root:
        raise Tampered(
            "a commit names another history",
            where=where,
            expected=f"root {anchor.root.hex()} at size {anchor.size}",
            found=root.hex(),
            cure="keep both: two roots of one size are evidence",
        )


def _git(folder: Path, *arguments: str, given: bytes | None = None) -> str:
    try:
        done = git(folder, *arguments, given=given)
    except OSError:
        raise Unavailable("Git is not installed", expected="git on PATH", cure="install git") from None
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            "Git does not end",
            where=" ".join(arguments)[:100],
            found=str(error)[:200],
            expected="an answer",
            cure="look at the repository",
        ) from None
    if done.returncode:
        raise UsageError(
            "Git refused",
            where=" ".join(arguments)[:100],
            found=done.stderr.decode("utf-8", "replace").strip()[:200],
            cure="name the repository that the note belongs to, and a commit of it",
        )
    return done.stdout.decode("utf-8", "replace")
