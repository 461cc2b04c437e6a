"""`make gpu`: does this machine's GPU give the bits of docs/exact.md, does it repeat its own, and what does that cost?

    python -m bench.gpu [--platform cuda] [--pairs N] [--steps N] [--models nano,25m,llama-135m] [--parts A,B] [--out FOLDER]

- `probes` (bench/gpu/probes.py): in a process for each of :data:`SETTINGS`, until every needed one holds.
- `run`: under the first setting that gives the known answers a small run of profile ``exact`` is trained on the device, and
  the same log verified here, on the processor. `exact/run.tar.gz` holds it for another machine's. `default`: the same of
  the default model.
- `own`: a small run of profile ``gpu`` is trained, and verified on the device: every segment again, from its state.
- `repeats`: for each model (bench/gpu/steps.py) the bits of profile ``gpu`` after some steps, again in another process, and
  in another one from the state at half the way. `bits`: those of ``exact``, which any other device has to give.
- `times`: when all else is done, milliseconds of a step, alone, beside those of Levanter's Trainer as it comes.

All but the last take turns as the machine has processors. Everything that came out is one JSON document, `gpu.json` in FOLDER
(written anew after each part) and on stdout. Exit status 0 when what was asked for has the bits that it should, 1
otherwise; `bits` and `times` are said, and compared with nothing. Without a GPU:
`--platform cpu` asks the processor the same, which is how the tests execute this. No network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from bench.gpu.probes import PAIRS
from marin.process.arithmetic import CHANGING, IEEE_DIVISION, TRACING
from marin.provenance.code import lock_digest
from marin.provenance.environment import describe

PROJECT = Path(__file__).resolve().parents[2]
NO_TRITON = "--xla_gpu_enable_triton_gemm=false"
SETTINGS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "cuda": ((IEEE_DIVISION, NO_TRITON), (IEEE_DIVISION,), (NO_TRITON,), ()),
    "cpu": ((),),
}
"""What `XLA_FLAGS` a platform is asked with, in this order."""
REACHING = ("JAX_", "XLA_", "LEVANTER_", "MARIN_ARITH", "NPROC", "NVIDIA_TF32", "CUBLAS_", *CHANGING, *TRACING)
"""How variables begin that change what is traced, compiled or multiplied."""
type Words = tuple[str, ...]
MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"


@dataclass(frozen=True)
class Done:
    """How a process ended. ``output``: its stdout, ``messages``: the end of its stderr."""

    status: int
    output: str
    messages: str
    seconds: float


def environment(platform: str, flags: tuple[str, ...]) -> dict[str, str]:
    """Variables under which jax computes on ``platform``; nothing of the user's that reaches it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(REACHING)}
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    platforms = {
        "JAX_PLATFORMS": "cpu" if platform == "cpu" else f"{platform},cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share the device
        "PYTHONPATH": os.pathsep.join(paths),
    }
    return kept | platforms | ({"XLA_FLAGS": " ".join(flags)} if flags else {})


def execute(arguments: list[str], variables: Mapping[str, str], folder: Path) -> Done:
    """A Python of this environment, in ``folder``; its messages go on to stderr."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=dict(variables), cwd=folder, capture_output=True, text=True, check=False
    )
    sys.stderr.write(done.stderr)
    return Done(done.returncode, done.stdout, done.stderr[-2000:], round(time.perf_counter() - started, 1))


def asked(platform: str, flags: tuple[str, ...], pairs: int, folder: Path) -> dict[str, Any]:
    """What the device answered under one setting."""
    done = execute(["-m", "bench.gpu.probes", "--pairs", str(pairs)], environment(platform, flags), folder)
    try:
        said: dict[str, Any] = json.loads(done.output)
    except ValueError:
        return {"flags": list(flags), "holds": False, "error": done.messages, "seconds": done.seconds}
    there = said["platform"] == ("gpu" if platform == "cuda" else platform)
    needed = [probe for probe in said["probes"] if probe["needed"]]
    holds = there and bool(needed) and all(probe["holds"] for probe in needed)
    return {"flags": list(flags), "holds": holds, "seconds": done.seconds, **said}


def trained(
    platform: str, flags: tuple[str, ...], folder: Path, judge: str, words: Words, put: Callable[[Any], None]
) -> None:
    """A run, trained on the device; then the same log, verified on ``judge``. ``put`` is given what is known, twice."""
    project = folder / "run"
    project.mkdir(parents=True)
    identity = {"XDG_CONFIG_HOME": str(folder / "key"), "XDG_STATE_HOME": str(folder / "state")}
    there = environment(platform, flags) | identity
    here = there if judge == platform else environment(judge, ()) | identity
    made = execute(["-c", MARIN, "init", "--quiet"], here, project)
    run = execute(["-c", MARIN, "-q", "train", *words, "--config-json", json.dumps(SMALL), "--json"], there, project)
    found: dict[str, Any] = {"words": list(words), "seconds": run.seconds, "status": made.status or run.status}
    if found["status"]:
        put(found | {"messages": made.messages + run.messages})
        return
    shown = execute(["-c", MARIN, "show", "latest", "--json"], here, project)
    with tarfile.open(folder / "run.tar.gz", "w:gz") as archive:
        archive.add(project, "run")
    found |= {"train": json.loads(run.output), "recorded": json.loads(shown.output) if shown.output else None}
    put(found)
    judged = execute(["-c", MARIN, "verify", "latest", "--only", "training", "--no-record", "--json"], here, project)
    verdict = json.loads(judged.output) if judged.output else {"messages": judged.messages}
    verified = {"on": judge, "status": judged.status, "seconds": judged.seconds, "report": verdict}
    put(found | {"verified": verified})


SMALL = {
    "dataset": {"kind": "grammar", "train_bytes": 200_000, "validation_bytes": 20_000, "minimal_pairs": 20},
    "tokenizer": {"vocab_size": 512},
    "evaluation": {"max_sequences": 16, "minimal_pairs": 20},
}
"""As small as a run can be and still learn: what is shown is bits."""
EXACT: Words = ("profile=exact",)
SHAPES: Mapping[str, Words] = {
    "nano": ("model=nano",),
    "25m": ("model=25m", "trainer.batch_size=16"),
    "llama-135m": ("model=llama-135m", "trainer.batch_size=8"),
}
SHORT: Words = ("model.seq_len=128",)
"""Under ``exact`` what a processor can repeat in minutes."""


def promised(platform: str, folder: Path) -> Words:
    """Words of the profile whose promise is repeats on devices of one kind, with the kind that is here; none of a
    processor."""
    if platform != "cuda":
        return ()
    kind = execute(["-c", "import jax; print(jax.devices()[0].device_kind)"], environment(platform, ()), folder)
    return "profile=gpu", f"arithmetic.device_kind={kind.output.strip()}"


REPEATED, TIMED = "6", "10"
"""Steps, of what is repeated and of what is timed."""


def stepped(
    variables: Mapping[str, str], what: str, words: Sequence[str], steps: str, folder: Path, *more: str
) -> dict[str, Any]:
    """What a process of bench/gpu/steps.py said."""
    done = execute(["-m", "bench.gpu.steps", what, *words, "--steps", steps, *more], variables, folder)
    try:
        said: dict[str, Any] = json.loads(done.output)
    except ValueError:
        return {"error": done.messages, "status": done.status}
    return said


def repeated(variables: Mapping[str, str], words: Words, steps: str, folder: Path) -> dict[str, Any]:
    """The bits of a model after ``steps``, three times."""
    folder.mkdir(parents=True)
    half = folder / "half.npz"
    first = stepped(variables, "ours", words, steps, folder, "--save", str(half))
    again = stepped(variables, "ours", words, steps, folder)
    resumed = stepped(variables, "ours", words, steps, folder, "--resume", str(half))
    half.unlink(missing_ok=True)
    last = [said.get("digests", {}).get(steps) for said in (first, again, resumed)]
    equal = None not in last and len(set(last)) == 1 and first["digests"] == again["digests"]
    return {"words": list(words), "equal": equal, "first": first, "again": again, "resumed": resumed}


def small(steps: int, segments: int) -> Words:
    """Of a run: how long, and in how many segments."""
    return f"trainer.num_steps={steps}", f"trainer.steps_per_segment={max(1, steps // segments)}"


@dataclass
class Measured:
    """What is known so far; every part is written as soon as it is there."""

    path: Path
    found: dict[str, Any]
    lock: Lock = field(default_factory=Lock)

    def put(self, part: str, name: str | None, value: Any) -> None:
        """Add a part, or one of its entries."""
        with self.lock:
            if name is None:
                self.found[part] = value
            else:
                self.found.setdefault(part, {})[name] = value
            self.path.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")


def probed(options: argparse.Namespace, to: Measured, folder: Path) -> None:
    """The probes, setting by setting."""
    answered: list[dict[str, Any]] = []
    for flags in SETTINGS[options.platform]:
        answered.append(asked(options.platform, flags, options.pairs, folder))
        to.put("settings", None, answered)
        if answered[-1]["holds"]:
            break


def chosen(platform: str, folder: Path) -> Words:
    """The first setting under which the known answers come out, which a training asks for; where there is none, the first
    of all, and what is trained says so."""
    check = ["-c", "from marin.plugins.exact import known; known.check()"]
    settings = SETTINGS[platform]
    holding = (flags for flags in settings if execute(check, environment(platform, flags), folder).status == 0)
    return next(holding, settings[0])


class Waiting:
    """A process of bench/gpu/steps.py that makes ready beside others and steps when it is told."""

    def __init__(self, variables: Mapping[str, str], what: str, words: Words, folder: Path) -> None:
        arguments = [sys.executable, "-m", "bench.gpu.steps", what, *words, "--steps", TIMED, "--wait"]
        self._process = subprocess.Popen(
            arguments, env=dict(variables), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ready(self) -> None:
        """Wait for it."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def step(self) -> dict[str, Any]:
        """Its times."""
        output, _ = self._process.communicate("go\n")
        try:
            said: dict[str, Any] = json.loads(output)
        except ValueError:
            return {"status": self._process.returncode}
        return said


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole of it."""
    platform, parts = options.platform, options.parts.split(",")
    to = Measured(folder / "gpu.json", {"asked of": platform, "machine": describe(lock_digest(PROJECT))})
    exact = {"run", "default", "bits", "times"} & set(parts)
    flags = chosen(platform, folder) if exact else ()
    plain, under = environment(platform, ()), environment(platform, flags)
    models = [name for name in options.models.split(",") if name]
    repeating = promised(platform, folder)
    nano: Words = ("model=nano", *small(options.steps, 4))
    timed: dict[str, dict[str, Waiting]] = {}
    if "times" in parts:
        for model in models:
            timed[model] = {
                "ours": Waiting(plain, "ours", (*repeating, *SHAPES[model]), folder),
                "stock": Waiting(plain, "stock", (*repeating, *SHAPES[model]), folder),
                "exact": Waiting(under, "ours", (*EXACT, *SHAPES[model]), folder),
            }

    def run(name: str, flags: Words, place: str, judge: str, words: Words) -> None:
        trained(platform, flags, folder / place, judge, words, lambda found: to.put(name, None, found))

    def repeat(model: str) -> None:
        to.put("repeats", model, repeated(plain, (*repeating, *SHAPES[model]), REPEATED, folder / model))

    def bits(model: str) -> None:
        words = (*EXACT, *SHAPES[model], *(() if model == "nano" else SHORT))
        to.put("bits", model, stepped(under, "ours", words, "2", folder))

    work: dict[str, list[Callable[[], None]]] = {
        "run": [lambda: run("run", flags, "exact", "cpu", (*EXACT, *nano))],
        "default": [lambda: run("default", flags, "default", "cpu", (*EXACT, *small(240, 2)))],
        "probes": [lambda: probed(options, to, folder)],
        "bits": [partial(bits, model) for model in models],
        "own": [lambda: run("own", (), "own", platform, (*repeating, *nano))],
        "repeats": [partial(repeat, model) for model in models],
    }
    with ThreadPoolExecutor(max(1, min(8, (os.cpu_count() or 2) // 2))) as several:
        for waited in [several.submit(each) for part, all_ in work.items() if part in parts for each in all_]:
            waited.result()
    for every in timed.values():
        for one in every.values():
            one.ready()
    for model, every in timed.items():
        to.put("times", model, {what: one.step() for what, one in every.items()})
    return to.found


PARTS = ("probes", "run", "default", "own", "repeats", "bits", "times")


def held(found: Mapping[str, Any]) -> bool:
    """Whether everything that was asked has the bits that it should."""
    runs = [found[name].get("verified", {}).get("status", 1) for name in ("run", "default", "own") if name in found]
    settings = found.get("settings", [])
    return (
        not any(runs)
        and all(one["equal"] for one in found.get("repeats", {}).values())
        and all(one["holds"] for one in settings[-1:])
    )


def some_of(known: Collection[str], *, none: bool = False) -> Callable[[str], str]:
    """A list with commas in which nothing is but ``known``; an empty one only where that is meant."""

    def checked(text: str) -> str:
        named = list(filter(None, text.split(",")))
        if odd := [name for name in named if name not in known]:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}; found {', '.join(odd)}")
        if not named and not none:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}; found none")
        return text

    return checked


def main() -> int:
    """Ask, train, verify, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--platform", choices=sorted(SETTINGS), default="cuda")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--steps", type=int, default=20, help="of the runs")
    models, parts = some_of(SHAPES, none=True), some_of(PARTS)
    parser.add_argument("--models", type=models, default=",".join(SHAPES), help=f"of {', '.join(SHAPES)}, or none: ''")
    parser.add_argument("--parts", type=parts, default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=PROJECT / "build" / "gpu", help="a new folder")
    options = parser.parse_args()
    folder = options.out.resolve()
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"--out {options.out} is there already; name a new folder, or move this one away")
    except OSError as error:
        parser.error(f"--out {options.out} can not be made ({error.strerror}); name another folder")
    found = measure(options, folder)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0 if held(found) else 1


if __name__ == "__main__":
    sys.exit(main())
