"""Chat documents through corpus, tokenizer and tokens: what the loss sees is what the assistant says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from tokenizers import Tokenizer as Library

from ledger import state_digest, tensor_digest
from marin.errors import DataError, NoConversation
from marin.execution.step import StepResult
from marin.pipeline.corpus import CORPUS
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.recipe.schema import FilesDataset, Recipe, Tokenizer, digest, plain
from marin.runners.local import LocalRunner
from marin.tensors.token_caches import MASK_FILE, tokens_content
from marin.training.tokens.cache import build_caches, read_tokens
from marin.training.tokens.loss_mask import read_mask

RunStep = Callable[..., tuple[Path, StepResult]]


def conversation(number: int) -> dict[str, object]:
    return {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"What is {number} plus {number}? ü"},
            {"role": "assistant", "content": f"It is {2 * number}, naïvely \U0001f600."},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes."},
        ]
    }


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    lines = [json.dumps(conversation(number), ensure_ascii=False) for number in range(60)]
    (tmp_path / "chat.jsonl").write_text("\n".join(lines), encoding="utf-8")
    dataset = FilesDataset(globs=(str(tmp_path / "*.jsonl"),), chat=True, validation_fraction=0.2)
    return Recipe(dataset=dataset, tokenizer=Tokenizer(vocab_size=300))


@pytest.fixture
def made(run_step: RunStep, recipe: Recipe) -> tuple[Path, Path, StepResult, Path]:
    corpus, _ = run_step(CORPUS, recipe)
    tokenizer, _ = run_step(TOKENIZER, recipe, {"corpus": corpus})
    out, result = run_step(TOKENS, recipe, {"corpus": corpus, "tokenizer": tokenizer})
    return corpus, tokenizer, result, out


def test_learned_tokens_are_what_the_assistant_says(made: tuple[Path, Path, StepResult, Path]) -> None:
    corpus, tokenizer, result, out = made
    library = Library.from_file(str(tokenizer / "tokenizer.json"))
    tensors = {}
    for split in ("train", "validation"):
        tokens, offsets = read_tokens(out / split)
        mask = read_mask(out / split)
        assert mask is not None
        assert len(mask) == len(tokens)
        for number, line in enumerate((corpus / f"{split}.jsonl").read_bytes().splitlines()):
            record = json.loads(line)
            said = "".join(record["text"][start:stop] for start, stop in record["learned"])
            place = slice(offsets[number], offsets[number + 1])
            learned = tokens[place][np.asarray(mask[place]) == 1]
            assert library.decode(learned.tolist(), skip_special_tokens=False) == said + "<|endoftext|>"
            assert "naïvely" in said
        tensors |= {
            f"{split}/tokens": tensor_digest(tokens),
            f"{split}/offsets": tensor_digest(offsets),
            f"{split}/loss_mask": tensor_digest(np.asarray(mask)),
        }
    assert result.digest == state_digest(tensors) == tokens_content(out)[0]


def test_shards_on_workers_write_the_same_mask(
    run_step: RunStep, recipe: Recipe, made: tuple[Path, Path, StepResult, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, tokenizer, result, out = made
    monkeypatch.setattr("marin.training.tokens.encoding.SHARD_BYTES", 1000)
    by_shards = dataclasses.replace(TOKENS, run=lambda task: build_caches(task, LocalRunner().run))
    again, other = run_step(by_shards, recipe, {"corpus": corpus, "tokenizer": tokenizer})
    assert other == result
    assert all(
        (again / s / MASK_FILE).read_bytes() == (out / s / MASK_FILE).read_bytes() for s in ("train", "validation")
    )


def test_the_loss_at_a_position_is_that_of_the_next_token(made: tuple[Path, Path, StepResult, Path]) -> None:
    from levanter.utils.thread_utils import blocking_wait

    from marin.training.data import token_dataset

    out = made[3]
    mask = read_mask(out / "train")
    assert mask is not None
    dataset, length = token_dataset(out / "train", 32)
    for index, example in zip(range(length), blocking_wait(dataset.get_batch(range(length))), strict=True):
        weights = np.asarray(example.loss_weight.array)
        following = mask[32 * index + 1 : 32 * index + 32].astype(np.float32)
        assert weights.tolist() == [*following.tolist(), 0.0], "the last position has no next token in its sequence"
    assert 0 < float(mask.mean()) < 1


def test_a_changed_mask_is_other_content(made: tuple[Path, Path, StepResult, Path]) -> None:
    out = made[3]
    path = out / "train" / MASK_FILE
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(bytes(data))
    assert tokens_content(out)[0] != made[2].digest
    path.write_bytes(bytes(data[:-1]))
    with pytest.raises(DataError, match="differ in length"):
        tokens_content(out)


def test_plain_text_keeps_its_identity() -> None:
    dataset = FilesDataset(globs=("*.txt",))
    assert "chat" not in plain(dataset)
    assert digest(Recipe(dataset=dataset)) != digest(Recipe(dataset=FilesDataset(globs=("*.txt",), chat=True)))


def test_plain_text_is_no_conversation(run_step: RunStep, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.\n\nMore words.")
    with pytest.raises(DataError, match="not a chat document"):
        run_step(CORPUS, Recipe(dataset=FilesDataset(globs=(str(tmp_path / "*.txt"),), chat=True)))


BROKEN = (
    {"messages": [{"role": "robot", "content": "x"}]},
    {"messages": [{"role": "user", "content": " "}, {"role": "assistant", "content": "x"}]},
)


def test_a_line_that_is_no_conversation_is_counted_and_named(run_step: RunStep, recipe: Recipe, tmp_path: Path) -> None:
    whole, _ = run_step(CORPUS, recipe)
    path = tmp_path / "chat.jsonl"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([json.dumps(BROKEN[0]), *lines[:30], json.dumps(BROKEN[1]), *lines[30:]]), "utf-8")
    corpus, result = run_step(CORPUS, recipe)
    assert result.metrics["skipped_lines"] == 2
    told = json.loads((corpus / "dataset.json").read_bytes())["skipped"]
    assert (told["lines"], [(line["file"], line["line"]) for line in told["first"]]) == (
        2,
        [("chat.jsonl", 1), ("chat.jsonl", 32)],
    )
    assert "'robot'" in told["first"][0]["found"]
    for split in ("train.jsonl", "validation.jsonl"):
        texts = [
            [json.loads(line)["text"] for line in (one / split).read_bytes().splitlines()] for one in (whole, corpus)
        ]
        assert texts[0] == texts[1], "nothing but the two lines is missing"
    strict = replace(recipe, dataset=replace(recipe.dataset, strict=True))
    with pytest.raises(NoConversation, match=r"chat\.jsonl:1"):
        run_step(CORPUS, strict)


def test_a_file_without_any_conversation_says_why(run_step: RunStep, recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, BROKEN)), "utf-8")
    with pytest.raises(NoConversation, match=r"chat\.jsonl:1.*'robot'"):
        run_step(CORPUS, recipe)
