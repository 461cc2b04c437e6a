"""Token caches that are read where they are stored: the same tokens as out of a folder, and no more bytes than they need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import Store, StoredFolder, Tampered
from marin.errors import DataError
from marin.plugins.ray.train_worker import training_inputs as given_to_a_worker
from marin.recipe.schema import Recipe, from_mapping
from marin.tensors.token_caches import FIELD, MASK, MASK_FILE, cache_content
from marin.training.data import Batches
from marin.training.step.contract import mesh_of
from marin.training.tokens.building import write_cache
from marin.training.tokens.cache import Cache, open_cache, read_tokens
from tests.ledger.memory import MemoryStorage

CHUNK = 256 * 1024
"""Elements of a chunk as Levanter writes it."""


class Counting(MemoryStorage):
    """Counts the bytes that are read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def read(self, name: str) -> bytes:
        found = super().read(name)
        self.taken += len(found)
        return found

    def size(self, name: str) -> int:
        before = self.taken
        found = super().size(name)
        self.taken = before
        return found

    def read_range(self, name: str, start: int, length: int) -> bytes:
        before = self.taken
        found = super().read_range(name, start, length)
        self.taken = before + len(found)  # in memory it reads the whole, which costs nothing there
        return found


def documents(total: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Documents of a stream of random tokens that compress badly; between 1.2 and 2.3 chunks all of them are 0."""
    drawn = np.random.default_rng(seed)
    stream = drawn.integers(0, 2**31 - 1, total, dtype=np.int32)
    stream[int(1.2 * CHUNK) : int(2.3 * CHUNK)] = 0
    cuts = np.unique(drawn.integers(0, total, 40))
    for start, end in pairwise([0, *cuts.tolist(), total]):
        yield stream[start:end]


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StoredFolder]:
    """One cache of four chunks, of which one is not stored because all of it is 0; in a folder and in a store."""
    folder = tmp_path_factory.mktemp("caches")
    write_cache(folder / "train", documents(int(3.4 * CHUNK)))
    store = Store(MemoryStorage())
    return folder / "train", store.folder(store.put_tree(folder).digest) / "train"


def test_the_whole_of_it_is_that_of_the_folder(caches: tuple[Path, StoredFolder]) -> None:
    (tokens, offsets), (found, places) = (read_tokens(cache) for cache in caches)
    assert found.dtype == tokens.dtype and np.array_equal(found, tokens)
    assert places.dtype == offsets.dtype and np.array_equal(places, offsets)
    assert not found[int(1.2 * CHUNK) : int(2.3 * CHUNK)].any() and found.any()


@given(start=st.integers(0, int(3.4 * CHUNK)), length=st.integers(0, 2 * CHUNK))
def test_any_span_is_that_of_the_stream(caches: tuple[Path, StoredFolder], start: int, length: int) -> None:
    tokens, _ = read_tokens(caches[0])
    stored: Any = open_cache(caches[1])
    stop = min(start + length, len(tokens))
    assert np.array_equal(stored.data[start:stop], tokens[start:stop])


def batches(recipe: Recipe, cache: Cache) -> list[tuple[str, bytes, bytes]]:
    with Batches(recipe, cache, mesh_of(1), 0) as stream:
        read = [next(stream) for _ in range(5)]
    return [(one.digest, np.asarray(one.tokens).tobytes(), np.asarray(one.weights).tobytes()) for one in read]


@pytest.mark.parametrize("masked", [None, MASK, MASK_FILE])
def test_batches_are_those_of_the_folder(tmp_path: Path, masked: str | None) -> None:
    recipe = from_mapping({"model": {"seq_len": 48}}, where="test")
    rows = list(documents(40_000))
    masks = [np.random.default_rng(1).integers(0, 2, len(row), dtype=np.uint8) for row in rows]
    write_cache(tmp_path / "train", iter(rows), iter(masks) if masked == MASK else None)
    if masked == MASK_FILE:
        (tmp_path / "train" / MASK_FILE).write_bytes(np.concatenate(masks).tobytes())
    store = Store(MemoryStorage())
    stored = store.folder(store.put_tree(tmp_path).digest) / "train"
    here = batches(recipe, tmp_path / "train")
    assert batches(recipe, stored) == here
    assert any(0 in np.frombuffer(weights, np.float32)[:47] for _, _, weights in here) == (masked is not None)


def test_of_a_large_cache_the_parts_of_what_is_asked_for_are_read(tmp_path: Path) -> None:
    """40 MB that do not compress, in parts of 8 MiB: the index, at the end, and where the sequence is."""
    write_cache(tmp_path / "train", documents(10_000_000))
    storage = Counting()
    store = Store(storage)
    tree = store.put_tree(tmp_path)
    assert tree.size > 34_000_000
    storage.taken = 0
    stored: Any = open_cache(store.folder(tree.digest) / "train")
    before = storage.taken
    taken = stored.data[5_000_000:5_000_256]
    assert np.array_equal(taken, read_tokens(tmp_path / "train")[0][5_000_000:5_000_256])
    assert before < 100_000 and storage.taken < 2.1 * 2**23, (before, storage.taken)
    read = storage.taken
    assert np.array_equal(stored.data[5_000_000:5_000_256], taken) and storage.taken == read, "what was read is kept"


def test_another_token_in_the_store_is_no_batch(tmp_path: Path) -> None:
    recipe = from_mapping({"model": {"seq_len": 48}}, where="test")
    write_cache(tmp_path / "train", documents(40_000))
    storage = MemoryStorage()
    store = Store(storage)
    tree = store.put_tree(tmp_path)
    entry = store.manifest(tree.digest).entry(f"train/{FIELD}/data/c/0")
    name = f"store/blobs/sha256/{entry.digest[7:9]}/{entry.digest[9:]}"
    data = bytearray(storage.read(name))
    data[len(data) // 2] ^= 1
    storage.replace(name, bytes(data))
    with pytest.raises(Tampered), Batches(recipe, store.folder(tree.digest) / "train", mesh_of(1), 0) as stream:
        next(stream)


@pytest.mark.parametrize(
    "change",
    [
        {"codecs": []},
        {"data_type": "float32"},
        {"fill_value": 1},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK + 1]}}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2**60]}}},
        {"chunk_key_encoding": {"name": "v2"}},
    ],
)
def test_another_form_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_cache(tmp_path / "train", documents(1000))
    file = tmp_path / "train" / FIELD / "data" / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | change), encoding="utf-8")
    store = Store(MemoryStorage())
    with pytest.raises(DataError, match="can not be read where it is"):
        open_cache(store.folder(store.put_tree(tmp_path).digest) / "train")


@pytest.mark.parametrize("cut", [0, 3, 5000])
def test_a_file_that_is_cut_short_is_named(tmp_path: Path, cut: int) -> None:
    write_cache(tmp_path / "train", documents(1000))
    file = tmp_path / "train" / FIELD / "data" / "c" / "0"
    file.write_bytes(file.read_bytes()[:cut])
    store = Store(MemoryStorage())
    stored: Any = open_cache(store.folder(store.put_tree(tmp_path).digest) / "train")
    with pytest.raises(DataError, match=r"train/input_ids/data/c/0"):
        stored.data[0:10]


def test_an_unfinished_cache_is_refused(tmp_path: Path) -> None:
    write_cache(tmp_path / "train", documents(1000))
    file = tmp_path / "train" / "shard_ledger.json"
    told = json.loads(file.read_text("utf-8"))
    store = Store(MemoryStorage())
    for change in ({"is_finished": False}, {"total_num_rows": 7}, {"total_num_rows": "x"}):
        file.write_text(json.dumps(told | change), encoding="utf-8")
        with pytest.raises(DataError, match="cannot be opened"):
            open_cache(store.folder(store.put_tree(tmp_path).digest) / "train")


def test_another_machine_gets_no_copy_of_the_tokens(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "tokenizer.json").write_text("{}")
    write_cache(tmp_path / "caches" / "train", documents(1000))
    store = Store(MemoryStorage())
    inputs = {
        "tokens": ("/there/tokens", store.put_tree(tmp_path / "caches").digest),
        "tokenizer": ("/there/tokenizer", store.put_tree(tmp_path / "made").digest),
    }
    folders, stored = given_to_a_worker(store, inputs, tmp_path / "inputs")
    assert folders == {"tokenizer": tmp_path / "inputs" / "tokenizer"} and list(stored) == ["tokens"]
    assert [path.name for path in (tmp_path / "inputs").rglob("*")] == ["tokenizer", "tokenizer.json"]
    assert len(read_tokens(stored["tokens"] / "train")[0]) == 1000
    assert given_to_a_worker(store, inputs, None) == (
        {"tokens": Path("/there/tokens"), "tokenizer": Path("/there/tokenizer")},
        {},
    )


def test_what_a_chunk_claims_is_looked_at_before_it_is_decoded(tmp_path: Path) -> None:
    """Its own head says how much memory a decoder takes: 2 GiB behind a few bytes."""
    write_cache(tmp_path / "train", documents(int(3.4 * CHUNK)))
    file = tmp_path / "train" / FIELD / "data" / "c" / "0"
    whole = bytearray(file.read_bytes())
    whole[4:8] = (2**31 - 17).to_bytes(4, "little")
    file.write_bytes(whole)
    claim = "a chunk that claims 2147483631 bytes, not 1048576"
    with pytest.raises(DataError, match=claim):
        cache_content(tmp_path / "train")
    store = Store(MemoryStorage())
    stored: Any = open_cache(store.folder(store.put_tree(tmp_path).digest) / "train")
    with pytest.raises(DataError, match=claim):
        stored.data[0:10]
    whole[-20:-12] = (2**63).to_bytes(8, "little")  # where the last chunk begins
    file.write_bytes(whole)
    with pytest.raises(DataError, match=r"a chunk of [0-9]+ bytes at 9223372036854775808 of"):
        cache_content(tmp_path / "train")
