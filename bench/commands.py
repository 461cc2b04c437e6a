"""How long the commands take that people wait for, as processes of their own, on a log of ten thousand events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.figure import Figure, best_seconds

EVENTS = 10_000


def measure() -> Iterator[Figure]:
    """Seconds of each command."""
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as folder:
        variables = os.environ | {"MARIN_ROOT": f"{folder}/root", "XDG_CONFIG_HOME": f"{folder}/config"}

        def marin(*arguments: str) -> None:
            command = [sys.executable, "-m", "marin.cli.main", *arguments]
            subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)

        yield Figure("marin --help", best_seconds(lambda: marin("--help")), "s")
        marin("init")
        batch = Path(folder) / "batch.jsonl"
        batch.write_text(
            "".join(
                json.dumps({"type": "bench.event/v1", "stream": f"bench/{n % 10}", "body": {"n": n, "text": "x" * 200}})
                + "\n"
                for n in range(EVENTS)
            )
        )
        yield Figure(
            f"marin ledger append --batch, {EVENTS} events",
            best_seconds(lambda: marin("ledger", "append", "--batch", str(batch)), rounds=1),
            "s",
        )
        marin("log", "--type", "bench.event/v1", "-n", "1")  # the projection catches up
        for arguments in (
            ("log", "-n", "20"),
            ("log", "--stream", "bench/3", "-n", "20"),
            ("ls",),
            ("log", "--json"),
            ("ledger", "fsck"),
        ):
            taken = best_seconds(partial(marin, *arguments), rounds=3)
            yield Figure(f"marin {' '.join(arguments)}, {EVENTS} events", taken, "s")
