"""What a command costs in one checkout beside another, by turns, in one run.

    python -m bench.beside OLD NEW [--pairs 4] [--json] -- verify latest --no-record

OLD and NEW are checkouts in which `make repro` was done, each with its own environment, and with XDG_CONFIG_HOME,
XDG_STATE_HOME and XDG_CACHE_HOME in its build/bench-home (`config`, `state`, `cache`), so that neither meets the other's
keys and pins. The command is called in OLD and in NEW, then in NEW and in OLD, and so on, so that a machine that slows
down slows both. Processor seconds (user and system, of the process and all that it waited for) are compared, because
other work disturbs them less than the clock; the first pair fills caches and does not count. Exit status 1 when a
command fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Comparison:
    """Processor seconds of each call after the first pair, and the ratio of their medians."""

    command: str
    old: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """NEW's median over OLD's."""
        return statistics.median(self.new) / statistics.median(self.old)

    def __str__(self) -> str:
        def row(values: Sequence[float]) -> str:
            return ", ".join(f"{value:.1f}" for value in values)

        return f"marin {self.command}: {row(self.new)} s beside {row(self.old)} s of processor time: ratio {self.ratio:.2f}"


def environment(checkout: Path) -> dict[str, str]:
    """The variables of a command there, with the checkout's own homes."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MARIN_ROOT", "VIRTUAL_ENV")}
    home = checkout / "build" / "bench-home"
    return kept | {f"XDG_{name.upper()}_HOME": str(home / name) for name in ("config", "state", "cache")}


def seconds(checkout: Path, arguments: Sequence[str]) -> float:
    """Processor seconds of one call there.

    Raises:
        SystemExit: the command failed.
    """
    before = os.times()
    done = subprocess.run(
        [checkout / ".venv" / "bin" / "marin", *arguments],
        cwd=checkout,
        env=environment(checkout),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{checkout}: exit status {done.returncode}: {done.stderr[-2000:]}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def compare(old: Path, new: Path, arguments: Sequence[str], pairs: int) -> Comparison:
    """Call by turns; ``pairs`` that count."""
    found: dict[Path, list[float]] = {old: [], new: []}
    for pair in range(pairs + 1):
        for checkout in (old, new) if pair % 2 else (new, old):
            begun = time.monotonic()
            took = seconds(checkout, arguments)
            sys.stderr.write(f"{checkout.name}: {took:.1f} s, {time.monotonic() - begun:.1f} s by the clock\n")
            found[checkout].append(took)
    return Comparison(" ".join(arguments), tuple(found[old][1:]), tuple(found[new][1:]))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("arguments", nargs="+", metavar="-- COMMAND")
    asked = parser.parse_args()
    comparison = compare(asked.old.resolve(), asked.new.resolve(), asked.arguments, asked.pairs)
    said = json.dumps(asdict(comparison) | {"ratio": comparison.ratio}) if asked.json else str(comparison)
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
