"""What the pipeline's own evaluation measured of a model, and how the model leaves."""

from __future__ import annotations

from collections.abc import Iterator

from marin.kinds.body import Body, Digest, HexFloat, Output
from marin.kinds.kind import Fact, Held, Kind, Pair, RunContext, hex_metrics

EVAL_COMPLETED = "eval.completed/v1"
MODEL_EXPORTED = "model.exported/v1"
TEXT_SAMPLES = "text-samples 1"
"""The ``harness`` of an evaluation that is texts, which states continued."""


class EvalCompleted(Body, frozen=True):
    """What the evaluation measured; metrics are hex floats by name."""

    run: str
    model: Digest
    metrics: dict[str, HexFloat]


class ModelExported(Body, frozen=True):
    """A model left in a public format. ``model`` is the state it was made from."""

    run: str
    format: str
    model: Digest
    output: Output


def _evaluated(fact: Fact[EvalCompleted], seen: RunContext) -> Iterator[Pair]:
    trained, view = seen.output("train"), seen.run.steps.get("evaluate")
    yield "model", trained and trained.digest, fact.body.model
    if view is not None:
        yield "metrics", dict(view.metrics), hex_metrics(fact.body.metrics)


def _exported(fact: Fact[ModelExported], seen: RunContext) -> Iterator[Pair]:
    trained = seen.output("train")
    yield "model", trained and trained.digest, fact.body.model
    yield "output", seen.output("export"), fact.body.output
    yield "format", seen.recipe.export.format, fact.body.format


KINDS: tuple[Kind, ...] = (
    Kind(
        EVAL_COMPLETED,
        EvalCompleted,
        underway=True,
        step="evaluate",
        rests_on="train",
        run=Held(agrees=_evaluated),
        kept=True,
    ),
    Kind(
        MODEL_EXPORTED,
        ModelExported,
        underway=True,
        step="export",
        rests_on="train",
        run=Held(agrees=_exported),
        kept=True,
    ),
)
