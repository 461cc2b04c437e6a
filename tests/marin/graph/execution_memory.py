"""What executions keep in memory, counted in a process of its own: a thread that a test left behind allocates, too.

    python execution_memory.py FILE FOLDER [FILE FOLDER...]

For each experiment file, executed in this process in a root of that folder: bytes that are held after the last step and
were not before the first, and bytes at most in between. As JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import batched
from pathlib import Path

from ledger import Draft, Receipt
from marin.execution.leases.lease import Claimant
from marin.graph.execution import loop
from marin.graph.execution.loop import GraphExecution, Options
from marin.graph.files import load_graph
from marin.record.creation import create_root
from marin.record.root import Root

LONG = timedelta(days=1)
"""Of a lease: on a busy machine one of the executions would renew its own, and read the log for it, and another would not."""


@lru_cache(maxsize=1)
def bounded() -> None:
    """For its type."""


def without_garbage(append: Callable[..., list[Receipt]]) -> Callable[..., list[Receipt]]:
    """A log that was opened for a batch goes in a circle of a megabyte: whether the collector has come by since is no
    matter of how many steps there are."""

    def appended(root: Root, drafts: Sequence[Draft]) -> list[Receipt]:
        gc.collect()
        return append(root, drafts)

    return appended


def kept(file: str, folder: str) -> tuple[int, int]:
    """Bytes kept of this execution, and its peak."""
    graph, root = load_graph(Path(file)), create_root(folder, origin=f"marin.test/{Path(folder).name}")
    execution = GraphExecution(graph, root, None, Options(), Claimant("counted", term=LONG))
    gc.collect()
    tracemalloc.start()
    try:
        execution.run()
        peak = tracemalloc.get_traced_memory()[1]  # before the list of all objects, which is longer than anything here
        for thing in gc.get_objects():  # caches that have a bound are no growth, one without a bound would be
            if isinstance(thing, type(bounded)) and thing.cache_parameters()["maxsize"] is not None:
                thing.cache_clear()
        gc.collect()
        now = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert execution.end().counts == {"executed": len(graph.nodes)}
    return now, peak


if __name__ == "__main__":
    # The table of interned strings doubles when it is full, a megabyte at a time, wherever that happens to be: not here.
    for number in range(100_000):
        sys.intern(f"a string to be there before all are counted, {number}")
    Root.append = without_garbage(Root.append)  # type: ignore[method-assign]
    loop.BATCH, loop.WINDOW = 100, 200  # what is kept up to a bound is there in all of them
    sys.stdout.write(json.dumps([kept(file, folder) for file, folder in batched(sys.argv[1:], 2)]) + "\n")
