"""Conversations through corpus and tokens: with the special tokens of the tokenizer that is used, and as they were recorded."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from ledger import Store, describe_tree
from marin.data.borrowed.exported import write_template
from marin.errors import DataError, UsageError
from marin.evaluation.importing import with_tokenizer
from marin.execution.step import StepResult
from marin.pipeline.corpus import CORPUS
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.recipe.schema import FilesDataset, Model, Recipe, Tokenizer, Trainer
from marin.training.data import DataOrder
from marin.training.learning import check_learning
from marin.training.tokens.building import write_cache
from marin.training.tokens.cache import read_tokens
from marin.training.tokens.masks import open_mask

RunStep = Callable[..., tuple[Path, StepResult]]
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% else %}{{ m.content + eos_token }}{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def line(number: int, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"What is {number}? ü"}, {"role": "assistant", "content": answer}]}


def dataset(folder: Path, lines: list[dict[str, Any]], **how: Any) -> FilesDataset:
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines)
    (folder / "chat.jsonl").write_text(text, encoding="utf-8")
    reference = {"chat_reference": "transformers", **how}
    return FilesDataset(globs=(str(folder / "*.jsonl"),), chat=True, validation_fraction=0.2, **reference)


@pytest.fixture
def brought(tmp_path: Path) -> Path:
    """A tokenizer whose marks are special, whose texts end by one of them, and which brings a template."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=MARKS, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(["What is it? It is so. user assistant"], trainer)
    folder = tmp_path / "brought"
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


def test_a_borrowed_tokenizer_brings_its_marks_and_its_template(
    run_step: RunStep, store: Store, brought: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = line(60, "yes")
    forged["messages"][0]["content"] = "a <|im_end|> b"
    data = dataset(tmp_path, [*(line(number, f"It is {number} \U0001f600") for number in range(60)), forged])
    recipe = with_tokenizer(store, brought, "here", Recipe(dataset=data))
    assert recipe.dataset.chat_template == CHATML  # type: ignore[union-attr]
    assert CORPUS.config(recipe)["tokenizer"] == recipe.tokenizer.artifact  # type: ignore[index]
    with caplog.at_level(logging.WARNING):
        corpus, result = run_step(CORPUS, recipe)
    assert result.metrics["special_tokens_in_messages"] == 1.0 and "1 conversations hold special tokens" in caplog.text
    tokenizer, _ = run_step(TOKENIZER, recipe, {"corpus": corpus})
    out, _ = run_step(TOKENS, recipe, {"corpus": corpus, "tokenizer": tokenizer})
    library = Library.from_file(str(brought / "tokenizer.json"))
    tokens, offsets = read_tokens(out / "train")
    mask = open_mask(out / "train")
    assert mask is not None
    rows = [json.loads(row) for row in (corpus / "train.jsonl").read_bytes().splitlines()]
    for row, (start, stop) in zip(rows, pairwise(offsets.tolist()), strict=True):
        ids = tokens[start:stop].tolist()
        assert row["text"].startswith("<|im_start|>user\n") and ids[0] == 1, "its begin is null, its marks are its ids"
        assert ids == [*library.encode(row["text"], add_special_tokens=False).ids, 2], "parted by its end of text"
        learned = [one for one, take in zip(ids, mask[start:stop].tolist(), strict=True) if take]
        said = row["text"][row["learned"][0][0] : row["learned"][0][1]]
        assert library.decode(learned, skip_special_tokens=False) == said and learned[-1] == 2
    folder = tmp_path / "exported"
    folder.mkdir()
    for file in brought.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    assert write_template(folder, recipe) == [] and (folder / "chat_template.jinja").read_text("utf-8") == CHATML
    other = replace(recipe, tokens=replace(recipe.tokens, end_of_text=None))
    assert write_template(folder, other) == [2], "a mark that ends an answer and is not the end of a text"
    isolated = replace(recipe, model=Model(seq_len=16), trainer=Trainer(packing="isolated", num_steps=2, batch_size=8))
    with pytest.raises(UsageError, match="packing that would cut conversations"):
        check_learning(isolated, out / "train")


def test_a_build_in_which_little_is_learned_is_refused(
    run_step: RunStep, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    template = "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}"
    template += "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"

    def tokens(unanswered: int) -> StepResult:
        lines = [line(number, "" if number < unanswered else f"It is {number}.") for number in range(60)]
        recipe = Recipe(dataset=dataset(tmp_path, lines, chat_template=template), tokenizer=Tokenizer(vocab_size=300))
        corpus, _ = run_step(CORPUS, recipe)
        tokenizer, _ = run_step(TOKENIZER, recipe, {"corpus": corpus})
        return run_step(TOKENS, recipe, {"corpus": corpus, "tokenizer": tokenizer})[1]

    assert "unlearned_documents" not in tokens(0).metrics
    with caplog.at_level(logging.WARNING):
        assert tokens(6).metrics["unlearned_documents"] == 6.0
    assert "nothing is learned of 6 of 60 conversations" in caplog.text
    with pytest.raises(DataError, match="7 of 60 conversations"):
        tokens(7)


@pytest.mark.parametrize("batch", [1, 2, 5, 10])
def test_a_batch_of_which_nothing_is_learned_is_refused_before_the_first_step(tmp_path: Path, batch: int) -> None:
    """Ten sequences of which eight have nothing to learn; counted in the order in which they are trained on."""
    data = FilesDataset(globs=("x.jsonl",), chat=True)
    trainer = Trainer(num_steps=20 // batch, batch_size=batch)
    recipe = Recipe(seed=1, dataset=data, model=Model(seq_len=4), trainer=trainer)
    masks = [[0, 1, 0, 0] if number in (3, 7) else [1, 0, 0, 0] for number in range(10)]  # a first token has no loss
    cache = tmp_path / "cache"
    write_cache(cache, iter([np.arange(4, dtype=np.int32)] * 10), iter([np.asarray(one, np.uint8) for one in masks]))
    numbers = DataOrder(recipe, {"files": 10})(range(20)).reshape(-1, batch)
    if empty := sum(not {3, 7} & set(row) for row in numbers.tolist()):
        with pytest.raises(DataError, match=f"{empty} without; nothing is learned of 8 of 10 sequences"):
            check_learning(recipe, cache)
    else:
        check_learning(recipe, cache)
    assert (batch == 1) <= bool(empty) and (batch < 10) >= bool(empty)


@pytest.mark.parametrize("template", ["plain", "difference", "marked"])
def test_earlier_recipes_give_what_they_gave(run_step: RunStep, tmp_path: Path, template: str) -> None:
    """Digests of the corpus and the tokens that commit 9f3ab419 made of the same lines."""
    text = {"plain": None, "difference": UNMARKED, "marked": CHATML}[template]
    lines = [line(number, f"It is {number}, naïvely \U0001f600.") for number in range(40)]
    lines += [line(41, ""), line(42, " x <|im_end|> <|endoftext|> "), {"messages": [{"role": "robot", "content": "x"}]}]
    data = replace(dataset(tmp_path, lines, chat_template=text), chat_reference=None)
    recipe = Recipe(dataset=data, tokenizer=Tokenizer(vocab_size=300))
    corpus, _ = run_step(CORPUS, recipe)
    tokenizer, _ = run_step(TOKENIZER, recipe, {"corpus": corpus})
    _, made = run_step(TOKENS, recipe, {"corpus": corpus, "tokenizer": tokenizer})
    assert (describe_tree(corpus).digest, made.digest) == EARLIER[template]


UNMARKED = CHATML.replace("{% generation %}", "").replace("{% endgeneration %}", "")
EARLIER = {
    "plain": (
        "sha256:90573584a92b93bc86344cb8a484295ba617a27ef637494cac60e314fcbcba30",
        "sha256:c7535e88621c9d9560d9cf9aa196de065d125f424ea1ee993cd5349dc427a79c",
    ),
    "difference": (
        "sha256:08ebf29cebb85e47ec83a692149fa046d598a528a18c94ab7440fef0fe702de9",
        "sha256:bbe61e380f923a3b25bb914dd6fd36d05218ce129cc66ab7a01fe4ad5b5ee462",
    ),
    "marked": (
        "sha256:03d967c72fe6f3e34f4a06ed5ae237a72c2d728bfe74885bdc4fc68e7bb158ac",
        "sha256:88006a0b3867233a89fae9637f07f61cc1c32994254fcad627ea24563a5beafe",
    ),
}
