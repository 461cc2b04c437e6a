"""Which artifacts an MLflow run shows: mounts of stored trees, and pages that were made for it.

A shelf is a small JSON file per MLflow run or model below the projection's folder, beside the folder with its pages:

    mlflow/shelves/<id>.json      {"mounts": {"corpus": "sha256:…"}, "pages": {"loss.png": 20311}}
    mlflow/pages/<id>/loss.png

A mount's bytes stay in the store and are verified whenever they are read. A page is folded from events, like the
database beside it, and proves nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger import Malformed, NotFound

_ID = re.compile(r"^(m-)?[0-9a-f]{32}$")
_PAGE = re.compile(r"^[a-z][a-z0-9_-]*\.(png|html|json|svg)$")


@dataclass(frozen=True)
class Shelf:
    """``mounts``: a name to the digest of a stored artifact ("" mounts it as the whole). ``pages``: name to size."""

    mounts: Mapping[str, str] = field(default_factory=dict)
    pages: Mapping[str, int] = field(default_factory=dict)


class Shelves:
    """All shelves of one projection."""

    def __init__(self, folder: Path) -> None:
        self._shelves = folder / "shelves"
        self._pages = folder / "pages"

    def has(self, identity: str) -> bool:
        """Whether the shelf was put up and all its pages are there."""
        try:
            shelf = self.read(identity)
        except (NotFound, Malformed):
            return False
        return all(self.page_path(identity, name).is_file() for name in shelf.pages)

    def read(self, identity: str) -> Shelf:
        """The shelf of an MLflow run or model."""
        path = self._shelves / f"{_checked(_ID, identity, 'MLflow id')}.json"
        try:
            data = json.loads(path.read_bytes())
            return Shelf(dict(data["mounts"]), dict(data["pages"]))
        except FileNotFoundError:
            raise NotFound("no artifacts are known for this MLflow run", where=identity, cure="run: marin sync") from None
        except (ValueError, KeyError, TypeError):
            raise Malformed("damaged file of the projection", where=str(path), expected="a JSON object with mounts and pages",
                            cure="delete it and run: marin sync") from None

    def write(self, identity: str, mounts: Mapping[str, str], pages: Mapping[str, bytes]) -> None:
        """Put a shelf up: pages first, so that what is listed is there."""
        _checked(_ID, identity, "MLflow id")
        for name, data in pages.items():
            path = self.page_path(identity, name)
            if not path.is_file() or path.read_bytes() != data:
                _replace(path, data)
        listing = {"mounts": dict(mounts), "pages": {name: len(data) for name, data in pages.items()}}
        _replace(self._shelves / f"{identity}.json", json.dumps(listing, sort_keys=True).encode())

    def page_path(self, identity: str, name: str) -> Path:
        """Where a page lies. Both parts are checked: nothing outside the projection can be named."""
        return self._pages / _checked(_ID, identity, "MLflow id") / _checked(_PAGE, name, "name of a page")

    def clear(self) -> None:
        """Forget all shelves and pages."""
        for folder in (self._shelves, self._pages):
            shutil.rmtree(folder, ignore_errors=True)


def _checked(pattern: re.Pattern[str], value: str, what: str) -> str:
    if not pattern.match(value):
        raise NotFound(f"not a {what}", where=repr(value), expected=f"a match of {pattern.pattern}")
    return value


def _replace(path: Path, data: bytes) -> None:
    """Readers see the old bytes or the new ones. Not made durable: a projection can be folded again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(name).replace(path)
