"""The data of a task that lies in a data set of the Hugging Face Hub: files of a repository at a commit, as JSON lines.

Only who asks for an evaluation fetches them. What is evaluated is stored with the evaluation, and read from there by
anyone who judges it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from marin.data.network import hub
from marin.data.network.fetching import fetch_all
from marin.errors import DataError, DataMissing
from marin.plugins.evaluation.harness.documents import read


def lines_of(address: str, where: str) -> Iterator[bytes]:
    """JSON lines of the files that ``address`` names, in order of their paths: ``hf:datasets/OWNER/NAME@COMMIT/PATTERN``, files
    of JSON lines or Parquet. ``where``: the task file.

    Raises:
        UsageError: it is not such an address, the Hub refuses, or the harness does not read what is there.
        MissingEvidence: the Hub cannot be reached.
        DataMissing: no file answers to the pattern, or one cannot be fetched.
        DataError: a file is of another kind, or holds what JSON does not.
    """
    repository, pattern = hub.parse(address)
    named = {path: file for path, file in sorted(hub.files(repository).items()) if fnmatchcase(path, pattern)}
    if not named:
        raise DataMissing(
            "the data of a task is not there",
            where=where,
            expected=f"files {pattern or 'by a pattern'} of {repository.address}",
            found="none",
            cure="correct dataset_kwargs.data_files",
        )
    with TemporaryDirectory(prefix="marin-task-") as folder:
        places = [Path(folder) / f"{number}{Path(path).suffix}" for number, path in enumerate(named)]
        for fault in fetch_all(list(zip(named.values(), places, strict=True))).values():
            raise fault
        for path, place in zip(named, places, strict=True):
            yield _json_lines(place, f"{repository.address}/{path}")


def _json_lines(place: Path, name: str) -> bytes:
    if place.suffix in (".jsonl", ".json"):
        content = place.read_bytes()
        return content if content.endswith(b"\n") or not content else content + b"\n"
    if place.suffix != ".parquet":
        raise DataError(
            "not the data of a task",
            where=name,
            expected="a file .jsonl, .json (lines) or .parquet",
            found=place.suffix or "no suffix",
            cure="name other files of the data set",
        )
    import pyarrow.parquet as pq  # an extra: only where such a file is read

    try:
        rows = pq.read_table(place).to_pylist()
        lines = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
        if rows and repr(list(read({"test": lines}, name)["test"])) != repr(rows):
            raise ValueError("values that lines of JSON do not give back: texts that are dates, maps, numbers of 2^63")
        return lines
    except (OSError, ValueError, TypeError) as error:  # pyarrow's own errors are of these; a date is not JSON
        raise DataError(
            "the data of a task cannot be read",
            where=name,
            expected="Parquet of texts, numbers and lists",
            found=" ".join(str(error).split())[:200],
            cure="name other files of the data set",
        ) from None
