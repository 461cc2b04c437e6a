"""Pointers: small JSON files under ``artifacts/`` that name a step's output by content, for Git and DVC.

    {
      "digest": "sha256:…",
      "kind": "tokenizer",
      "size": 61234
    }

Nothing in a pointer changes from run to run when the bits do not: no time, no run, no address in the store. So after
a pipeline a clean ``git status`` says that the published results were reproduced.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger import Malformed, NotFound, parse_digest

FOLDER = Path("artifacts")
METRICS = FOLDER / "metrics"
PLOTS = FOLDER / "plots"
RECEIPTS = Path(".marin") / "receipts"

_FIELDS: dict[str, Callable[[Any], bool]] = {
    "digest": lambda value: isinstance(value, str),
    "kind": lambda value: isinstance(value, str) and bool(value),
    "size": lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
}


@dataclass(frozen=True)
class Pointer:
    """What a step made, named by content."""

    digest: str
    kind: str
    size: int

    def encode(self) -> bytes:
        """The file's bytes: sorted keys, two spaces, one newline at the end."""
        return encode_json({"digest": self.digest, "kind": self.kind, "size": self.size})


def encode_json(value: object) -> bytes:
    """JSON as it is kept in Git: sorted keys, indented, floats by ``repr`` (the shortest that reads back equal)."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def pointer_path(project: Path, step: str) -> Path:
    """Where the pointer of ``step`` lies in a project."""
    return project / FOLDER / f"{step}.json"


def receipt_path(project: Path, step: str) -> Path:
    """Where the receipt of ``step`` lies: its pointer, and the identity of the step that was made, outside Git.

    A fresh clone has every pointer and no receipt, and so DVC executes each stage there instead of believing that
    the committed results were made on this machine. After a pull it executes those that another code or input made,
    also where their bits are the same.
    """
    return project / RECEIPTS / f"{step}.json"


def metrics_path(project: Path, step: str) -> Path:
    """Where the metrics of ``step`` lie."""
    return project / METRICS / f"{step}.json"


def table_path(project: Path, name: str) -> Path:
    """Where the table ``name`` lies, as ``dvc plots`` reads it."""
    return project / PLOTS / f"{name}.csv"


def read_pointer(path: Path) -> Pointer:
    """The pointer in ``path``.

    Raises:
        NotFound: there is no such file.
        Malformed: the file is not a pointer, byte for byte as :meth:`Pointer.encode` writes it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound("no pointer", where=str(path), expected="a pointer file", cure="run `dvc repro`") from None

    def malformed(what: str, expected: str, found: str, *, field: str = "") -> Malformed:
        cure = f"restore it with `git checkout {path.name}` in its folder, or make it again with `dvc repro`"
        where = f"{path}: {field}" if field else str(path)
        return Malformed(what, where=where, expected=expected, found=found, cure=cure)

    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise malformed("pointer is not JSON", "a pointer", str(error)) from None
    if not isinstance(value, dict) or set(value) != set(_FIELDS):
        found = ", ".join(sorted(map(str, value))) if isinstance(value, dict) else type(value).__name__
        raise malformed("pointer has other fields", ", ".join(_FIELDS), found)
    for name, valid in _FIELDS.items():
        if not valid(value[name]):
            raise malformed("pointer has a bad field", "digest, kind, size of an output", repr(value[name]), field=name)
    try:
        parse_digest(value["digest"])
    except Malformed as error:
        found = repr(value["digest"])
        raise malformed("pointer has a bad digest", "sha256:<64 hex digits>", found, field="digest") from error
    pointer = Pointer(digest=value["digest"], kind=value["kind"], size=value["size"])
    if pointer.encode() != data:
        expected = "sorted keys, indented by two spaces"
        raise malformed("pointer is not in its one form", expected, "other bytes for the same content")
    return pointer
