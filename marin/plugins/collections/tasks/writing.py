"""The task ``write``: a shard of the documents that are kept, in the order of their ids."""

from __future__ import annotations

from pathlib import Path

from marin.plugins.collections.tasks import task as tasks
from marin.plugins.collections.tasks.columns import DOCUMENTS, ParquetWriter

ROWS = 1 << 15
"""Texts that are in memory at a time, besides a row group; never more than those of a shard. Rows in the order of their ids are
scattered over all that was read, so few of them at a time would open a batch for each."""


def write_documents(setup: tasks.Setup, task: tasks.Task, out: Path) -> tasks.Counted:
    """``shards``, ``rows`` of documents, source of each shard, and whether it is ``held_out``, in the order of the shard."""
    told = tasks.task_rows(Path(setup.folder), task)
    opened = tasks.ShardRows(setup, told["names"].tolist(), tasks.judged_kind(setup.settings))
    shards, rows, held_out = told["shards"], told["rows"], told["held_out"]
    names = [found.source.name for found in setup.sources]
    sources = [names[number] for number in told["sources"].tolist()]
    writer = ParquetWriter(out / tasks.WRITTEN, DOCUMENTS)
    for piece in tasks.blocks(len(rows), ROWS):
        taken = opened.take(shards[piece], rows[piece], ("id", "added", "created", "metadata"))
        for (text, identity, added, created, metadata), shard, held in zip(
            taken, shards[piece].tolist(), held_out[piece].tolist(), strict=True
        ):
            split = "validation" if held else "train"
            writer.write((identity.hex(), text, sources[shard], added, created, metadata, split))
    writer.close()
    return tasks.Counted({"documents": len(rows)})
