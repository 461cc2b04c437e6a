"""The documents of a task as the harness has them: its data set is what ``datasets.load_dataset("json")`` makes of the lines, and
that infers more than JSON says. A text that is a date is a time, a field that the first line lacks is there, numbers and texts of
one field stay what they are, and an inner object has its own keys alone.

Evaluations that older releases recorded have the documents of ``Dataset.from_list``: the fields of the first line, and in an
inner object the keys of all, with None for those that it does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from marin.errors import UsageError
from marin.plugins.evaluation.recorded.task import EvaluationTask

if TYPE_CHECKING:
    from datasets import Dataset

MOST_FIELDS = 256
"""Of all lines of a split, inner ones too: what reads them takes the square of their number."""


def documents(task: EvaluationTask, rules: int) -> dict[str, Dataset]:
    """The documents of each split. ``rules``: see :class:`~marin.plugins.evaluation.recorded.records.Settings`.

    Raises:
        DataError: a line is not a JSON object.
        UsageError: the harness does not read the lines.
    """
    from datasets import Dataset

    splits = {split: task.rows(split) for split in sorted(task.data)}
    if rules < 3:
        return {split: Dataset.from_list(rows) for split, rows in splits.items()}
    for split, rows in splits.items():
        if (count := _field_names(rows)) > MOST_FIELDS:
            raise UsageError(
                "documents with more fields than a task has",
                where=f"the task {task.name}, {split}",
                expected=f"at most {MOST_FIELDS} fields in all lines, with those of inner objects",
                found=str(count),
                cure="write what differs from line to line as values, and not as names of fields",
            )
    found = read({split: task.data[split] for split, rows in splits.items() if rows}, f"the task {task.name}")
    return {split: found[split] if split in found else Dataset.from_list([]) for split in splits}


def _field_names(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many names there are, each with those that it lies in."""
    known: set[tuple[str, ...]] = set()
    waiting: list[tuple[tuple[str, ...], Any]] = [((), row) for row in rows]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, dict):
            known |= {(*at, name) for name in value}
            waiting += [((*at, name), inner) for name, inner in value.items() if isinstance(inner, dict | list)]
        elif isinstance(value, list):
            waiting += [(at, inner) for inner in value if isinstance(inner, dict | list)]
    return len(known)


def read(lines: Mapping[str, bytes], where: str) -> dict[str, Dataset]:
    """The data set of JSON lines by split, none of which is without a line.

    Raises:
        UsageError: the harness does not read them.
    """
    if not lines:
        return {}
    from datasets import DatasetDict

    with TemporaryDirectory(prefix="marin-task-") as base:
        paths = {split: Path(base) / f"{split}.jsonl" for split in lines}
        for split, path in paths.items():
            path.write_bytes(lines[split])
        try:
            named = {split: str(path) for split, path in paths.items()}
            found: dict[str, Dataset] = DatasetDict.from_json(named, cache_dir=base, keep_in_memory=True)
            for one in found.values():
                list(one)  # Arrow has values that Python has not
        except Exception as error:  # of pyarrow, pandas and the library itself
            raise UsageError(
                "documents that lm-evaluation-harness does not read",
                where=where,
                expected='JSON lines that datasets.load_dataset("json") reads',
                found=" ".join(str(error.__cause__ or error).split())[:200],
                cure="give a field one kind of values, write each once in a line, and numbers that fit in 64 bits",
            ) from None
    return dict(found)
