"""A result as a file: its lines, found in it as MLPerf's own checkers find them, and what these would mistake.

The checker of reference points looks for some keys as words anywhere in a line: in a file's name, in a value, in what says which
source wrote the line. So a line may pass for one that it is not, and one whose key is written with escapes for none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.errors import DataError, UsageError

MARK = ":::MLLOG "
OF_THE_CODE = ("file", "lineno")
MOST = 64 << 20
"""Bytes of a result."""
WORDS = ("global_batch_size", "submission_benchmark", "eval_accuracy", "eval_error", "run_stop")
"""Keys that the checker of reference points looks for as words of a line."""


@dataclass(frozen=True)
class ResultLine:
    """A line of a result: where it stands in the file (from 1), and its object without what is of the code. ``mistaken``: for
    what else a checker takes it, in a sentence; "" where it does not."""

    number: int
    entry: dict[str, Any]
    mistaken: str = ""


def bytes_of(file: Path) -> bytes:
    """What is in the file of a result; one byte more than it may have, where it has more.

    Raises:
        UsageError: it is not a file.
    """
    if not file.is_file():
        raise UsageError("a result is a file", where=str(file), expected="one of words", found="something else")
    with file.open("rb") as stream:
        return stream.read(MOST + 1)


def read_result(data: bytes, where: str) -> list[ResultLine]:
    """The lines of a result, found in it as MLPerf's own checkers find them.

    Raises:
        DataError: it is too long, or a line is not an object.
    """
    if len(data) > MOST:
        raise DataError("a result is too long", where=where, expected=f"{MOST} bytes", found="more")
    text = data.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if MARK not in line:
            continue
        told = line.rpartition(MARK)[2]
        try:
            entry = json.loads(told)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            raise DataError(
                "no line of a log",
                where=f"{where}:{number}",
                expected="a JSON object with a key",
                found=repr(line[:80]),
            )
        metadata = entry.get("metadata")
        if isinstance(metadata, dict):
            entry["metadata"] = {key: value for key, value in metadata.items() if key not in OF_THE_CODE}
        found.append(ResultLine(number, entry, _mistaken(number, entry["key"], told)))
    return found


def _mistaken(number: int, key: str, told: str) -> str:
    word = next((word for word in WORDS if (word in told) != (word == key)), None)
    if word is None:
        return ""
    taken = "hides its key from a checker" if word == key else f"a checker takes it for {word}"
    return f"line {number}: {key[:80]}: {taken}, by what else it says"


def repeated_seeds(results: Mapping[str, Sequence[ResultLine]]) -> list[str]:
    """The seeds that two results have, in sentences, wherever in the source they were logged: a replay is not a second result."""
    first: dict[str, str] = {}
    seeds = [
        (name, seed)
        for name, said in results.items()
        for seed in dict.fromkeys(_seed(one) for one in said if one.entry["key"] == "seed")
    ]
    return [
        f"seed {seed[:80]} of {name} is that of {other}"
        for name, seed in seeds
        if (other := first.setdefault(seed, name)) != name
    ]


def _seed(said: ResultLine) -> str:
    """As the checker of seeds reads it."""
    value = said.entry.get("value")
    try:
        return str(int(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return json.dumps(value)
