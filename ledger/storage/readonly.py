"""What a storage says that can only be read: every write is refused, with the place it was meant for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

from ledger.errors import Refused
from ledger.storage.port import Storage, check_name


class ReadOnly:
    """The writing half of :class:`ledger.storage.port.Storage`, refused. ``address`` stands in the message."""

    address: str

    @property
    def writable(self) -> bool:
        return False

    def guard(self, names: Sequence[str]) -> Storage:
        return self  # type: ignore[return-value]  # subclasses have the reading half

    def describe(self) -> str:
        return self.address

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    def create(self, name: str, data: bytes) -> None:
        self._refuse(name)

    def ensure(self, name: str, data: bytes) -> None:
        self._refuse(name)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        self._refuse("")

    def replace(self, name: str, data: bytes) -> None:
        self._refuse(name)

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        self._refuse(name)

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        self._refuse(name)

    def arrived(self, name: str, content: bytes | Path) -> bool:
        return False

    def rename(self, name: str, to: str) -> None:
        self._refuse(name)

    def remove(self, *names: str) -> None:
        self._refuse(" ".join(names))

    def lock(self, name: str, holder: str, *, wait: float = 0.0) -> AbstractContextManager[None]:
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise Refused(
            "a published root can only be read",
            where=f"{self.address}/{name}",
            cure="write to the root it is published from",
        )
