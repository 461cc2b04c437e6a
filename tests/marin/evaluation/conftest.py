"""A tiny model over bytes, tasks in a folder, and what evaluates them: all in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jax.random as jrandom
import pytest
import yaml
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

PAIRS = [
    {"good": "the dog runs", "bad": "the dog run"},
    {"good": "she is here", "bad": "she are here"},
    {"good": "we sat", "bad": "we sats"},
]
QUESTIONS = [
    {"question": word, "answer": end} for word, end in (("one", "two"), ("a b", "c"), ("x" * 90, "y"), ("so", "it"))
]
TASKS = {
    "pairs": {
        "tag": "small",
        "dataset_kwargs": {"data_files": {"test": "pairs.jsonl"}},
        "output_type": "multiple_choice",
        "test_split": "test",
        "doc_to_text": "",
        "doc_to_target": 0,
        "doc_to_choice": "{{[good, bad]}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
    "said": {
        "tag": "small",
        "dataset_kwargs": {"data_files": {"test": "questions.jsonl"}},
        "output_type": "generate_until",
        "test_split": "test",
        "fewshot_split": "test",
        "num_fewshot": 1,
        "doc_to_text": "Q {{question}} A",
        "doc_to_target": "{{answer}}",
        "repeats": 2,
        "generation_kwargs": {"until": ["z"], "max_gen_toks": 5, "do_sample": True, "temperature": 0.9},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    },
    "text": {
        "dataset_kwargs": {"data_files": {"test": "questions.jsonl"}},
        "output_type": "loglikelihood_rolling",
        "test_split": "test",
        "doc_to_text": "",
        "doc_to_target": "{{question}}",
        "metric_list": [{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}],
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Task files and their data."""
    place = tmp_path / "tasks"
    place.mkdir()
    for name, rows in (("pairs", PAIRS), ("questions", QUESTIONS)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name, config in TASKS.items():
        (place / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, "dataset_path": "json", **config}), "utf-8")
    return place


@pytest.fixture
def with_task(folder: Path) -> Callable[..., Path]:
    """Write the task ``odd``: ``pairs`` with other values."""

    def write(**changed: object) -> Path:
        config = {"task": "odd", "dataset_path": "json", **TASKS["pairs"], **changed}
        (folder / "odd.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        return folder

    return write


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
