"""The digest of a sliced state is that of the whole, wherever slices cut tiles. Over processes: tests/determinism."""

from __future__ import annotations

from types import ModuleType

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import hash_shards, merge_shards, tensor_digest
from marin.training.checkpoints import digesting
from marin.training.initial import initial_state
from marin.training.optimizers.rule import optimizer
from marin.training.state import DATA, leaves, manifest_of
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout


def test_slices_that_cut_tiles_are_digested_where_they_lie(worker: ModuleType) -> None:
    recipe = worker.recipe_of(worker.Case(name="digest", shards=8, batch=8, length=16, hidden=16, layers=1))
    first = initial_state(recipe, 40_001)  # an embedding of 2.4 tiles, and slices with padding
    layout = Layout(first, optimizer(recipe), 8)
    state = layout.cut(first, NamedSharding(mesh_of(1), P(DATA)))
    names = [name for name, _ in leaves(first)]
    assert digesting.describe(state, layout) == manifest_of(first)
    changed = np.array(state.params[5][0])
    changed[0, -1] += 1
    pieces = list(state.params)
    pieces[5] = (jax.device_put(changed, state.params[5][0].sharding), *pieces[5][1:])
    other = digesting.describe(type(state)(state.step, state.cursor, state.key, tuple(pieces), state.moments), layout)
    assert manifest_of(first).differing(other) == (names[3],), "of a changed slice, its tensor and no other"


def test_a_process_that_holds_copies_alone_adds_nothing(worker: ModuleType) -> None:
    """As each of the second slice of a pod: the first one holds the same state."""
    recipe = worker.recipe_of(worker.Case(name="digest", length=8, layers=1))
    first = initial_state(recipe, worker.VOCABULARY)
    layout = Layout(first, optimizer(recipe), 4)
    held = layout.held(layout.cut(first, NamedSharding(mesh_of(1), P(DATA))))
    said = [
        digesting.packed([part.encode() for part in digesting.hashed(one, layout, tiles)])
        for one, tiles in ((held, "all"), ({}, "all"), ({}, "cut"))
    ]
    assert digesting.manifest_from(digesting.merged(said), layout) == manifest_of(first)


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_packed_items_come_out_as_they_went_in(items: list[bytes]) -> None:
    packed = digesting.packed(items)
    assert digesting.unpacked(packed) == digesting.unpacked(packed + b"\0" * 17) == items  # padding changes nothing


def test_two_processes_put_together_what_each_holds(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The exchange by hand: both ends of it, without the wire."""
    array = np.random.default_rng(1).random((700_001,), np.float32)
    cut = 350_003
    parts = [
        hash_shards("float32", array.shape, [((slice(0, cut),), array[:cut])]),
        hash_shards("float32", array.shape, [((slice(cut, array.size),), array[cut:])]),
    ]
    sent = [[digesting.packed([parcel]) for parcel in part.parcels(2)] for part in parts]
    finished = [merge_shards([digesting.unpacked(sent[source][here])[0] for source in (0, 1)]) for here in (0, 1)]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(digesting, "_exchanged", lambda items: [sent[source][0] for source in (0, 1)])
    monkeypatch.setattr(digesting, "_to_all", lambda item: [item, digesting.packed([finished[1].encode()])])
    (whole,) = digesting._together([parts[0]])
    assert whole.digest() == tensor_digest(array)
