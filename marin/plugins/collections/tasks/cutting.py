"""The task ``cut``: paragraphs that stand in another kept document go, and digests are said anew of the texts that are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from marin.data.documents import positions
from marin.plugins.collections.document import Action, Decision
from marin.plugins.collections.tasks import columns as arrow
from marin.plugins.collections.tasks import task as tasks
from marin.plugins.collections.tasks.judging import NOTHING

STEP, REASON = "paragraphs", "rule:paragraphs"


def cut_paragraphs(setup: tasks.Setup, task: tasks.Task, out: Path) -> tasks.Counted:
    """``rows`` and ``lines`` of the paragraphs of a shard that go, in order; of each ``kept``, the document that has it, and
    ``holders``, whether others were removed for its own document."""
    folder, form = Path(setup.folder), arrow.judged_schema(0)
    told = tasks.task_rows(folder, task)
    gone = _by_row(*(told[name].tolist() for name in ("rows", "lines", "kept", "holders")))
    row = next(gone, None)
    writer = arrow.ArrowWriter(out / tasks.JUDGED_FILE, form)
    decided, listed = (
        arrow.ParquetWriter(out / tasks.DECIDED, arrow.DECISIONS),
        arrow.ParquetWriter(out / tasks.LISTED, arrow.LISTING),
    )
    said = pq.read_table(folder / "judge" / task.name / tasks.LISTED).to_pylist()
    removed, number = Counter[str](), 0
    before = arrow.ArrowRows(folder / "read" / task.name / tasks.READ_FILE).batches()
    after = arrow.ArrowRows(folder / "judge" / task.name / tasks.JUDGED_FILE).batches()
    for read, batch in zip(before, after, strict=True):
        columns: dict[str, Any] = {name: batch.column(name).to_pylist() for name in form.names}
        for place in range(batch.num_rows):
            listing = said[number]
            if row is not None and row[0] == number:
                own = columns["text"][place]
                own = read.column("text")[place].as_py() if own is None else own
                left, evidence = _without(own, row[1], row[2])
                action: Action = "change" if left.strip() else "keep" if row[3] else "remove"
                decided.write(arrow.decision_row(Decision(listing["id"], STEP, action, REASON, evidence), 0))
                if action == "remove":
                    removed[REASON] += 1
                    left = ""
                elif action == "keep":
                    left = own
                encoded = left.encode()
                digest = sha256(encoded).digest() if left else NOTHING
                drawn = positions(digest)
                values = (digest, *drawn, "" if left else REASON, len(encoded), left if left else None)
                for name, value in zip(("digest", "place", "draw", "reason", "size", "text"), values, strict=True):
                    columns[name][place] = value
                listing |= {"digest": digest.hex() if left else "", "reason": columns["reason"][place]}
                row = next(gone, None)
            listed.write(tuple(listing[name] for name in arrow.LISTING.names))
            number += 1
        writer.write_columns(list(columns.values()))
    writer.close()
    decided.close()
    listed.close()
    return tasks.Counted({}, removed=dict(removed))


def _by_row(
    rows: list[int], lines: list[int], kept: list[bytes], holders: list[bool]
) -> Iterator[tuple[int, set[int], str, bool]]:
    """Row, lines that go, the document that has the first of them, and whether others were removed for that of the row."""
    begin = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[begin]:
            yield rows[begin], set(lines[begin:place]), kept[begin].hex(), holders[begin]
            begin = place


def _without(text: str, gone: set[int], kept: str) -> tuple[str, dict[str, Any]]:
    lines = text.split("\n")
    left = "\n".join(line for number, line in enumerate(lines) if number not in gone).strip("\n")
    return left, {"kept": kept, "paragraphs": len(gone), "characters": sum(len(lines[number]) for number in gone)}
