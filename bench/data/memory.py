"""What a build holds in memory, by `marin data build` as a process of its own, and each worker of its Ray measured apart.

    python -m bench.data memory --gigabytes 2 --workers 1,2 --folder SPACE
    python -m bench.data duplicates --documents 1000000,10000000 --folder SPACE

``memory`` generates documents and builds them by each number of workers; the command is in a control group with a limit
(``--limit``, GiB; 0 for none), the workers in one of so many times as much, pages of files included, where the machine allows it
(bench/data/limits.py). It fails where two builds have different digests. ``duplicates`` builds so many copies of one document, by
one process without a limit; ``over_first`` is processor time a document over that of the first number: 1 is linear.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench.data.corpus import write
from bench.data.limits import groups
from bench.data.scale import environment
from bench.data.watching import Process, watched

DOCUMENT = 1300
"""Bytes of a generated document, a little less than it has."""
EQUAL = "One document among many that say the very same, word for word, as pages of a site do that answers every address alike."
"""What it says, twice."""


def memory(gigabytes: float, workers: list[int], limit: float, folder: Path) -> Iterator[dict[str, Any]]:
    """One line for each number of workers. ``limit``: GiB, 0 for none."""
    count = -(-int(gigabytes * 1e9) // DOCUMENT)
    raw = folder / f"raw-{count}"
    size, most = write(raw, count), int(limit * (1 << 30))
    artifacts = set()
    for number in workers:
        with groups(most, number) if most else nullcontext() as limited:
            place = limited.place if limited is not None else _nowhere
            found = built(folder / f"memory-{number}-{time.time_ns()}", f"{raw}/*.jsonl", number, place)
            said = {"bytes": most, "by": limited.by, "ended_by_it": limited.ended()} if limited is not None else None
        artifacts.add(found["artifact"])
        yield {"what": "memory", "workers": number, "bytes": size, "limit": said, **found}
    if len(artifacts) != 1:
        raise SystemExit(f"{len(artifacts)} digests: {sorted(artifacts)}")


def duplicates(counts: list[int], folder: Path) -> Iterator[dict[str, Any]]:
    """One line for each number of documents."""
    line = json.dumps({"text": f"{EQUAL} {EQUAL}"}) + "\n"
    first = 0.0
    for count in counts:
        raw = folder / f"equal-{count}.jsonl"
        with raw.open("w", encoding="ascii") as file:
            for begin in range(0, count, 10_000):
                file.write(line * min(10_000, count - begin))
        found = built(folder / f"duplicates-{count}-{time.time_ns()}", str(raw), 1, _nowhere)
        each = found["cpu_seconds"] / count
        first = first or each
        yield {"what": "duplicates", "bytes": raw.stat().st_size, "over_first": round(each / first, 2), **found}


def built(folder: Path, sources: str, workers: int, place: Callable[[Process], None]) -> dict[str, Any]:
    """`marin data build` in the new ``folder``, watched; ``place`` is called with each of its processes."""
    folder.mkdir(parents=True)
    own, marin = environment(folder), [sys.executable, "-m", "marin.cli.main"]
    subprocess.run(
        [*marin, "init"], cwd=folder, env=own, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    command = [*marin, "data", "build", "--source", sources, "--workers", str(workers), "--json"]
    printed, seconds, peaks = watched(command, folder, own, place)
    told = json.loads(printed)
    return {
        "documents": told["documents"],
        "removed": told["removed"],
        "artifact": told["artifact"],
        "seconds": round(seconds, 1),
        **peaks,
    }


def _nowhere(process: Process) -> None:
    """Not limited."""
