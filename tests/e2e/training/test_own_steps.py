"""A run that began with what steps of an experiment made: trained, and verified from a file of the verifier's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.long(together="own steps", seconds=35)

EXPERIMENT = """
import json

from experiments.defaults import default_corpus, default_tokenize, default_train
from marin.graph import Resources, Step
from marin.recipe.schema import GrammarDataset, Model, Trainer


def keep_long(context):
    for name in ("train.jsonl", "validation.jsonl"):
        lines = (context.inputs["corpus"].path / name).read_text().splitlines()
        kept = [line for line in lines if len(json.loads(line)["text"]) >= context.config["shortest"]]
        (context.out / name).write_text("\\n".join(kept) + "\\n")


def pack(context):
    from marin.training.tokens.building import write_cache
    from marin.training.tokens.cache import read_tokens

    for split in ("train", "validation"):
        tokens, offsets = read_tokens(context.inputs["tokens"].path / split)
        documents = (tokens[start:end] for start, end in zip(offsets[:-1], offsets[1:], strict=True))
        write_cache(context.out / split, reversed(list(documents)))


corpus = default_corpus("small", GrammarDataset(train_bytes=20_000, validation_bytes=2_000, minimal_pairs=3))
long = Step("corpus/long", keep_long, {"shortest": 1300}, {"corpus": corpus}, Resources(in_process=True))
tokens = default_tokenize("long", long, vocab_size=300)
packed = Step("tokens/packed", pack, {}, {"tokens": tokens, "tokenizer": tokens.inputs["tokenizer"]})
sizes = Model(hidden_dim=32, intermediate_dim=48, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=32)
steps = [
    default_train("long", packed, model=sizes, seed=1, trainer=Trainer(num_steps=2, batch_size=8, steps_per_segment=2))
]
"""


def test_steps_of_ones_own_are_executed_again_from_the_verifiers_file(project: Project) -> None:
    (project.folder / "exp.py").write_text(EXPERIMENT)
    done = project.marin("-q", "run", "exp.py")
    assert done.returncode == 0, done.stderr
    status, report = project.verify("--experiment", "exp.py", "--no-record", "--only", "ledger,artifacts,data,training")
    assert (status, [report["verdicts"][name] for name in ("ledger", "artifacts", "data", "training")]) == (
        0,
        ["PASS"] * 4,
    ), report
