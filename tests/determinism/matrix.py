"""The matrix of docs/determinism.md: trains every cell, compares all bits, writes the table.

    python tests/determinism/matrix.py [--rows TEXT] [--groups TEXT] [--write]

A group is a model, an optimizer and a precision; a row is a way to execute it. Every cell is trained by worker.py in
processes of the row's own, and must give the state digest and, step by step, loss, gradient norm and fingerprint of the
group's first cell. Exit status 0 when all that ran are equal, 1 otherwise. `--write` puts the table into the document.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
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

from marin.arithmetic import APPLIED, cpu_flags  # noqa: E402
from marin.recipe import Arithmetic  # noqa: E402

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
    bare: bool = False
    canary: bool = False
    tiny: bool = False
    groups: tuple[str, ...] = ("",)

    def missing(self) -> str | None:
        """Why this machine cannot execute the row."""
        if self.prefix and shutil.which(self.prefix[0]) is None:
            return f"{self.prefix[0]} is not installed"
        if self.name.startswith("AVX-512") and "avx512f" not in cpu_flags():
            return "this processor has no AVX-512"
        return None


def with_isa(isa: str) -> dict[str, str]:
    """The contract's settings under another ceiling of instructions, put in force by hand."""
    flags = [flag for flag in Arithmetic().xla_flags if "max_isa" not in flag]
    return {
        "XLA_FLAGS": " ".join([*flags, f"--xla_cpu_max_isa={isa}"]),
        "NPROC": "2",
        "JAX_PLATFORMS": "cpu",
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "JAX_THREEFRY_PARTITIONABLE": "1",
    }


ROWS = (
    Row("1 device"),
    *(Row(f"{n} devices", devices=n, case={"devices": n}) for n in (2, 4, 8)),
    Row("stopped and resumed after every step", case={"resume_at": [1, 2, 3]}),
    Row(
        "8 devices, moved to 2, 1 and 4",
        devices=8,
        case={"devices": 8, "resume_at": [1, 2, 3], "moves": [2, 1, 4]},
    ),
    Row("2 processes of 2 devices", devices=2, case={"devices": 4}, processes=2),
    Row("one core", prefix=("taskset", "-c", "0")),
    Row("AVX-512 allowed", environment=with_isa("AVX512"), bare=True),
    *(
        Row(f"emulated {cpu}", prefix=("qemu-x86_64", "-cpu", cpu), tiny=True, groups=("adamw float32",))
        for cpu in EMULATED
    ),
)
TINY_REFERENCE = Row("1 device, tiny", tiny=True, groups=("adamw float32",))


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

    def one(process: int) -> subprocess.CompletedProcess[str]:
        arguments = ["--devices", str(row.devices)] + (["--bare"] if row.bare else [])
        arguments += ["--canary"] if row.canary else []
        if row.processes > 1:
            arguments += ["--processes", str(row.processes), "--process", str(process), "--port", str(port)]
        return subprocess.run(
            command_of(row, [*arguments, *cases]),
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            cwd=PROJECT,
        )

    with ThreadPoolExecutor(row.processes) as pool:
        finished = list(pool.map(one, range(row.processes)))
    for process in finished:
        if process.returncode:
            raise RuntimeError(f"{row.name}: exit {process.returncode}\n{process.stderr[-3000:]}")
    found = [json.loads(line) for line in finished[0].stdout.splitlines() if line.startswith("{")]
    return {item["name"]: item for item in found}


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


def measure(rows: Sequence[Row], groups: Sequence[str]) -> Iterator[Outcome]:
    """Execute the rows and compare each with the first (the tiny ones with the tiny one)."""
    references: dict[tuple[bool, str], dict[str, Any]] = {}
    for row in rows:
        mine = [name for name in groups if any(part in name for part in row.groups)]
        if not mine:
            continue
        reason = row.missing()
        if reason is not None:
            yield Outcome(row.name, dict.fromkeys(mine, f"not run: {reason}"))
            continue
        missing = [name for name in mine if (row.tiny, name) not in references]
        if missing:
            first = execute(TINY_REFERENCE if row.tiny else ROWS[0], missing)
            references |= {(row.tiny, name): result for name, result in first.items()}
        if row == ROWS[0]:
            yield Outcome(row.name, dict.fromkeys(mine, "reference"))
            continue
        found = execute(row, mine)
        parted = {name: differences(references[row.tiny, name], found[name]) for name in mine}
        yield Outcome(
            row.name,
            {
                name: "DIFFERS: " + ", ".join(parts[:3]) if parts else "equal"
                for name, parts in parted.items()
            },
        )


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
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument(
        "--groups", default="", help="only groups whose name contains one of these, separated by commas"
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/determinism.md")
    options = parser.parse_args(arguments)
    groups = [name for name in GROUPS if any(part in name for part in options.groups.split(","))]
    outcomes = []
    for outcome in measure([row for row in ROWS if options.rows in row.name], groups):
        outcomes.append(outcome)
        for name, cell in outcome.cells.items():
            sys.stderr.write(f"{outcome.row:<40} {name:<24} {cell}\n")
    table = table_of(outcomes, groups)
    sys.stdout.write(table + "\n")
    if options.write:
        write(table)
    return int(any(cell.startswith("DIFFERS") for outcome in outcomes for cell in outcome.cells.values()))


if __name__ == "__main__":
    sys.exit(main())
