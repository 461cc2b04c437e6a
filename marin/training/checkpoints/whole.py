"""A training checkpoint read back as a whole, and proven: its tensors have the digest that was recorded, or it is refused.

Three forms exist. A state in slices (``ledger.Sliced``) is what is written; earlier versions wrote Levanter's own files, or a
file for each tensor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import levanter.checkpoint
import numpy as np
from haliax.jax_utils import is_jax_array_like
from levanter.models.lm_model import LmHeadModel

from ledger import LedgerError, NotFound, Sliced, StateManifest, StorageFailed, Tampered, Unavailable, read_state
from marin.execution.step import Task
from marin.recipe.schema import Recipe
from marin.training.model import vocabulary_size
from marin.training.state import TrainState, leaves, manifest_of, state_shape

# Levanter warns of every None that equinox leaves where a module has no tensor: hundreds of lines that mean nothing.
logging.getLogger("levanter.tensorstore_serialization").setLevel(logging.ERROR)


def load(
    folder: Path, recipe: Recipe, vocab_size: int, expected: str, *, where: str
) -> tuple[TrainState, StateManifest]:
    """The whole state of a checkpoint that lies in a folder, in any form, on this process's first device.

    Raises:
        Tampered: files are damaged, or the tensors are not those that were recorded (those of another recipe, say).
    """
    shape = state_shape(recipe, vocab_size)

    def read() -> TrainState:
        if Sliced.is_in(folder):
            return _sliced(Sliced.of_folder(folder), shape)
        if (folder / "tensors").is_dir():
            return _whole(read_state(folder), shape)
        return _restored(folder, shape)

    state = readable(read, expected, where)
    return state, proven(manifest_of(state), expected, where)


def restore(task: Task) -> tuple[LmHeadModel, str]:
    """The trained model of the ``train`` input, with its adapters where it has some, proven against its manifest; and the digest
    of its state."""
    folder = task.inputs["train"]
    expected = StateManifest.parse((folder / "state.json").read_bytes()).digest
    vocab = vocabulary_size(task.inputs["tokenizer"], task.recipe.model)
    state, _ = load(folder / "checkpoint", task.recipe, vocab, expected, where="output of step train")
    return state.model, expected


def readable[T](read: Callable[[], T], expected: str, where: str) -> T:
    """What ``read`` gives; ``Tampered`` where it can not.

    Raises:
        NotFound, Unavailable, StorageFailed: bytes are not here, or cannot be had now: which says nothing of what they are.
        RuntimeError, MemoryError: this machine could not: it has no room for another thread, or a device did not take it.
    """
    try:
        return read()
    except (NotFound, Unavailable, StorageFailed):
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
            raise _unreadable(error, expected, where) from error
        raise StorageFailed(
            "training checkpoint could not be read",
            where=f"{where}: {error.filename}" if error.filename else where,
            found=error.strerror or str(error),
            cure="nothing is known of its bytes: check the disk, then repeat",
        ) from error
    except (LedgerError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(error, expected, where) from error


def _unreadable(error: Exception, expected: str, where: str) -> Tampered:
    return Tampered(
        "training checkpoint can not be read as a state of this recipe",
        where=where,
        expected=expected,
        found=" ".join(str(error).split())[:200],
        cure="fetch the checkpoint again, or use the recipe that it was saved under",
    )


def proven(manifest: StateManifest, expected: str, where: str) -> StateManifest:
    """``manifest``, if it is that of the recorded state; ``Tampered`` where it is not."""
    if manifest.digest != expected:
        raise Tampered(
            "training checkpoint holds another state",
            where=where,
            expected=expected,
            found=manifest.digest,
            cure="fetch the checkpoint again, or resume from an earlier one",
        )
    return manifest


def _restored(folder: Path, shape: TrainState) -> TrainState:
    """What Levanter's writer left in a folder."""
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    exemplar = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device) if isinstance(x, jax.ShapeDtypeStruct) else x,
        shape,
    )
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]), ("data",))
    try:
        restored: TrainState = levanter.checkpoint.load_checkpoint(exemplar, str(folder), axis_mapping={}, mesh=mesh)
    except jax.errors.JaxRuntimeError:
        raise
    except RuntimeError as error:  # its storage driver says so of bytes that it cannot read
        raise ValueError(str(error)) from error
    return restored


def _sliced(there: Sliced, shape: TrainState) -> TrainState:
    """A state in slices, as a whole."""
    names = {name for name, _ in leaves(shape)}
    if odd := sorted(names ^ {tensor.path for tensor in there.state.tensors}):
        raise ValueError(f"tensors that the state has not, or lacks: {', '.join(odd[:8])}")
    return _whole({name: there.whole(name) for name in names}, shape)


def _whole(found: dict[str, np.ndarray], shape: TrainState) -> TrainState:
    """The state of these arrays, by path."""
    arrays, rest = eqx.partition(shape, is_jax_array_like)
    structure = jax.tree.structure(arrays)
    values = []
    for path, expected in leaves(shape):
        value = found.pop(path)
        if value.shape != expected.shape or value.dtype != expected.dtype:
            raise ValueError(f"{path} is {value.dtype}{list(value.shape)}, not {expected.dtype}{list(expected.shape)}")
        values.append(jax.device_put(value, jax.local_devices()[0]))
    if found:
        raise ValueError(f"tensors that the state has not: {', '.join(sorted(found))}")
    whole: TrainState = eqx.combine(jax.tree.unflatten(structure, values), rest)
    return whole
