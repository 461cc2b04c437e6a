"""The one narrow port between the ledger and whatever keeps its bytes.

Names are '/'-separated relative paths (``log/tile/0/000``). A driver promises, for every method that writes:

- durability: the bytes survive a power cut once the call has returned;
- atomicity: ``create``, ``ensure``, ``replace`` and ``adopt`` are all or nothing, a reader sees the old or the new bytes,
  never a part. ``ensure_many`` is atomic for each item, not for the whole. ``write_at`` is not atomic: a failure may
  leave any part of its bytes, so that callers frame and checksum what they write with it;
- failure: an exception says that the outcome is unknown, for the bytes may have reached the disk. All verbs can be
  repeated with the same arguments after a failure, and then mean what they mean.

Drivers do not retry by themselves unless their docstring says so. ``ledger.testing`` holds the suite that each
passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Protocol

from ledger.errors import Refused

TEMPORARY = ".tmp-"
"""Prefix of a path element that belongs to an unfinished write; never a name, never listed."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True)
class Detail:
    """What a storage says of one name without reading it: bytes, and when they were written (seconds since 1970)."""

    name: str
    size: int
    modified: float


class Storage(Protocol):
    """Named bytes. See the module's docstring for what each write promises."""

    @property
    def writable(self) -> bool:
        """False where every write raises ``Refused``."""

    def guard(self, names: Sequence[str]) -> Storage:
        """A view for one writer of these names: it never overwrites a version of them that it has not seen (``Fenced``).

        Drivers whose ``lock`` excludes every other writer return themselves.
        """

    def read(self, name: str) -> bytes:
        """All bytes of ``name``; ``NotFound`` where there are none."""

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``start``: fewer at the end, none beyond it."""

    def open(self, name: str) -> BinaryIO:
        """A readable binary stream over ``name``; the caller closes it."""

    def size(self, name: str) -> int:
        """Number of bytes of ``name``; ``NotFound`` where there are none."""

    def exists(self, name: str) -> bool:
        """Whether ``name`` holds bytes. No evidence about which."""

    def list(self, prefix: str = "") -> Iterator[str]:
        """All names that begin with the string ``prefix``, in ascending order of code points."""

    def details(self, prefix: str = "") -> Iterator[Detail]:
        """As ``list``, with size and time of each name."""

    def create(self, name: str, data: bytes) -> None:
        """Exclusive write; ``AlreadyExists`` where the name is taken, whatever it holds."""

    def ensure(self, name: str, data: bytes) -> None:
        """Idempotent write: fine where the same bytes are there, ``Conflict`` where others are."""

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        """``ensure`` for each item, with the costs of durability shared. After a failure some may be there."""

    def replace(self, name: str, data: bytes) -> None:
        """Atomic overwrite."""

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        """Make ``data`` stand at ``offset``, creating ``name`` where ``offset`` is 0. Not atomic; for framed
        journals.

        The bytes before ``offset`` stay; those behind the written range are unspecified. An offset beyond the
        present size is refused as ``Conflict``.
        """

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        """Idempotent write of a local file's bytes, streamed. ``link`` allows the driver to share the file's storage.
        ``StorageFailed`` where the file cannot be read."""

    def arrived(self, name: str, content: bytes | Path) -> bool:
        """Whether the storage says, by a hash of its own making, that ``name`` holds what was written there."""

    def rename(self, name: str, to: str) -> None:
        """Give bytes another name, whatever had it before; ``NotFound`` where there are none. A kill may leave both
        names."""

    def remove(self, *names: str) -> None:
        """Forget these names. Fine where one is not there."""

    def lock(self, name: str, holder: str, *, wait: float = 0.0) -> AbstractContextManager[None]:
        """Hold the advisory lock ``name`` exclusively; ``Locked`` names the holder once ``wait`` seconds have
        passed.

        A lock dies with its process. Taking one clears what unfinished writes left behind.
        """

    def local_path(self, name: str) -> Path | None:
        """Where ``name`` lies (or would lie) on a local disk, or None for drivers without one."""

    def describe(self) -> str:
        """This storage in a message for people."""


@lru_cache(maxsize=1024)
def check_name(name: str) -> str:
    """Return ``name`` if it is safe as a relative path on every driver, else raise ``Refused``."""
    parts = name.split("/")
    if _UNSAFE.search(name) or any(part in ("", ".", "..") or part.startswith(TEMPORARY) for part in parts):
        raise Refused(
            "not a storage name",
            where=repr(name),
            expected="'/'-separated parts without '', '.', '..', backslash or control characters",
            cure="give a relative name inside the root",
        )
    return name


def check_prefix(prefix: str) -> str:
    """As ``check_name``, for the beginning of a name: empty, or ending anywhere in a name."""
    if prefix:
        check_name(prefix.removesuffix("/") or "/")
    return prefix
