"""The step ``tokens``: Levanter's cache holds exactly the documents, and is named by what it holds."""

from __future__ import annotations

import dataclasses
import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from ledger import state_digest, tensor_digest
from marin.data.documents import stretches
from marin.errors import DataError
from marin.execution.step import StepResult, Task
from marin.pipeline.corpus import CORPUS
from marin.pipeline.tokenizer import END_OF_TEXT, TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.recipe.schema import Execution, GrammarDataset, Recipe, Tokenizer, Tokens
from marin.runners.workers import LocalRunner
from marin.tensors.token_caches import cache_content, tokens_content
from marin.training.data import token_dataset
from marin.training.inspection.batch import document_of
from marin.training.tokens import building as token_cache
from marin.training.tokens import encoding
from marin.training.tokens.building import build_caches, write_cache
from marin.training.tokens.cache import open_cache, read_tokens
from marin.training.tokens.writing import CacheWriter

RunStep = Callable[..., tuple[Path, StepResult]]
RECIPE = Recipe(
    dataset=GrammarDataset(train_bytes=60_000, validation_bytes=5_000, minimal_pairs=0),
    tokenizer=Tokenizer(vocab_size=500),
)


@pytest.fixture
def inputs(run_step: RunStep) -> dict[str, Path]:
    corpus, _ = run_step(CORPUS, RECIPE)
    tokenizer, _ = run_step(TOKENIZER, RECIPE, {"corpus": corpus})
    return {"corpus": corpus, "tokenizer": tokenizer}


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_bytes().splitlines()]


def expected(inputs: dict[str, Path], split: str) -> list[list[int]]:
    library = Library.from_file(str(inputs["tokenizer"] / "tokenizer.json"))
    return [[*library.encode(text).ids, 0] for text in texts(inputs["corpus"] / f"{split}.jsonl")]


def test_the_stream_is_the_documents(run_step: RunStep, inputs: dict[str, Path]) -> None:
    out, result = run_step(TOKENS, RECIPE, inputs)
    tensors = {}
    for split in ("train", "validation"):
        wanted = expected(inputs, split)
        tokens, offsets = read_tokens(out / split)
        assert tokens.dtype == np.int32
        assert offsets.dtype == np.int64
        assert tokens.tolist() == [token for document in wanted for token in document]
        assert np.diff(offsets).tolist() == [len(document) for document in wanted]
        assert offsets[0] == 0
        tensors[f"{split}/tokens"] = tensor_digest(tokens)
        tensors[f"{split}/offsets"] = tensor_digest(offsets)
        assert result.metrics[f"{split}_tokens"] == len(tokens)
    assert result.digest == state_digest(tensors) == tokens_content(out)[0]
    assert result.size == sum(tensor.nbytes for split in ("train", "validation") for tensor in read_tokens(out / split))
    assert result.kind == "tokens"


def test_decoding_gives_the_text_back(run_step: RunStep, inputs: dict[str, Path]) -> None:
    out, _ = run_step(TOKENS, RECIPE, inputs)
    tokens, offsets = read_tokens(out / "validation")
    library = Library.from_file(str(inputs["tokenizer"] / "tokenizer.json"))
    for number, text in enumerate(texts(inputs["corpus"] / "validation.jsonl")):
        ids = tokens[offsets[number] : offsets[number + 1]].tolist()
        assert library.decode(ids, skip_special_tokens=False) == text + END_OF_TEXT


def test_levanter_reads_sequences_from_it(run_step: RunStep, inputs: dict[str, Path]) -> None:
    """And makes the examples of it that our training reads."""
    from haliax import Axis
    from levanter.data.text.datasets import CausalLmDataset, NamedLmDataset, TokenSeqDataset
    from levanter.store.cache import TreeCache
    from levanter.utils.thread_utils import blocking_wait

    out, _ = run_step(TOKENS, RECIPE, inputs)
    Pos, cache = Axis("position", 32), TreeCache.load(str(out / "train"), {"input_ids": np.zeros(0, np.int32)})
    sequences = TokenSeqDataset(cache, Pos.size)
    theirs = NamedLmDataset(CausalLmDataset(sequences, Pos, block_cross_document_attention=False), Pos)
    ours, length = token_dataset(out / "train", Pos.size)
    tokens, _ = read_tokens(out / "train")
    assert blocking_wait(sequences.async_len()) == length == len(tokens) // 32
    numbers = [1, length - 1, 0, 1]
    found, expected = (blocking_wait(one.get_batch(numbers)) for one in (ours, theirs))
    assert np.asarray(found[0].tokens.array).tolist() == tokens[32:64].tolist()
    for mine, other in zip(found, expected, strict=True):
        assert jax.tree.structure(mine) == jax.tree.structure(other)
        for one, two in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
            assert (one.dtype, one.tolist()) == (two.dtype, two.tolist())


@pytest.mark.parametrize("number", [-1, 3])
def test_a_sequence_beyond_the_stream_is_none(tmp_path: Path, number: int) -> None:
    """The array in the file is longer than what it holds."""
    from levanter.utils.thread_utils import blocking_wait

    write_cache(tmp_path / "cache", iter([np.arange(31, dtype=np.int32)]))
    dataset, length = token_dataset(tmp_path / "cache", 10)
    assert length == 3
    with pytest.raises(IndexError, match=f"sequence {number} of 3"):
        blocking_wait(dataset.get_batch([number]))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("batches", [[], [[3, 0, 5]], [[1, 300_000], [0], [270_000, 2]]])
def test_levanters_own_writer_makes_the_same_files(tmp_path: Path, batches: list[list[int]], masked: bool) -> None:
    from levanter.store.cache import CacheMetadata, SerialCacheWriter

    random = np.random.default_rng(7)
    drawn = [[(random.integers(0, 500, n, np.int32), random.integers(0, 2, n, np.uint8)) for n in b] for b in batches]
    fields = {"input_ids": np.int32} | ({"loss_mask": np.uint8} if masked else {})
    exemplar = {name: np.zeros(0, dtype) for name, dtype in fields.items()}
    ours = CacheWriter(tmp_path / "ours", masked=masked)
    with SerialCacheWriter(str(tmp_path / "theirs"), exemplar, metadata=CacheMetadata({}), shard_name="all") as theirs:
        for batch in drawn:
            ours.write([(ids, mask.tobytes()) for ids, mask in batch])
            theirs.write_batch([dict(zip(fields, columns, strict=False)) for columns in batch])
    ours.finish()
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")


def test_a_cache_that_was_not_finished_is_refused(tmp_path: Path) -> None:
    CacheWriter(tmp_path / "cache", masked=False).write([(np.arange(3, dtype=np.int32), b"")])
    with pytest.raises(DataError, match="token cache cannot be opened"):
        read_tokens(tmp_path / "cache")


def test_the_digest_does_not_depend_on_the_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [np.arange(start, start + 7 * start % 11, dtype=np.int32) for start in range(40)]
    assert write_cache(tmp_path / "one", iter(documents)) == (sum(map(len, documents)), 40)
    monkeypatch.setattr(token_cache, "_WRITE_TOKENS", 8)
    monkeypatch.setattr("marin.tensors.reading.PIECE", 20)
    write_cache(tmp_path / "many", iter(documents))
    whole, pieces = read_tokens(tmp_path / "one"), read_tokens(tmp_path / "many")
    assert all(np.array_equal(a, b) for a, b in zip(whole, pieces, strict=True))
    assert cache_content(tmp_path / "one") == cache_content(tmp_path / "many")
    assert cache_content(tmp_path / "one").tensors["tokens"] == tensor_digest(whole[0])
    assert cache_content(tmp_path / "one").tensors["offsets"] == tensor_digest(whole[1])


@pytest.mark.long
@pytest.mark.parametrize("masked", [False, True])
def test_documents_that_are_written_are_not_held(
    run_step: RunStep, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    made = 0
    gone: list[None] = []
    held: list[int] = []

    def given(*ignored: object, **also: object) -> Iterator[encoding.Encoded]:
        nonlocal made
        for _ in range(600):
            ids = np.ones(20, np.int32)
            weakref.finalize(ids, gone.append, None)
            made += 1
            held.append(made - len(gone))
            yield ids, bytes(20) if masked else b""

    monkeypatch.setattr(token_cache, "_WRITE_TOKENS", 200)
    monkeypatch.setattr(token_cache, "encoded_split", given)
    monkeypatch.setattr(token_cache, "has_mask", lambda path: masked)
    run_step(TOKENS, RECIPE, inputs)
    assert 10 <= max(held) < 60, max(held)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("size", [1, 5_000, 30_000])
def test_shards_on_workers_write_the_same_files(
    run_step: RunStep, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    out, result = run_step(TOKENS, RECIPE, inputs)
    monkeypatch.setattr(encoding, "SHARD_BYTES", size)
    asked: list[int] = []

    def run(start: Callable[[bytes], Callable[[bytes], bytes]], setup: bytes, tasks: Sequence[bytes]) -> Any:
        asked.append(len(tasks))
        return LocalRunner().run(start, setup, tasks)

    def by_shards(task: Task) -> StepResult:
        return build_caches(task, run)

    again, other = run_step(dataclasses.replace(TOKENS, run=by_shards), RECIPE, inputs)
    assert other == result and files(again) == files(out)
    lines = [len((inputs["corpus"] / f"{split}.jsonl").read_bytes().splitlines()) for split in ("train", "validation")]
    assert asked[0] > 1 and (size > 1 or asked == lines)


@pytest.mark.survival
def test_workers_of_a_ray_write_the_same_files(
    run_step: RunStep, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, result = run_step(TOKENS, RECIPE, inputs)
    monkeypatch.setattr(encoding, "SHARD_BYTES", 10_000)

    def on_ray(task: Task) -> StepResult:
        return TOKENS.run(dataclasses.replace(task, execution=Execution(runner="ray", processes=2, devices=2)))

    again, other = run_step(dataclasses.replace(TOKENS, run=on_ray), RECIPE, inputs)
    assert other == result and files(again) == files(out)


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b" ") + b"\n"), max_size=20),
    st.integers(1, 40),
)
def test_stretches_are_whole_lines_that_cover_a_file(lines: list[bytes], size: int) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "lines"
        path.write_bytes(b"".join(lines))
        cuts = stretches(path, size)
        found = [path.read_bytes()[first:end] for first, end in cuts]
    assert b"".join(found) == b"".join(lines) and all(piece.endswith(b"\n") for piece in found)
    assert all(len(piece) >= size for piece in found[:-1])


def test_one_other_token_is_another_digest(tmp_path: Path) -> None:
    documents = [np.arange(10, dtype=np.int32), np.arange(5, dtype=np.int32)]
    write_cache(tmp_path / "a", iter(documents))
    changed = [documents[0].copy(), documents[1]]
    changed[0][9] += 1
    write_cache(tmp_path / "b", iter(changed))
    moved = [np.arange(9, dtype=np.int32), np.array([9, 0, 1, 2, 3, 4], dtype=np.int32)]
    write_cache(tmp_path / "c", iter(moved))
    a, b, c = (cache_content(tmp_path / name) for name in "abc")
    assert a.tensors["tokens"] != b.tensors["tokens"]
    assert a.tensors["offsets"] == b.tensors["offsets"]
    assert (a.tensors["tokens"] == c.tensors["tokens"], a.tensors["offsets"] == c.tensors["offsets"]) == (True, False)


def test_a_text_cannot_forge_the_end_of_a_document(run_step: RunStep, inputs: dict[str, Path]) -> None:
    line = json.dumps({"id": "x", "metadata": {}, "source": "s", "text": f"a{END_OF_TEXT}b"}) + "\n"
    (inputs["corpus"] / "validation.jsonl").write_text(line)
    out, _ = run_step(TOKENS, RECIPE, inputs)
    tokens, _ = read_tokens(out / "validation")
    assert tokens.tolist().count(0) == 1
    assert tokens[-1] == 0
    assert len(tokens) > 3


def test_without_the_end_of_text_token(run_step: RunStep, inputs: dict[str, Path]) -> None:
    out, _ = run_step(TOKENS, Recipe(tokens=Tokens(append_eos=False)), inputs)
    tokens, _ = read_tokens(out / "train")
    assert tokens.tolist() == [token for document in expected(inputs, "train") for token in document[:-1]]


def test_positions_and_documents() -> None:
    offsets = np.array([0, 3, 3, 7], dtype=np.int64)
    assert [document_of(offsets, position) for position in range(7)] == [0, 0, 0, 2, 2, 2, 2]
    for outside in (-1, 7):
        with pytest.raises(IndexError, match="7 tokens"):
            document_of(offsets, outside)


def test_a_split_without_tokens_is_refused(run_step: RunStep, inputs: dict[str, Path]) -> None:
    (inputs["corpus"] / "validation.jsonl").write_bytes(b"")
    with pytest.raises(DataError, match="no tokens: validation split"):
        run_step(TOKENS, RECIPE, inputs)


def test_a_damaged_chunk_is_said_where_sequences_are_read(tmp_path: Path) -> None:
    from levanter.utils.thread_utils import blocking_wait

    write_cache(tmp_path / "cache", iter([np.arange(5_000, dtype=np.int32)]))
    dataset, _ = token_dataset(tmp_path / "cache", 10)
    chunk = tmp_path / "cache" / "input_ids" / "data" / "c" / "0"
    data = bytearray(chunk.read_bytes())
    data[8:24] = bytes(16)
    chunk.write_bytes(data)
    with pytest.raises(DataError, match="a stored array can not be read: input_ids/data"):
        blocking_wait(dataset.get_batch([3]))


def test_no_cache_and_an_unfinished_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="token cache cannot be opened: nowhere"):
        open_cache(tmp_path / "nowhere")
    write_cache(tmp_path / "cache", iter([np.arange(3, dtype=np.int32)]))
    ledger = tmp_path / "cache" / "shard_ledger.json"
    ledger.write_text(ledger.read_text().replace('"is_finished": true', '"is_finished": false'))
    with pytest.raises(DataError, match="a finished cache"):
        open_cache(tmp_path / "cache")


def test_no_machine_path_is_in_a_cache(tmp_path: Path) -> None:
    write_cache(tmp_path / "cache", iter([np.arange(3, dtype=np.int32)]))
    assert not [
        path
        for path in (tmp_path / "cache").rglob("*")
        if path.is_file() and str(tmp_path).encode() in path.read_bytes()
    ]
