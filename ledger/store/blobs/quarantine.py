"""What garbage collection set aside, and the way back: anyone who asks for a name brings it back.

    store/quarantine/<seconds since 1970>/blobs/sha256/ab/cdef…      below its old name, since that time

On a disk the folders are looked into each time. A bucket's quarantine is listed once a minute.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

from ledger.errors import NotFound
from ledger.storage.failure import storage_failed
from ledger.storage.plain import names_in
from ledger.storage.port import Storage
from ledger.store.layout import PACKFILES, QUARANTINE, STORE

LISTED_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class Quarantine:
    """The quarantine of one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._folder = storage.local_path(QUARANTINE.rstrip("/"))
        self._aside: dict[str, str] = {}
        self._listed_at = -LISTED_SECONDS - 1
        self._back: set[str] = set()
        self._mutex = threading.Lock()

    def restore(self, name: str) -> bool:
        """Bring back what was set aside under this name; False if there is nothing."""
        if not self._storage.writable:
            return False
        target = self._storage.local_path(name)
        if self._folder is None or target is None:
            return self._restore_far(name)
        if not self._folder.is_dir():
            return False
        for batch in sorted(self._folder.iterdir(), reverse=True):
            aside = batch / name.removeprefix(STORE)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(aside, target)
                os.unlink(aside)
                os.utime(target)
            except (FileNotFoundError, NotADirectoryError, FileExistsError):
                continue
            except OSError as error:  # a full disk, say
                raise storage_failed("could not bring a file back from quarantine", name, error) from error
            _log.info("%s was in quarantine and is back", name)
            return True
        return self._storage.exists(name)

    def packfiles(self) -> Iterator[tuple[str, str]]:
        """Each packfile that was set aside: the name that it had, and the one that it has; the latest first."""
        if not self._storage.writable:
            return
        if self._folder is None:
            with self._mutex:
                self._list()
                aside = list(self._aside.items())
            yield from ((name, where) for name, where in aside if name.startswith(PACKFILES))
            return
        for batch in sorted(names_in(f"{self._folder}"), reverse=True):
            inside = f"{batch}/{PACKFILES.removeprefix(STORE)}"
            for name in names_in(f"{self._folder}/{inside}"):
                yield f"{PACKFILES}{name}", f"{QUARANTINE}{inside}{name}"

    # The parts

    def _restore_far(self, name: str) -> bool:
        with self._mutex:
            self._list()
            where = self._aside.pop(name, None)
            if where is None:
                return name in self._back and self._storage.exists(name)
            self._back.add(name)  # by this thread now; others wait for it
            try:
                self._storage.rename(where, name)
            except NotFound:
                return self._storage.exists(name)
        _log.info("%s was in quarantine and is back", name)
        return True

    def look_again(self) -> None:
        """Believe no listing that was made before."""
        self._listed_at = -LISTED_SECONDS - 1

    def _list(self) -> None:
        if time.monotonic() - self._listed_at > LISTED_SECONDS:
            aside = sorted(self._storage.list(QUARANTINE))  # of several batches the newest stays
            self._aside = {STORE + where.removeprefix(QUARANTINE).partition("/")[2]: where for where in aside}
            self._listed_at = time.monotonic()
