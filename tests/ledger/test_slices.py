"""States in slices: any cut gives the same numbers back, any range is read alone, and what is wrong is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import (
    LedgerError,
    Malformed,
    NotFound,
    PosixStorage,
    Refused,
    Sliced,
    SlicedForm,
    StateManifest,
    Store,
    describe_state,
    load_slices,
    publish_slices,
    put_slice,
    put_slices,
)
from ledger.store.parts import PART_SIZE
from ledger.tensors.slices import slice_bytes
from tests.ledger.memory import MemoryStorage

RANDOM = np.random.default_rng(17)
STATE = {
    "layers/w": RANDOM.random((4, 6, 11), np.float32),
    "head": RANDOM.random((5, 3), np.float32),
    "large": RANDOM.random((3, 900_001), np.float32),
    "step": np.int32(7),
    "key": np.array([1, 2], np.uint32),
    "none": np.zeros((0, 3), np.float32),
}
LEADS = {"layers/w": 4, "large": 3}


@given(slices=st.integers(1, 40), leads=st.sampled_from([{}, LEADS]), data=st.data())
@settings(max_examples=30)
def test_a_state_comes_back_whole_and_in_parts(slices: int, leads: dict[str, int], data: st.DataObject) -> None:
    store = Store(MemoryStorage())
    tree = put_slices(store, STATE, slices, leads).digest
    assert describe_state(load_slices(store, tree)) == describe_state(STATE)
    there = Sliced.of_store(store, tree)
    assert there.form == SlicedForm(slices, leads)
    path = data.draw(st.sampled_from(sorted(STATE)))
    flat = np.asarray(STATE[path]).reshape(-1)
    start = data.draw(st.integers(0, flat.size))
    stop = data.draw(st.integers(start, flat.size))
    assert there.part(path, start, stop).tobytes() == flat[start:stop].tobytes()
    assert there.described() == there.state


def test_a_tensor_is_read_into_its_place_a_part_at_a_time() -> None:
    """The parts are those that a store verifies, so none is read twice and no second copy of a tensor is held."""
    store = Store(MemoryStorage())
    there = Sliced.of_store(store, put_slices(store, STATE, 1, LEADS).digest)
    asked: list[tuple[int, int]] = []

    def read(path: str, start: int, length: int) -> bytes:
        if path == "slices/00000":
            asked.append((start, start + length))
        return there.read(path, start, length)

    found = np.empty(2_700_003, np.float32)
    Sliced(there.state, there.form, read).fill("large", 0, found)
    assert found.tobytes() == STATE["large"].tobytes()
    asked.sort()
    assert [stop for _, stop in asked[:-1]] == [start for start, _ in asked[1:]]
    assert all(stop <= (start // PART_SIZE + 1) * PART_SIZE + 3 for start, stop in asked)  # 3: the rest of an element
    assert len(asked) > len(LEADS)
    with pytest.raises(Malformed, match=r"array for a tensor: large: expected float32, found float64"):
        there.fill("large", 0, np.empty(3))


def test_equal_states_cut_alike_are_equal_files_and_those_cut_otherwise_one_state() -> None:
    store = Store(MemoryStorage())
    one, again, other = (put_slices(store, STATE, n, LEADS).digest for n in (8, 8, 2))
    assert one == again != other
    assert Sliced.of_store(store, one).state.digest == Sliced.of_store(store, other).state.digest


def test_slices_of_several_writers_are_one_tree_or_none(tmp_path: Path) -> None:
    """As hosts save: each puts its own; the tree appears when all of them are there, and only then."""
    state, form = describe_state(STATE), SlicedForm(4, LEADS)
    values = {path: np.asarray(array) for path, array in STATE.items()}
    entries = []
    for number in range(4):
        mine = Store(PosixStorage(tmp_path))
        entries.append(put_slice(mine, number, memoryview(slice_bytes(state, form, values, number))))
    store = Store(PosixStorage(tmp_path))
    for some in (entries[:3], [*entries[:3], entries[2]]):
        with pytest.raises(Refused, match="not complete"):
            publish_slices(store, state, form, some)
    tree = publish_slices(store, state, form, entries).digest
    assert tree == put_slices(store, STATE, 4, LEADS).digest
    lost = store.storage.local_path("store") / "blobs" / "sha256"  # type: ignore[operator]
    digest = entries[1].digest.removeprefix("sha256:")
    (path,) = [found for found in lost.rglob("*") if found.is_file() and digest.endswith(found.name)]
    path.unlink()
    with pytest.raises(NotFound, match="slices/00001"):
        publish_slices(Store(PosixStorage(tmp_path)), state, form, entries)


def test_what_a_folder_holds_is_not_believed(tmp_path: Path) -> None:
    store = Store(MemoryStorage())
    folder = tmp_path / "state"
    store.checkout(put_slices(store, STATE, 3, LEADS).digest, folder, how="copy")
    assert Sliced.of_folder(folder).described() == describe_state(STATE)
    slices = folder / "slices" / "00001"
    slices.chmod(0o644)
    whole = slices.read_bytes()
    slices.write_bytes(whole[:-1])
    with pytest.raises(LedgerError, match="slices/00001"):
        Sliced.of_folder(folder)
    slices.write_bytes(whole[:9] + bytes([whole[9] ^ 1]) + whole[10:])
    assert len(Sliced.of_folder(folder).state.differing(Sliced.of_folder(folder).described())) == 1
    slices.write_bytes(whole)
    form = folder / "slices.json"
    form.chmod(0o644)
    text = json.loads(form.read_bytes())
    for change in (
        {"slices": 2},
        {"slices": 0},
        {"slices": 10**9},
        {"leads": {"head": 2}},
        {"leads": {"head": 1}},
        {"leads": {"head": "5"}},
        {"leads": []},
        {"version": 2},
        {"more": 1},
    ):
        form.write_text(json.dumps(text | change, sort_keys=True, separators=(",", ":")))
        with pytest.raises((LedgerError, OSError)):
            Sliced.of_folder(folder)


def test_a_manifest_of_other_tensors_is_no_description_of_these(tmp_path: Path) -> None:
    """A list that claims other digests over the same files is seen by anyone who hashes."""
    store = Store(MemoryStorage())
    other = {**STATE, "head": STATE["head"] + 1}
    tree = store.manifest(put_slices(store, STATE, 3).digest)
    lying = store.put_bytes(describe_state(other).encode())
    entries = {entry.path: entry for entry in tree} | {
        "state.json": type(tree.entry("state.json"))("state.json", lying.size, lying.digest)
    }
    forged = store.put_manifest(type(tree).of(entries.values())).digest
    with pytest.raises(LedgerError, match=r"not the one that its state names.*head"):
        load_slices(store, forged)
    assert isinstance(Sliced.of_store(store, forged).described(), StateManifest)


def test_a_form_speaks_of_its_tensors_alone() -> None:
    """A name that is no tensor's would be room for words that nobody judges."""
    store = Store(MemoryStorage())
    tree = store.manifest(put_slices(store, STATE, 3).digest)
    form = store.put_bytes(SlicedForm(3, {"accuracy is 0.91": 2}).encode())
    entries = {entry.path: entry for entry in tree} | {
        "slices.json": type(tree.entry("slices.json"))("slices.json", form.size, form.digest)
    }
    forged = store.put_manifest(type(tree).of(entries.values())).digest
    with pytest.raises(LedgerError, match=r"leads.*accuracy is 0.91"):
        Sliced.of_store(store, forged)
