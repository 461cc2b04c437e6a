"""A text file as a task of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from marin.data.text import BYTE_ORDER_MARK
from marin.errors import DataError, DataMissing, UsageError
from marin.plugins.evaluation.recorded.task import LONGEST_LINE, NAME, EvaluationTask

VERSION = "text-perplexity 1"
CONFIG = {"perplexity": "text"}
SPLIT = "text"


def read(path: Path, names: Sequence[str] = ()) -> list[EvaluationTask]:
    """The file as a task, which is called as the file is.

    Raises:
        UsageError: a task is named beside the file.
        DataMissing: the file is not there.
        DataError: it is not text, is empty, or is longer than a task may be.
    """
    if names:
        raise UsageError("a file is one task", where="--text", expected="no --tasks", found=", ".join(names))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataMissing(
            "a text cannot be read", where=str(path), found=error.strerror or str(error), cure="check its path and mode"
        ) from error
    try:
        line = json.dumps({"text": data.removeprefix(BYTE_ORDER_MARK).decode()}, ensure_ascii=False).encode() + b"\n"
    except UnicodeDecodeError as error:
        raise DataError(
            "not a text", where=str(path), expected="UTF-8", found=f"another byte at {error.start}"
        ) from error
    if len(line) > LONGEST_LINE:
        raise DataError(
            "a text is too long", where=str(path), expected=f"at most {LONGEST_LINE} bytes", cure="divide the file"
        )
    name = path.stem if NAME.fullmatch(path.stem) else SPLIT
    return [checked(EvaluationTask(name, CONFIG, {SPLIT: line}), str(path))]


def checked(task: EvaluationTask, where: str) -> EvaluationTask:
    """``task``, which is one text that is not empty.

    Raises:
        DataError: it is not.
    """
    rows = task.rows(SPLIT) if dict(task.config) == CONFIG and set(task.data) == {SPLIT} else []
    text = rows[0].get("text") if len(rows) == 1 and set(rows[0]) == {"text"} else None
    if not isinstance(text, str) or not text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise DataError(
            "not a text to measure", where=where, expected="one text that is not empty", cure="name another file"
        )
    return task
