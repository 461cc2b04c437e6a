"""Where a ledger's bytes are kept: the port, and how a location in words becomes a driver.

A folder is read and written here. Every other driver is an entry point of the group ``ledger.storage``: the scheme of its
addresses, and a function ``(address, *, readonly) -> Storage``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ledger.errors import Refused, Unavailable
from ledger.storage.port import Storage
from ledger.storage.posix import PosixStorage

__all__ = ["BROKER_VARIABLE", "PosixStorage", "Storage", "open_storage"]

DRIVERS: Final = "ledger.storage"
BROKER_VARIABLE: Final = "MARIN_BROKER"
"""Names the socket of the process that reads every address for this one (:mod:`ledger.storage.brokered`)."""
_BROKER: Final = "broker"


def open_storage(location: str | Path, *, readonly: bool = False) -> Storage:
    """The storage that ``location`` names: a path, ``gs://…``, ``s3://…``, ``https://…`` (read only), or an address for which
    an installed distribution has a driver.

    Raises:
        Refused: it is an address of another kind.
        Unavailable: the driver needs a package that is not installed, as buckets need obstore.
    """
    text = str(location)
    scheme, separator, path = text.partition("://")
    if not separator or scheme == "file":
        return PosixStorage(Path(path if separator else location), readonly=readonly)
    driver = _driver(_BROKER if os.environ.get(BROKER_VARIABLE) else scheme, text)
    storage: Storage = driver(text, readonly=readonly)
    return storage


def _driver(name: str, address: str) -> Callable[..., Any]:
    # Imported here: reading metadata loads a parser of e-mail, for which a folder's reader would wait.
    from importlib.metadata import entry_points

    found = {point.value: point for point in entry_points(group=DRIVERS, name=name)}
    if not found:
        raise Refused(
            "unknown kind of storage",
            where=address,
            expected="a path, gs://, s3:// or https://",
            found=f"{name}://",
            cure="name a local folder or a published https:// address as the root",
        )
    # The ledger's own driver comes first: nothing that is installed beside it takes an address of its own away.
    own = [point for value, point in sorted(found.items()) if value.startswith("ledger.")]
    point = (own or [found[min(found)]])[0]
    try:
        driver: Callable[..., Any] = point.load()
    except ImportError as error:
        raise Unavailable(
            f"{name}:// needs {error.name or 'a package'}",
            where=address,
            found=str(error),
            cure=f"install {error.name or 'what it names'}",
        ) from error
    return driver
