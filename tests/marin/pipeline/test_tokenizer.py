"""The step ``tokenizer``: the same bytes on any number of cores, and files that transformers loads."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace
from tokenizers import Tokenizer as Library

from marin.errors import DataError
from marin.execution.step import StepResult
from marin.pipeline.corpus import CORPUS
from marin.pipeline.tokenizer import END_OF_TEXT, TOKENIZER
from marin.recipe.schema import GrammarDataset, Recipe, Tokenizer, plain

RunStep = Callable[..., tuple[Path, StepResult]]
PROJECT = Path(__file__).resolve().parents[3]
RECIPE = Recipe(
    dataset=GrammarDataset(train_bytes=200_000, validation_bytes=5_000, minimal_pairs=0),
    tokenizer=Tokenizer(vocab_size=700),
)
ALONE = """
import sys
from pathlib import Path
from tests.ledger.memory import MemoryStorage
from ledger import Store
from marin.recipe.schema import Recipe, Tokenizer
from marin.execution.step import Task
from marin.pipeline.tokenizer import TOKENIZER
corpus, out = map(Path, sys.argv[1:])
TOKENIZER.run(Task(run="r", recipe=Recipe(tokenizer=Tokenizer(vocab_size=700)), inputs={"corpus": corpus}, out=out, work=out,
                   store=Store(MemoryStorage()), journal=None))
"""


@pytest.fixture
def corpus(run_step: RunStep) -> Path:
    return run_step(CORPUS, RECIPE)[0]


@pytest.fixture
def folder(run_step: RunStep, corpus: Path) -> Path:
    return run_step(TOKENIZER, RECIPE, {"corpus": corpus})[0]


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("threads", ["false", "1", "3"])
def test_the_same_bytes_whatever_the_threads_and_cores(
    corpus: Path, folder: Path, tmp_path: Path, threads: str
) -> None:
    out = tmp_path / "alone"
    out.mkdir()
    settings = {"TOKENIZERS_PARALLELISM": "false"} if threads == "false" else {"RAYON_NUM_THREADS": threads}
    core = min(os.sched_getaffinity(0))
    subprocess.run(
        [sys.executable, "-c", ALONE, str(corpus), str(out)],
        check=True,
        cwd=PROJECT,
        env=os.environ | settings,
        preexec_fn=(lambda: os.sched_setaffinity(0, {core})) if threads == "false" else None,
    )
    assert digests(out) == digests(folder)


def test_size_and_special_token(folder: Path) -> None:
    library = Library.from_file(str(folder / "tokenizer.json"))
    assert library.get_vocab_size() == 700
    assert library.token_to_id(END_OF_TEXT) == 0
    assert sorted(library.get_vocab().values()) == list(range(700))


def test_metrics(run_step: RunStep, corpus: Path) -> None:
    _, result = run_step(TOKENIZER, RECIPE, {"corpus": corpus})
    assert result.kind == "tokenizer"
    assert result.digest is None
    assert result.metrics["vocab_size"] == 700.0
    assert 2.0 < result.metrics["bytes_per_token"] < 6.0


def test_transformers_loads_it_without_a_network(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    library = Library.from_file(str(folder / "tokenizer.json"))
    text = "The baker, who Ännä knows —\tdoes not  sleep.\n\n€ 🙂 \x00"
    assert tokenizer.encode(text) == library.encode(text).ids
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == (END_OF_TEXT, 0)
    assert tokenizer.bos_token_id == tokenizer.pad_token_id == 0
    assert len(tokenizer) == 700


def test_only_the_train_split_is_read(run_step: RunStep, corpus: Path, folder: Path) -> None:
    record = json.loads((corpus / "validation.jsonl").read_bytes().splitlines()[0])
    record["text"] = "zzyzx " * 2000
    (corpus / "validation.jsonl").write_text(json.dumps(record) + "\n")
    out, _ = run_step(TOKENIZER, RECIPE, {"corpus": corpus})
    assert digests(out) == digests(folder)


def test_a_sample_is_drawn_by_content_alone(run_step: RunStep, corpus: Path, folder: Path) -> None:
    """Other documents, in another order, that are not of the sample change nothing; more of it does."""
    sampled = replace(RECIPE, tokenizer=Tokenizer(vocab_size=400, sample_fraction=0.5))
    out, result = run_step(TOKENIZER, sampled, {"corpus": corpus})
    lines = (corpus / "train.jsonl").read_bytes().splitlines(keepends=True)
    chosen = [line for line in lines if drawn(json.loads(line)["text"]) < 0.5]
    assert 0.3 < len(chosen) / len(lines) < 0.7
    (corpus / "train.jsonl").write_bytes(b"".join(chosen))
    whole, _ = run_step(TOKENIZER, replace(RECIPE, tokenizer=Tokenizer(vocab_size=400)), {"corpus": corpus})
    assert digests(whole) == digests(out) and result.metrics["vocab_size"] == 400.0
    (corpus / "train.jsonl").write_bytes(b"".join(line for line in reversed(lines)))
    assert digests(run_step(TOKENIZER, sampled, {"corpus": corpus})[0]) == digests(out)
    (corpus / "train.jsonl").write_bytes(b"".join(chosen[: len(chosen) // 2]))
    assert digests(run_step(TOKENIZER, sampled, {"corpus": corpus})[0]) != digests(out)


def drawn(text: str) -> Fraction:
    """Where a text stands among all, from 0 to 1, by the definition in marin/data/documents.py."""
    digest = hashlib.sha256(b"marin.split:" + hashlib.sha256(text.encode()).digest()).digest()
    return Fraction(int.from_bytes(digest[8:16], "big"), 2**64)


def test_a_recipe_without_a_sample_is_what_it_was() -> None:
    assert "sample_fraction" not in plain(Tokenizer())
    assert plain(Tokenizer(sample_fraction=0.25))["sample_fraction"] == (0.25).hex()


def test_too_little_text_is_said(run_step: RunStep, corpus: Path) -> None:
    with pytest.raises(DataError) as caught:
        run_step(TOKENIZER, Recipe(tokenizer=Tokenizer(vocab_size=100_000)), {"corpus": corpus})
    assert caught.value.where == "params.yaml: tokenizer.vocab_size"
    assert "100000" in caught.value.expected
    assert "set tokenizer.vocab_size to" in caught.value.cure
