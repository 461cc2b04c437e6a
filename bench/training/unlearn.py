"""Unlearning against its definition: random documents of a nano run, each unlearned, and trained without from the start.

    python -m bench.training.unlearn --documents 20 [--seed 1] [--root DIR --seconds 1000]

For each document: whether tokenizer, tokens and the last state are the same bits, and what it cost: train steps executed
over the train steps from the first use to the end. A start of its own (imports, compiled programs) is not in it, and is
told in seconds. With --root the run and the rows stay in a folder and the same command goes on there, for at most
--seconds. Of the documents that a train step reads the wanted number is drawn; one whose tokenizer would be another
costs a whole training, and is counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from marin.execution.executor import run_stage
from marin.execution.plan import Plan
from marin.history.run import Run
from marin.history.runs import load, run_ids
from marin.pipeline.stages import PIPELINE
from marin.plugins.collections.queries.uses import documents_of
from marin.plugins.unlearning import request
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution, Recipe, from_mapping
from marin.record import outputs
from marin.record.creation import create_root
from marin.record.root import Root, open_root

STEPS = 60
PLAN = Plan("default", PIPELINE.steps[:4])
RECIPE = {
    "dataset": {"kind": "grammar", "train_bytes": 300_000, "validation_bytes": 10_000, "minimal_pairs": 0},
    "tokenizer": {"vocab_size": 265},
    "model": {
        "hidden_dim": 32,
        "intermediate_dim": 88,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 2,
        "seq_len": 32,
    },
    "trainer": {"num_steps": STEPS, "batch_size": 8, "steps_per_segment": 2},
}


@dataclass(frozen=True)
class Row:
    """One document. ``seconds``: of the whole unlearning, in a process that is warm; ``step``: of a train step of the
    training from the start."""

    document: str
    first_use: int
    executed: int
    same_tokenizer: bool
    same_bits: bool
    seconds: float
    step: float

    @property
    def cost(self) -> float:
        """Train steps executed for each one that had to be."""
        return self.executed / (STEPS - self.first_use)


def trained(root: Root, recipe: Recipe, *, fork: str | None = None, force: bool = False) -> Run:
    """A run of the four steps from raw text to a state; ``force``: its training is executed whatever is known."""
    found = None
    for step in PLAN.steps:
        found = run_stage(
            step.name,
            plan=PLAN,
            recipe=recipe,
            root=root,
            project=None,
            execution=Execution(fork=fork),
            force=force and step.name == "train",
        )
    assert found is not None
    return load(root.history(), found.run)


def read_documents(root: Root, run: Run) -> list[str]:
    """Ids of the documents that a train step of ``run`` reads, and not the first one."""
    from marin.training.inspection.uses import uses

    ids = [name for name, _, split in documents_of(root, run) if split == "train"]
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as base:
        folder = Path(base) / "tokens"
        outputs.checkout(root.store(), run.output("tokens"), folder, kind="tokens")
        found = uses(run.recipe, folder / "train", [("", number) for number in range(len(ids))])
    return [name for name, use in zip(ids, found.documents, strict=True) if use.steps and use.steps[0] > 0]


def measure(root: Root, count: int, seed: int, done: Container[str] = ()) -> Iterator[Row]:
    """Unlearn, train from the start, compare; one document after the other, but for those that are ``done``."""
    recipe = from_mapping(RECIPE, where="bench.training.unlearn")
    apply(recipe.arithmetic, Execution())
    ids = run_ids(root.history())
    run = load(root.history(), ids[0]) if ids else trained(root, recipe)
    known = sorted(read_documents(root, run))
    for document in random.Random(seed).sample(known, min(count, len(known))):  # noqa: S311
        if document in done:
            continue
        began = time.perf_counter()
        planned = request.plan(root, run.run, [document])
        request.request(root, planned, "bench.training.unlearn")
        forked = trained(root, planned.recipe, fork=run.run)
        seconds = time.perf_counter() - began
        oracle = trained(root, planned.recipe, force=True)
        assert oracle.training[-1].body.first_step == 0, "the oracle knows of no fork"
        segments = [[fact.body.fingerprints for fact in one.segments] for one in (forked, oracle)]
        yield Row(
            document,
            planned.first_use,
            STEPS - forked.training[-1].body.first_step,
            forked.output("tokenizer").digest == run.output("tokenizer").digest,
            segments[0] == segments[1] and forked.output("train").digest == oracle.output("train").digest,
            seconds,
            oracle.steps["train"].seconds / STEPS,
        )


def said(row: Row) -> str:
    """A row in words."""
    return (
        f"{row.document[:12]}  first use {row.first_use:>3}  executed {row.executed:>3}  cost {row.cost:.3f}  "
        f"{'same tokenizer' if row.same_tokenizer else 'another tokenizer'}  "
        f"{'equal bits' if row.same_bits else 'OTHER BITS'}  {row.seconds:.1f} s\n"
    )


def main() -> int:
    """Print a row for each document, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--root", type=Path, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="marin-bench-unlearn-") as temporary:
        folder = asked.root or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["MARIN_KEY"] = f"{folder}/key"
        there, kept = folder / ".marin", folder / "rows.jsonl"
        root = open_root(str(there)) if there.exists() else create_root(str(there), origin="bench.example/unlearn")
        rows = [Row(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
        for row in measure(root, asked.documents, asked.seed, {row.document for row in rows}):
            rows.append(row)
            with kept.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            sys.stdout.write(said(row))
            sys.stdout.flush()
            if time.monotonic() - began > asked.seconds:
                break
    same = [row for row in rows if row.same_tokenizer]
    executed, needed = sum(row.executed for row in same), sum(STEPS - row.first_use for row in same)
    start = median([row.seconds - row.executed * row.step for row in rows])
    sys.stdout.write(
        f"{sum(row.same_bits for row in rows)} of {len(rows)} with equal bits; {len(rows) - len(same)} with another "
        f"tokenizer; of the others {executed} train steps executed for {needed}: {executed / max(needed, 1):.3f}, at most "
        f"{max(row.cost for row in same):.3f}; median {median([row.seconds for row in rows]):.1f} s, of which the start "
        f"{start:.1f} s\n"
    )
    return 0 if all(row.same_bits for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
