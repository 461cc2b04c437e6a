"""Which artifacts an MLflow run shows: mounts of stored artifacts, and pages that are made when somebody opens them.

A shelf is a row of a table of ours in MLflow's database, written in the same transaction as the run itself; made pages
are kept beside the database until the run moves on:

    mlflow/mlflow.db                    marin_shelf: id, run, at, mounts, pages
    mlflow/pages/<id>/<at>/loss.png     as of event <at> of the log

A mount's bytes stay in the store and are verified whenever they are read. A page is folded from events, like the
database, and proves nothing. Making it when it is asked for keeps a rebuild of a thousand runs at seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger import Malformed, NotFound

_ID = re.compile(r"^(m-)?[0-9a-f]{32}$")
_PAGE = re.compile(r"^[a-z][a-z0-9_-]*\.(png|html|json|svg)$")


@dataclass(frozen=True)
class Shelf:
    """``run``: the ledger's run, and ``at`` its last event. ``mounts``: a path to the digest of a stored artifact (""
    mounts it as the whole). ``pages``: names."""

    run: str = ""
    at: int = 0
    mounts: Mapping[str, str] = field(default_factory=dict)
    pages: Sequence[str] = ()


class Shelves:
    """All shelves of one projection. Reading needs neither MLflow nor the lock of the projection."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "mlflow.db"
        self._pages = folder / "pages"

    def read(self, identity: str) -> Shelf:
        """The shelf of an MLflow run or model; NotFound when there is none, Malformed when the database is damaged."""
        _checked(_ID, identity, "MLflow id")
        uri = f"file:{urllib.parse.quote(str(self._database))}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=20)) as connection:
                row = connection.execute(
                    "SELECT run, at, mounts, pages FROM marin_shelf WHERE id = ?", (identity,)
                ).fetchone()
            if row is None:
                raise _unknown(identity)
            run, at, mounts, pages = row
            return Shelf(run, at, dict(json.loads(mounts)), list(json.loads(pages)))
        except sqlite3.OperationalError as error:
            raise _unknown(identity) from error
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise Malformed(
                "damaged database of the projection",
                where=str(self._database),
                found=str(error),
                cure="run: marin sync",
            ) from error

    def page(self, identity: str, shelf: Shelf, name: str, make: Callable[[], bytes]) -> Path:
        """Where the page lies that a shelf lists; ``make`` draws it when it was not drawn since the run last
        changed."""
        folder = self._pages / _checked(_ID, identity, "MLflow id")
        path = folder / str(int(shelf.at)) / _checked(_PAGE, name, "name of a page")
        if not path.is_file():
            _replace(path, make())
            for older in folder.iterdir():
                if older.name.isdecimal() and int(older.name) < shelf.at:
                    shutil.rmtree(older, ignore_errors=True)
        return path

    def clear(self) -> None:
        """Forget all pages."""
        shutil.rmtree(self._pages, ignore_errors=True)


def _unknown(identity: str) -> NotFound:
    return NotFound("no artifacts are known for this MLflow run", where=identity, cure="run: marin sync")


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
