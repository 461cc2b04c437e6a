"""States on their way to the store: beside the steps that follow, in parts, and what goes wrong on the way."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Event, get_ident
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import PosixStorage, Sliced, StorageFailed, Store, Tampered, Unavailable
from marin.errors import StepFailed
from marin.training.checkpoints import saving
from marin.training.checkpoints.digesting import describe
from marin.training.checkpoints.loading import load_slices
from marin.training.checkpoints.saving import Saved, Saver
from marin.training.checkpoints.whole import load
from marin.training.initial import initial_slices
from marin.training.optimizers.rule import optimizer
from marin.training.runtime import hosts
from marin.training.state import DATA, leaves, manifest_of, state_like
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout, SlicedState

Made = tuple[Any, Layout, SlicedState, NamedSharding]


@pytest.fixture
def made(worker: ModuleType) -> Made:
    recipe = worker.recipe_of(worker.Case(name="saving", length=8))
    layout, sharding = laid(worker, recipe, 8)
    return recipe, layout, initial_slices(recipe, worker.VOCABULARY, layout, sharding), sharding


def laid(worker: ModuleType, recipe: Any, slices: int) -> tuple[Layout, NamedSharding]:
    layout = Layout(state_like(recipe, worker.VOCABULARY), optimizer(recipe), slices)
    return layout, NamedSharding(mesh_of(1), P(DATA))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


def test_what_was_saved_is_read_back_whole_and_cut_otherwise(
    worker: ModuleType, made: Made, store: Store, tmp_path: Path
) -> None:
    recipe, layout, state, sharding = made
    done: list[Saved] = []
    with Saver(store, layout, tmp_path / "work") as saver:
        saver.save(state, done.append)
        saver.settle(wait=True)
        saver.settle(wait=True)
    (saved,) = done
    digest, tree = saved.manifest.digest, saved.artifact.digest
    assert digest == manifest_of(layout.join(state)).digest
    assert {entry.path for entry in store.manifest(tree)} == {
        "state.json",
        "slices.json",
        *(f"slices/{number:05d}" for number in range(8)),
    }
    store.checkout(tree, tmp_path / "folder")
    whole, _ = load(tmp_path / "folder", recipe, worker.VOCABULARY, digest, where="here")
    assert manifest_of(whole).digest == digest
    for count in (8, 2, 5):
        other, _ = laid(worker, recipe, count)
        for source in ((store, tree), tmp_path / "folder"):
            read, manifest = load_slices(source, other, sharding, recipe, worker.VOCABULARY, digest, where="here")
            assert manifest.digest == digest and manifest_of(other.join(read)).digest == digest


def test_training_goes_on_beside_a_save_and_nothing_is_recorded_before_it_is_there(
    made: Made, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, layout, state, _ = made
    arrived, going = Event(), Event()
    publish = saving.publish_slices

    def slow(*arguments: Any) -> Any:
        going.set()
        assert arrived.wait(600)
        return publish(*arguments)

    monkeypatch.setattr(saving, "publish_slices", slow)
    done: list[Saved] = []
    with Saver(store, layout, tmp_path / "work") as saver:
        saver.save(state, done.append)
        assert going.wait(600)
        changed = jax.tree.map(lambda x: np.zeros_like(x), state.params)  # what the next step does to its arguments
        del changed
        for piece in state.params:
            for array in piece:
                array.delete()
        saver.settle()
        assert done == []
        arrived.set()
        saver.settle(wait=True)
    assert len(done) == 1 and store.verify(done[0].artifact.digest) == []


def test_without_memory_for_a_copy_training_waits(
    made: Made, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, layout, state, _ = made
    monkeypatch.setattr(saving, "free_memory", lambda: 0)
    done: list[Saved] = []
    with Saver(store, layout, tmp_path / "work") as saver:
        saver.save(state, done.append)
        assert len(done) == 1
    assert done[0].manifest == manifest_of(layout.join(state))


def test_a_slice_that_cannot_be_written_is_an_error_and_no_checkpoint(
    made: Made, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, layout, state, _ = made
    put = saving.put_slice

    def failing(store: Store, number: int, *arguments: Any, **how: Any) -> Any:
        if number == 5:
            raise OSError(28, "No space left on device")
        return put(store, number, *arguments, **how)

    monkeypatch.setattr(saving, "put_slice", failing)
    done: list[Saved] = []
    with Saver(store, layout, tmp_path / "work") as saver:
        saver.save(state, done.append)
        with pytest.raises(OSError, match="No space"):
            saver.settle(wait=True)
    assert done == [] and [kind for _, kind in store.digests() if kind == "tree"] == []


@pytest.mark.parametrize("pack", [False, True])
def test_slices_are_written_two_at_a_time_and_packed_one_by_one(
    made: Made, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: bool
) -> None:
    """What a slice is packed to lies in memory, beside the copy of the state that may have half of it."""
    _, layout, state, _ = made
    put, together, threads = saving.put_slice, Barrier(1 if pack else 2, timeout=600), set[int]()

    def seen(*arguments: Any, **how: Any) -> Any:
        threads.add(get_ident())
        together.wait()
        return put(*arguments, **how)

    monkeypatch.setattr(saving, "put_slice", seen)
    done: list[Saved] = []
    with Saver(store, layout, tmp_path / "work", pack=pack) as saver:
        saver.save(state, done.append)
        saver.settle(wait=True)
    assert len(threads) == (1 if pack else 2) and store.verify(done[0].artifact.digest) == []


def test_a_process_that_failed_is_named_and_nothing_is_recorded(
    made: Made, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a checkpoint: the leader hears of three processes, one of which could not write. The four save one after the other,
    the leader last, and what they say is kept here."""
    _, layout, state, _ = made
    words, put, done = dict[str, bytes](), saving.put_slice, list[Saved]()

    def failing(*arguments: Any, **how: Any) -> Any:
        if jax.process_index() == 2:
            raise OSError(28, "No space left on device")
        return put(*arguments, **how)

    monkeypatch.setattr(saving, "put_slice", failing)
    monkeypatch.setattr(hosts, "processes", lambda: 4)
    monkeypatch.setattr(hosts, "say", words.__setitem__)
    monkeypatch.setattr(hosts, "hear", words.__getitem__)
    monkeypatch.setattr(hosts, "forget", lambda name: None)
    monkeypatch.setattr(saving.digesting, "finished", list)  # each has all slices here: no tile is cut between two
    for number in (1, 2, 3, 0):
        monkeypatch.setattr(jax, "process_index", lambda number=number: number)
        with Saver(store, layout, tmp_path / str(number)) as saver:
            saver.save(state, done.append)
            if number == 0:
                with pytest.raises(StepFailed, match=r"process 2: OSError: .*No space.*found 3 of 4"):
                    saver.settle(wait=True)
    assert sorted(words) == [f"save/1/{number}" for number in (1, 2, 3)], "no process hears that it was recorded"
    assert done == [] and [kind for _, kind in store.digests() if kind == "tree"] == []


def test_a_damaged_slice_is_refused_when_it_is_read(
    worker: ModuleType, made: Made, store: Store, tmp_path: Path
) -> None:
    recipe, layout, state, sharding = made
    done: list[Saved] = []
    with Saver(store, layout, tmp_path / "work") as saver:
        saver.save(state, done.append)
        saver.settle(wait=True)
    store.checkout(done[0].artifact.digest, tmp_path / "folder", how="copy")
    path = tmp_path / "folder" / "slices" / "00003"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    digest = done[0].manifest.digest
    with pytest.raises(Tampered, match="holds another state"):
        load_slices(tmp_path / "folder", layout, sharding, recipe, worker.VOCABULARY, digest, where="here")
    path.write_bytes(data[:-4])
    with pytest.raises(Tampered, match=r"can not be read.*slices/00003"):
        load_slices(tmp_path / "folder", layout, sharding, recipe, worker.VOCABULARY, digest, where="here")


@pytest.mark.parametrize(
    ("met", "said"),
    [
        (StorageFailed("could not read", found="server error 503"), StorageFailed),
        (Unavailable("no network"), Unavailable),
        (OSError(5, "Input/output error"), StorageFailed),
        (OSError(24, "Too many open files"), StorageFailed),
        (FileNotFoundError(2, "No such file or directory"), Tampered),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), jax.errors.JaxRuntimeError),
        (RuntimeError("can't start new thread"), RuntimeError),
        (MemoryError(), MemoryError),
    ],
    ids=["storage", "network", "disk", "descriptors", "gone", "device", "threads", "memory"],
)
def test_what_cannot_be_read_now_is_no_other_state(
    worker: ModuleType,
    made: Made,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    met: Exception,
    said: type[Exception],
) -> None:
    """Anyone who verifies has a failing disk, or a device without memory: that accuses nobody."""
    recipe, layout, state, sharding = made
    done: list[Saved] = []
    with Saver(store, layout, tmp_path / "work") as saver:
        saver.save(state, done.append)
        saver.settle(wait=True)
    store.checkout(done[0].artifact.digest, tmp_path / "folder")
    fill = Sliced.fill

    def failing(sliced: Sliced, path: str, start: int, into: np.ndarray) -> None:
        if path == layout.names[-1]:
            raise met
        fill(sliced, path, start, into)

    monkeypatch.setattr(Sliced, "fill", failing)
    digest = done[0].manifest.digest
    for source in ((store, done[0].artifact.digest), tmp_path / "folder"):
        with pytest.raises(said) as caught:
            load_slices(source, layout, sharding, recipe, worker.VOCABULARY, digest, where="here")
        assert type(caught.value) is said
    with pytest.raises(said):
        load(tmp_path / "folder", recipe, worker.VOCABULARY, digest, where="here")


def test_a_number_that_every_slice_has_is_read_once(worker: ModuleType, made: Made) -> None:
    """The digest of a state is that of the first slice's copy: another one must not lie in the slices behind it."""
    _, layout, state, sharding = made
    whole = {name: np.asarray(value).reshape(-1) for name, value in leaves(layout.join(state))}
    asked: list[str] = []

    def fill(name: str, start: int, into: np.ndarray) -> None:
        asked.append(name)
        into[:] = whole[name][start : start + len(into)] + (asked.count(name) > 1 and not layout.kinds[name][1])

    placed = layout.place(fill, sharding)
    scalars = [number for number, like in enumerate(layout.moments) if not like.shape]
    assert scalars and all(np.all(np.asarray(piece[one]) == 0) for piece in placed.moments for one in scalars)
    assert describe(placed, layout) == describe(state, layout)
