"""BabyLM's data as tasks: the files of the pipeline's ``full_eval`` or ``fast_eval``, and what each line of them asks.

A task is data: its configuration names one of the kinds below, its data is JSON lines. Tables (reading times, words of the
age of acquisition) are kept as one JSON object a row.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from marin.errors import DataError, DataMissing, UsageError
from marin.plugins.evaluation.recorded.task import NAME, EvaluationTask

BABYLM = "babylm-eval 2026"
"""Who asks, as it is recorded."""
KINDS: Mapping[str, str] = {
    "blimp_filtered": "blimp",
    "supplement_filtered": "blimp",
    "ewok_filtered": "ewok",
    "entity_tracking": "entity_tracking",
    "wug_adj_nominalization": "wug_adj",
    "wug_past_tense": "wug_past",
    "comps": "comps",
    "reading": "reading",
    "aoa": "aoa",
    "blimp_fast": "blimp",
    "supplement_fast": "blimp",
    "ewok_fast": "ewok",
    "entity_tracking_fast": "entity_tracking",
}
"""Data sets by the name of their folder, with what they ask."""
FAST = (
    "blimp_fast",
    "supplement_fast",
    "ewok_fast",
    "entity_tracking_fast",
    "wug_adj_nominalization",
    "wug_past_tense",
    "reading",
)
"""Those that every checkpoint is asked."""
FULL = (
    "blimp_filtered",
    "supplement_filtered",
    "ewok_filtered",
    "entity_tracking",
    "wug_adj_nominalization",
    "wug_past_tense",
    "comps",
    "reading",
)
"""Those that the last state is asked."""
READING = "reading/reading_data.csv"
WORDS = ("aoa/cdi_childes.json", "cdi_childes/cdi_childes.json")
"""Where the words of the age of acquisition lie; the pipeline names both places."""
COMPS = {"comps_base": "base", "comps_wugs": "wugs", "comps_wugs_dist-before": "wugs_dist_before"}
CHOICES = ("blimp", "ewok", "entity_tracking", "comps", "wug_adj", "wug_past")


@dataclass(frozen=True)
class Item:
    """One document: of the subtask ``uid``. ``texts``: each with how many of its last characters are scored, or, of reading
    times, the word that comes after it. ``said``: what a prediction says of each. ``ratio``: of people who chose the first,
    where the task is about that; ``digest``: of the document."""

    uid: str
    texts: tuple[tuple[str, int | str], ...]
    said: tuple[str, ...]
    digest: str
    ratio: float | None = None


def read(folder: Path, names: Sequence[str] = ()) -> list[EvaluationTask]:
    """The data sets of ``folder`` (the pipeline's ``full_eval`` or ``fast_eval``) of these names, or all that are there.

    Raises:
        UsageError: none has such a name. DataMissing: it is not there. DataError: a line is not what the task has.
    """
    if odd := [name for name in names if name not in KINDS]:
        near = difflib.get_close_matches(odd[0], KINDS, n=3, cutoff=0.3) or list(KINDS)
        raise UsageError("no such data set of BabyLM", where="--tasks", expected=", ".join(near), found=odd[0])
    found = [task for name in names or KINDS if (task := _task_of(folder, name)) is not None]
    if lacking := sorted({*names} - {task.name for task in found}) or ([] if found else ["all of them"]):
        raise DataMissing(
            "data of BabyLM's pipeline is not there",
            where=str(folder),
            expected="its full_eval or fast_eval",
            found=f"nothing of {', '.join(lacking)}",
            cure="put the pipeline's evaluation_data there; its README says where it is published",
        )
    return [checked(task, str(folder / task.name)) for task in found]


def _task_of(folder: Path, name: str) -> EvaluationTask | None:
    kind = KINDS[name]
    if kind == "reading":
        file = folder / READING
        data = {file.stem: _table(file)} if file.is_file() else {}
    elif kind == "aoa":
        place = next((path for path in (folder / word for word in WORDS) if path.is_file()), None)
        data = {place.stem: _words(place)} if place is not None else {}
    else:
        data = {path.stem: path.read_bytes() for path in sorted((folder / name).glob("*.jsonl"))}
    return EvaluationTask(name, {"babylm": kind}, data) if data else None


def _table(file: Path) -> bytes:
    try:
        rows = list(csv.DictReader(io.StringIO(file.read_bytes().decode(), newline="")))
    except (ValueError, csv.Error) as error:
        raise _not(str(file), "reading", error) from None
    return _lines({key or "number": value for key, value in row.items() if isinstance(value, str)} for row in rows)


def _words(file: Path) -> bytes:
    try:
        table = json.loads(file.read_bytes())
        rows = [{"word": word, "contexts": [one["context"] for one in contexts]} for word, contexts in table.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _not(str(file), "aoa", error) from None
    return _lines(rows)


def _lines(rows: Any) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def checked(task: EvaluationTask, where: str) -> EvaluationTask:
    """``task``, which is one of the data sets above, and whose every line is a document of it.

    Raises:
        DataError: it is not.
    """
    if dict(task.config) != {"babylm": KINDS.get(task.name)} or not all(NAME.fullmatch(split) for split in task.data):
        raise DataError("no data set of BabyLM", where=where, expected=", ".join(KINDS), found=task.name)
    for _ in items(task):
        pass
    return task


def items(task: EvaluationTask, limit: int | None = None) -> Iterator[Item]:
    """The documents of a task, in the order of its files by name; of each file the first ``limit``.

    Raises:
        DataError: a line is not what the task has.
    """
    kind = task.config["babylm"]
    for split in sorted(task.data):
        yield from islice(_items(task.data[split], kind, split), limit)


def _items(data: bytes, kind: str, stem: str) -> Iterator[Item]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair is not a character
            yield from _FORMS[kind](row, kind, stem, hashlib.sha256(line).hexdigest())
        except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _not(f"{stem}:{number}", kind, error) from None


def _choice(row: Mapping[str, Any], kind: str, stem: str, digest: str) -> Iterator[Item]:
    if kind == "blimp":
        yield _whole(row["UID"] if "field" in row else stem, [row["sentence_good"], row["sentence_bad"]], digest)
    elif kind == "ewok":
        ends = [" " + row[name] for name in ("Target1", "Target2")]
        texts = tuple((row["Context1"] + end, len(end)) for end in ends)
        yield Item(str(row["Domain"]), texts, tuple(ends), digest)
    elif kind == "entity_tracking":
        options = [str(option) for option in row["options"]]
        if not options:
            raise ValueError("no options")
        texts = tuple((row["input_prefix"] + end, len(end)) for end in options)
        yield Item(f"{stem}_{int(row['numops'])}_ops", texts, tuple(options), digest)
    elif kind == "comps":
        both = [" ".join([row[f"prefix_{name}"], row["property_phrase"]]) for name in ("acceptable", "unacceptable")]
        texts = tuple((text, len(row["property_phrase"])) for text in both)
        yield Item(COMPS.get(stem, "wugs_dist_in_between"), texts, tuple(both), digest)
    else:
        yield _whole(kind, row["sentences"].split("\t"), digest, float(row["ratio"]))


def _whole(uid: str, texts: Sequence[str], digest: str, ratio: float | None = None) -> Item:
    return Item(str(uid), tuple((text, len(text)) for text in texts), tuple(texts), digest, ratio)


def _read_word(row: Mapping[str, Any], kind: str, stem: str, digest: str) -> Iterator[Item]:
    asked = [(row["item"] or "None", row["word"])]
    asked += [(row["prev_item"], row["prev_word"])] if row["prev_item"] else []
    yield Item("reading", tuple((str(text), str(word)) for text, word in asked), (), digest)


def _learned_word(row: Mapping[str, Any], kind: str, stem: str, digest: str) -> Iterator[Item]:
    word = row["word"].strip()
    for number, context in enumerate(row["contexts"] if len(row["word"]) > 1 else ()):
        yield Item(word, ((f"{context.strip()} {word}", len(word)),), (str(number), context), digest)


_FORMS: Mapping[str, Callable[[Mapping[str, Any], str, str, str], Iterator[Item]]] = {
    **dict.fromkeys(CHOICES, _choice),
    "reading": _read_word,
    "aoa": _learned_word,
}


def _not(where: str, kind: str, error: Exception) -> DataError:
    found = f"{type(error).__name__}: {str(error)[:80]}"
    return DataError("not a document of this task", where=where, expected=f"the fields of {kind}", found=found)
