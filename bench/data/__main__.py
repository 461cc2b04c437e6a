"""`python -m bench.data WHAT [options]`: figures of collections (bench/data/steps.py, scale.py), a JSON object a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.data import scale, steps


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
    if given.folder is None:
        raise SystemExit("--folder names a folder on a disk with room")
    counts = [int(one) for one in (given.documents or "100000").split(",")]
    if given.what == "curve":
        return scale.curve(counts, given.folder)
    workers = [int(one) for one in given.workers.split(",")]
    return scale.digest(counts[0], workers, given.kills, given.pause, given.folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.data", description=__doc__)
    parser.add_argument("what", choices=("html", "rules", "exact", "near", "curve", "digest"))
    parser.add_argument("--documents", help="how many; of curve several with commas between")
    parser.add_argument(
        "--peers", default="", metavar="PYTHON", help="of an environment with the peers (bench/data/peers.py)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where documents and collections lie meanwhile")
    parser.add_argument("--workers", default="1,2,8")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause", type=float, default=20.0, help="seconds between two kills, about")
    for figure in figures(parser.parse_args()):
        sys.stdout.write(json.dumps(figure) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
