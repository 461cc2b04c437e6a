"""Several processes that train as one until one of them is told to stop; or one process that goes over it again.

    segments.py --folder F --port PORT --processes 2 --process I      trains, saves when told to stop, prints what it
    recorded segments.py --folder F --until STEP                               straight to STEP and two further; and
    resumed from F

Every line on stdout is a JSON object. The token cache is F/train, the training checkpoint the tree that F/tree names in F/root.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).resolve().parent)]

import worker  # noqa: E402

DEVICES, LAST = 2, 100_000


def described(record: Any) -> dict[str, Any]:
    """What a segment came to."""
    return {
        "end": record.steps.end,
        "state": record.end_state.digest,
        "steps": record.steps.fingerprints,
        "tensors": {tensor.path: tensor.digest for tensor in record.end_state.tensors},
    }


def say(message: dict[str, Any]) -> None:
    """A line for the test."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def together(folder: Path, processes: int, process: int, port: int) -> None:
    """One of the processes."""
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution

    recipe, execution = recipe_of(), Execution(devices=DEVICES, processes=processes)
    apply(recipe.arithmetic, execution)
    from ledger import PosixStorage, Store
    from marin.training.loop import Training
    from marin.training.runtime import hosts
    from marin.training.runtime.stopping import StopSignal
    from marin.training.state import manifest_of

    hosts.join(f"127.0.0.1:{port}", processes, process)
    training = Training(recipe, folder / "train", worker.VOCABULARY, execution)
    state, before = training.start()
    with StopSignal() as stop:
        state, record = training.segment(
            state, before, 0, LAST, stop=stop, progress=lambda step, loss: say({"step": step})
        )
    trees: list[str] = []
    with training.saver(Store(PosixStorage(folder / "root")), folder / f"work-{process}") as saver:
        saver.save(state, lambda done: trees.extend([done.artifact.digest, done.manifest.digest]))
        saver.settle(wait=True)
    if trees:
        assert trees[1] == record.end_state.digest
        (folder / "tree").write_text(trees[0])
    say({"signal": stop.received, "gathered": manifest_of(training.step.collect(state)).digest} | described(record))
    hosts.leave()


def over_again(folder: Path, until: int) -> None:
    """All of it in one process with one device, and once more from what was saved."""
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution

    recipe = recipe_of()
    apply(recipe.arithmetic, Execution())
    from ledger import PosixStorage, Store
    from marin.training.loop import Training

    training = Training(recipe, folder / "train", worker.VOCABULARY, Execution())
    state, before = training.start()
    state, record = training.segment(state, before, 0, until)
    say(described(record))
    say(described(training.segment(state, record.end_state, until, until + 2)[1]))
    source = Store(PosixStorage(folder / "root")), (folder / "tree").read_text()
    state, at = training.resume(source, record.end_state.digest, where="the stopped run")
    say(described(training.segment(state, at, until, until + 2)[1]))


def recipe_of() -> Any:
    """A tiny recipe that does not end by itself."""
    return worker.recipe_of(worker.Case(name="stopped", shards=4, batch=8, steps=LAST, hidden=16, layers=1, length=16))


def main() -> None:
    """See the file's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--until", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.until is not None:
        over_again(options.folder, options.until)
    else:
        together(options.folder, options.processes, options.process, options.port)


if __name__ == "__main__":
    main()
