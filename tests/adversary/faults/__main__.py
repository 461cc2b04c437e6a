"""``python -m tests.adversary.faults``: draw faults, look for each by full verification, write what happened.

    python -m tests.adversary.faults --seed 1 --per-kind 8 --table docs/verify.md     the whole bench, and its table
    python -m tests.adversary.faults --seed 1 --row 37                                one row again
    python -m tests.adversary.faults --per-kind 1 --kinds 'event,forged loss'         some kinds only
    python -m tests.adversary.faults --follow --rows FILE                             in trainings that run, each with a follower

A row is a function of seed and number. Exit status 1 when a fault was not found, was located elsewhere, or a clean run
failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marin.process.arithmetic import apply
from marin.record.verdicts import NAMES
from marin.verify.verdict import Report
from tests.adversary.faults.params import EXECUTION, recipe

if TYPE_CHECKING:
    from tests.adversary.faults.kinds import Fault

BEGIN, END = "<!-- fault bench: begin -->", "<!-- fault bench: end -->"
CLEAN = "clean run"


@dataclass(frozen=True)
class Row:
    """One fault: what was done, whether verification failed, whether it said where, what it said, and how long it
    took."""

    row: int
    kind: str
    what: str
    found: bool
    located: bool
    said: str
    seconds: float

    @property
    def good(self) -> bool:
        """Found and located; of a clean run: nothing found."""
        return not self.found if self.kind == CLEAN else self.found and self.located


def main() -> int:
    """Parse, run, print; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.adversary.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-kind", type=int, default=8, help="faults of each kind, and clean runs")
    parser.add_argument("--row", type=int, help="this row only")
    parser.add_argument("--kinds", help="some kinds, by commas")
    parser.add_argument("--folder", type=Path, help="keep the honest run here, and take it from here again")
    parser.add_argument(
        "--rows", type=Path, help="keep rows here as JSON lines; those there and good are not executed again"
    )
    parser.add_argument("--table", type=Path, help="write the table between its marks in this file")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--follow", action="store_true", help="put them into trainings that run and are followed")
    parser.add_argument("--pause", type=float, help="with --follow: seconds that a train step takes longer (1.2)")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    apply(recipe().arithmetic, EXECUTION)
    base = Path(options.folder or tempfile.mkdtemp(prefix="marin-faults-"))
    os.environ.setdefault("MARIN_CACHE", str(base / "cache"))
    os.environ.setdefault("MARIN_PINS", str(base / "pins"))  # another run of this has the same key
    if options.follow:
        from tests.adversary.faults import live, running

        if options.pause is not None:
            os.environ[running.PAUSE] = str(options.pause)
        return live.main(base, options.seed, options.per_kind, row=options.row, kinds=options.kinds, rows=options.rows)
    known = earlier(options.rows) if options.rows else {}
    rows = list(known.values())
    try:
        wanted = [
            item
            for item in plan(options.per_kind)
            if item[0] not in known
            and options.row in (None, item[0])
            and (options.kinds is None or item[1] in options.kinds.split(","))
        ]
        wanted.sort(key=lambda item: item[2])  # one of each kind first: anyone who breaks it off has seen all kinds
        for row in run(base, options.seed, wanted):
            rows.append(row)
            if options.rows:
                with options.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
            said = (
                json.dumps(asdict(row))
                if options.json
                else (
                    f"{row.row:4} {row.kind:18} {'ok  ' if row.good else 'BAD '} {row.seconds:5.1f} s  {row.what} | {row.said}"
                )
            )
            sys.stdout.write(said + "\n")
            sys.stdout.flush()
    finally:
        if options.folder is None:
            shutil.rmtree(base, ignore_errors=True)
    sys.stderr.write(f"{sum(row.seconds for row in rows) / 60:.0f} minutes\n")
    if options.table is not None:
        write_table(options.table, table(sorted(rows, key=lambda row: row.row), options.seed, options.per_kind))
    return 0 if all(row.good for row in rows) else 1


def plan(per_kind: int) -> list[tuple[int, str, int]]:
    """(number of the row, kind, number within the kind) of all rows; clean runs last."""
    from tests.adversary.faults.kinds import KINDS

    return [(i * per_kind + j, kind, j) for i, kind in enumerate([*KINDS, CLEAN]) for j in range(per_kind)]


def earlier(path: Path) -> dict[int, Row]:
    """Good rows of an earlier call."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {row.row: row for line in lines if (row := Row(**json.loads(line))).good}


def run(base: Path, seed: int, rows: Sequence[tuple[int, str, int]]) -> Iterator[Row]:
    """Execute the rows. A fault that can not be made is a bad row, not the end."""
    if not rows:
        return
    from tests.adversary.faults.kinds import KINDS, clean
    from tests.adversary.faults.world import World

    world = World.make(base)
    for number, kind, within in rows:
        root = world.fork()
        began = time.monotonic()
        draw = clean if kind == CLEAN else KINDS[kind]
        try:
            fault = draw(generator(seed, kind, within), world, root, within)
            found, located, said = judge(fault, world.verify(root))
            yield Row(number, kind, fault.what, found, located, said, time.monotonic() - began)
        except Exception as error:  # the bench's own, or verification's: both are to be seen
            logging.exception("row %d", number)
            failure = f"{type(error).__name__}: {error}"[:200]
            yield Row(number, kind, "not judged", kind == CLEAN, False, failure, time.monotonic() - began)
        world.discard(root)


def generator(seed: int, kind: str, within: int) -> random.Random:
    """The draws of one row; they decide what is damaged and keep no secret."""
    return random.Random(f"{seed}:{kind}:{within}")


def judge(fault: Fault, report: Report) -> tuple[bool, bool, str]:
    """(found, located, what verification said) of one fault."""
    failed = [name for name in NAMES if report.verdicts[name].outcome == "FAIL"]
    other = [
        f"{name} {report.verdicts[name].outcome}"
        for name in NAMES
        if report.verdicts[name].outcome not in ("PASS", "FAIL")
    ]
    divergence = report.divergence
    lines = [line for name in failed for line in report.verdicts[name].lines]
    said = " ".join(["FAIL " + ",".join(failed)] * bool(failed) + other)
    located = bool(failed) and (not fault.verdict or fault.verdict in failed)
    if fault.verdict == "training" and fault.step is not None:
        located = located and divergence is not None and divergence.step == fault.step
        if fault.tensors is not None:
            located = located and divergence is not None and divergence.tensors == fault.tensors
    if fault.names:
        located = located and any(fault.names in line for line in lines)
    if divergence is not None:
        said += f", train step {divergence.step}" + (f", {divergence.tensors[0]}" if divergence.tensors else "")
        said += f" and {len(divergence.tensors) - 1} more" if len(divergence.tensors) > 1 else ""
    elif lines:
        said += f": {lines[0][:110]}"
    return bool(failed), located, said or "PASS"


def table(rows: Sequence[Row], seed: int, per_kind: int) -> str:
    """The summary by kind, as Markdown, with one example of each."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    lines = [
        "| kind | rows | faults | found | located | an example, and what was said of it |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind in kinds:
        mine = [row for row in rows if row.kind == kind]
        shown = f"{mine[0].what}: {mine[0].said}".replace("|", "/").replace("<", "&lt;")
        span = f"{mine[0].row} to {mine[-1].row}"
        located = "" if kind == CLEAN else str(sum(row.located for row in mine))
        lines.append(
            f"| {kind} | {span} | {0 if kind == CLEAN else len(mine)} | {sum(row.found for row in mine)} of {len(mine)} "
            f"| {located} | {shown} |"
        )
    faults = [row for row in rows if row.kind != CLEAN]
    clean = [row for row in rows if row.kind == CLEAN]
    lines += [
        "",
        f"{len(faults)} faults with seed {seed}: {sum(row.found for row in faults)} found, "
        f"{sum(row.found and row.located for row in faults)} located; {len(clean)} clean runs: "
        f"{sum(row.found for row in clean)} reported. A row again: "
        f"`python -m tests.adversary.faults --seed {seed} --per-kind {per_kind} --row N`.",
    ]
    return "\n".join(lines) + "\n"


def write_table(path: Path, text: str) -> None:
    """Put the table between its marks."""
    whole = path.read_text("utf-8")
    head, _, rest = whole.partition(BEGIN)
    _, _, tail = rest.partition(END)
    path.write_text(f"{head}{BEGIN}\n{text}{END}{tail}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
