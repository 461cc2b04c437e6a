"""Preferences: which lines are some, and the two documents that each becomes, always on one side."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from marin.data.documents import ANSWER, CHOSEN, REJECTED, read_documents
from marin.data.preferences import NAME, conversations
from marin.errors import DataError, NoConversation, UsageError
from marin.execution.step import StepResult
from marin.pipeline.corpus import CORPUS, PAIRS
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.recipe.schema import Arithmetic, FilesDataset, Lora, Model, Recipe, Tokenizer, Trainer, check
from marin.training.tokens.cache import read_tokens
from marin.training.tokens.masks import open_mask

RunStep = Callable[..., tuple[Path, StepResult]]


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def line(number: int, *, prompt: bool) -> dict[str, Any]:
    asked = [said("user", f"Is {number} even?")]
    answers = {
        name: [said("assistant", f"{word}, {number} it is.")] for name, word in ((CHOSEN, "Yes"), (REJECTED, "So"))
    }
    found = {"prompt": asked, **answers} if prompt else {name: asked + answer for name, answer in answers.items()}
    beside = [{"from": "user", "value": "What is it?"}, {"from": "assistant", "value": "Another conversation."}]
    return {**found, "conversations": beside} if number % 3 == 0 else found


def recipe_of(folder: Path, count: int, *more: object, fraction: float = 0.2, length: int = 128) -> Recipe:
    lines = [json.dumps(one) for one in (*(line(number, prompt=number % 2 == 0) for number in range(count)), *more)]
    (folder / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    dataset = FilesDataset(globs=(str(folder / "*.jsonl"),), chat=True, preferences=True, validation_fraction=fraction)
    return Recipe(
        dataset=dataset,
        tokenizer=Tokenizer(vocab_size=300),
        model=Model(seq_len=length),
        lora=Lora(dpo_beta=0.1),
        trainer=Trainer(batch_size=16),
        arithmetic=Arithmetic(microbatch_size=2),
    )


def test_both_forms_of_a_line_are_two_conversations() -> None:
    assert conversations(line(2, prompt=True), "x") == conversations(line(2, prompt=False), "x")
    chosen, rejected = conversations(line(2, prompt=True), "x")
    assert chosen == [said("user", "Is 2 even?"), said("assistant", "Yes, 2 it is.")]
    assert rejected == [said("user", "Is 2 even?"), said("assistant", "So, 2 it is.")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({CHOSEN: [], REJECTED: []}, "two different answers"),
        ({}, "there is no chosen"),
        ({CHOSEN: "yes", REJECTED: "no"}, "lists of messages"),
        ({"prompt": "Is it?", CHOSEN: [], REJECTED: []}, "write a text as a message"),
        ({CHOSEN: [said("assistant", "a")], REJECTED: [said("assistant", "a")]}, "two different answers"),
    ],
)
def test_what_is_no_preference(value: dict[str, object], expected: str) -> None:
    with pytest.raises(NoConversation) as caught:
        conversations(value, "file:3")
    assert expected in caught.value.expected and caught.value.where == "file:3"


@pytest.mark.parametrize("fraction", [0.2, 0.001, 0.999])
def test_a_pair_is_on_one_side_and_held_out_ones_are_minimal_pairs(
    run_step: RunStep, tmp_path: Path, fraction: float
) -> None:
    """Also where the fraction would leave a side empty, and the documents are divided anew."""
    bad = {CHOSEN: [said("user", "only a question")], REJECTED: [said("assistant", "a")]}
    corpus, result = run_step(CORPUS, recipe_of(tmp_path, 30, bad, fraction=fraction))
    train = list(read_documents(corpus / "train.jsonl"))
    assert [one.metadata[ANSWER] for one in train] == [CHOSEN, REJECTED] * (len(train) // 2)
    assert train[::2] != [] and all("Yes" in one.text for one in train[::2])
    assert all(one.text.replace("Yes", "So") == two.text for one, two in zip(train[::2], train[1::2], strict=True))
    assert all(one.learned for one in train)
    held = list(read_documents(corpus / "validation.jsonl"))
    pairs = [json.loads(text) for text in (corpus / PAIRS).read_text("utf-8").splitlines()]
    assert [one.text for one in held] == [pair["sentence_good"] for pair in pairs]
    assert all(pair["sentence_good"].replace("Yes", "So") == pair["sentence_bad"] for pair in pairs)
    assert {pair["UID"] for pair in pairs} == {NAME}
    assert len(train) // 2 + len(held) == 30 and held
    assert result.metrics["minimal_pairs"] == result.metrics["validation_documents"] == len(held)
    assert result.metrics["skipped_lines"] == 1
    assert not (corpus / "held_out.jsonl").exists()


def test_each_document_is_a_sequence_and_what_fills_it_is_not_learned(run_step: RunStep, tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, 30)
    corpus, _ = run_step(CORPUS, recipe)
    tokenizer, _ = run_step(TOKENIZER, recipe, {"corpus": corpus})
    inputs = {"corpus": corpus, "tokenizer": tokenizer}
    plain = replace(recipe, lora=None, dataset=replace(recipe.dataset, preferences=None))
    out, _ = run_step(TOKENS, recipe, inputs)
    ordinary, _ = run_step(TOKENS, plain, inputs)
    (tokens, offsets), (own, ends) = read_tokens(out / "train"), read_tokens(ordinary / "train")
    masks = open_mask(out / "train"), open_mask(ordinary / "train")
    assert masks[0] is not None and masks[1] is not None
    mask, learned = masks[0][0 : len(tokens)], masks[1][0 : len(own)]
    assert np.array_equal(offsets, np.arange(len(ends)) * 128)
    for number, (first, last) in enumerate(pairwise(ends.tolist())):
        start, size = number * 128, last - first
        assert np.array_equal(tokens[start : start + size], own[first:last])
        assert np.array_equal(mask[start : start + size], learned[first:last])
        assert not tokens[start + size : start + 128].any() and not mask[start + size : start + 128].any()
    held = [read_tokens(folder / "validation")[0] for folder in (out, ordinary)]
    assert np.array_equal(*held), "held-out text is a stream as ever"
    with pytest.raises(DataError, match="longer than a sequence") as caught:
        run_step(TOKENS, replace(recipe, model=Model(seq_len=16)), inputs)
    assert caught.value.where == "train, document 0"


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"lora": Lora()}, "lora.dpo_beta"),
        ({"lora": None}, "lora.dpo_beta"),
        ({"dataset": FilesDataset(globs=("x",), chat=True)}, "dataset"),
        ({"dataset": FilesDataset(globs=("x",), preferences=True)}, "dataset"),
        ({"exclude": ("a",)}, "exclude"),
        ({"trainer": Trainer(batch_size=16, z_loss=0.1)}, "trainer.z_loss"),
        ({"arithmetic": Arithmetic(microbatch_size=1)}, "arithmetic.microbatch_size"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, changed: dict[str, Any], where: str) -> None:
    recipe = recipe_of(tmp_path, 1)
    check(recipe, where="test")
    with pytest.raises(UsageError) as caught:
        check(replace(recipe, **changed), where="test")
    assert caught.value.where == f"test: {where}"
