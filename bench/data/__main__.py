"""`python -m bench.data WHAT [options]`: figures of collections (steps.py, scale.py, memory.py here), a JSON object a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.data import memory, plan, scale, steps, tokens


def figures(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What was asked for."""
    if given.what == "html":
        return steps.html(given.rounds)
    if given.what == "rules":
        return steps.rules(int(given.documents or 3000), given.peers)
    if given.what == "exact":
        return steps.exact(int(given.documents or 1_000_000))
    if given.what == "near":
        return steps.near(int(given.documents or 50_000), given.peers)
    if given.what == "tokens":
        return tokens.tokens(int(given.documents or 3000), given.rounds)
    numbers = [int(one) for one in given.workers.split(",")]
    if given.what == "workers":
        return tokens.workers(int(given.documents or 3000), numbers, given.rounds)
    if given.what == "plan":
        if given.figures is None:
            raise SystemExit("--figures names a file with what the other benchmarks printed")
        sizes = [float(one) for one in given.bytes.split(",")]
        cores = [int(one) for one in given.cores.split(",")]
        return plan.plan(given.figures, sizes, cores)
    if given.folder is None:
        raise SystemExit("--folder names a folder on a disk with room")
    counts = [int(one) for one in (given.documents or "100000").split(",")]
    if given.what == "curve":
        return scale.curve(counts, given.folder)
    if given.what == "memory":
        return memory.memory(given.gigabytes, numbers, given.limit, given.folder)
    if given.what == "duplicates":
        return memory.duplicates(counts, given.folder)
    return scale.digest(counts[0], numbers, given.kills, given.pause, given.folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.data", description=__doc__)
    parser.add_argument(
        "what",
        choices=(
            *("html", "rules", "exact", "near", "tokens", "workers"),
            *("curve", "memory", "duplicates", "digest", "plan"),
        ),
    )
    parser.add_argument("--documents", help="how many; of curve and duplicates several with commas between")
    parser.add_argument(
        "--peers", default="", metavar="PYTHON", help="of an environment with the peers (bench/data/peers.py)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where documents and collections lie meanwhile")
    parser.add_argument("--figures", type=Path, help="of plan: lines that the other benchmarks printed")
    parser.add_argument("--bytes", default="50e9,15e12", help="of plan: bytes of text, with commas between")
    parser.add_argument("--cores", default="64,1024", help="of plan: for each of them, over how many cores")
    parser.add_argument("--workers", default="1,2,8")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of memory: how much text")
    parser.add_argument("--limit", type=float, default=1.0, help="of memory: GiB for each process; 0 for none")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause", type=float, default=20.0, help="seconds between two kills, about")
    for figure in figures(parser.parse_args()):
        sys.stdout.write(json.dumps(figure) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
