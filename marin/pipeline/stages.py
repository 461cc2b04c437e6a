"""The default pipeline, raw text to exported model: what dvc.yaml says stage by stage, as one plan.

Importing this is cheap: each step's module keeps its heavy imports inside the function that does the work.
"""

from __future__ import annotations

from dataclasses import replace

from marin.execution.plan import Plan
from marin.pipeline.companions import Beside
from marin.pipeline.corpus import CORPUS
from marin.pipeline.evaluate import EVALUATE
from marin.pipeline.export import EXPORT
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.pipeline.train import TRAIN
from marin.recipe.schema import Recipe, plain
from marin.record.events import DEFAULT_PIPELINE


def _during(recipe: Recipe) -> object:
    """What is measured of a run's states while it trains."""
    asked = recipe.evaluation
    return None if asked.every is None else plain((asked.every, asked.sets, asked.tasks, asked.samples))


DURING = Beside("evaluation", _during)
PIPELINE = Plan(DEFAULT_PIPELINE, (CORPUS, TOKENIZER, TOKENS, replace(TRAIN, beside=DURING), EVALUATE, EXPORT))
