"""The exact gradient of a small model on eight virtual devices, in whatever way Levanter's own axis mappings lay it.

    shardings.py        a JSON line for each way: its name, the digest of what came out, and how many tensors that went in
                        lay in parts; the first line is the reference's, in NumPy and whole numbers

Under each way parameters, gradients and batch lie as ``levanter.utils.mesh.MeshConfig`` says; how the tensors between them
lie is left to GSPMD.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}

import haliax as hax  # jax begins with these variables
import jax
import numpy as np
from haliax.partitioning import ResourceMapping, pspec_for
from jax.sharding import AxisType, Mesh, NamedSharding
from levanter.utils.mesh import MeshConfig, create_mesh_from_axis_specs

from marin.plugins.exact import reference
from marin.plugins.exact.guarded import MINUS_ZERO
from marin.plugins.exact.step import gradient_of
from marin.recipe.schema import Arithmetic, Model, Recipe, Trainer
from marin.training.initial import initial_state
from marin.training.optimizers.rule import optimizer
from marin.training.state import arrays_of
from marin.training.step.slices import Layout, without_axis_names

DEVICES = 8
VOCABULARY = 64
RECIPE = Recipe(
    seed=5,
    model=Model(hidden_dim=32, intermediate_dim=64, num_layers=2, num_heads=8, num_kv_heads=8, seq_len=16),
    trainer=Trainer(batch_size=8, num_steps=4, steps_per_segment=2),
    arithmetic=Arithmetic(
        profile="exact", logical_shards=1, microbatch_size=8, reduction="integer", isa="any", xla_flags=()
    ),
)
WAYS: Mapping[str, MeshConfig] = {
    "data parallel": MeshConfig(param_mapping={}),
    "FSDP, as Levanter comes": MeshConfig(),
    "tensor parallel": MeshConfig(axes={"model": 8}, param_mapping={}),
    "FSDP and tensor parallel": MeshConfig(axes={"model": 2}),
    "vocabulary in parts": MeshConfig(axes={"model": 4}, shared_mapping={"vocab": "model"}),
    "positions in parts": MeshConfig(axes={"model": 4}, compute_mapping={"position": "model"}),
    "layers and positions of attention in parts": MeshConfig(
        axes={"model": 2},
        param_mapping={"layer": "model", "head_size": "data"},
        shared_mapping={"heads": "replica", "mlp": "replica"},
    ),
}


def digest(outputs: Sequence[Any]) -> str:
    """sha256 over the bytes of all of them."""
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in outputs)).hexdigest()


def say(way: str, outputs: Sequence[Any], parts: int) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps({"way": way, "digest": digest(outputs), "parts": parts}) + "\n")
    sys.stdout.flush()


def laid(tree: Any, mapping: ResourceMapping, mesh: Mesh) -> Any:
    """The sharding of each named array, by the names of its axes."""
    specs = pspec_for(tree, mapping)
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda x: isinstance(x, jax.P))


def main() -> None:
    """See the file's docstring."""
    first = initial_state(RECIPE, VOCABULARY)
    layout = Layout(first, optimizer(RECIPE), 1)
    generator = np.random.default_rng(7)
    shape = (RECIPE.trainer.batch_size, RECIPE.model.seq_len)
    tokens = generator.integers(0, VOCABULARY, shape, dtype=np.int32)
    weights = (generator.random(shape) < 0.7).astype(np.float32)
    own = [np.asarray(x) for x in arrays_of(first).values()][3:][: len(layout.params)]
    made = gradient_of(RECIPE, layout)
    say("the reference", reference.run(made.program, [*own, tokens, weights]), 0)
    params = jax.tree.unflatten(jax.tree.structure(layout.named), own)
    for way, config in WAYS.items():
        axes, _ = config.axis_shapes(DEVICES, 1)
        mesh = create_mesh_from_axis_specs(ici_axes=axes, dcn_axes={"replica_dcn": 1}, axis_types=(AxisType.Auto,) * 4)

        by_param = laid(params, config.resolved_param_mapping, mesh)
        named = hax.named(tokens, (hax.Axis("batch", shape[0]), hax.Axis("position", shape[1])))
        (by_batch,) = jax.tree.leaves(laid(named, config.resolved_compute_mapping, mesh))
        placed = jax.device_put(params, by_param)
        given = jax.device_put(tokens, by_batch), jax.device_put(weights, by_batch)
        grads = tuple(jax.tree.leaves(by_param))
        whole = NamedSharding(mesh, jax.P())
        with jax.enable_x64(True):
            compute_it = jax.jit(made.__call__, out_shardings=(grads, whole, whole, whole))
            found = jax.tree.leaves(compute_it(MINUS_ZERO, placed, *given))
        parts = [not x.sharding.is_fully_replicated for x in (*jax.tree.leaves(without_axis_names(placed)), *given)]
        say(way, found, sum(parts))


if __name__ == "__main__":
    main()
