"""The task ``near``: candidates that hang together, compared by their shingles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from marin.plugins.collections.comparing.near import Choice
from marin.plugins.collections.tasks import task as tasks
from marin.plugins.collections.tasks.columns import BOUNDED, NEAR, ParquetWriter, band_name

MEMBERS = 512
"""Texts that are in memory at a time, besides the shingles of those that are kept."""


def compare(setup: tasks.Setup, task: tasks.Task, out: Path) -> tasks.Counted:
    """``shards``, ``rows``, ``ids`` of documents in the order in which they are considered; ``ends`` of the components."""
    near = setup.settings.near
    assert near is not None
    told = tasks.task_rows(Path(setup.folder), task)
    opened = tasks.ShardRows(setup, told["names"].tolist(), "judge")
    shards, rows, ids = told["shards"], told["rows"], told["ids"]
    bands = [band_name(band) for band in range(near.bands)]
    writer = ParquetWriter(out / tasks.NEAR_FILE, NEAR)
    counts, removed, begin = Counter[str](), list[int](), 0
    bounded: list[tuple[str, int, int]] = []

    def members(first: int, end: int) -> Iterator[tuple[str, Sequence[int]]]:
        for piece in tasks.blocks(end - first, MEMBERS):
            some = slice(first + piece.start, first + piece.stop)
            for text, *keys in opened.take(shards[some], rows[some], (), bands):
                yield text, keys

    for end in told["ends"].tolist():
        choice = Choice(near, setup.definition)
        cluster = min(ids[begin:end].tolist()).hex()
        for one in choice.choose(members(begin, end)):
            names = (ids[begin + one.removed].item().hex(), ids[begin + one.kept].item().hex())
            writer.write((*names, one.shared, one.united, cluster))
            removed.append(begin + one.removed)
        counts["not_compared_with_all"] += choice.left
        bounded += [(ids[begin + one.place].item().hex(), one.compared, one.candidates) for one in choice.bounded]
        begin = end
    counts["removed"] = len(removed)
    writer.close()
    if bounded:
        named = ParquetWriter(out / tasks.BOUNDED_FILE, BOUNDED)
        for row in bounded:
            named.write(row)
        named.close()
    np.save(out / tasks.REMOVED_FILE, np.array(removed, np.int64))
    return tasks.Counted(dict(counts))
