"""The order of the data: what it costs, how far it is from a shuffle, and what it does to the default model.

    python -m bench.training.order                        seconds for a million numbers; batches of one parity
    python -m bench.training.order --root DIR              the default recipe by each order and seed, trained and evaluated

With --root the runs stay in a folder, and the same command goes on there. One run after the other; seeds vary slowest, so
what has been executed is of both orders.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import get_args

import numpy as np

from marin.execution.executor import run_stage
from marin.execution.plan import Plan
from marin.history.runs import load
from marin.pipeline.stages import PIPELINE
from marin.plugins.lab.statistics import compare
from marin.process.arithmetic import apply
from marin.recipe.composition import compose
from marin.recipe.schema import Execution
from marin.recipe.section import Order
from marin.record.creation import create_root
from marin.record.root import Root, open_root

PLAN = Plan("default", PIPELINE.steps[:5])
ORDERS: tuple[Order | None, ...] = (None, *get_args(Order))
NAMES: dict[Order | None, str] = {order: order or "Levanter's" for order in ORDERS}
NUMBERS = 1_000_000
BATCH = 8


def orders() -> None:
    """Print what the orders cost, and how many batches of eight are of one parity in whole epochs."""
    from marin.training.data import EpochOrder

    for order in ORDERS:
        drawn = EpochOrder(NUMBERS, 0, order=order)
        drawn([0])
        began, worked = time.perf_counter(), time.process_time()
        drawn(np.arange(NUMBERS))
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
        again = EpochOrder(NUMBERS, 1, order=order)
        began = time.perf_counter()
        again(np.arange(BATCH))
        first = time.perf_counter() - began
        sys.stdout.write(
            f"{NAMES[order]:12} {NUMBERS:,} numbers: {seconds:.2f} s ({processor:.2f} s of a processor); "
            f"the first batch: {1000 * first:.0f} ms\n"
        )
    for length in (3710, 4096, 100_000):
        one = {
            name: _of_one_parity(EpochOrder(length, 0, order=order)(np.arange(length))) for order, name in NAMES.items()
        }
        one["NumPy"] = _of_one_parity(np.random.default_rng(0).permutation(length))
        counts = ", ".join(f"{name} {count}" for name, count in one.items())
        sys.stdout.write(f"{length:,} sequences, batches of one parity among {length // BATCH:,}: {counts}\n")


def _of_one_parity(order: np.ndarray) -> int:
    batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
    return int((np.ptp(batches % 2, axis=1) == 0).sum())


def measured(root: Root, order: Order | None, seed: int) -> dict[str, float]:
    """The numbers of one run of the default recipe."""
    recipe = compose([f"seed={seed}", f"order={order or 'null'}"]).recipe
    apply(recipe.arithmetic, Execution())
    runs = [
        run_stage(step.name, plan=PLAN, recipe=recipe, root=root, project=None, execution=Execution()).run
        for step in PLAN.steps
    ]
    steps = load(root.history(), runs[-1]).steps
    return {
        "loss": steps["evaluate"].metrics["loss"],
        "perplexity": steps["evaluate"].metrics["perplexity"],
        "pairs": steps["evaluate"].metrics["pairs_won"],
        "seconds": steps["train"].seconds,
    }


def trained(root: Root, seeds: Sequence[int]) -> None:
    """Print the held-out loss of each run, and the comparison."""
    losses: dict[str, dict[int, float]] = {name: {} for name in NAMES.values()}
    for seed in seeds:
        for order, name in NAMES.items():
            numbers = measured(root, order, seed)
            losses[name][seed] = numbers["loss"]
            told = ", ".join(f"{key} {value:.4f}" for key, value in numbers.items())
            sys.stdout.write(f"seed {seed}, {name}: {told}\n")
            sys.stdout.flush()
    for name, values in losses.items():
        spread = f", standard deviation {stdev(values.values()):.4f}" if len(values) > 1 else ""
        sys.stdout.write(f"{name}: mean held-out loss {mean(values.values()):.4f}{spread}\n")
    first, *others = losses.items()
    for other in others:
        found = compare("loss", first, other)
        sys.stdout.write(f"{other[0]} - {first[0]}: {found.difference:+.4f}, {found.test}, p = {found.p}\n")


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], metavar="N")
    asked = parser.parse_args()
    if asked.root is None:
        orders()
        return 0
    asked.root.mkdir(parents=True, exist_ok=True)
    os.environ["MARIN_KEY"] = f"{asked.root}/key"
    there = asked.root / ".marin"
    trained(
        open_root(str(there)) if there.exists() else create_root(str(there), origin="bench.example/order"), asked.seeds
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
