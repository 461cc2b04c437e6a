"""The whole state of a training run: what a train step reads and writes, its digest, and how it is saved.

Parameters, optimizer moments, the number of the next train step, the root key and the data cursor: nothing else
influences the next step, so equal digests mean equal futures. The state is saved by Levanter's own checkpoint writer
(TensorStore, zarr3 in OCDBT), whose files differ between identical states; therefore a state is identified by its
tensors (``ledger.state_digest``) and never by its folder.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import jax.random as jrandom
import levanter.checkpoint
import numpy as np
import optax
from haliax import Axis
from haliax.jax_utils import is_jax_array_like
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager
from levanter.models.lm_model import LmHeadModel
from levanter.utils.jax_utils import leaf_key_paths

from ledger import LedgerError, StateManifest, Tampered, TensorInfo, describe_state, read_state
from marin.exact.compiled import Exact, exact
from marin.execution.step import Task
from marin.recipe.schema import Recipe
from marin.training.model import model_config, optimizer, vocabulary_size

# Levanter warns of every None that equinox leaves where a module has no tensor: hundreds of lines that mean nothing.
logging.getLogger("levanter.tensorstore_serialization").setLevel(logging.ERROR)


DATA = "data"
"""The axis of a mesh along which the batch and the state are cut."""
QUICKLY = {"xla_backend_optimization_level": 1}
"""How the exact program of the initial state is compiled: it is executed once, takes half the time to compile so, and has
the same bits however it is compiled."""


class TrainState(eqx.Module):
    """State before train step ``step`` (int32 scalar). ``cursor``: sequences consumed (uint32). ``key``: uint32[2],
    the raw threefry key of the run. ``model`` and ``moments`` are float32 but for the optimizer's counters."""

    step: jax.Array
    cursor: jax.Array
    key: jax.Array
    model: LmHeadModel
    moments: optax.OptState


def named_key(seed: int, name: str) -> jax.Array:
    """The key of one purpose, derived from the root seed by name: threefry folded over sha256 of the name, so that a
    new purpose never shifts the keys of the others. ``seed`` may have 63 bits; both halves are folded in."""
    key = jrandom.fold_in(jrandom.PRNGKey(seed & 0xFFFFFFFF), seed >> 32)
    words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype="<u4")
    for word in words:
        key = jrandom.fold_in(key, int(word))
    return key


def vocabulary(size: int) -> Axis:
    return Axis("vocab", size)


def initial_state(recipe: Recipe, vocab_size: int) -> TrainState:
    """The state before the first step, as one compiled program on one device (the same for every device count)."""
    if recipe.arithmetic.profile == "exact":
        rest = eqx.filter(state_shape(recipe, vocab_size), is_jax_array_like, inverse=True)
        quickly = exact_initializer(recipe, vocab_size).jitted(compiler_options=QUICKLY)
        state: TrainState = eqx.combine(quickly(), rest)
        return state
    return _initializer(recipe, vocab_size)()


def initial_program(recipe: Recipe, vocab_size: int) -> str:
    """Digest of the program that makes the initial state: sha256 of its StableHLO, or that of the exact program."""
    if recipe.arithmetic.profile == "exact":
        return exact_initializer(recipe, vocab_size).program.digest
    arrays = jax.jit(lambda: eqx.filter(_make(recipe, vocab_size)(), is_jax_array_like))
    return "sha256:" + hashlib.sha256(arrays.lower().as_text().encode()).hexdigest()


def state_shape(recipe: Recipe, vocab_size: int) -> TrainState:
    """The initial state with shapes and dtypes instead of values; nothing is computed."""
    return eqx.filter_eval_shape(_make(recipe, vocab_size))


def state_like(recipe: Recipe, vocab_size: int) -> TrainState:
    """The initial state with zeros instead of its values, which take no memory; nothing is computed."""
    return jax.tree.map(
        lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, jax.ShapeDtypeStruct) else x,
        state_shape(recipe, vocab_size),
    )


def _make(recipe: Recipe, vocab_size: int) -> Callable[[], TrainState]:
    seed = recipe.seed if recipe.seed is not None else 0

    def make() -> TrainState:
        model = model_config(recipe.model).build(vocabulary(vocab_size), key=named_key(seed, "model"))
        moments = optimizer(recipe).init(eqx.filter(model, eqx.is_inexact_array))
        return TrainState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), named_key(seed, "train"), model, moments)

    return make


def _initializer(recipe: Recipe, vocab_size: int) -> Callable[[], TrainState]:
    return eqx.filter_jit(_make(recipe, vocab_size))


def exact_initializer(recipe: Recipe, vocab_size: int) -> Exact:
    """What makes the initial state under profile ``exact``: of nothing, its tensors in the order of :func:`leaves`."""
    return exact(lambda: eqx.filter(_make(recipe, vocab_size)(), is_jax_array_like))


def leaves(state: TrainState) -> Iterator[tuple[str, jax.Array]]:
    """The state's tensors with their paths (``model/transformer/layers/...``), in the tree's order: parameters in
    order of execution, then the optimizer's."""
    arrays = eqx.filter(state, is_jax_array_like)
    plain = jax.tree.map(
        lambda x: x.array if isinstance(x, hax.NamedArray) else x,
        arrays,
        is_leaf=lambda x: isinstance(x, hax.NamedArray),
    )
    paths = leaf_key_paths(arrays, is_leaf=lambda x: isinstance(x, hax.NamedArray))
    names = jax.tree.leaves(paths, is_leaf=lambda x: isinstance(x, str))
    values = jax.tree.leaves(plain)
    assert len(names) == len(values), "every tensor has a path"
    for name, value in zip(names, values, strict=True):
        yield name.replace(".", "/"), value


def local(array: jax.Array) -> np.ndarray:
    """The bytes of a replicated array from this process's first device, on the host."""
    return np.asarray(array.addressable_data(0)) if isinstance(array, jax.Array) else np.asarray(array)


def manifest_of(state: TrainState) -> StateManifest:
    """Digest of every tensor of ``state`` (sha256 over fixed tiles), and of the whole."""
    return describe_state(arrays_of(state))


def arrays_of(state: TrainState) -> dict[str, np.ndarray]:
    """The state's tensors by path, on the host."""
    return {path: local(value) for path, value in leaves(state)}


def save(state: TrainState, folder: Path) -> None:
    """Write ``state`` with Levanter's checkpoint writer and wait until it is complete. ``folder`` must not exist.

    All processes that train as one must call this; host arrays are written by process 0 alone."""
    manager = GlobalAsyncCheckpointManager()
    host = jax.tree.map(lambda x: local(x) if is_jax_array_like(x) else x, state)
    levanter.checkpoint.save_checkpoint(host, int(local(state.step)), str(folder), manager, is_temporary=False)
    manager.wait_until_finished()


def load(
    folder: Path, recipe: Recipe, vocab_size: int, expected: str, *, where: str
) -> tuple[TrainState, StateManifest]:
    """Read a checkpoint back and prove it: its tensors must have the digest ``expected``.

    Raises:
        Tampered: files are damaged, or the tensors are not those that were recorded (those of another recipe, say).
    """
    shape = state_shape(recipe, vocab_size)
    try:
        packed = (folder / "tensors").is_dir() and (folder / "state.json").is_file()
        state = _unpacked(folder, shape) if packed else _restored(folder, shape)
    except (
        LedgerError,
        ValueError,
        KeyError,
        TypeError,
        OSError,
        RuntimeError,
    ) as error:  # whatever a storage driver meets
        raise Tampered(
            "training checkpoint can not be read as a state of this recipe",
            where=where,
            expected=expected,
            found=" ".join(str(error).split())[:200],
            cure="fetch the checkpoint again, or use the recipe that it was saved under",
        ) from error
    manifest = manifest_of(state)
    if manifest.digest != expected:
        raise Tampered(
            "training checkpoint holds another state",
            where=where,
            expected=expected,
            found=manifest.digest,
            cure="fetch the checkpoint again, or resume from an earlier one",
        )
    return state, manifest


def _restored(folder: Path, shape: TrainState) -> TrainState:
    """What Levanter's writer left in a folder."""
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    exemplar = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device) if isinstance(x, jax.ShapeDtypeStruct) else x,
        shape,
    )
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]), ("data",))
    restored: TrainState = levanter.checkpoint.load_checkpoint(exemplar, str(folder), axis_mapping={}, mesh=mesh)
    return restored


def _unpacked(folder: Path, shape: TrainState) -> TrainState:
    """What `ledger.put_state` kept of a state, checked out to a folder."""
    arrays, rest = eqx.partition(shape, is_jax_array_like)
    structure = jax.tree.structure(arrays)
    found = read_state(folder)
    values = []
    for path, expected in leaves(shape):
        value = found.pop(path)
        if value.shape != expected.shape or value.dtype != expected.dtype:
            raise ValueError(f"{path} is {value.dtype}{list(value.shape)}, not {expected.dtype}{list(expected.shape)}")
        values.append(jax.device_put(value, jax.local_devices()[0]))
    if found:
        raise ValueError(f"tensors that the state has not: {', '.join(sorted(found))}")
    unpacked: TrainState = eqx.combine(jax.tree.unflatten(structure, values), rest)
    return unpacked


def differing(expected: StateManifest, found: StateManifest) -> list[TensorInfo]:
    """Tensors of ``found`` whose digest is not that of ``expected``, in order of execution as far as paths tell."""
    known = {tensor.path: tensor.digest for tensor in expected.tensors}
    return [tensor for tensor in found.tensors if known.get(tensor.path) != tensor.digest]


def restore(task: Task) -> tuple[LmHeadModel, str]:
    """The trained model of the ``train`` input, proven against its manifest, and the digest of its state."""
    folder = task.inputs["train"]
    expected = StateManifest.parse((folder / "state.json").read_bytes()).digest
    vocab = vocabulary_size(task.inputs["tokenizer"])
    state, _ = load(folder / "checkpoint", task.recipe, vocab, expected, where="output of step train")
    return state.model, expected
