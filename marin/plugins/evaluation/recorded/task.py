"""A task as it is recorded: a name, what it asks in plain JSON, and the bytes of its data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin.errors import DataError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,119}")
LONGEST_LINE = 2**24


@dataclass(frozen=True)
class EvaluationTask:
    """``config``: what it asks, in plain JSON, without where its data lies. ``data``: split -> JSON lines."""

    name: str
    config: Mapping[str, Any]
    data: Mapping[str, bytes]

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The documents of one split.

        Raises:
            DataError: a line is not a JSON object.
        """
        return list(_rows(self.data[split], f"{self.name}/{split}"))


def _rows(data: bytes, where: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode()) if len(line) <= LONGEST_LINE else None
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not row:
            raise DataError(
                "not a document of a task",
                where=f"{where}, line {number}",
                expected="a JSON object with fields",
                found=repr(line[:80]),
                cure="write one object a line",
            )
        yield row
