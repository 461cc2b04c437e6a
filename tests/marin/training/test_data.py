"""The order of the data: a pure function of seed and length, without gaps or repeats within an epoch."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from marin.errors import UsageError
from marin.execution.phases import successor
from marin.recipe.composition import compose
from marin.recipe.schema import Recipe, digest, from_mapping, from_plain, recorded
from marin.recipe.section import Order
from marin.training.blank import blank_rows
from marin.training.data import Batches, DataOrder, EpochOrder, OrderedDataset, batch_digest
from marin.training.step.contract import mesh_of
from marin.training.tokens.building import write_cache


class Numbers:
    """A dataset whose item n is n."""

    async def get_batch(self, indices: Sequence[int]) -> Sequence[int]:
        return list(indices)


@pytest.mark.parametrize("length", [1, 2, 7, 64, 1000])
def test_an_epoch_sees_every_sequence_once(length: int) -> None:
    order = EpochOrder(length, seed=3)
    for epoch in range(3):
        seen = order(range(epoch * length, (epoch + 1) * length))
        assert sorted(seen.tolist()) == list(range(length))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first, second = EpochOrder(100, seed=1), EpochOrder(100, seed=2)
    orders = {tuple(order(range(start, start + 100)).tolist()) for order in (first, second) for start in (0, 100, 200)}
    assert len(orders) == 6
    assert tuple(range(100)) not in orders


def test_a_step_is_found_without_the_steps_before_it() -> None:
    straight, late = EpochOrder(37, seed=5), EpochOrder(37, seed=5)
    whole = straight(range(200))
    for start in (0, 30, 36, 37, 150):  # inside epochs and across their borders, in any order of asking
        assert late(range(start, start + 16)).tolist() == whole[start : start + 16].tolist()


def test_reading_past_the_end_goes_on_with_the_next_epoch() -> None:
    order = EpochOrder(10, seed=0)
    dataset: Any = OrderedDataset([Numbers()], [0], order)  # type: ignore[list-item]
    assert not dataset.is_finite()
    items = asyncio.run(dataset.get_batch(range(5, 25)))
    assert items == order(range(5, 25)).tolist()
    assert sorted(items[5:15]) == list(range(10))


MIXED = {
    "dataset": {
        "kind": "mixture",
        "parts": {"books": {"kind": "grammar", "seed": 1}, "web": {"kind": "grammar", "seed": 2}},
    },
    "mixture": {"weights": {"web": 3.0, "books": 1.0}, "block_size": 8},
    "trainer": {"batch_size": 8, "num_steps": 5},
}


def test_a_mixture_has_its_shares_and_an_order_per_part() -> None:
    order = DataOrder(from_mapping(MIXED, where="test"), {"books": 10, "web": 100})
    seen = order(range(40))
    assert (seen < 10).sum() == 10 and sorted(seen[seen < 10].tolist()) == list(
        range(10)
    )  # one epoch of the small part
    assert len(set(seen[seen >= 10].tolist())) == 30  # no repeat within an epoch of the large one
    assert [int((seen[start : start + 8] < 10).sum()) for start in range(0, 40, 8)] == [2] * 5
    for start in (3, 17, 39):
        assert order(range(start, start + 5)).tolist()[: 40 - start] == seen[start : start + 5].tolist()


def test_a_phase_goes_on_in_each_part_where_the_one_before_ended() -> None:
    before = from_mapping(MIXED, where="test")
    weights = {"weights": {"web": 1.0, "books": 1.0}, "block_size": 8}
    after = successor(before, from_mapping(MIXED | {"mixture": weights}, where="test"))
    lengths = {"books": 50, "web": 100}
    first, second = DataOrder(before, lengths)(range(40)), DataOrder(after, lengths)(range(80))
    for part in (lambda x: x < 50, lambda x: x >= 50):
        together = np.concatenate([first[part(first)], second[part(second)]])
        assert len(set(together.tolist())) == len(together), "nothing is seen twice within an epoch"
    assert (second < 50).sum() == 40


@pytest.mark.parametrize("order", [None, "swap-or-not"])
def test_every_reader_has_the_order_of_its_recipe(order: Order | None) -> None:
    """A data set, the parts of a mixture, pairs that stay together."""
    single = from_mapping({"order": order, "seed": 5}, where="test")
    assert DataOrder(single, {"grammar": 60})(range(90)).tolist() == EpochOrder(60, 5, order=order)(range(90)).tolist()
    mixed = from_mapping(MIXED | {"order": order, "seed": 5}, where="test")
    seen = DataOrder(mixed, {"books": 30, "web": 100})(range(80))
    for name, start, length in (("books", 0, 30), ("web", 30, 100)):
        part = seen[(seen >= start) & (seen < start + length)] - start
        assert part.tolist() == EpochOrder(length, 5, f"data/{name}", order=order)(range(len(part))).tolist()
    pairs = EpochOrder(24, 3, together=2, order=order)(range(24))
    assert np.array_equal(pairs[::2] + 1, pairs[1::2]) and sorted(pairs.tolist()) == list(range(24))


def test_a_phase_of_another_order_begins_its_data_anew() -> None:
    """As one with another seed: what the order before has left out of an epoch, the new one knows nothing of."""
    before = from_mapping({"trainer": {"num_steps": 5}, "seed": 5}, where="test")
    same = successor(before, before)
    other = successor(before, replace(before, order="swap-or-not"))
    assert same.phase is not None and other.phase is not None
    assert (same.order, dict(same.phase.consumed), same.phase.uncounted) == (None, {"grammar": 40}, 0)
    assert (other.order, dict(other.phase.consumed), other.phase.uncounted) == ("swap-or-not", {}, 40)
    assert DataOrder(same, {"grammar": 100})([0]).tolist() == EpochOrder(100, 5)([40]).tolist()
    assert DataOrder(other, {"grammar": 100})([0]).tolist() == EpochOrder(100, 5, order="swap-or-not")([0]).tolist()
    again = successor(other, other)
    assert again.phase is not None and dict(again.phase.consumed) == {"grammar": 40}


def test_recipes_without_an_order_keep_their_digest() -> None:
    """As 9f3ab419 had it of its default recipe."""
    old = "sha256:8e0cddaa986a83524125301504c3c5db6f911d9891a8da3b41570e283c90960c"
    assert digest(Recipe()) == digest(compose(["order=null"]).recipe) == digest(compose(["~order"]).recipe) == old
    assert compose([]).recipe.order == "swap-or-not" and digest(compose([]).recipe) != old
    assert "order" not in recorded(Recipe()) and from_plain(recorded(Recipe()), where="test").order is None
    benchmark = "sha256:b871fca3e9cedf5290155e04a485c4cea880d742cd3b34fbf943e83d397bed8e"
    assert digest(compose(["+benchmark=grammar_lm"]).recipe) == benchmark
    with pytest.raises(UsageError, match="swap-or-not"):
        from_mapping({"order": "shuffle"}, where="test")


def test_a_batch_is_named_by_indices_and_tokens() -> None:
    tokens = np.arange(8, dtype=np.int32).reshape(2, 4)
    indices = np.array([5, 9])
    whole = batch_digest(indices, tokens)
    assert batch_digest(indices, tokens.copy(order="F")) == whole
    assert batch_digest(np.array([9, 5]), tokens) != whole
    assert batch_digest(indices, tokens[::-1]) != whole
    assert len({batch_digest(indices, tokens ^ (1 << bit)) for bit in range(31)} | {whole}) == 32


@given(
    spans=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 90), st.integers(0, 30)), max_size=5),
    width=st.integers(1, 9),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_left_out_is_found_in_its_sequences(spans: list[tuple[str, int, int]], width: int) -> None:
    """Against a stream written out: the tokens of two parts one after another, what does not fill a sequence cut off."""
    tokens = 100
    lengths = {"a": tokens // width, "b": tokens // width}
    chosen = [(part, start, min(start + size, tokens)) for part, start, size in spans]
    whole = {part: np.zeros(tokens, dtype=bool) for part in lengths}
    for part, start, end in chosen:
        whole[part][start:end] = True
    used = (tokens // width) * width
    expected = np.concatenate([whole[part][:used].reshape(-1, width) for part in lengths])
    found = blank_rows(chosen, {"a": 0, "b": tokens // width}, lengths, width)
    assert {sequence for sequence, row in found.items() if row.any()} == set(
        np.flatnonzero(expected.any(axis=1)).tolist()
    )
    assert all((row == expected[sequence]).all() for sequence, row in found.items())


def test_what_fails_in_the_loader_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the end of the data, as which Levanter's unbuffered loader shows it."""
    write_cache(tmp_path / "train", (np.arange(40, dtype=np.int32) for _ in range(20)))
    recipe = from_mapping({"model": {"seq_len": 16}}, where="test")
    whole = OrderedDataset.get_batch

    async def broken(self: Any, indices: Sequence[int]) -> Any:
        if max(indices) >= 20 * recipe.trainer.batch_size:
            raise RuntimeError("RESOURCE_EXHAUSTED")
        return await whole(self, indices)

    monkeypatch.setattr(OrderedDataset, "get_batch", broken)
    read = 0
    with Batches(recipe, tmp_path / "train", mesh_of(1), 0) as stream:
        with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
            for _ in stream:
                read += 1
        assert next(stream, None) is None, "what came after it would stand under the wrong number"
    assert read == 16, "fetched by eights: the batches before are whole"


BEGIN = """
import atexit, gc, sys, threading
from pathlib import Path
atexit.register(lambda: print([t.name for t in threading.enumerate() if t.daemon]))  # called last
import jax, numpy as np
from marin.recipe.schema import from_mapping
from marin.training.data import Batches
from marin.training.step.contract import mesh_of
from marin.training.tokens.building import write_cache
cache = Path(sys.argv[1])
write_cache(cache / "train", (np.arange(40, dtype=np.int32) for _ in range(20)))
recipe = from_mapping({"model": {"seq_len": 16}}, where="test")
"""
LEFT_OPEN = """
sys.kept = Batches(recipe, cache / "train", mesh_of(1), 0)
print(next(sys.kept).indices.shape, [t.daemon for t in threading.enumerate() if t.daemon])
"""
COLLECTED = """
stream = Batches(recipe, cache / "train", mesh_of(1), 0)
next(stream)
with getattr(threading, "_shutdown_locks_lock", threading.Lock()):  # as while another thread starts (CPython 3.12)
    del stream
    gc.collect()
print("collected")
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A program that leaves one stream open, and forgets another."""
    return subprocess.run(
        [sys.executable, "-c", BEGIN + LEFT_OPEN + COLLECTED, str(tmp_path_factory.mktemp("ended"))],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        timeout=300,
    )


@pytest.mark.long(together="streams that end", seconds=13)
def test_no_thread_of_the_loader_outlives_the_program(ended: subprocess.CompletedProcess[str]) -> None:
    """One that is inside jax when the interpreter ends aborts the process, after all its work was done."""
    assert ended.returncode == 0, ended.stderr
    before, *_, after = ended.stdout.splitlines()
    assert "True" in before, "the loader works ahead in a thread"
    assert after == "[]"


@pytest.mark.long(together="streams that end")
def test_a_stream_that_nobody_closed_is_collected_anywhere(ended: subprocess.CompletedProcess[str]) -> None:
    """A finaliser that waits for a thread stood still for ever when the collector ran while another thread started."""
    assert (ended.returncode, ended.stdout.splitlines()[1:]) == (0, ["collected", "[]"]), ended.stderr
