"""Where a ledger's bytes are kept: the port, and how a location in words becomes a driver."""

from __future__ import annotations

import os
from pathlib import Path

from ledger.errors import Refused, Unavailable
from ledger.storage.brokered import BROKER_VARIABLE, BrokeredStorage
from ledger.storage.port import Storage
from ledger.storage.posix import PosixStorage

__all__ = ["PosixStorage", "Storage", "open_storage"]


def open_storage(location: str | Path, *, readonly: bool = False) -> Storage:
    """The storage that ``location`` names: a path, ``gs://…``, ``s3://…``, or ``https://…`` (read only).

    Raises:
        Refused: it is an address of another kind.
        Unavailable: buckets need obstore, which is not installed.
    """
    text = str(location)
    scheme, separator, _ = text.partition("://")
    if not separator:
        return PosixStorage(Path(location), readonly=readonly)
    if scheme != "file" and (broker := os.environ.get(BROKER_VARIABLE)):
        return BrokeredStorage(broker, text)
    if scheme in ("http", "https"):
        # Imported here: the client libraries of http take longer than all the rest of the ledger.
        from ledger.storage.https import HttpsStorage

        return HttpsStorage(text)
    if scheme in ("gs", "s3"):
        return _open_bucket(text, readonly)
    if scheme == "file":
        return PosixStorage(Path(text.removeprefix("file://")), readonly=readonly)
    raise Refused(
        "unknown kind of storage",
        where=text,
        expected="a path, gs://, s3:// or https://",
        found=f"{scheme}://",
        cure="name a local folder or a published https:// address as the root",
    )


def _open_bucket(address: str, readonly: bool) -> Storage:
    try:
        # Imported here: not everybody has a bucket, and obstore may be left out of an installation that only verifies.
        from ledger.storage.objects import open_objects
    except ImportError as error:
        raise Unavailable("buckets need obstore", where=address, found=str(error), cure="install obstore") from error
    return open_objects(address, readonly=readonly)
