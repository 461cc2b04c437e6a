"""Recorded states read from the store one after the other, for :mod:`marin.plugins.explain.screening` to look at."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ledger import LedgerError, Store, Tampered
from marin.history.run import Run
from marin.plugins.explain.screening import Z_LIMIT, look, outliers
from marin.process.cache import compilation_cache
from marin.recipe.schema import Recipe
from marin.training.checkpoints.whole import load
from marin.training.initial import initial_state
from marin.training.optimizers.rule import configuration
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.state import arrays_of
from marin.verify.segments.screening import Finding, Screening

logger = logging.getLogger(__name__)
Arrays = Mapping[str, np.ndarray]


def screen_run(run: Run, store: Store) -> Screening:
    """Look at every segment whose two states can be had. The first starts from the recipe's own initial state."""
    began = time.monotonic()
    use_compilation_cache(compilation_cache())
    recipe, vocab = run.recipe, int(run.steps["tokenizer"].metrics["vocab_size"])
    findings: list[Finding] = []
    travelled: dict[str, dict[int, float]] = {}
    looked = 0
    before: Arrays | None = None
    if run.segments and run.segments[0].body.start == 0 and recipe.initial is None:
        before = arrays_of(initial_state(recipe, vocab))
    for position, fact in enumerate(run.segments):
        span = (fact.body.start, fact.body.end)
        after = None
        try:
            after = _stored(run, store, fact.body.end_state, recipe, vocab)
        except Tampered as error:
            findings.append(
                Finding(
                    position,
                    *span,
                    "state",
                    "",
                    f"the stored state after it is not the recorded one "
                    f"({error.what}): expected {fact.body.end_state}, found {error.found}",
                    proof=True,
                    score=math.inf,
                )
            )
        except LedgerError as error:
            logger.info("not screened: %s", error)
        if before is not None and after is not None:
            looked += 1
            first = int(before.get("moments/count", before["step"]))
            rates = learning_rates(recipe, first, first + span[1] - span[0])
            findings += look(recipe.optimizer, position, span, before, after, rates, recipe.trainer.batch_size)
            for path, distance in _distances(before, after).items():
                travelled.setdefault(path, {})[position] = math.log(max(distance, 1e-30) / max(sum(rates), 1e-30))
        before = after
    findings += _unusual(run, travelled)
    return Screening(looked, len(run.segments), time.monotonic() - began, tuple(findings))


def _stored(run: Run, store: Store, state: str, recipe: Recipe, vocab: int) -> Arrays | None:
    saved = next((fact.body for fact in run.checkpoints if fact.body.state == state), None)
    if saved is None:
        return None
    with TemporaryDirectory(prefix="marin-screen-") as base:
        folder = Path(base) / "checkpoint"
        store.checkout(saved.artifact, folder)
        loaded, _ = load(folder, recipe, vocab, state, where=f"training checkpoint of train step {saved.step}")
        return arrays_of(loaded)


def _distances(before: Arrays, after: Arrays) -> dict[str, float]:
    return {
        path: float(np.linalg.norm((after[path].astype(np.float64) - old).reshape(-1)))
        for path, old in before.items()
        if path.startswith("model/") and path in after
    }


def _unusual(run: Run, travelled: Mapping[str, Mapping[int, float]]) -> list[Finding]:
    """For each segment its most unusual tensor, where that is beyond the limit."""
    worst: dict[int, tuple[float, str]] = {}
    for path, by_position in travelled.items():
        for position, score in zip(by_position, outliers(list(by_position.values())), strict=True):
            worst[position] = max(worst.get(position, (0.0, "")), (abs(score), path))
    return [
        Finding(
            position,
            run.segments[position].body.start,
            run.segments[position].body.end,
            "norm",
            path,
            f"modified z-score {score:.1f} of the update's norm",
            proof=False,
            score=score,
        )
        for position, (score, path) in sorted(worst.items())
        if score > Z_LIMIT
    ]


def learning_rates(recipe: Recipe, first: int, end: int) -> list[float]:
    """The rates of the optimizer's updates number ``first`` to ``end - 1``, counted from 0."""
    config, steps = configuration(recipe)
    schedule = config.lr_scheduler(steps)
    return [float(schedule(number)) for number in range(first, end)]
