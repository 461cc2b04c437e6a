"""Chat documents through corpus, tokenizer and tokens: what the loss sees is what the assistant says."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from levanter.data.text.datasets import TokenSeqDataset
from levanter.models.lm_model import LmExample
from levanter.store.cache import TreeCache
from levanter.utils.thread_utils import blocking_wait
from msgspec.structs import replace
from numpy.typing import NDArray
from tokenizers import Tokenizer as Library

from ledger import Store, state_digest, tensor_digest
from marin.errors import DataError, NoConversation
from marin.execution.step import StepResult
from marin.pipeline.corpus import CORPUS
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.recipe.schema import FilesDataset, Recipe, Tokenizer, digest, plain
from marin.runners.workers import LocalRunner
from marin.tensors.token_caches import FIELD, MASK, MASK_FILE, stray_files, tokens_content
from marin.training.data import token_dataset
from marin.training.tokens.building import build_caches, write_cache
from marin.training.tokens.cache import read_tokens
from marin.training.tokens.masks import open_mask
from tests.ledger.memory import MemoryStorage

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


def mask_of(cache: Path) -> NDArray[np.uint8]:
    """All of it."""
    mask = open_mask(cache)
    assert mask is not None
    return mask[0 : len(read_tokens(cache)[0])]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(
    cache: Path, tokens: NDArray[np.int32], offsets: NDArray[np.int64], mask: NDArray[np.uint8], ends: NDArray[np.int64]
) -> None:
    """The cache anew, with a mask whose documents end elsewhere."""
    shutil.rmtree(cache)
    write_cache(
        cache,
        iter([tokens[a:b] for a, b in pairwise(offsets.tolist())]),
        iter([mask[a:b] for a, b in pairwise(ends.tolist())]),
    )


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
        mask = mask_of(out / split)
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
    names = {name for name in files(out) if not name.endswith("shard_ledger.json")}  # tells the time
    assert {f"{split}/{MASK}/data/c/0" for split in ("train", "validation")} <= names
    assert {name: files(again)[name] for name in names} == {name: files(out)[name] for name in names}


def test_the_loss_at_a_position_is_that_of_the_next_token(made: tuple[Path, Path, StepResult, Path]) -> None:
    out = made[3]
    mask = mask_of(out / "train")
    dataset, length = token_dataset(out / "train", 32)
    for index, example in zip(range(length), blocking_wait(dataset.get_batch(range(length))), strict=True):
        weights = np.asarray(example.loss_weight.array)
        following = mask[32 * index + 1 : 32 * index + 32].astype(np.float32)
        assert weights.tolist() == [*following.tolist(), 0.0], "the last position has no next token in its sequence"
    assert 0 < float(mask.mean()) < 1


def test_levanter_s_own_data_set_reads_the_column(made: tuple[Path, Path, StepResult, Path]) -> None:
    """As it reads the weights of any prebuilt cache."""
    cache = made[3] / "train"
    exemplar = {FIELD: np.zeros((0,), np.int32), MASK: np.zeros((0,), np.uint8)}
    sequences = TokenSeqDataset(TreeCache.load(str(cache), exemplar), 32, loss_weights_key=MASK)
    found = blocking_wait(sequences.get_batch(range(blocking_wait(sequences.async_len()))))
    tokens, mask = read_tokens(cache)[0], mask_of(cache)
    for index, sequence in enumerate(found):
        span = slice(32 * index, 32 * index + 32)
        assert np.array_equal(sequence["input_ids"], tokens[span])
        assert np.array_equal(sequence["loss_weights"], mask[span])


def test_a_mask_in_a_file_is_the_same_content_and_read_as_ever(made: tuple[Path, Path, StepResult, Path]) -> None:
    out = made[3]
    cache = out / "train"
    before = [np.asarray(one.loss_weight.array).tobytes() for one in _examples(cache)]
    mask = mask_of(cache)
    (cache / MASK_FILE).write_bytes(mask.tobytes())
    assert stray_files(out) == [f"train/{MASK_FILE}"], "it has one form at a time"
    shutil.rmtree(cache / MASK)
    assert tokens_content(out)[0] == made[2].digest and stray_files(out) == []
    assert np.array_equal(mask_of(cache), mask)
    assert [np.asarray(one.loss_weight.array).tobytes() for one in _examples(cache)] == before
    (cache / MASK_FILE).write_bytes(mask.tobytes()[:-1])
    with pytest.raises(DataError, match="differ in length"):
        tokens_content(out)


def _examples(cache: Path) -> Sequence[LmExample]:
    dataset, length = token_dataset(cache, 32)
    return blocking_wait(dataset.get_batch(range(length)))


def test_a_changed_mask_is_other_content(made: tuple[Path, Path, StepResult, Path]) -> None:
    out = made[3]
    cache = out / "train"
    tokens, offsets = read_tokens(cache)
    mask = mask_of(cache).copy()
    written(cache, tokens, offsets, mask, offsets)
    assert tokens_content(out)[0] == made[2].digest
    mask[5] ^= 1
    written(cache, tokens, offsets, mask, offsets)
    assert tokens_content(out)[0] != made[2].digest


@pytest.mark.parametrize("form", [MASK, MASK_FILE])
def test_a_mask_that_is_a_weight_is_refused(made: tuple[Path, Path, StepResult, Path], form: str) -> None:
    out = made[3]
    cache = out / "train"
    tokens, offsets = read_tokens(cache)
    mask = mask_of(cache).copy()
    mask[-1] = 2
    if form == MASK:
        written(cache, tokens, offsets, mask, offsets)
    else:
        shutil.rmtree(cache / MASK)
        (cache / MASK_FILE).write_bytes(mask.tobytes())
    with pytest.raises(DataError, match="says more than whether"):
        tokens_content(out)


def test_a_mask_whose_documents_end_elsewhere_is_refused(made: tuple[Path, Path, StepResult, Path]) -> None:
    out = made[3]
    cache = out / "train"
    tokens, offsets = read_tokens(cache)
    ends = offsets.copy()
    ends[1] += 1
    written(cache, tokens, offsets, mask_of(cache), ends)
    with pytest.raises(DataError, match="differ in length"):
        tokens_content(out)


GZIP = {"name": "gzip", "configuration": {"level": 1}}
FORMS: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "codecs behind codecs, which become any size": lambda told, inner: inner["codecs"].append(GZIP),
    "another codec": lambda told, inner: inner.update(codecs=[{"name": "bytes"}, GZIP]),
    "chunks of more than fits": lambda told, inner: inner.update(chunk_shape=[1 << 25]),
    "no chunks in a file": lambda told, inner: told.update(codecs=inner["codecs"]),
    "another fill value": lambda told, inner: told.update(fill_value=1),
    "no shape": lambda told, inner: told.update(
        shape=[], chunk_grid={"name": "regular", "configuration": {"chunk_shape": []}}, codecs=[{"name": "bytes"}]
    ),
    "no end of metadata": lambda told, inner: told.update(attributes={"a": "x" * (1 << 16)}),
}
"""What metadata may not say: each changes it, and the configuration of its codec."""


@pytest.mark.parametrize("change", FORMS.values(), ids=FORMS)
def test_an_array_of_another_form_is_refused_before_a_chunk_is_read(
    made: tuple[Path, Path, StepResult, Path], change: Callable[[dict[str, Any], dict[str, Any]], object]
) -> None:
    """Where it holds the very values too, as far as it can: TensorStore would read it, however large a chunk becomes."""
    out = made[3]
    data = out / "train" / MASK / "data"
    mask = mask_of(out / "train").copy()
    told = json.loads((data / "zarr.json").read_bytes())
    shutil.rmtree(data)
    change(told, told["codecs"][0]["configuration"])
    if told["shape"]:
        told["shape"] = [len(mask)]
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{data}/"}, "metadata": told}
        tensorstore.open(spec, create=True).result()[: len(mask)].write(mask).result()
    else:
        data.mkdir()
        (data / "zarr.json").write_text(json.dumps(told), "utf-8")
    with pytest.raises(DataError, match="can not be read") as refused:
        tokens_content(out)
    assert isinstance(refused.value.__cause__, ValueError), "not by TensorStore, which reads some of them"
    with pytest.raises(DataError, match="can not be read"):
        open_mask(out / "train")
    store = Store(MemoryStorage())
    with pytest.raises(DataError, match="can not be read where it is"):
        open_mask(store.folder(store.put_tree(out).digest) / "train")


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
