"""`python -m bench.ledger.looking_back [--events N] [--keep FOLDER]`: how long a question takes when the log has many events.

Runs of 500 events each are appended (a training with its segments and checkpoints, an evaluation, an export), the read
models are folded once, and then each command is a fresh process, as people start it. The bound is that of a `marin`
process that reads nothing (`marin ls --help`), measured beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, seconds
from ledger import Draft, digest_bytes
from marin.history.catalog import open_catalog
from marin.history.runs import stream_of
from marin.record import events as types
from marin.record.creation import create_root
from marin.record.events import Body, Output
from marin.record.root import Root

PER_RUN = 500
STEPS = ("corpus", "tokenizer", "tokens", "train", "evaluate", "export")
TIMES = 3


def draft(run: str, kind: str, body: Body) -> Draft:
    """An event of a run."""
    return Draft(kind, stream_of(run), types.write(body))


def a_run(number: int) -> list[Draft]:
    """The events of one run, as the executor and training would record them."""
    run = f"r{number:07d}"
    some = [digest_bytes(f"{run} {name}".encode()) for name in STEPS]
    recipe = {
        "seed": str(number),
        "dataset": {"name": "grammar"},
        "trainer": {"num_steps": 240},
        "model": {"architecture": "llama", "num_layers": 4, "hidden_dim": 128},
    }
    found = [
        draft(
            run,
            types.RUN_STARTED,
            types.RunStarted(
                run=run, pipeline="default", plan=some[0], recipe_digest=some[1], recipe=recipe, code={}, environment={}
            ),
        )
    ]
    for position, step in enumerate(STEPS):
        output = Output(kind=step, digest=some[position], size=9, artifact=some[position])
        metrics = {
            "train": {"loss_last": (3.0 + number / 7919).hex()},
            "evaluate": {"perplexity": (12.0 + number / 1000).hex()},
        }.get(step, {})
        inputs = {STEPS[position - 1]: some[position - 1]} if position else {}
        found.append(
            draft(
                run,
                types.STEP_STARTED,
                types.StepStarted(
                    run=run,
                    step=step,
                    identity=some[position],
                    config_digest=some[0],
                    config={},
                    inputs=inputs,
                    code=some[0],
                    attempt=1,
                ),
            )
        )
        if step == "train":
            found += _segments(run, PER_RUN - 2 * len(STEPS) - 4)
        found.append(
            draft(
                run,
                types.STEP_COMPLETED,
                types.StepCompleted(
                    run=run,
                    step=step,
                    identity=some[position],
                    inputs=inputs,
                    output=output,
                    metrics=metrics,
                    seconds=1.0,
                ),
            )
        )
    found.append(draft(run, types.RUN_COMPLETED, types.RunCompleted(run=run, outputs={}, metrics={})))
    found += [
        draft(
            run,
            types.REPLAY_COMPLETED,
            types.ReplayCompleted(
                run=run,
                verdicts=dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS"),
                training={},
                first_divergence=None,
                log_checkpoint={},
                details={},
                environment={},
            ),
        )
    ] * 2
    return found


def _segments(run: str, count: int) -> Iterator[Draft]:
    for position in range(count // 2):
        state = digest_bytes(f"{run} state {position}".encode())
        yield draft(
            run,
            types.CHECKPOINT_SAVED,
            types.CheckpointSaved(run=run, step=position + 1, state=state, artifact=state, manifest=state, size=9),
        )
        yield draft(
            run,
            types.TRAIN_SEGMENT,
            types.TrainSegment(
                run=run,
                start=position,
                end=position + 1,
                losses=[(3.0).hex()],
                batches=[state],
                fingerprints=[state],
                start_state=state,
                end_state=state,
                trace=state,
            ),
        )


def fill(root: Root, events: int) -> Figure:
    """Append runs until the log has so many events."""
    began, runs = time.perf_counter(), events // PER_RUN
    for first in range(0, runs, 20):
        root.append([event for number in range(first, min(first + 20, runs)) for event in a_run(number)])
    return Figure(f"append {runs * PER_RUN:,} events of {runs:,} runs", time.perf_counter() - began, "s")


def measure(root: Root, runs: int) -> Iterator[Figure]:
    """The first fold, then every question in a process of its own: the fastest of a few."""
    yield Figure("fold the log into the read models, once", seconds(lambda: _opened(root)), "s")
    floor = _fastest(["ls", "--help"], root)
    yield Figure("marin ls --help: a process that reads nothing", floor, "s")
    number = f"eval/perplexity={12.0 + (runs // 2) / 1000:.3f}"
    for arguments in (
        ["show", "metric", number],
        ["ls", "runs"],
        ["ls", "artifacts"],
        ["ls", "experiments"],
        ["show", "latest"],
        ["show", "latest/train"],
        ["lineage", "latest"],
        ["show", str(runs * PER_RUN // 2)],
    ):
        yield Figure(f"marin {' '.join(arguments)}", _fastest(arguments, root), "s")


def _opened(root: Root) -> None:
    with open_catalog(root):
        pass


def _fastest(arguments: list[str], root: Root) -> float:
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "marin.cli.main", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"MARIN_ROOT": root.location},
        )
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledger.looking_back", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="a folder to keep the root in, or to find it in from an earlier call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as temporary:
        folder = options.keep or Path(temporary)
        os.environ.setdefault("XDG_CONFIG_HOME", str(folder / "config"))
        fresh = not (folder / "root").exists()
        root = create_root(str(folder / "root"), origin="marin.bench/looking-back")
        if fresh:
            sys.stdout.write(f"{fill(root, options.events)}\n")
        for figure in measure(root, options.events // PER_RUN):
            sys.stdout.write(f"{figure}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
