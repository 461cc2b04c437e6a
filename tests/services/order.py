"""Files that take longest begin first, so that no process is left with one of them when the others have ended.

Whole files are handed out by forked.py beside this one: these in this order, then the rest by folder.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bench.house.gauges import absent

TESTS = Path(__file__).resolve().parents[1]
LONGEST = (
    "e2e/verifying/test_verify.py",  # waits for the trained run, which the next ones do not need
    "e2e/test_dvc_repro.py",
    "determinism/test_matrix.py",
    "plugins/ray/test_jobs.py",
    "e2e/clusters/test_ray_training.py",
    "e2e/training/test_from_folder.py",
    "e2e/training/test_preferences.py",
    "plugins/explain/test_taken_apart.py",
    "e2e/training/test_own_steps.py",
    "plugins/collections/test_workers.py",
    "plugins/ray/test_runners.py",
    "e2e/models/test_evaluation_during.py",
    "e2e/verifying/test_reproducer.py",
    "e2e/verifying/test_sealed.py",
    "plugins/exact/test_step.py",
    "e2e/verifying/test_verify_parallel.py",
    "e2e/pages/test_data_page.py",
    "e2e/test_tutorial.py",
    "marin/test_loops.py",
    "fault/test_store_faults.py",
    "fault/test_remote_faults.py",
    "e2e/training/test_stops.py",
    "e2e/training/test_wandb_live.py",
    "e2e/verifying/test_speedruns.py",
    "e2e/verifying/test_fault_bench.py",
    "marin/training/test_scoring.py",
    "marin/training/step/test_shards.py",
    "plugins/exact/test_known.py",
)
"""Seconds of a processor, most first; then the other whole pipelines. What is left does not begin early."""

EARLY = {TESTS / name: place for place, name in enumerate(LONGEST)}


@cache
def _turn(path: Path) -> tuple[int, bool]:
    """By what files are sorted; once a file, for paths are slow and tests many."""
    return EARLY.get(path, len(EARLY)), not path.is_relative_to(TESTS / "e2e")


def begins_early(path: Path) -> bool:
    """Whether this file is one of ``LONGEST``, or of whole pipelines."""
    return _turn(path) != (len(EARLY), True)


def longest_first(items: list[pytest.Item]) -> None:
    """Reorder in place; tests of one file stay together and in order."""
    if missing := [str(path) for path in EARLY if not path.exists() and path.parent.name not in absent()]:
        raise pytest.UsageError(f"tests/services/order.py names files that are no more: {', '.join(missing)}")
    items.sort(key=lambda item: _turn(item.path))
