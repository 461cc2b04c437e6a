"""Words of a training: counted of its tokens, and the train step that has seen so many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from marin.data.documents import read_texts
from marin.errors import DataError, UsageError
from marin.execution.step import StepResult
from marin.pipeline.corpus import CORPUS
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.pipeline.train import TRAIN
from marin.recipe.schema import GrammarDataset, Mixture, MixtureDataset, Model, Phase, Recipe, Tokenizer, Trainer, check
from marin.tensors.token_caches import stray_files, tokens_content
from marin.training.run import train
from marin.training.tokens.words import check_epochs, states_at, words_a_token, words_seen
from marin.verify.judges.training import tokens_trained


def recipe(*words: int) -> Recipe:
    return Recipe(
        dataset=GrammarDataset(train_bytes=30_000, validation_bytes=2_000, minimal_pairs=0),
        tokenizer=Tokenizer(vocab_size=300),
        model=Model(seq_len=32),
        trainer=Trainer(num_steps=20, batch_size=8, states_at_words=words or None),
    )


def test_words_are_those_of_the_text_and_the_step_is_the_first_that_has_seen_them(
    run_step: Callable[..., tuple[Path, StepResult]],
) -> None:
    corpus, _ = run_step(CORPUS, recipe())
    tokenizer, _ = run_step(TOKENIZER, recipe(), {"corpus": corpus})
    out, told = run_step(TOKENS, recipe(), {"corpus": corpus, "tokenizer": tokenizer})
    words = sum(len(text.split()) for text in read_texts(corpus / "train.jsonl"))
    each = words_a_token(tokenizer, out / "train")
    assert each == Fraction(words, int(told.metrics["train_tokens"])) and each < 1
    step = 8 * 32 * each
    asked = (1, int(3 * step), int(3 * step) + 1, int(10.5 * step), 10**9)
    found = states_at(recipe(*asked), tokenizer, out / "train")
    assert found == [1, 3, 4, 11], "those that are never reached are not there"
    for words_asked, number in zip(asked, found, strict=False):
        assert words_seen(recipe(), number - 1, each) < words_asked <= words_seen(recipe(), number, each)
    assert states_at(recipe(), tokenizer, out / "train") == []
    later = replace(recipe(*asked), phase=Phase(first_step=5, first_sequence=40))
    assert states_at(later, tokenizer, out / "train") == [11], "what was seen before the phase counts"


def test_words_are_counted_in_the_text_where_a_tokenizer_is_from_elsewhere(
    run_step: Callable[..., tuple[Path, StepResult]], tmp_path: Path
) -> None:
    plain = replace(recipe(), tokenizer=Tokenizer(vocab_size=300, reading="plain"))
    corpus, _ = run_step(CORPUS, plain)
    tokenizer, _ = run_step(TOKENIZER, plain, {"corpus": corpus})
    out, told = run_step(TOKENS, plain, {"corpus": corpus, "tokenizer": tokenizer})
    words = sum(len(text.split()) for text in read_texts(corpus / "train.jsonl"))
    assert (out / "train" / "words.txt").read_bytes() == b"%d\n" % words
    assert tokens_content(out)[0] == told.digest and stray_files(out) == []
    assert words_a_token(tmp_path, out / "train") == Fraction(words, int(told.metrics["train_tokens"]))
    (out / "train" / "words.txt").write_bytes(b"%d\n" % (words + 1))
    assert tokens_content(out)[0] != told.digest, "the number is a part of what is digested"
    (out / "train" / "words.txt").write_bytes(b"many\n")
    with pytest.raises(DataError, match="not a number of words"):
        tokens_content(out)


@pytest.mark.parametrize("words", [(3, 2), (2, 2)])
def test_numbers_grow(words: tuple[int, ...]) -> None:
    check(recipe(2, 3), where="test")
    with pytest.raises(UsageError, match="states_at_words"):
        check(recipe(*words), where="test")


def test_a_mixture_has_no_words_a_token() -> None:
    parts = {name: GrammarDataset(name=name) for name in ("one", "two")}
    mixed = replace(
        recipe(2, 3), dataset=MixtureDataset(parts=parts), mixture=Mixture(weights={"one": 1.0, "two": 1.0})
    )
    with pytest.raises(UsageError, match="and a mixture"):
        check(mixed, where="test")


def test_no_more_epochs_than_the_recipe_allows(run_step: Callable[..., tuple[Path, StepResult]]) -> None:
    corpus, _ = run_step(CORPUS, recipe())
    tokenizer, _ = run_step(TOKENIZER, recipe(), {"corpus": corpus})
    made, told = run_step(TOKENS, recipe(), {"corpus": corpus, "tokenizer": tokenizer})
    tokens = int(told.metrics["train_tokens"])
    fits = 3 * (tokens // 32) // 8  # every whole sequence three times, eight at a time

    def limited(steps: int, most: int | None = 3) -> Recipe:
        return replace(recipe(), trainer=replace(recipe().trainer, num_steps=steps, most_epochs=most))

    for fine in (limited(fits), limited(1), limited(10**6, None)):
        check_epochs(fine, tokens)
    inputs = {"tokens": made, "tokenizer": tokenizer}
    in_this_process = dataclasses.replace(TRAIN, run=train)
    with pytest.raises(UsageError, match=rf"{fits} train steps at most: 3 epochs.*trainer.num_steps={fits}") as refused:
        run_step(in_this_process, limited(fits + 1), inputs)
    adopted: Any = SimpleNamespace(run=SimpleNamespace(metrics={}), inputs=lambda names: dict.fromkeys(names, made))
    assert tokens_trained(adopted) == tokens, "tokens that no step of the run made are counted as they lie there"
    assert refused.value.where == "trainer.num_steps" and not list(made.parent.parent.glob("train-*/out/*"))


def test_earlier_phases_count_where_they_read_the_same_text() -> None:
    whole = replace(recipe(), trainer=replace(recipe().trainer, most_epochs=2))
    assert whole.most_steps(3200) == 25 and recipe().most_steps(3200) is None
    same = replace(whole, phase=Phase(first_step=5, first_sequence=40, consumed={"grammar": 40}))
    assert same.most_steps(3200) == 20
    assert replace(same, phase=Phase(first_sequence=400, consumed={"grammar": 400})).most_steps(3200) == 0
    check_epochs(replace(same, trainer=replace(same.trainer, num_steps=20)), 3200)
    other = replace(same, phase=Phase(first_step=5, first_sequence=40, consumed={"grammar": 30}))
    with pytest.raises(UsageError, match=r"epochs that nothing counts.*all 40 sequences.*found 10 that are not"):
        check_epochs(replace(other, trainer=replace(other.trainer, num_steps=1)), 3200)
    parts = {name: GrammarDataset(name=name) for name in ("one", "two")}
    mixed = replace(whole, dataset=MixtureDataset(parts=parts), mixture=Mixture(weights={"one": 1.0, "two": 1.0}))
    with pytest.raises(UsageError, match=r"most_epochs.*mixture"):
        check(mixed, where="test")
