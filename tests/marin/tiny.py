"""A plan of three real, small steps, and a program that runs its stages in processes that can be killed.

tiny.py stage NAME PROJECT [--force]     one stage, as `marin stage` would run it
tiny.py killed NAME PROJECT N            the same, killed (SIGKILL) just before its N-th change to the disk;
                                         prints "done" and the number of changes when it came to its end before
tiny.py blocked NAME PROJECT             the step `upper` says "ready" on stdout and waits until it is signalled
tiny.py between NAME PROJECT             the same before the step begins: nothing is executed yet
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ledger import LedgerError, describe_state
from marin.execution import executor
from marin.execution.executor import StageOutcome, run_stage
from marin.execution.plan import Plan
from marin.execution.step import StepDefinition, StepResult, Task
from marin.recipe.schema import Recipe, from_mapping
from marin.record.root import open_root

CODE = ("marin/recipe/schema.py",)
executed: list[str] = []
"""Names of the steps that really ran in this process."""
before_upper: list[Callable[[Task], None]] = []
"""What the step `upper` does first, when a test wants it to fail or to wait."""


def words(task: Task) -> StepResult:
    executed.append("words")
    seed = task.recipe.seed or 0
    lines = [f"word {seed} {number}" for number in range(20)]
    (task.out / "words.txt").write_text("\n".join(lines), encoding="utf-8")
    (task.out / "deep").mkdir()
    (task.out / "deep" / "more.txt").write_text("more", encoding="utf-8")
    return StepResult(kind="words", metrics={"words": 20.0, "third": 1 / 3}, tables={"lengths": "n,length\n0,8\n"})


def upper(task: Task) -> StepResult:
    executed.append("upper")
    for action in before_upper:
        action(task)
    text = (task.inputs["words"] / "words.txt").read_text(encoding="utf-8").upper()
    return StepResult(kind="state", digest=as_state(text, task.out), size=len(text), metrics={"steps": 3.0})


def as_state(text: str, folder: Path) -> str:
    """A text as a checkpoint of one tensor, whose files differ each time and whose content does not; the digest."""
    values = np.frombuffer(text.encode(), dtype=np.uint8)
    (folder / "checkpoint").mkdir()
    store = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/checkpoint/"}, "path": "text/"}
    spec = {"driver": "zarr3", "kvstore": store, "metadata": {"shape": [len(values)], "data_type": "uint8"}}
    tensorstore.open(spec, create=True).result().write(values).result()
    manifest = describe_state({"text": values})
    (folder / "state.json").write_bytes(manifest.encode())
    return manifest.digest


def count(task: Task) -> StepResult:
    executed.append("count")
    store = {
        "driver": "ocdbt",
        "base": {"driver": "file", "path": f"{task.inputs['upper']}/checkpoint/"},
        "path": "text/",
    }
    text = tensorstore.open({"driver": "zarr3", "kvstore": store}).result().read().result().tobytes().decode()
    (task.out / "count.json").write_text(json.dumps({"count": len(text.split())}), encoding="utf-8")
    return StepResult(kind="count")


def step(
    name: str,
    inputs: tuple[str, ...],
    run: Callable[[Task], StepResult],
    config: Callable[[Recipe], object] = lambda recipe: {},
) -> StepDefinition:
    return StepDefinition(name=name, inputs=inputs, config=config, starts=CODE, run=run)


PLAN = Plan(
    "tiny",
    (
        step("words", (), words, lambda recipe: {"seed": str(recipe.seed)}),
        step("upper", ("words",), upper, lambda recipe: {"rate": recipe.optimizer.learning_rate.hex()}),
        step("count", ("upper", "words"), count, lambda recipe: {"vocab": recipe.tokenizer.vocab_size}),
    ),
)


def run(name: str, project: Path, *, force: bool = False, **recipe: Any) -> StageOutcome:
    """One stage of :data:`PLAN` in ``project``, whose root is ``project/.marin``."""
    return run_stage(
        name,
        plan=PLAN,
        recipe=from_mapping(recipe, where="test"),
        root=open_root(str(project / ".marin")),
        project=project,
        force=force,
    )


def kill_before(number: int, below: str) -> list[int]:
    """Arrange that this process dies just before its ``number``-th change to the disk; returns the running count."""
    changes = [0]

    def changing() -> None:
        changes[0] += 1
        if changes[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir") and below in os.fspath(arguments[0]):
            changing()

    sys.addaudithook(heard)
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def synced(descriptor: int, real: Callable[[int], None] = real) -> None:
            changing()
            real(descriptor)

        setattr(os, name, synced)
    return changes


def block(task: Task) -> None:
    (task.work / "left behind").write_text("by the first attempt", encoding="utf-8")
    wait_for_a_signal()


def wait_for_a_signal(*_: Any, **__: Any) -> str:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        time.sleep(0.01)


def main(mode: str, name: str, project: str, *rest: str) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    changes = kill_before(int(rest[0]), project) if mode == "killed" else [0]
    if mode == "blocked":
        before_upper.append(block)
    if mode == "between":
        executor.reason = wait_for_a_signal
    try:
        outcome = run(name, Path(project), force="--force" in rest)
    except LedgerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"done {changes[0]} {outcome.action}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
