"""The whole state of a training run: what a train step reads and writes, and its digest.

Parameters, optimizer moments, the number of the next train step, the root key and the data cursor: nothing else
influences the next step, so equal digests mean equal futures. A state is identified by its tensors
(``ledger.state_digest``) and never by the files that hold it (:mod:`marin.training.checkpoints`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import jax.random as jrandom
import numpy as np
import optax
from haliax import Axis
from haliax.jax_utils import is_jax_array_like
from jax.sharding import Mesh
from levanter.models.lm_model import LmHeadModel
from levanter.utils.jax_utils import leaf_key_paths

from ledger import StateManifest, TensorInfo, describe_state
from marin.recipe.schema import Recipe, digest
from marin.training.model import model_config
from marin.training.optimizers.rule import optimizer
from marin.training.runtime.parts import adapters

DATA = "data"
"""The axis of a mesh along which the batch and the state are cut."""
REPLICA = "replica"
"""The axis along which the batch is cut and the state is not, where a mesh has one: of several slices of a pod."""
TENSOR = "model"
"""The axis along which the state is cut and the batch is not, where a mesh has one: devices that share the matrices of each
layer, as Levanter calls it."""
EXPERT = "expert"
"""The axis along which the experts of each layer lie apart, where a mesh has one; the batch is cut along it too."""


def batch_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes of a mesh along which a batch is cut."""
    return tuple(name for name in mesh.axis_names if name != TENSOR)


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
    """The axis of a model over tokens."""
    return Axis("vocab", size)


_shapes: dict[tuple[str, int], TrainState] = {}


def state_shape(recipe: Recipe, vocab_size: int) -> TrainState:
    """The initial state with shapes and dtypes instead of values; nothing is computed. That of the newest recipe is kept:
    anyone who lays out, makes or reads a state asks for it."""
    key = (digest(recipe), vocab_size)
    found = _shapes.get(key)
    if found is None:
        found = eqx.filter_eval_shape(initial_state_function(recipe, vocab_size))
        _shapes.clear()
        _shapes[key] = found
    return found


def state_like(recipe: Recipe, vocab_size: int) -> TrainState:
    """The initial state with zeros instead of its values, which take no memory; nothing is computed."""
    return jax.tree.map(
        lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, jax.ShapeDtypeStruct) else x,
        state_shape(recipe, vocab_size),
    )


def initial_state_function(recipe: Recipe, vocab_size: int) -> Callable[[], TrainState]:
    """What makes the initial state, of nothing: to be traced (:mod:`marin.training.initial`)."""
    seed = recipe.seed if recipe.seed is not None else 0

    def make() -> TrainState:
        model = model_config(recipe.model).build(vocabulary(vocab_size), key=named_key(seed, "model"))
        if recipe.lora is not None:
            model = adapters().adapted(recipe.lora, model, named_key(seed, "lora"))
        moments = optimizer(recipe).init(eqx.filter(model, eqx.is_inexact_array))
        return TrainState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), named_key(seed, "train"), model, moments)

    return make


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


def differing(expected: StateManifest, found: StateManifest) -> list[TensorInfo]:
    """Tensors of ``found`` whose digest is not that of ``expected``, in order of execution as far as paths tell."""
    known = {tensor.path: tensor.digest for tensor in expected.tensors}
    return [tensor for tensor in found.tensors if known.get(tensor.path) != tensor.digest]
