"""A DVC remote, and the .dvc files that name what is in it: `dvc pull` brings the outputs of a run.

Written as DVC 3 lays it out (its own code is not needed to write it): objects at ``files/md5/ab/cdef…``, a folder as the
JSON list of its files under the md5 of that list with the suffix ``.dir``. md5 is DVC's identity and proves nothing; ours
is in the pointers.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ledger import Storage, Store, open_storage
from marin.export.quoting import yaml_of
from marin.process.files import write_whole
from marin.record import outputs
from marin.record.events import Output

REMOTE = "remote"
_BLOCK = 1 << 20


def write_dvc(store: Store, made: Mapping[str, Output], dest: Path) -> list[Path]:
    """Fill ``dest``: the remote in ``dest/remote``, and for each output a ``NAME.dvc``, whose paths are returned.

    Bytes are hashed on their way out of the store; an object that is there with other bytes is refused (Conflict).
    """
    dest.mkdir(parents=True, exist_ok=True)
    remote = open_storage(dest / REMOTE)
    written = []
    for name, output in sorted(made.items()):
        with tempfile.TemporaryDirectory(dir=dest, prefix=".tmp-") as private:
            folder = Path(private) / "tree"
            outputs.checkout(store, output, folder)
            described = _folder(remote, folder) if folder.is_dir() else _file(remote, folder)
        path = dest / f"{name}.dvc"
        document = {"outs": [described | {"hash": "md5", "path": name}]}
        write_whole(path, yaml_of(document).encode())
        written.append(path)
    return written


def _folder(remote: Storage, folder: Path) -> dict[str, object]:
    entries, size = [], 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        described = _file(remote, path)
        size += path.stat().st_size
        entries.append({"md5": described["md5"], "relpath": path.relative_to(folder).as_posix()})
    entries.sort(key=lambda entry: str(entry["relpath"]))
    listing = json.dumps(entries, sort_keys=True).encode()
    name = f"{hashlib.md5(listing, usedforsecurity=False).hexdigest()}.dir"
    remote.ensure(_object(name), listing)
    return {"md5": name, "size": size, "nfiles": len(entries)}


def _file(remote: Storage, path: Path) -> dict[str, object]:
    hasher = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            hasher.update(block)
    remote.adopt(_object(hasher.hexdigest()), path)
    return {"md5": hasher.hexdigest(), "size": path.stat().st_size}


def _object(md5: str) -> str:
    return f"files/md5/{md5[:2]}/{md5[2:]}"
