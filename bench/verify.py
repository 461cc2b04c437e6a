"""``python -m bench.verify``: what verifying a run costs, beside what making it cost, on this machine.

    python -m bench.verify                       everything that one process can measure
    python -m bench.verify --only train,one,core,two   training, and one and two workers on it, compilation counted
    python -m bench.verify --folder F --only one the same run again, part by part; train comes first
    python -m bench.verify --only paired --pairs 3   trainings and their replays by turns; none of it is in the first
    python -m bench.verify --only simulation     the cost model for up to 1,000 workers; needs no run

Each figure is a ratio to something measured on the same run: to the training that is verified, to one worker, to sha256
over the same bytes. The run is made here, in a temporary folder, and everything is executed by `marin` in processes of
its own; what is compared are whole commands, from the start of the process to its end, with no program compiled before.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import logging
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


def _llama(hidden: int, inner: int, layers: int, heads: int, seq_len: int) -> dict[str, Any]:
    return {
        "model": {
            "hidden_dim": hidden,
            "intermediate_dim": inner,
            "num_layers": layers,
            "num_heads": heads,
            "num_kv_heads": heads,
            "seq_len": seq_len,
        }
    }


SMALL, LARGE = _llama(64, 176, 2, 2, 64), _llama(512, 1408, 7, 8, 128)
PARTS = ("simulation", "train", "one", "core", "two", "sample", "quarter", "localisation", "hashing")


@dataclass(frozen=True)
class Figure:
    """One measured ratio, what it is of, and its target."""

    what: str
    value: float
    unit: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.what:58} {self.value:8.3f} {self.unit:10} {self.note}"


@dataclass(frozen=True)
class Costs:
    """Of the cost model in docs/verify.md, in seconds: starting the engine, importing and compiling in a worker, one
    train step, a state's load and two hashes at a segment."""

    engine: float = 8.0
    compile: float = 15.0
    step: float = 0.1
    state: float = 1.0


def formula(costs: Costs, steps: int, segments: int, workers: int) -> float:
    """Seconds by the formula."""
    per = steps * costs.step / segments + costs.state
    return (
        costs.compile + steps * costs.step + segments * costs.state / 2
        if workers == 1
        else (costs.engine + costs.compile + -(-segments // workers) * per)
    )


def simulated(costs: Costs, steps: int, segments: int, workers: int, spread: float, seed: int = 1) -> float:
    """Seconds by simulation: workers begin after the engine and compile one by one with some spread, each takes the
    next segment when it is free, and segments take unequal times."""
    draw = random.Random(seed)  # noqa: S311 - a simulation

    def about(value: float) -> float:
        return value * draw.lognormvariate(-spread * spread / 2, spread)

    free = [costs.engine + about(costs.compile) for _ in range(workers)]
    heapq.heapify(free)
    last = 0.0
    for _ in range(segments):
        at = heapq.heappop(free) + about(steps * costs.step / segments + costs.state)
        last = max(last, at)
        heapq.heappush(free, at)
    return last


def simulation(_: Bench) -> Iterator[Figure]:
    """A run of a day in 2,000 segments, for up to 1,000 workers."""
    costs, steps, segments = Costs(), 864_000, 2_000
    whole = formula(costs, steps, segments, 1)
    for workers in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000):
        found = simulated(costs, steps, segments, workers, 0.2)
        said = formula(costs, steps, segments, workers)
        yield Figure(
            f"simulated speed-up, {workers} workers, one day in 2,000 segments",
            whole / found,
            "times",
            f"by the formula {whole / said:.1f}, of at most {workers}",
        )


@dataclass(frozen=True)
class Cost:
    """Of one process and what it waited for, in seconds: by the clock, and of processors. The second is little
    disturbed by what else the machine does; Ray's workers are not among those that are waited for."""

    wall: float
    cpu: float

    def of(self, other: Cost, times: float = 1.0) -> str:
        """Both ratios to ``other``, as a remark."""
        return (
            f"{times * self.wall / other.wall:.3f} by the clock, {times * self.cpu / other.cpu:.3f} of processor time"
        )


class Bench:
    """A run made for the occasion, and `marin` on it: its data stages at first, its training when it is measured."""

    def __init__(self, base: Path, params: dict[str, Any], pairs: int = 1) -> None:
        self.base, self.project = base, base / "honest"
        self.params, self.pairs = params, pairs
        self.cores = ""
        self.bin = Path(sys.executable).parent
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("MARIN", "XLA", "JAX", "XDG")) and k != "NPROC"
        }
        self.variables = kept | {
            "XDG_CONFIG_HOME": str(base / "config"),
            "XDG_STATE_HOME": str(base / "state"),
            "MARIN_CACHE": str(base / "cache"),
            "MARIN_KEY": str(base / "operator.key"),
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        }
        if not self.project.exists():
            self.project.mkdir(parents=True)
            (self.project / "params.yaml").write_text(json.dumps(params), "utf-8")
            self.marin("init", "--quiet")
            for stage in ("corpus", "tokenizer", "tokens"):
                self.marin("stage", stage)

    def marin(self, *arguments: str, status: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """`marin ARGUMENT...` in the run's folder."""
        return self.execute(str(self.bin / "marin"), "-q", *arguments, status=status)

    def execute(self, *command: str, status: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """A process in the run's folder, on the cores that were chosen."""
        held = ["taskset", "--cpu-list", self.cores] if self.cores else []
        done = subprocess.run(
            [*held, *command], cwd=self.project, env=self.variables, capture_output=True, text=True, check=False
        )
        if done.returncode not in status:
            raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done

    def timed(self, *arguments: str, status: tuple[int, ...] = (0,)) -> tuple[Cost, str]:
        """What `marin ARGUMENT...` cost, and its output."""
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = self.marin(*arguments, status=status)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout

    def verify(
        self, *arguments: str, root: str = ".marin", status: tuple[int, ...] = (0,)
    ) -> tuple[Cost, dict[str, Any]]:
        """Cost and report of a verification that takes nothing from earlier ones."""
        cost, said = self.timed("--root", root, "verify", "latest", "--json", "--no-record", *arguments, status=status)
        return cost, json.loads(said)

    def shown(self) -> dict[str, Any]:
        """What the ledger says of the run."""
        found: dict[str, Any] = json.loads(self.marin("show", "latest", "--json").stdout)
        return found

    def keep(self, name: str, value: dict[str, Any]) -> None:
        """A measurement that a later call compares with."""
        (self.base / f"measured-{name}.json").write_text(json.dumps(value), "utf-8")

    def known(self, part: str) -> dict[str, Any]:
        """What the part ``train``, ``one`` or ``core`` measured of this run, in this call or an earlier one."""
        path = self.base / f"measured-{part}.json"
        if not path.exists():
            raise SystemExit(f"measure --only {part} first, with the same --folder")
        value: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return value

    def cold(self) -> None:
        """Forget compiled programs, so that the next command compiles; and have the libraries in memory, for all
        alike."""
        shutil.rmtree(self.base / "cache", ignore_errors=True)
        self.execute(sys.executable, "-c", "import marin.verify.jax.replay, marin.training.run")


def train(bench: Bench) -> Iterator[Figure]:
    """The training that is verified afterwards, executed and recorded once, nothing compiled before."""
    bench.cold()
    cost, _ = bench.timed("stage", "train")
    bench.keep("train", asdict(cost))
    own = bench.shown()["steps"]["train"]["seconds"]
    yield Figure(
        "training, the whole command", cost.wall, "s", f"the step itself {own:.1f} s, processors {cost.cpu:.1f} s"
    )


def one(bench: Bench) -> Iterator[Figure]:
    """Replay in order, nothing compiled before, against the training itself, which compiled too."""
    cost = yield from _workers(bench, "one", 1)
    trained = Cost(**bench.known("train"))
    yield Figure(
        "serial full replay / training",
        cost.wall / trained.wall,
        "times",
        f"{cost.of(trained)}; whole commands, both compile; target 1.05",
    )


def core(bench: Bench) -> Iterator[Figure]:
    """Replay in order on one core of the machine: what one of two workers has."""
    bench.cores = "0"
    try:
        yield from _workers(bench, "core", 1)
    finally:
        bench.cores = ""


def two(bench: Bench) -> Iterator[Figure]:
    """Two workers, nothing compiled before either; beside one that has one core, and beside one that takes what it
    finds."""
    cost = yield from _workers(bench, "two", 2)
    beside = {"core": "--workers 1 on one core / --workers 2 on two", "one": "--workers 1 on two cores / --workers 2"}
    for name, what in beside.items():
        yield Figure(
            what,
            bench.known(name)["wall"] / cost.wall,
            "times",
            "whole commands, compilation counted in both" + ("; target 1.7" if name == "one" else ""),
        )


def _workers(bench: Bench, name: str, count: int) -> Generator[Figure, None, Cost]:
    bench.cold()
    cost, report = bench.verify("--only", "training", "--workers", str(count))
    bench.keep(name, asdict(cost))
    where = " on one core" if bench.cores else ""
    yield Figure(
        f"--workers {count}{where}, {report['training']['segments_total']} segments",
        cost.wall,
        "s",
        f"whole command; replay itself {report['training']['seconds']:.1f} s",
    )
    return cost


def sample(bench: Bench, among: int = 2) -> Iterator[Figure]:
    """A sample of half of the segments against the training; both compile."""
    trained = Cost(**bench.known("train"))
    total = len(bench.shown()["segments"])
    wanted = max(1, total // among)
    bench.cold()
    cost, _ = bench.verify("--only", "training", "--sample", str(wanted), "--no-screen")
    yield Figure(
        f"sample of {wanted} of {total} segments / (k/N training)",
        cost.wall / trained.wall * total / wanted,
        "times",
        f"{cost.of(trained, total / wanted)}; whole commands; target 1.05",
    )


def quarter(bench: Bench) -> Iterator[Figure]:
    """A sample of a quarter of them."""
    yield from sample(bench, 4)


def localisation(bench: Bench) -> Iterator[Figure]:
    """A run that its operator falsified in one bit, and signed again: from the segment's FAIL to train step and
    tensor."""
    last = bench.shown()["segments"][-1]
    step = (int(last["start"]) + int(last["end"])) // 2
    forged = json.loads(
        bench.execute(sys.executable, "-m", "tests.adversary.faults.forged", str(bench.base), str(step)).stdout
    )
    bench.cold()
    cost, report = bench.verify("--only", "training", "--steps", f"{step}:{step + 1}", root=forged["root"], status=(1,))
    found = report["first_divergence"]
    if (found["step"], found["tensors"]) != (forged["step"], [forged["tensor"]]):
        raise SystemExit(f"located elsewhere: {found}, forged {forged}")
    yield Figure(
        "a forged bit located: the segment replayed and judged",
        cost.wall,
        "s",
        f"process start and compilation included; {forged['tensor']} in train step {step}; target 60 s",
    )


def paired(bench: Bench) -> Iterator[Figure]:
    """Training and its replay by turns, each on a run of its own: what the machine does meanwhile disturbs both
    alike."""
    by_clock, by_processor = [], []
    for number in range(bench.pairs):
        pair = Bench(bench.base / f"pair-{number}", bench.params)
        pair.cold()
        trained, _ = pair.timed("stage", "train")
        pair.cold()
        replayed, _ = pair.verify("--only", "training", "--workers", "1")
        pair.cold()
        wanted = max(1, len(pair.shown()["segments"]) // 2)
        sampled, _ = pair.verify("--only", "training", "--sample", str(wanted), "--no-screen")
        by_clock.append((replayed.wall / trained.wall, 2 * sampled.wall / trained.wall))
        by_processor.append((replayed.cpu / trained.cpu, 2 * sampled.cpu / trained.cpu))
        logging.info(
            "training %.1f s, replay %.1f s, sample of a half %.1f s", trained.wall, replayed.wall, sampled.wall
        )
    for at, what in enumerate(("serial full replay / training", "sample of half of the segments / half of training")):
        clock, processor = ([pair[at] for pair in pairs] for pairs in (by_clock, by_processor))
        spread = ", ".join(f"{value:.3f}" for value in sorted(clock))
        yield Figure(
            f"{what}, median of {bench.pairs} pairs",
            statistics.median(clock),
            "times",
            f"{spread}; of processor time {statistics.median(processor):.3f}; target 1.05",
        )


def hashing(bench: Bench) -> Iterator[Figure]:
    """`--only ledger,artifacts` against sha256 over the same files, read from disk or not as they are for both."""
    files = [path for path in (bench.project / ".marin" / "store").rglob("*") if path.is_file()]
    began = time.monotonic()
    size = 0
    for path in files:
        data = path.read_bytes()
        hashlib.sha256(data).digest()
        size += len(data)
    alone = time.monotonic() - began
    empty, _ = bench.verify("--only", "ledger")
    cost, _ = bench.verify("--only", "ledger,artifacts")
    yield Figure(
        "verify --only ledger,artifacts",
        cost.wall,
        "s",
        f"{size / 1e6:.0f} MB in {len(files)} files; {empty.wall:.2f} s of it without the artifacts",
    )
    yield Figure(
        "artifacts hashed again / sha256 of the same files",
        (cost.wall - empty.wall) / alone,
        "times",
        f"sha256 alone {alone:.2f} s, {size / alone / 1e9:.2f} GB/s",
    )


MEASURES = {
    "simulation": simulation,
    "train": train,
    "one": one,
    "core": core,
    "two": two,
    "sample": sample,
    "quarter": quarter,
    "localisation": localisation,
    "hashing": hashing,
    "paired": paired,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.verify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--pairs", type=int, default=3, help="of the part `paired`")
    parser.add_argument("--steps", type=int, default=1920)
    parser.add_argument("--segments", type=int, default=16)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--small", action="store_true", help="a model of 0.36 million parameters instead of the default one"
    )
    size.add_argument("--large", action="store_true", help="a model of 25 million parameters")
    parser.add_argument("--folder", type=Path, help="keep the run here, and take it from here again")
    parser.add_argument("--prepare", action="store_true", help="only the stages before training")
    options = parser.parse_args(arguments)
    base = options.folder or Path(tempfile.mkdtemp(prefix="marin-verify-bench-"))
    params = {
        "seed": 1,
        "trainer": {"num_steps": options.steps, "steps_per_segment": options.steps // options.segments},
    }
    params |= SMALL if options.small else LARGE if options.large else {}
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = [part for part in options.only.split(",") if part]
    try:
        bench = (
            Bench(base, params, options.pairs)
            if options.prepare or set(chosen) != {"simulation"}
            else object.__new__(Bench)
        )
        for part in [] if options.prepare else chosen:
            for figure in MEASURES[part](bench):
                sys.stdout.write(f"{figure}\n")
                sys.stdout.flush()
    finally:
        if options.folder is None:
            shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
