"""`python -m bench.house`: the gauges, and what is in the most files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median

from bench.house import gauges


def report() -> Iterator[str]:
    """Line by line."""
    for name, start in (
        ("verification", gauges.VERIFICATION),
        ("stage", gauges.STAGE),
        ("README", gauges.README),
        ("README and its plugin", (*gauges.README, *gauges.UI)),
    ):
        found = gauges.reach(start)
        yield (f"{name}: {gauges.lines(found):,} lines in {len(found)} files")
        rooms: dict[str, int] = {}
        for file in found:
            room = "/".join(file.relative_to(gauges.PROJECT).parts[:2])
            rooms[room] = rooms.get(room, 0) + gauges.lines([file])
        yield "    " + (
            ", ".join(f"{room} {size:,}" for room, size in sorted(rooms.items(), key=lambda item: -item[1]))
        )
    yield (f"product: {gauges.lines(gauges.FILES):,} lines in {len(gauges.FILES)} files")
    named = gauges.files_naming(gauges.event_types())
    counts = sorted(len(files) for files in named.values())
    yield (f"core files that name an event type: median {median(counts)}, most {counts[-1]}")
    yield "places that write step.started: " + ", ".join(gauges.calls("StepStarted"))
    yield "forms of a worker's setup, task and answer: " + ", ".join(gauges.functions(gauges.STARTS))
    yield "forms of a result: " + ", ".join(gauges.holders("Output"))
    yield "places that hash an artifact to decide: " + ", ".join(gauges.hashing())
    for kind, files in sorted(named.items(), key=lambda item: -len(item[1])):
        yield (f"    {kind}: {len(files)}")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report())
