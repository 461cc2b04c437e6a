"""The task ``write``: a shard of the documents that are kept, in the order of their ids."""

from __future__ import annotations

from pathlib import Path

from marin.plugins.collections.tasks.columns import DOCUMENTS, ParquetWriter
from marin.plugins.collections.tasks.task import (
    WRITTEN,
    Counted,
    Setup,
    ShardRows,
    Task,
    blocks,
    judged_kind,
    task_rows,
)

ROWS = 1 << 15
"""Texts that are in memory at a time, besides a row group; never more than those of a shard. Rows in the order of their ids are
scattered over all that was read, so few of them at a time would open a batch for each."""


def write_documents(setup: Setup, task: Task, out: Path) -> Counted:
    """``shards``, ``rows`` of documents, source of each shard, and whether it is ``held_out``, in the order of the shard."""
    told = task_rows(Path(setup.folder), task)
    opened = ShardRows(setup, told["names"].tolist(), judged_kind(setup.settings))
    shards, rows, held_out = told["shards"], told["rows"], told["held_out"]
    names = [found.source.name for found in setup.sources]
    sources = [names[number] for number in told["sources"].tolist()]
    writer = ParquetWriter(out / WRITTEN, DOCUMENTS)
    for piece in blocks(len(rows), ROWS):
        taken = opened.take(shards[piece], rows[piece], ("id", "added", "created", "metadata"))
        for (text, identity, added, created, metadata), shard, held in zip(
            taken, shards[piece].tolist(), held_out[piece].tolist(), strict=True
        ):
            split = "validation" if held else "train"
            writer.write((identity.hex(), text, sources[shard], added, created, metadata, split))
    writer.close()
    return Counted({"documents": len(rows)})
