"""``python -m bench.verify``: what verifying a run costs, beside what making it cost, on this machine.

    python -m bench.verify                       everything that one process can measure
    python -m bench.verify --only one,two        one and two workers on a run of 16 segments, compilation counted
    python -m bench.verify --only simulation     the cost model for up to 1,000 workers; needs no run

Each figure is a ratio to something measured in the same run: to the training that is verified, to one worker, to sha256 over
the same bytes. The run is made here, in a temporary folder, and everything is executed by `marin` in processes of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMALL = {"model": {"hidden_dim": 64, "intermediate_dim": 176, "num_layers": 2, "num_heads": 2, "num_kv_heads": 2, "seq_len": 64}}
PARTS = ("simulation", "one", "two", "sample", "localisation", "hashing")


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
    """Of the cost model in docs/verify.md, in seconds: starting the engine, importing and compiling in a worker, one train
    step, a state's load and two hashes at a segment."""

    engine: float = 8.0
    compile: float = 15.0
    step: float = 0.1
    state: float = 1.0


def formula(costs: Costs, steps: int, segments: int, workers: int) -> float:
    """Seconds by the formula."""
    per = steps * costs.step / segments + costs.state
    return costs.compile + steps * costs.step + segments * costs.state / 2 if workers == 1 else (
        costs.engine + costs.compile + -(-segments // workers) * per)


def simulated(costs: Costs, steps: int, segments: int, workers: int, spread: float, seed: int = 1) -> float:
    """Seconds by simulation: workers begin after the engine and compile one by one with some spread, each takes the next
    segment when it is free, and segments take unequal times."""
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
        yield Figure(f"simulated speed-up, {workers} workers, one day in 2,000 segments", whole / found, "times",
                     f"by the formula {whole / said:.1f}, of at most {workers}")


class Bench:
    """A run made for the occasion, and `marin` on it."""

    def __init__(self, base: Path, params: dict[str, Any]) -> None:
        self.base = base
        base.mkdir(parents=True, exist_ok=True)
        self.bin = Path(sys.executable).parent
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MARIN", "XLA", "JAX", "XDG")) and k != "NPROC"}
        self.variables = kept | {"XDG_CONFIG_HOME": str(base / "config"), "XDG_STATE_HOME": str(base / "state"),
                                 "MARIN_CACHE": str(base / "cache"), "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        if not (base / ".marin").exists():
            (base / "params.yaml").write_text(json.dumps(params), "utf-8")
            self.marin("init", "--quiet")
            for stage in ("corpus", "tokenizer", "tokens", "train", "evaluate", "export"):
                self.marin("stage", stage)
        self.shown: dict[str, Any] = json.loads(self.marin("show", "latest", "--json").stdout)

    def marin(self, *arguments: str, status: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """`marin ARGUMENT...` in the run's folder."""
        done = subprocess.run([str(self.bin / "marin"), "-q", *arguments], cwd=self.base, env=self.variables,
                              capture_output=True, text=True, check=False)
        if done.returncode not in status:
            raise SystemExit(f"marin {' '.join(arguments)}: {done.returncode}\n{done.stderr[-2000:]}")
        return done

    def verify(self, *arguments: str, status: tuple[int, ...] = (0,)) -> tuple[float, dict[str, Any]]:
        """Wall seconds and report of a verification that takes nothing from earlier ones."""
        began = time.monotonic()
        done = self.marin("verify", "latest", "--json", "--no-record", *arguments, status=status)
        return time.monotonic() - began, json.loads(done.stdout)

    def keep(self, name: str, value: dict[str, Any]) -> None:
        """A measurement that a later call compares with."""
        (self.base / f"measured-{name}.json").write_text(json.dumps(value), "utf-8")

    def known(self, name: str) -> dict[str, Any]:
        """A measurement of this run, of this call or of an earlier one."""
        path = self.base / f"measured-{name}.json"
        if not path.exists():
            raise SystemExit(f"measure --only {({'1': 'one', '2': 'two'})[name]} first, with the same --folder")
        value: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return value

    def cold(self) -> None:
        """Forget compiled programs, so that the next command compiles."""
        shutil.rmtree(self.base / "cache", ignore_errors=True)

    @property
    def trained(self) -> float:
        """Seconds that the step train took, from its event."""
        return float(next(step["seconds"] for step in _steps(self.shown) if step["step"] == "train"))


def _steps(shown: dict[str, Any]) -> list[dict[str, Any]]:
    steps = shown["steps"]
    return steps if isinstance(steps, list) else [{"step": name, **value} for name, value in steps.items()]


def one(bench: Bench) -> Iterator[Figure]:
    """Replay in order, nothing compiled before, against the training itself, which compiled too."""
    yield from _workers(bench, 1)
    yield Figure("serial full replay / training", bench.known("1")["training"]["seconds"] / bench.trained, "times",
                 f"training took {bench.trained:.1f} s; both compile; target 1.05")


def two(bench: Bench) -> Iterator[Figure]:
    """The same with two workers."""
    yield from _workers(bench, 2)
    yield Figure("--workers 1 / --workers 2", bench.known("1")["wall"] / bench.known("2")["wall"], "times",
                 "whole commands, compilation counted; target 1.7")


def _workers(bench: Bench, count: int) -> Iterator[Figure]:
    bench.cold()
    seconds, report = bench.verify("--only", "training", "--workers", str(count))
    bench.keep(str(count), {"wall": seconds, "training": report["training"]})
    yield Figure(f"--workers {count}, {report['training']['segments_total']} segments", seconds, "s",
                 f"whole command; replay itself {report['training']['seconds']:.1f} s")


def sample(bench: Bench) -> Iterator[Figure]:
    """A sample of a quarter of the segments against its share of the full replay by one worker; both
    compile."""
    full = bench.known("1")["training"]
    total = full["segments_total"]
    wanted = max(1, total // 4)
    bench.cold()
    _, report = bench.verify("--only", "training", "--sample", str(wanted), "--no-screen")
    share = report["training"]["seconds"] / full["seconds"]
    yield Figure(f"sample of {wanted} of {total} segments / full replay", share, "of it",
                 f"{share * total / wanted:.2f} k/N; target 1.05 k/N")


def localisation(bench: Bench) -> Iterator[Figure]:
    """From a recorded FAIL to the tensor: one segment replayed."""
    at = int(bench.shown["segments"][-1]["end"]) - 1
    seconds, _ = bench.verify("--only", "training", "--steps", f"{at}:{at + 1}")
    yield Figure("the segment of one train step replayed and judged", seconds, "s", "target 60 s; process start included")


def hashing(bench: Bench) -> Iterator[Figure]:
    """`--only ledger,artifacts` against sha256 over the same files."""
    files = [path for path in (bench.base / ".marin" / "store").rglob("*") if path.is_file()]
    began = time.monotonic()
    size = 0
    for path in files:
        data = path.read_bytes()
        hashlib.sha256(data).digest()
        size += len(data)
    alone = time.monotonic() - began
    empty = time.monotonic()
    bench.marin("show", "latest", "--json")
    empty = time.monotonic() - empty
    seconds, _ = bench.verify("--only", "ledger,artifacts")
    yield Figure("verify --only ledger,artifacts", seconds, "s", f"{size / 1e6:.0f} MB in {len(files)} files; sha256 alone "
                 f"{alone:.2f} s, a command that only reads the log {empty:.2f} s")


MEASURES = {"simulation": simulation, "one": one, "two": two, "sample": sample, "localisation": localisation,
            "hashing": hashing}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--segments", type=int, default=16)
    parser.add_argument("--small", action="store_true", help="a smaller model than the default one")
    parser.add_argument("--folder", type=Path, help="keep the run here, and take it from here again")
    parser.add_argument("--prepare", action="store_true", help="only make the run")
    options = parser.parse_args(arguments)
    base = options.folder or Path(tempfile.mkdtemp(prefix="marin-verify-bench-"))
    params = {"seed": 1, "trainer": {"num_steps": options.steps, "steps_per_segment": options.steps // options.segments}}
    params |= SMALL if options.small else {}
    chosen = [part for part in options.only.split(",") if part]
    try:
        bench = Bench(base, params) if options.prepare or set(chosen) != {"simulation"} else object.__new__(Bench)
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
