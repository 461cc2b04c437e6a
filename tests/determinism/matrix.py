"""The matrix of docs/determinism.md: trains every cell, compares all bits, writes the table.

    python tests/determinism/matrix.py [--rows TEXT;...] [--groups TEXT,...] [--product] [--results FILE] [--write]

A group is a model, an optimizer and a precision; a row is a way to execute it. Every cell is trained by worker.py in
processes of the row's own, and must give the state digest and, step by step, loss, gradient norm and fingerprint of the
group's first cell. Exit status 0 when all that ran are equal, 1 otherwise.

A row's processes train all of its groups, one after the other, and what a cell came to is kept as soon as it is known:
`--results FILE` holds it with the commit and a digest of the code that decides bits, and a cell that is there is not
trained again as long as that code is the same. So the whole can be done in pieces, stopped and begun again. Programs
that two rows share are compiled once (`--fresh`: in every row anew); rows on one core, and every emulated processor,
compile theirs themselves. `--write` puts the tables of all that is known into the document, one for `portable-cpu`,
one for training layer by layer and two for `exact`, the second of mixtures and of optimizers that look across a tensor
(`--groups` leaves the tables of others as they are), and says what was not run. `--product` adds every other combination
of devices, processes, cores and stops; `--parallel N` executes N rows at a time; `--quickly` has the groups of exact arithmetic
compiled with less optimization.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
DOCUMENT = PROJECT / "docs" / "determinism.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
LAYER_BEGIN, LAYER_END = "<!-- matrix by layer: begin -->", "<!-- matrix by layer: end -->"
EXACT_BEGIN, EXACT_END = "<!-- matrix of exact: begin -->", "<!-- matrix of exact: end -->"
ACROSS_BEGIN, ACROSS_END = "<!-- matrix of experts: begin -->", "<!-- matrix of experts: end -->"
LIMIT = 3 * 3600  # seconds for one process; far more than it takes, so that a busy machine is no failure
STEPS = 4
PACKAGES = ("jax", "jaxlib", "numpy", "ml_dtypes", "equinox", "optax", "marin-haliax", "marin-levanter")
"""What the compiled programs are made from, and by."""
Found = Callable[[str, dict[str, Any]], None]
"""Gets a group and what the worker printed for it."""
Ended = tuple[int, dict[str, dict[str, Any]], str]
"""The status of a row's first process that failed, what the first one printed for each group, and messages."""

sys.path.insert(0, str(PROJECT))

sys.path[1:1] = [str(HERE), str(PROJECT / "tests" / "foreign")]

import judges  # noqa: E402
import processors  # noqa: E402
from worker import Case, recipe_of  # noqa: E402

from ledger import canonical_digest  # noqa: E402
from marin.process.arithmetic import APPLIED, settings  # noqa: E402
from marin.provenance.code import files_digest  # noqa: E402
from marin.provenance.processor import processor  # noqa: E402
from marin.recipe.schema import Arithmetic, Execution, digest  # noqa: E402

GROUPS: dict[str, dict[str, Any]] = (
    {
        f"{model} {optimizer} {dtype}": {"architecture": model, "optimizer": optimizer, "compute_dtype": dtype}
        for model, optimizer, dtype in product(("llama", "gpt2"), ("adamw", "lion"), ("float32", "bfloat16"))
    }
    | {
        f"{model} {optimizer} exact": {"architecture": model, "optimizer": optimizer, "profile": "exact"}
        for model, optimizer in (("llama", "adamw"), ("gpt2", "lion"), ("llama", "muon"))
    }
    | {
        f"{model} {optimizer} exact": {"architecture": model, "optimizer": optimizer, "profile": "exact", "experts": 4}
        for model, optimizer in (("mixtral", "adamw"), ("qwen3_moe", "muonh"))
    }
    | {
        f"{model} {optimizer} {dtype} by layer{more}": {
            "architecture": model,
            "optimizer": optimizer,
            "compute_dtype": dtype,
            "gather": "layer",
            **fields,
        }
        for model, optimizer, dtype, more, fields in (
            ("llama", "adamw", "float32", "", {}),
            (
                "llama",
                "adamw",
                "bfloat16",
                ", accumulated, loss in blocks",
                {"microbatch": 1, "loss_block": 16, "loss_vocabulary": 24},
            ),
            ("gpt2", "lion", "float32", "", {}),
            ("llama", "adamw", "float32", ", tied", {"tied": True}),
        )
    }
)
EXACT = tuple(
    name for name in GROUPS if name.endswith((" adamw exact", " lion exact")) and "experts" not in GROUPS[name]
)
ACROSS = tuple(name for name in GROUPS if name.endswith(" exact") and name not in EXACT)
"""Groups of exact arithmetic that look across a tensor, or across a batch's tokens."""
BY_LAYER = tuple(name for name in GROUPS if "by layer" in name)
PORTABLE = tuple(name for name in GROUPS if name not in (*EXACT, *ACROSS, *BY_LAYER))
PASSES = (
    "algsimp",
    "constant_folding",
    "cse",
    "fusion",
    "reshape-mover",
    "transpose-folding",
    "tree_reduction_rewriter",
    "simplify-while-loops",
    "cpu-parallel-task-assigner",
)
"""Passes of the compiler that change a program of exact arithmetic (by `--xla_dump_hlo_pass_re=.*`) and that it can do
without."""
QUICKLY = "--xla_backend_optimization_level=0"
"""How programs of exact arithmetic are compiled where time is short: compiling them is nearly all of a cell's time."""
INSTRUCTIONS = ("SSE4_2", "AVX", "AVX512")
EMULATED = ("Haswell-v4", "EPYC-Rome-v2")
COMPILED = ("Skylake-Client-v3",)
"""Processors whose machine code an older emulator (qemu-user 7.2) executes wrongly: the emulator compiles for them, and
this processor executes."""
PROGRAMS = ("make", "gather", "select", "gradient", "_lambda", "exchange", "square", "total", "update", "prints")
"""The compiled programs of a training, as jax names them; the addition of two sums has no name."""
TINY = {"hidden": 16, "layers": 1, "length": 16, "batch": 8, "microbatch": 1, "steps": 2}


@dataclass(frozen=True)
class Row:
    """A way to execute. ``prefix`` stands before the interpreter, which an emulated ``processor`` executes where one is
    named (processors.py); ``case`` are fields of the worker's Case, ``own`` those of single groups; with ``compiled_by``,
    another processor, the machine code is what that one compiled; a row with ``tiny`` is compared with the tiny reference
    instead."""

    name: str
    devices: int = 1
    case: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    processor: str = ""
    compiled_by: str = ""
    processes: int = 1
    kills: bool = False
    bare: bool = False
    canary: bool = False
    tiny: bool = False

    @property
    def kind(self) -> str:
        """Before the group's name in the references."""
        return "tiny " if self.tiny else ""

    def compiles(self) -> str:
        """The name of the folder of compiled programs that the row shares with others."""
        return re.sub(r"\W+", "-", " ".join([self.processor, *self.prefix, *self.environment.values()])) or "here"

    def missing(self) -> str | None:
        """Why this machine cannot execute the row."""
        if self.prefix and shutil.which(self.prefix[0]) is None:
            return f"{self.prefix[0]} is not installed"
        try:
            for name in filter(None, (self.processor, self.compiled_by)):
                processors.interpreter(name)
        except judges.Absent as reason:
            return str(reason)
        if self.name.startswith(("AVX-512", "instructions up to AVX512")) and "avx512f" not in processor().features:
            return "this processor has no AVX-512"
        return None


# Not among the rows: AVX-512 allowed (shape(1, avx512=True)). It differs from the first step on, and recipes that allow
# it are refused (recipe.REQUIRED_FLAGS); every row that runs on a processor with AVX-512 shows that the ceiling holds.


def with_isa(isa: str, devices: int) -> dict[str, str]:
    """The contract's settings under another ceiling of instructions, put in force by hand."""
    wanted = settings(Arithmetic(), Execution(devices=devices))
    flags = [flag for flag in wanted["XLA_FLAGS"].split() if "max_isa" not in flag]
    return wanted | {"XLA_FLAGS": " ".join([*flags, f"--xla_cpu_max_isa={isa}"])}


ONE_CORE = ("taskset", "-c", "0")
"""Of a row as it is named; it is executed on whichever core is free."""
FREE_CORES: queue.SimpleQueue[int] = queue.SimpleQueue()
for _core in sorted(os.sched_getaffinity(0)):
    FREE_CORES.put(_core)
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
    *(shape(devices, one_core=True) for devices in (1, 2, 4, 8)),
    shape(8, 2, one_core=True),
    shape(1, stop=RESUMED),
    *(shape(devices, stop=KILLED) for devices in (1, 4)),
    Row("8 devices, moved to 2, 1 and 4", devices=8, case=MOVED),
    Row("8 devices, moved to 2, 1 and 4, one core", devices=8, case=MOVED, prefix=ONE_CORE),
    *(Row(f"emulated {cpu}", processor=cpu, tiny=True) for cpu in EMULATED),
)
LAYER_ROWS = (
    *ROWS,
    *(
        Row(
            f"{replicas} replicas of {each}",
            devices=replicas * each,
            case={"devices": replicas * each, "replicas": replicas},
        )
        for replicas, each in ((2, 2), (2, 4), (4, 2))
    ),
)
"""Of the groups that are trained layer by layer: on several slices of a pod too, which hold the state once each."""
APART = tuple(Row(f"compiled as {cpu}, executed here", compiled_by=cpu, tiny=True) for cpu in COMPILED)
"""Not in the table, for some of their cells differ and the contract refuses these processors; `--rows "compiled as"`
shows it."""
TINY_REFERENCE = Row("1 device, tiny", tiny=True)


def freely(name: str, **variables: str) -> Row:
    """A row of exact arithmetic that is executed under variables that the other profile refuses."""
    return Row(name, environment=variables, tiny=True)


def experts_apart(devices: int, apart: int, processes: int) -> Row:
    """A row whose mixtures have their experts over ``apart`` devices."""
    shaped = shape(devices, processes)
    own = {name: {"apart": apart} for name, fields in GROUPS.items() if "experts" in fields}
    return replace(shaped, name=f"{shaped.name}, experts over {apart} where there are some", own=own)


def by_layer(devices: int, processes: int) -> Row:
    """A row in which no device has all layers, but where an optimizer looks across whole tensors."""
    shaped = shape(devices, processes)
    own = {name: {"gather": "layer"} for name in GROUPS if name.endswith((" adamw exact", " lion exact"))}
    return replace(shaped, name=f"{shaped.name}, layer by layer under AdamW and Lion", own=own)


EXACT_ROWS = (
    *ROWS[: -len(EMULATED)],
    *(freely(f"without the pass {name}", XLA_FLAGS=f"--xla_disable_hlo_passes={name}") for name in PASSES),
    *(
        freely(
            f"instructions up to {isa}, mathematics by the processor",
            XLA_FLAGS=f"--xla_cpu_max_isa={isa} --xla_cpu_enable_platform_dependent_math=true",
        )
        for isa in INSTRUCTIONS
    ),
    freely("split for one thread", NPROC="1"),
    *(experts_apart(devices, apart, processes) for devices, apart, processes in ((2, 2, 1), (8, 4, 1), (4, 4, 2))),
    *(by_layer(devices, processes) for devices, processes in ((4, 1), (8, 1), (8, 2))),
    *(
        Row(f"{devices} devices, tensor parallel 2", devices=devices, case={"devices": devices, "tensor": 2})
        for devices in (2, 8)
    ),
    Row("the reference: NumPy and whole numbers", case={"reference": True}, tiny=True),
    *(Row(f"emulated {cpu}", processor=cpu, tiny=True) for cpu in (*EMULATED, processors.ARM)),
)
"""Of the groups of exact arithmetic. Whole commands are executed by emulated processors too: test_processors.py."""


def product_rows() -> list[Row]:
    """Every combination of the native factors that :data:`ROWS` does not have."""
    known = {row.name for row in ROWS}
    factors = product((1, 2, 4, 8), (1, 2), (False, True), ("", RESUMED, KILLED))
    rows = [
        shape(devices, processes, one_core=core, stop=stop)
        for devices, processes, core, stop in factors
        if devices >= processes and not (processes > 1 and stop)
    ]
    return [row for row in rows if row.name not in known]


def command_of(row: Row, arguments: Sequence[str]) -> list[str]:
    """The worker's command line."""
    python = processors.interpreter(row.processor) if row.processor else sys.executable
    return [*row.prefix, str(python), str(HERE / "worker.py"), *arguments]


def execute(
    row: Row,
    groups: Sequence[str],
    found: Found = lambda name, result: None,
    cache: Path | None = None,
    run: Callable[[Row, Sequence[str], Mapping[str, str], Found], Ended] | None = None,
    *,
    quickly: bool = False,
) -> dict[str, dict[str, Any]]:
    """What the worker printed for each group of a row; ``found`` gets each as soon as it is there. ``run`` executes
    processes in place of :func:`finish`. ``quickly``: with :data:`QUICKLY`.

    Raises RuntimeError with the worker's messages where it did not end well.
    """
    if row.compiled_by:
        return {name: transplanted(row, name, found) for name in groups}
    sizes = TINY if row.tiny else {"steps": STEPS}
    cases = [
        json.dumps({"name": name} | GROUPS[name] | sizes | dict(row.case) | dict(row.own.get(name, {})))
        for name in groups
    ]
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("XLA_FLAGS", "NPROC", APPLIED) and not key.startswith("JAX_")
    } | dict(row.environment)
    if quickly:
        environment["XLA_FLAGS"] = f"{row.environment.get('XLA_FLAGS', '')} {QUICKLY}".strip()
    if cache is not None:
        environment["TEST_COMPILATION_CACHE"] = str(cache / row.compiles())
    run = run or finish
    with tempfile.TemporaryDirectory(prefix="matrix-") as kept, on_a_core_of_its_own(row) as row:
        if row.kills:
            status, _, messages = run(row, ["--kept", kept, *cases], environment, lambda name, result: None)
            if status != -signal.SIGKILL:
                raise RuntimeError(f"{row.name}: exit {status} instead of a kill\n{messages}")
        status, results, messages = run(row, [*(["--kept", kept] if row.kills else []), *cases], environment, found)
    if status:
        raise RuntimeError(f"{row.name}: exit {status}\n{messages}")
    return results


@contextmanager
def on_a_core_of_its_own(row: Row) -> Iterator[Row]:
    """A row that has one core gets one that no other row of this process has meanwhile."""
    if row.prefix != ONE_CORE:
        yield row
        return
    core = FREE_CORES.get()
    try:
        yield replace(row, prefix=(*ONE_CORE[:-1], str(core)))
    finally:
        FREE_CORES.put(core)


def transplanted(row: Row, group: str, found: Found) -> dict[str, Any]:
    """What this processor computes with the machine code that another one compiled: both keep their compiled programs,
    and each of the training's of here gets the bytes of there.

    Raises RuntimeError where they do not correspond, the gradient is the same, or they are not what is executed in the
    end.
    """
    here = replace(row, compiled_by="")
    there = replace(here, processor=row.compiled_by)
    with tempfile.TemporaryDirectory(prefix="matrix-compiled-as-") as base:
        for each in (there, here):
            execute(each, [group], cache=Path(base))
        own, foreign = (compiled(Path(base, each.compiles())) for each in (here, there))
        if own["gradient"].read_bytes() == foreign["gradient"].read_bytes():
            raise RuntimeError(f"{row.name}: the same machine code there as here shows nothing")
        for name, path in own.items():
            path.write_bytes(foreign[name].read_bytes())
        result = execute(here, [group], found, cache=Path(base))[group]
        again = compiled(Path(base, here.compiles()))
        if again != own or any(again[name].read_bytes() != foreign[name].read_bytes() for name in again):
            raise RuntimeError(f"{row.name}: programs were compiled again")
    return result


def compiled(folder: Path) -> dict[str, Path]:
    """A training's compiled programs in one of jax's caches, by name; RuntimeError where one is missing or there
    twice."""
    found = {name: list(folder.glob(f"jit_{name}-*-cache")) for name in PROGRAMS}
    if any(len(paths) != 1 for paths in found.values()):
        raise RuntimeError(f"not each program once: { {name: len(paths) for name, paths in found.items()} }")
    return {name: path for name, (path,) in found.items()}


def finish(
    row: Row, worker: Sequence[str], environment: Mapping[str, str], found: Found = lambda name, result: None
) -> Ended:
    """Run the row's processes to their end."""
    port = free_port() if row.processes > 1 else 0
    results: dict[str, dict[str, Any]] = {}

    def one(process: int) -> tuple[int, str]:
        arguments = ["--devices", str(row.devices)] + (["--bare"] if row.bare else [])
        arguments += ["--canary"] if row.canary else []
        if row.processes > 1:
            arguments += ["--processes", str(row.processes), "--process", str(process), "--port", str(port)]
        with (
            tempfile.TemporaryFile("w+") as messages,
            subprocess.Popen(
                command_of(row, [*arguments, *worker]),
                env=dict(environment),
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                cwd=PROJECT,
            ) as running,
        ):
            limit = threading.Timer(LIMIT, running.kill)
            limit.start()
            assert running.stdout is not None
            for line in running.stdout:
                if process == 0 and line.startswith("{"):
                    result = json.loads(line)
                    results[result["name"]] = result
                    found(result["name"], result)
            running.wait()
            limit.cancel()
            messages.seek(0)
            return running.returncode, messages.read()[-3000:]

    with ThreadPoolExecutor(row.processes) as pool:
        ended = list(pool.map(one, range(row.processes)))
    status, messages = next((end for end in ended if end[0]), ended[0])
    return status, results, messages


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
        parts += [path for path, digest in expected["tensors"].items() if found["tensors"].get(path) != digest]
    return parts


@dataclass(frozen=True)
class Cell:
    """What one row came to for one group ("equal", "DIFFERS …", "not run: …"), and at which commit that was seen."""

    row: str
    group: str
    outcome: str
    commit: str


def code_under_test() -> str:
    """Digest of all that decides the bits of a cell: the settings of the contract, the groups' recipes, what the worker
    imports to train, itself, and the versions of what programs are made from. Results of other code are not
    believed."""
    starts = [
        HERE / "worker.py",
        *(
            PROJECT / name
            for name in (
                "marin/plugins/exact/step.py",
                "marin/training/experts/models.py",
                "marin/training/optimizers/across.py",
            )
        ),
    ]  # these are found by the name of a profile, a model and an optimizer
    seen, todo = {*starts}, [*starts]
    while todo:
        for name in re.findall(
            r"^\s*(?:from|import) (marin\.(?:training|plugins\.exact)[.\w]*)(?: import (.*))?$",
            todo.pop().read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            module = PROJECT / Path(*name[0].split("."))
            candidates = [module.with_suffix(".py"), *(module / f"{part.strip()}.py" for part in name[1].split(","))]
            todo += [path for path in candidates if path.is_file() and path not in seen]
            seen |= set(todo)
    seen.discard(
        PROJECT / "marin" / "training" / "runtime" / "hosts.py"
    )  # how processes meet and how long they wait: no arithmetic
    files = files_digest(PROJECT, [str(path.relative_to(PROJECT)) for path in sorted(seen)])
    recipes = [
        digest(recipe_of(Case(**{"name": name} | group | sizes)))
        for name, group in GROUPS.items()
        for sizes in ({"steps": STEPS}, TINY)
    ]
    return canonical_digest(
        {
            "files": files,
            "recipes": recipes,
            "settings": settings(Arithmetic(), Execution()),
            "versions": {name: version(name) for name in PACKAGES},
        }
    )


def commit() -> str:
    """The commit that is checked out, short."""
    asked = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "no commit"


class Results:
    """What cells came to, and the references that they are compared with, kept in a file between invocations."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._code, self._commit = code_under_test(), commit()
        self.cells: dict[tuple[str, str], Cell] = {}
        self.references: dict[str, dict[str, Any]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take over what another invocation has put into the file meanwhile."""
        if self._path is None or not self._path.exists():
            return
        known = json.loads(self._path.read_text(encoding="utf-8"))
        if known["code"] == self._code:
            self.cells = {(cell["row"], cell["group"]): Cell(**cell) for cell in known["cells"]} | self.cells
            self.references = known["references"] | self.references

    def refer(self, name: str, result: dict[str, Any]) -> None:
        """Remember what the others are compared with."""
        with self._lock:
            self.references[name] = result
            self._write()

    def keep(self, row: str, group: str, outcome: str) -> Cell:
        """Remember a cell."""
        cell = Cell(row, group, outcome, self._commit)
        with self._lock:
            self.cells[row, group] = cell
            self._write()
        return cell

    def _write(self) -> None:
        if self._path is None:
            return
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.refresh()
            self._replace(self._path)

    def _replace(self, path: Path) -> None:
        text = json.dumps(
            {"code": self._code, "cells": [asdict(cell) for cell in self.cells.values()], "references": self.references}
        )
        beside = path.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def measure(
    rows: Sequence[Row],
    groups: Sequence[str],
    results: Results | None = None,
    *,
    cache: Path | None = None,
    parallel: int = 1,
    quickly: bool = False,
) -> Iterator[Cell]:
    """Execute what is not known of the rows and compare it with the first (the tiny ones with the tiny one)."""
    results = results if results is not None else Results(None)

    def absent(row: Row) -> list[str]:
        return [name for name in groups if (row.name, name) not in results.cells]

    for tiny, reference in ((False, ROWS[0]), (True, TINY_REFERENCE)):
        names = {name for row in rows if row.tiny == tiny and not row.missing() for name in absent(row)}
        missing = [name for name in groups if name in names and reference.kind + name not in results.references]
        if missing:
            execute(
                reference,
                missing,
                lambda name, result, kind=reference.kind: results.refer(kind + name, result),
                cache,
                quickly=quickly,
            )
    with ThreadPoolExecutor(parallel) as pool:
        for cells in pool.map(lambda row: _measured(row, absent(row), results, cache, quickly), rows):
            yield from cells


def _measured(
    row: Row, groups: Sequence[str], results: Results, cache: Path | None, quickly: bool = False
) -> list[Cell]:
    reason = row.missing()
    if reason is not None or row == ROWS[0]:
        return [results.keep(row.name, name, f"not run: {reason}" if reason else "reference") for name in groups]
    results.refresh()
    groups = [name for name in groups if (row.name, name) not in results.cells]
    cells: list[Cell] = []

    def found(name: str, result: Mapping[str, Any]) -> None:
        if name in groups:
            parted = differences(results.references[row.kind + name], result)
            cells.append(results.keep(row.name, name, "DIFFERS: " + ", ".join(parted[:3]) if parted else "equal"))
            sys.stderr.write(f"{row.name:<40} {name:<24} {cells[-1].outcome}\n")

    if groups:
        execute(row, groups, found, cache, quickly=quickly)
    return cells


def table_of(cells: Mapping[tuple[str, str], Cell], rows: Sequence[Row], groups: Sequence[str]) -> str:
    """The outcomes as a Markdown table, a column per group; and how many cells were not run, at which commit the
    others."""
    lines = ["| executed as | " + " | ".join(groups) + " |", "| --- |" + " --- |" * len(groups)]
    for row in rows:
        outcomes = [cells[row.name, name].outcome if (row.name, name) in cells else "not run" for name in groups]
        lines.append(f"| {row.name} | " + " | ".join(outcomes) + " |")
    here = [cells[row.name, name] for row in rows for name in groups if (row.name, name) in cells]
    equal = sum(cell.outcome in ("equal", "reference") for cell in here)
    absent = len(rows) * len(groups) - sum(not cell.outcome.startswith("not run") for cell in here)
    at = ", ".join(sorted({cell.commit for cell in here})) or "none"
    lines += [
        "",
        f"{len(rows) * len(groups)} cells: {equal} equal, {len(rows) * len(groups) - equal - absent} different, "
        f"{absent} not run; seen at {at}.",
    ]
    return "\n".join(lines)


def write(table: str, begin: str = BEGIN, end: str = END) -> None:
    """Put the table between two marks of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    DOCUMENT.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


def chosen(text: str, rows: Sequence[Row]) -> list[Row]:
    """The rows of that name, or whose name holds one of the parts of ``text``."""
    exact = [row for row in rows if row.name in text.split(";")]
    return exact or [row for row in rows if any(part in row.name for part in text.split(";"))]


def main(arguments: list[str] | None = None) -> int:
    """Run the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="only rows whose name contains one of these, separated by ;")
    parser.add_argument("--product", action="store_true", help="every combination of the native factors too")
    parser.add_argument(
        "--results", type=Path, help="keep what cells came to in this file, and do not train them again"
    )
    parser.add_argument(
        "--groups", default="", help="only groups whose name contains one of these, separated by commas"
    )
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="so many rows at a time")
    parser.add_argument(
        "--quickly",
        action="store_true",
        help=f"compile exact arithmetic with {QUICKLY}: sooner, and with no other bits",
    )
    parser.add_argument("--fresh", action="store_true", help="compile every program in every row")
    parser.add_argument("--write", action="store_true", help="write the table into docs/determinism.md")
    parser.add_argument("--only-table", action="store_true", help="execute nothing: the table of what is known")
    options = parser.parse_args(arguments)
    groups = [name for name in GROUPS if any(part in name for part in options.groups.split(","))]
    results = Results(options.results)
    tables = (
        (PORTABLE, (*ROWS, *(product_rows() if options.product else ()), *(APART if options.rows else ())), BEGIN, END),
        (BY_LAYER, LAYER_ROWS, LAYER_BEGIN, LAYER_END),
        (EXACT, EXACT_ROWS, EXACT_BEGIN, EXACT_END),
        (ACROSS, EXACT_ROWS, ACROSS_BEGIN, ACROSS_END),
    )
    for own, ways, begin, end in tables:
        wanted = [name for name in groups if name in own]
        if not wanted:
            continue
        rows = chosen(options.rows, ways)
        if not options.only_table:
            with tempfile.TemporaryDirectory(prefix="matrix-compiled-") as compiled:
                cache = None if options.fresh else Path(compiled)
                for _ in measure(
                    rows,
                    wanted,
                    results,
                    cache=cache,
                    parallel=options.parallel,
                    quickly=options.quickly and "exact" in wanted[0],
                ):
                    pass
        known = {name for name, group in results.cells if group in own}
        shown = [*ways, *(row for row in product_rows() if row not in ways and row.name in known)]
        table = table_of(results.cells, shown if options.write else rows, list(own) if options.write else wanted)
        sys.stdout.write(table + "\n")
        if options.write:
            write(table, begin, end)
    return int(any(cell.outcome.startswith("DIFFERS") for cell in results.cells.values()))


if __name__ == "__main__":
    sys.exit(main())
