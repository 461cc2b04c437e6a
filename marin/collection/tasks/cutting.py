"""The task ``cut``: paragraphs that stand in another document go, and what was judged is said anew of the texts that are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from marin.collection.comparing.near import signatures
from marin.collection.document import Decision
from marin.collection.tasks.columns import (
    DECISIONS,
    LISTING,
    ArrowRows,
    ArrowWriter,
    ParquetWriter,
    decision_row,
    judged,
)
from marin.collection.tasks.judging import NOTHING
from marin.collection.tasks.task import DECIDED, JUDGED_FILE, LISTED, READ_FILE, Answer, Setup, Task, given
from marin.data.documents import positions

STEP, REASON = "paragraphs", "rule:paragraphs"


def cut_paragraphs(setup: Setup, task: Task, out: Path) -> Answer:
    """``rows`` and ``lines`` of the paragraphs of a shard that go, in order; of each ``kept``, the document that has it."""
    folder, near = Path(setup.folder), setup.settings.near
    told = given(folder, task)
    gone = _by_row(told["rows"].tolist(), told["lines"].tolist(), told["kept"].tolist())
    row = next(gone, None)
    writer = ArrowWriter(out / JUDGED_FILE, judged(near.bands if near is not None else 0))
    decided, listed = ParquetWriter(out / DECIDED, DECISIONS), ParquetWriter(out / LISTED, LISTING)
    said = pq.read_table(folder / "judge" / task.name / LISTED).to_pylist()
    removed, number = Counter[str](), 0
    before = ArrowRows(folder / "read" / task.name / READ_FILE).batches()
    after = ArrowRows(folder / "judge" / task.name / JUDGED_FILE).batches()
    for read, batch in zip(before, after, strict=True):
        columns: dict[str, Any] = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        texts: list[tuple[int, str]] = []
        for place in range(batch.num_rows):
            listing = said[number]
            if row is not None and row[0] == number:
                own = columns["text"][place]
                own = read.column("text")[place].as_py() if own is None else own
                left, evidence = _without(own, row[1], row[2])
                action = "change" if left.strip() else "remove"
                decision = Decision(listing["id"], STEP, action, REASON, evidence)  # type: ignore[arg-type]
                decided.write(decision_row(decision, 0))
                if action == "remove":
                    removed[REASON] += 1
                    left = ""
                encoded = left.encode()
                digest = sha256(encoded).digest() if left else NOTHING
                drawn = positions(digest)
                values = (digest, *drawn, "" if left else REASON, len(encoded), left if left else None)
                for name, value in zip(("digest", "place", "draw", "reason", "size", "text"), values, strict=True):
                    columns[name][place] = value
                listing |= {"digest": digest.hex() if left else "", "reason": columns["reason"][place]}
                texts.append((place, left))
                row = next(gone, None)
            listed.write(tuple(listing[name] for name in LISTING.names))
            number += 1
        if near is not None and texts:
            keys, shingled = signatures([text for _, text in texts], near)
            for (place, _), own_keys, has in zip(texts, keys.tolist(), shingled.tolist(), strict=True):
                columns["shingled"][place] = has
                for name, key in zip(list(columns)[-near.bands :], own_keys, strict=True):
                    columns[name][place] = np.uint64(key)
        writer.write_columns(list(columns.values()))
    writer.close()
    decided.close()
    listed.close()
    return Answer({}, removed=dict(removed))


def _by_row(rows: list[int], lines: list[int], kept: list[bytes]) -> Iterator[tuple[int, set[int], str]]:
    """Row, lines that go, and the document that has the first of them."""
    begin = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[begin]:
            yield rows[begin], set(lines[begin:place]), kept[begin].hex()
            begin = place


def _without(text: str, gone: set[int], kept: str) -> tuple[str, dict[str, Any]]:
    lines = text.split("\n")
    left = "\n".join(line for number, line in enumerate(lines) if number not in gone).strip("\n")
    return left, {"kept": kept, "paragraphs": len(gone), "characters": sum(len(lines[number]) for number in gone)}
