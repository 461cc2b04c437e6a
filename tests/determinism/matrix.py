"""The matrix of docs/determinism.md: trains every cell, compares all bits, writes the table.

    python tests/determinism/matrix.py [--rows TEXT;...] [--groups TEXT,...] [--product] [--results FILE] [--write]

A group is a model, an optimizer and a precision; a row is a way to execute it. Every cell is trained by worker.py in
processes of the row's own, and must give the state digest and, step by step, loss, gradient norm and fingerprint of the
group's first cell. Exit status 0 when all that ran are equal, 1 otherwise.

It takes an hour or more of one core, so it can be done in pieces: `--results FILE` keeps what every cell came to, and a
cell that is there is not trained again, as long as the code under test is the same. `--write` puts the table of all that
is known into the document. `--product` adds every combination of devices, processes, cores and stops that
is not a row already: some hundred rows, for a machine with more time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
DOCUMENT = PROJECT / "docs" / "determinism.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
LIMIT = 3600  # seconds for one process; far more than it takes, so that a busy machine is no failure
STEPS = 4

sys.path.insert(0, str(PROJECT))

from marin.arithmetic import APPLIED, cpu_flags, settings  # noqa: E402
from marin.code import files_digest  # noqa: E402
from marin.recipe import Arithmetic, Execution  # noqa: E402

GROUPS: dict[str, dict[str, Any]] = {
    f"{model} {optimizer} {dtype}": {"architecture": model, "optimizer": optimizer, "compute_dtype": dtype}
    for model, optimizer, dtype in product(("llama", "gpt2"), ("adamw", "lion"), ("float32", "bfloat16"))
}
EMULATED = ("Haswell-v4", "Skylake-Client-v3", "EPYC-Rome-v2")
TINY = {"hidden": 16, "layers": 1, "length": 16, "batch": 8, "microbatch": 1, "steps": 2}


@dataclass(frozen=True)
class Row:
    """A way to execute. ``prefix`` stands before the interpreter; ``case`` are fields of the worker's Case; a row with
    ``tiny`` is compared with the tiny reference instead. ``groups`` narrows it to groups whose name holds one of these."""

    name: str
    devices: int = 1
    case: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    processes: int = 1
    kills: bool = False
    bare: bool = False
    canary: bool = False
    tiny: bool = False
    groups: tuple[str, ...] = ("",)

    def of(self, groups: Sequence[str]) -> list[str]:
        """The groups that the row is executed for."""
        return [name for name in groups if any(part in name for part in self.groups)]

    def missing(self) -> str | None:
        """Why this machine cannot execute the row."""
        if self.prefix and shutil.which(self.prefix[0]) is None:
            return f"{self.prefix[0]} is not installed"
        if self.name.startswith("AVX-512") and "avx512f" not in cpu_flags():
            return "this processor has no AVX-512"
        return None


# Not among the rows: AVX-512 allowed (shape(1, avx512=True)). It differs from the first step on, and recipes that allow it
# are refused (recipe.REQUIRED_FLAGS); every row that runs on a processor with AVX-512 shows that the ceiling holds.


def with_isa(isa: str, devices: int) -> dict[str, str]:
    """The contract's settings under another ceiling of instructions, put in force by hand."""
    wanted = settings(Arithmetic(), Execution(devices=devices))
    flags = [flag for flag in wanted["XLA_FLAGS"].split() if "max_isa" not in flag]
    return wanted | {"XLA_FLAGS": " ".join([*flags, f"--xla_cpu_max_isa={isa}"])}


ONE_CORE = ("taskset", "-c", "0")
MOVED = {"devices": 8, "resume_at": [1, 2, 3], "moves": [2, 1, 4]}


def shape(devices: int, processes: int = 1, *, one_core: bool = False, avx512: bool = False, stop: str = "") -> Row:
    """A row by the factors of the matrix. ``stop``: "resumed" after every step, "killed", or "" for straight."""
    each = devices // processes
    name = f"{devices} device{'s' * (devices > 1)}" if processes == 1 else f"{processes} processes of {each}"
    name += ", one core" * one_core + ", AVX-512 allowed" * avx512 + f", {stop}" * bool(stop)
    return Row(
        name,
        devices=each,
        case={"devices": devices} | ({"resume_at": [1, 2, 3]} if stop.startswith("resumed") else {}),
        environment=with_isa("AVX512", each) if avx512 else {},
        prefix=ONE_CORE if one_core else (),
        processes=processes,
        bare=avx512,
        kills=stop.startswith("killed"),
    )


RESUMED, KILLED = "resumed after every step", "killed and resumed"
ROWS = (
    *(shape(devices) for devices in (1, 2, 4, 8)),
    *(shape(devices, 2) for devices in (2, 4, 8)),
    shape(1, one_core=True),
    shape(8, one_core=True),
    shape(1, stop=RESUMED),
    shape(4, stop=KILLED),
    Row("8 devices, moved to 2, 1 and 4", devices=8, case=MOVED),
    Row("8 devices, moved to 2, 1 and 4, one core", devices=8, case=MOVED, prefix=ONE_CORE),
    *(Row(f"emulated {cpu}", prefix=("qemu-x86_64", "-cpu", cpu), tiny=True) for cpu in EMULATED),
)
TINY_REFERENCE = Row("1 device, tiny", tiny=True)


def product_rows() -> list[Row]:
    """Every combination of the native factors that :data:`ROWS` does not have."""
    known = {row.name for row in ROWS}
    factors = product((1, 2, 4, 8), (1, 2), (False, True), ("", RESUMED, KILLED))
    rows = [shape(devices, processes, one_core=core, stop=stop)
            for devices, processes, core, stop in factors
            if devices >= processes and not (processes > 1 and stop)]
    return [row for row in rows if row.name not in known]


def command_of(row: Row, arguments: Sequence[str]) -> list[str]:
    """The worker's command line. An emulator gets the real interpreter, which needs to be told where packages are."""
    if not row.prefix or row.prefix[0] != "qemu-x86_64":
        return [*row.prefix, sys.executable, str(HERE / "worker.py"), *arguments]
    import numpy

    packages = Path(numpy.__file__).parents[1]
    code = (
        f"import sys; sys.path[:0] = [{str(packages)!r}, {str(PROJECT)!r}, {str(HERE)!r}]; "
        f"import worker; worker.main({list(arguments)!r})"
    )
    return [*row.prefix, str(Path(sys.executable).resolve()), "-c", code]


def execute(row: Row, groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the worker printed for each group of a row; raises CalledProcessError with its messages."""
    sizes = TINY if row.tiny else {"steps": STEPS}
    cases = [json.dumps({"name": name} | GROUPS[name] | sizes | dict(row.case)) for name in groups]
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("XLA_FLAGS", "NPROC", APPLIED) and not key.startswith("JAX_")
    } | dict(row.environment)
    port = free_port() if row.processes > 1 else 0
    with tempfile.TemporaryDirectory(prefix="matrix-") as kept:
        arguments = ["--kept", kept] if row.kills else []
        finished = finish(row, [*arguments, *cases], environment, port)
        while row.kills and finished[0].returncode == -signal.SIGKILL:
            finished = finish(row, [*arguments, *cases], environment, port)
    for process in finished:
        if process.returncode:
            raise RuntimeError(f"{row.name}: exit {process.returncode}\n{process.stderr[-3000:]}")
    found = [json.loads(line) for line in finished[0].stdout.splitlines() if line.startswith("{")]
    return {item["name"]: item for item in found}


def finish(row: Row, worker: Sequence[str], environment: Mapping[str, str], port: int) -> list[subprocess.CompletedProcess[str]]:
    """Run the row's processes to their end."""

    def one(process: int) -> subprocess.CompletedProcess[str]:
        arguments = ["--devices", str(row.devices)] + (["--bare"] if row.bare else [])
        arguments += ["--canary"] if row.canary else []
        if row.processes > 1:
            arguments += ["--processes", str(row.processes), "--process", str(process), "--port", str(port)]
        return subprocess.run(
            command_of(row, [*arguments, *worker]),
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            cwd=PROJECT,
        )

    with ThreadPoolExecutor(row.processes) as pool:
        return list(pool.map(one, range(row.processes)))


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Where two results of one group part; empty when every bit that was recorded is the same."""
    parts = [f"the initial state differs: {found['start']}"] if expected["start"] != found["start"] else []
    pairs = zip(expected["steps"], found["steps"], strict=True)
    parts += [f"step {number} differs" for number, (a, b) in enumerate(pairs) if a != b]
    if expected["state"] != found["state"]:
        parts += [
            path for path, digest in expected["tensors"].items() if found["tensors"].get(path) != digest
        ]
    return parts


@dataclass(frozen=True)
class Outcome:
    """One row, finished: group -> what it came to ("equal", "DIFFERS …"), or why it did not run."""

    row: str
    cells: Mapping[str, str]


def code_under_test() -> str:
    """Digest of all that decides the bits of a cell: results of other code are not believed."""
    return files_digest(PROJECT, ("marin/training", "marin/recipe.py", "marin/arithmetic.py", "requirements.lock",
                                  "tests/determinism/worker.py"))


class Results:
    """What cells came to, and the references that they are compared with, kept in a file between invocations."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.cells: dict[str, dict[str, str]] = {}
        self.references: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            known = json.loads(path.read_text(encoding="utf-8"))
            if known["code"] == code_under_test():
                self.cells, self.references = known["cells"], known["references"]

    def keep(self, row: str, cells: Mapping[str, str]) -> None:
        """Remember the cells of a row."""
        self.cells.setdefault(row, {}).update(cells)
        if self._path is not None:
            text = json.dumps({"code": code_under_test(), "cells": self.cells, "references": self.references})
            self._path.write_text(text, encoding="utf-8")

    def outcomes(self) -> list[Outcome]:
        """All that is known, in the order of the rows."""
        order = [row.name for row in (*ROWS, *product_rows())]
        return [Outcome(name, self.cells[name]) for name in order if name in self.cells]


def measure(rows: Sequence[Row], groups: Sequence[str], results: Results | None = None) -> Iterator[Outcome]:
    """Execute the rows and compare each with the first (the tiny ones with the tiny one)."""
    results = results if results is not None else Results(None)
    for row in rows:
        known = results.cells.get(row.name, {})
        mine = [name for name in row.of(groups) if name not in known]
        if not mine:
            continue
        # Emulated processors take minutes for one model: one group at a time, so that what is done is kept.
        for some in [[name] for name in mine] if row.tiny else [mine]:
            outcome = _measured(row, some, results.references)
            results.keep(row.name, outcome.cells)
            yield outcome


def _measured(row: Row, groups: list[str], references: dict[str, dict[str, Any]]) -> Outcome:
    reason = row.missing()
    if reason is not None:
        return Outcome(row.name, dict.fromkeys(groups, f"not run: {reason}"))
    kind = "tiny " if row.tiny else ""
    missing = [name for name in groups if kind + name not in references]
    if missing:
        first = execute(TINY_REFERENCE if row.tiny else ROWS[0], missing)
        references |= {kind + name: result for name, result in first.items()}
    if row == ROWS[0]:
        return Outcome(row.name, dict.fromkeys(groups, "reference"))
    found = execute(row, groups)
    parted = {name: differences(references[kind + name], found[name]) for name in groups}
    return Outcome(row.name, {name: "DIFFERS: " + ", ".join(parts[:3]) if parts else "equal" for name, parts in parted.items()})


def table_of(outcomes: Sequence[Outcome], groups: Sequence[str]) -> str:
    """The outcomes as a Markdown table, a column per group."""
    lines = ["| executed as | " + " | ".join(groups) + " |", "| --- |" + " --- |" * len(groups)]
    lines += [
        f"| {outcome.row} | " + " | ".join(outcome.cells.get(name, "") for name in groups) + " |"
        for outcome in outcomes
    ]
    return "\n".join(lines)


def write(table: str) -> None:
    """Put the table between the document's two marks."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the matrix."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", help="only rows whose name contains one of these, separated by ;")
    parser.add_argument("--product", action="store_true", help="every combination of the native factors too")
    parser.add_argument("--results", type=Path, help="keep what cells came to in this file, and do not train them again")
    parser.add_argument(
        "--groups", default="", help="only groups whose name contains one of these, separated by commas"
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/determinism.md")
    options = parser.parse_args(arguments)
    groups = [name for name in GROUPS if any(part in name for part in options.groups.split(","))]
    rows = [row for row in (*ROWS, *(product_rows() if options.product else ()))
            if options.rows == row.name or any(part in row.name for part in options.rows.split(";"))]
    rows = [row for row in rows if row.name == options.rows] or rows
    results = Results(options.results)
    for outcome in measure(rows, groups, results):
        for name, cell in outcome.cells.items():
            sys.stderr.write(f"{outcome.row:<40} {name:<24} {cell}\n")
    outcomes = results.outcomes()
    table = table_of(outcomes, list(GROUPS) if options.write else groups)
    sys.stdout.write(table + "\n")
    if options.write:
        write(table)
    return int(any(cell.startswith("DIFFERS") for outcome in outcomes for cell in outcome.cells.values()))


if __name__ == "__main__":
    sys.exit(main())
