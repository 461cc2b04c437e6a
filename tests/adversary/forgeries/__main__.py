"""``python -m tests.adversary.forgeries``: forge, have it verified by a stranger, print what came of it.

    python -m tests.adversary.forgeries                              every kind
    python -m tests.adversary.forgeries --class 4                    those of one class
    python -m tests.adversary.forgeries --only 'swapped export'      those whose name has this in it
    python -m tests.adversary.forgeries --sample 12 --seed 7         twelve of them
    python -m tests.adversary.forgeries --table docs/verify.md       write the table between its marks: rows of what is judged now
    python -m tests.adversary.forgeries --table docs/verify.md --missing   of kinds that have no row there yet
    python -m tests.adversary.forgeries --doors                      those at all other doors: bundles, dossiers, pages, ...
    python -m tests.adversary.forgeries --door dossier --door card   those of these doors

Without --doors and --door they follow those of a root. Exit status 1 when a forgery passes, or an honest run does not.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from marin.process.arithmetic import apply
from tests.adversary.faults.params import EXECUTION, recipe
from tests.adversary.forgeries.bench import Row, chosen, judged, named_in, table
from tests.adversary.forgeries.registry import OF_REWARDS

BEGIN, END = "<!-- forgeries: begin -->", "<!-- forgeries: end -->"


def main() -> int:
    """Parse, forge, print; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.adversary.forgeries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", help="kinds whose name has this in it")
    parser.add_argument("--class", dest="numbers", help="kinds of these classes, by commas")
    parser.add_argument("--sample", type=int, help="so many of them, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep the honest runs here, and take them from here again")
    parser.add_argument("--alone", action="store_true", help="by the verdict alone that has to notice: quick")
    parser.add_argument("--table", type=Path, help="write the table between its marks in this file")
    parser.add_argument("--missing", action="store_true", help="with --table: kinds that have no row there")
    parser.add_argument("--doors", action="store_true", help="kinds of all doors alone")
    parser.add_argument("--door", action="append", default=[], help="kinds of this door alone; may be given again")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    apply(recipe().arithmetic, EXECUTION)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="marin-forgeries-"))
    os.environ.setdefault("MARIN_CACHE", str(folder / "cache"))
    os.environ.setdefault("MARIN_PINS", str(folder / "pins"))  # another run of this has the same key
    try:
        good = True
        if not options.doors and not options.door:
            good = _roots(options, folder)
        if options.doors or options.door or not (options.numbers or options.sample or options.table):
            good = _doors(options, folder) and good
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


def _doors(options: argparse.Namespace, folder: Path) -> bool:
    """Forge at the doors, print what came of it; whether none believed one."""
    from tests.adversary.forgeries.doors import all_kinds, table_of
    from tests.adversary.forgeries.honest import make_one

    kinds = [kind for kind in all_kinds(*options.door) if (options.only or "") in kind.name]
    good = True
    for line, fine in table_of(make_one(folder), kinds):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        good = good and fine
    return good


def _learned(
    options: argparse.Namespace, numbers: set[int] | None, there: Collection[str], folder: Path
) -> Iterator[Row]:
    """Those of trainings that learned from rewards, where they are asked for; without those that are ``there``."""
    if options.sample is not None or (numbers is not None and OF_REWARDS not in numbers):
        return iter(())
    from tests.adversary.forgeries.rewards import HONEST, LIES, rows

    wanted = [name for name in (HONEST, *LIES) if (options.only or "") in name and name not in there]
    return rows(folder / "rewards", wanted) if any(name in LIES for name in wanted) else iter(())


def all_names() -> list[str]:
    """Every kind that the table has a row for, in its order."""
    import tests.adversary.forgeries.kinds  # noqa: F401  enters all kinds
    from tests.adversary.forgeries.rewards import HONEST, LIES

    return [*(kind.name for kind in chosen(None, None, None, 0)), HONEST, *LIES]


def _roots(options: argparse.Namespace, folder: Path) -> bool:
    """Forge a root in each way, print what came of it; whether nobody believed one."""
    import tests.adversary.forgeries.kinds  # noqa: F401  enters all kinds
    from tests.adversary.forgeries.honest import make

    rows = []
    numbers = {int(number) for number in options.numbers.split(",")} if options.numbers else None
    head, _, rest = options.table.read_text("utf-8").partition(BEGIN) if options.table else ("", "", "")
    before, _, end = rest.partition(END)
    there = {named_in(line) for line in before.splitlines()} if options.missing else set()
    kinds = [one for one in chosen(options.only, numbers, options.sample, options.seed) if one.name not in there]
    found = judged(make(folder), kinds, alone=options.alone) if kinds else iter(())
    for row in chain(found, _learned(options, numbers, there, folder)):
        rows.append(row)
        mark = "" if row.good else "BAD "
        line = f"{row.number:2} {mark}{row.kind:52} {row.how:14} {row.seconds:5.1f} s  {row.said}"
        sys.stdout.write((json.dumps(asdict(row)) if options.json else line) + "\n")
        sys.stdout.flush()
        if options.table is not None:  # row by row: what was judged before somebody ends this stays
            options.table.write_text(f"{head}{BEGIN}\n{table(rows, all_names(), before)}{END}{end}", "utf-8")
    sys.stderr.write(f"{sum(row.seconds for row in rows) / 60:.0f} minutes\n")
    return bool(rows) and all(row.good for row in rows)


if __name__ == "__main__":
    sys.exit(main())
