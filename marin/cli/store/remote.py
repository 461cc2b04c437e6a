"""The store that an option names."""

from __future__ import annotations

from pathlib import Path

from ledger import Store, open_storage
from marin.errors import MissingEvidence, UsageError


def remote_store(remote: str, *, readonly: bool) -> Store:
    """The store at an address or in a folder."""
    storage = open_storage(remote, readonly=readonly)
    if not readonly and not storage.writable:
        raise UsageError(
            "a remote that can only be read",
            where=remote,
            expected="gs://, s3:// or a folder",
            cure="push to the place that it is published from",
        )
    if readonly and "://" not in remote and not Path(remote).is_dir():
        raise MissingEvidence("there is no such remote", where=remote, expected="a folder", cure="check the path")
    return Store(storage)
