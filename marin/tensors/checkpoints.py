"""Training checkpoints as they lie in the store: which files one has, and the state that its bytes are.

A state in slices is what is written (``ledger.Sliced``; docs/decisions has why). Earlier versions wrote Levanter's own form,
zarr3 arrays in an OCDBT key-value store, whose files differ between equal states, or a file for each tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledger import LedgerError, Sliced, StateManifest, StoredFolder, describe_state, read_state
from marin.errors import DataError
from marin.tensors.reading import array_info, plausible_bytes, unreadable

OCDBT_FILES = re.compile(
    r"manifest\.ocdbt|manifest\.json|metadata\.json|d/[0-9a-f]{32}"
    r"|ocdbt\.process_[0-9]+/(manifest\.ocdbt|d/[0-9a-f]{32})"
)
"""Files of a checkpoint as Levanter writes it."""
PACKED_FILES = re.compile(r"state\.json|tensors/[0-9]{5,}")
"""Files of a checkpoint tensor by tensor."""
SLICED_FILES = re.compile(r"state\.json|slices\.json|slices/[0-9]{5}")
"""Files of a state in slices."""
_KEY = re.compile(r"(.+)/(zarr\.json|c(/[0-9]+)*)")


def checkpoint_files(path: str) -> bool:
    """Whether a training checkpoint, of any form, has a file of this name."""
    return any(files.fullmatch(path) for files in (SLICED_FILES, OCDBT_FILES, PACKED_FILES))


def stray_files(folder: Path | StoredFolder) -> list[str]:
    """Files in ``folder`` that are not those of one form: anyone who reads another one would find another state."""
    if isinstance(folder, StoredFolder):
        return [name for name in sorted(folder.sizes) if not SLICED_FILES.fullmatch(name)]
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    if Sliced.is_in(folder):
        return [name for name in names if not SLICED_FILES.fullmatch(name)]
    if not is_packed(folder):
        return [name for name in names if not OCDBT_FILES.fullmatch(name)]
    try:
        count = len(StateManifest.parse((folder / "state.json").read_bytes()).tensors)
    except (LedgerError, OSError):
        return ["state.json"]
    own = {"state.json", *(f"tensors/{index:05d}" for index in range(count))}
    return [name for name in names if name not in own]


def is_packed(folder: Path) -> bool:
    """Whether a checkpoint is of the form with a file for each tensor."""
    return (folder / "tensors").is_dir() and (folder / "state.json").is_file()


def checkpoint_state(folder: Path | StoredFolder, expected: StateManifest) -> StateManifest:
    """The state that the bytes in ``folder`` are: every tensor read and hashed.

    Args:
        expected: what is recorded of it. It bounds what is read, and is compared by the caller.

    Raises:
        DataError: it is not a checkpoint, or holds more than ``expected``.
    """
    if isinstance(folder, StoredFolder):
        return _readable(lambda: Sliced.of_stored(folder).described(), folder)
    if Sliced.is_in(folder):
        return _readable(lambda: Sliced.of_folder(folder).described(), folder)
    if is_packed(folder):
        return _readable(lambda: describe_state(read_state(folder)), folder)
    sizes = {tensor.path: tensor.nbytes for tensor in expected.tensors}
    if sum(sizes.values()) > plausible_bytes(folder):
        most, found_bytes = f"at most {plausible_bytes(folder)} bytes", f"{sum(sizes.values())} bytes recorded"
        raise _unlike("a checkpoint does not hold what is recorded of it", folder.name, most, found_bytes)
    kvstore = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/"}}
    found = []
    for name in _arrays(kvstore, folder):
        if name not in sizes:
            tensors = f"{len(sizes)} tensors of state {expected.digest}"
            raise _unlike("a checkpoint holds a tensor that its state has not", name, tensors, "another one")
        found.append(array_info(kvstore, name, sizes[name]))
    return StateManifest.of(found)


def _arrays(kvstore: Mapping[str, Any], folder: Path) -> list[str]:
    """The arrays of an OCDBT store; a key that belongs to none is refused."""
    import tensorstore  # only the form of earlier versions needs it

    try:
        keys = [key.decode() for key in tensorstore.KvStore.open(kvstore).result().list().result()]
    except (ValueError, OSError, RuntimeError) as error:
        raise unreadable(folder.name, error) from error
    names = {key.removesuffix("/zarr.json") for key in keys if key.endswith("/zarr.json")}
    for key in keys:
        parts = _KEY.fullmatch(key)
        if parts is None or parts[1] not in names:
            raise _unlike("a checkpoint holds something that is no tensor", key, "chunks of arrays", "another key")
    return sorted(names)


def _readable(read: Callable[[], StateManifest], folder: Path | StoredFolder) -> StateManifest:
    try:
        return read()
    except (LedgerError, ValueError, OSError) as error:
        found = " ".join(str(error).split())[:200]
        raise _unlike("a training checkpoint can not be read", folder.name, "the tensors of a state", found) from error


def _unlike(what: str, where: str, expected: str, found: str) -> DataError:
    cure = "fetch the checkpoint again from its recorder"
    return DataError(what, where=where, expected=expected, found=found, cure=cure)
