"""The default pipeline, raw text to exported model: what dvc.yaml says stage by stage, as one plan.

Importing this is cheap: each step's module keeps its heavy imports inside the function that does the work.
"""

from __future__ import annotations

from marin.plan import Plan
from marin.steps.corpus import CORPUS
from marin.steps.evaluate import EVALUATE
from marin.steps.export import EXPORT
from marin.steps.tokenizer import TOKENIZER
from marin.steps.tokens import TOKENS
from marin.steps.train import TRAIN

PIPELINE = Plan("default", (CORPUS, TOKENIZER, TOKENS, TRAIN, EVALUATE, EXPORT))
