"""A training checkpoint read back onto devices: every process the slices of its own, however many devices there are and
however the state is cut there; proven as it lies there.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from jax.sharding import NamedSharding

from ledger import Sliced, StateManifest, Store
from marin.recipe.schema import Recipe
from marin.training.checkpoints.digesting import describe
from marin.training.checkpoints.whole import load, proven, readable
from marin.training.step.slices import AT_ONCE, Layout, SlicedState


def load_slices(
    source: Path | tuple[Store, str],
    layout: Layout,
    sharding: NamedSharding,
    recipe: Recipe,
    vocab_size: int,
    expected: str,
    *,
    where: str,
) -> tuple[SlicedState, StateManifest]:
    """The state of a checkpoint on the mesh of ``sharding``, cut as ``layout`` says: a folder, or a tree in a store.

    A state in slices is read by each process as far as its devices hold it, with memory for that alone; the older forms are
    read as a whole first. All processes that train as one must call this.

    Raises:
        Tampered: as :func:`marin.training.checkpoints.whole.load`.
        NotFound, Unavailable, StorageFailed: the tree, or a file of it, is not in the store or cannot be had now.
    """
    if not isinstance(source, Path) and not Sliced.is_stored(*source):
        with TemporaryDirectory(prefix="marin-checkpoint-") as base:
            folder = Path(base) / "checkpoint"
            source[0].checkout(source[1], folder)
            return load_slices(folder, layout, sharding, recipe, vocab_size, expected, where=where)
    if isinstance(source, Path) and not Sliced.is_in(source):
        state, manifest = load(source, recipe, vocab_size, expected, where=where)
        return layout.cut(state, sharding), manifest

    def opened() -> Sliced:
        return Sliced.of_folder(source) if isinstance(source, Path) else Sliced.of_store(*source)

    there = readable(opened, expected, where)

    def placed() -> SlicedState:
        found = {tensor.path: (tensor.dtype, tensor.shape) for tensor in there.state.tensors}
        if found != layout.kinds:
            odd = sorted(
                path for path in found.keys() | layout.kinds.keys() if found.get(path) != layout.kinds.get(path)
            )
            raise ValueError(f"{odd[0]} is {found.get(odd[0])}, not {layout.kinds.get(odd[0])}")
        return layout.place(there.fill, sharding, at_once=AT_ONCE)

    sliced = readable(placed, expected, where)
    return sliced, proven(describe(sliced, layout), expected, where)
