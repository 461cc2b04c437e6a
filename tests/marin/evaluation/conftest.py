"""A tiny model over bytes, and what evaluates it: all in this process."""

from __future__ import annotations

import jax.random as jrandom
import pytest
from compiled_once import compiled_once
from haliax import Axis
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from marin.data.tokenizer import parse_tokenizer
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.recipe.schema import Model, Recipe
from marin.training.model import model_config

__all__ = ["compiled_once"]

RECIPE = Recipe(model=Model(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=2, seq_len=64))


@pytest.fixture(scope="session")
def subject() -> Subject:
    vocabulary = {"<|endoftext|>": 0} | {sign: n for n, sign in enumerate(sorted(ByteLevel.alphabet()), start=1)}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    model = model_config(RECIPE.model).build(Axis("vocab", len(vocabulary)), key=jrandom.PRNGKey(2))
    read = parse_tokenizer(tokenizer.to_str().encode(), where="here")
    return Subject("aaaa", RECIPE, model, read, f"sha256:{'5' * 64}", 6, f"sha256:{'7' * 64}")


@pytest.fixture(scope="session")
def scorer(subject: Subject) -> Scorer:
    return Scorer(subject.model, subject.recipe)
