"""Tasks in a folder, and a tiny model over bytes that is asked: all in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.marin.evaluation.conftest import RECIPE, compiled_once, scorer, subject

__all__ = ["RECIPE", "compiled_once", "scorer", "subject"]

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
