"""`python -m bench.census`: makes the cells that a root does not have yet, and prints what each says.

    python -m bench.census [--root FOLDER] [--only TEXT,...] [--changes TEXT,...] [--again] [--verify] [--compare] [--page]

The root is build/census/root, made where it is not there. A cell that it has is not executed again, but with `--again`, and
the newest that is complete counts. A changed training, or another kind of processor, is another cell. `--only` and `--changes`
take beginnings of names. The other three execute nothing: `--verify` has `marin verify` judge the record and the artifacts of
each cell of the root, which then has the verdicts (one that has them is judged again with `--again`); `--compare` says which
cells of the root, made on this kind of processor, are other than docs/census.md has them; `--page` writes the table and the
picture of docs/census.md from what the root has, and leaves the other cells as they are there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from bench.census.cell import execute, key_of
from bench.census.changes import AS_IS, CHANGES
from bench.census.environments import BUILD
from bench.census.judge import judge
from bench.census.runs import all_recorded, is_verified, verify
from bench.census.table import TRAININGS
from marin.record.root import Root, open_root


def begun(folder: Path) -> Root:
    """The root of the census."""
    if not (folder / "checkpoint").exists() and not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
        subprocess.run([sys.executable, "-c", command, "--root", str(folder), "init", "--quiet"], check=True)
    return open_root(str(folder))


def main() -> None:
    """Every cell, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m bench.census", description=__doc__)
    parser.add_argument("--root", type=Path, default=BUILD / "root")
    parser.add_argument("--only", default="")
    parser.add_argument("--changes", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    root = begun(options.root.resolve())
    known = all_recorded(root)
    if options.page or options.compare:
        from bench.census.page import compared, write

        if options.compare:
            say("\n".join(compared(root, known)))
        else:
            write(root, known)
        return
    if options.verify:
        broken = 0
        for one in known.values():
            wrong = "" if is_verified(root, one) and not options.again else verify(root, one)
            broken += bool(wrong)
            say(f"{one.training:22} {one.change:16} {one.run} {wrong or 'verified'}")
        say(f"{len(known)} cells, {len(known) - broken} verified")
        sys.exit(1 if broken else 0)
    for training in TRAININGS:
        if not training.name.startswith(tuple(options.only.split(","))):
            continue
        for change in (AS_IS, *CHANGES):
            wanted = change is AS_IS or change.name.startswith(tuple(options.changes.split(",")))
            if change.name in training.without or not wanted:
                continue
            began = time.monotonic()
            reference = known.get((training.name, AS_IS.name, key_of(training, AS_IS)))
            if reference is not None and reference.status != "completed":
                say(f"{training.name:22} {'as it is':16} fails: {reference.failure}")
                break
            cell = known.get((training.name, change.name, key_of(training, change)))
            if cell is None or (options.again and change is not AS_IS):
                cell = execute(training, change, root, reference)
                known[cell.training, cell.change, cell.key] = cell
            found = judge(root, reference or cell, cell)
            took = time.monotonic() - began
            where = f"{found.tensor} {found.reason[:150]}"
            say(f"{training.name:22} {change.title:16} {found.short():32} {where} {took:.0f} s")


def say(text: str) -> None:
    """A line at once, for this takes hours."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
