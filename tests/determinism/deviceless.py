"""The exact gradient compiled for a TPU that is not here: libtpu compiles for any slice on a machine without one.

    MARIN_LIBTPU=FOLDER python tests/determinism/deviceless.py TOPOLOGY PRODUCTS...

FOLDER holds libtpu as docker/requirements-tpu.lock names it. Prints one JSON object a way of multiplying: seconds, bytes of
temporary memory, and the products that the program leaves without a guard.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace

os.environ |= {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
sys.path.append(os.environ["MARIN_LIBTPU"])

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from marin.plugins.exact.guarded import unguarded
from marin.plugins.exact.step import gradient_of
from marin.recipe.schema import Arithmetic, Model, Recipe, Trainer
from marin.training.optimizers.rule import optimizer
from marin.training.state import state_like
from marin.training.step.slices import Layout

RECIPE = Recipe(
    model=Model(hidden_dim=32, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=16),
    trainer=Trainer(batch_size=4, num_steps=4, steps_per_segment=2),
    arithmetic=Arithmetic(
        profile="exact", logical_shards=1, microbatch_size=2, reduction="integer", isa="any", xla_flags=()
    ),
)
VOCABULARY = 64


def main(topology: str, *ways: str) -> None:
    layout = Layout(state_like(RECIPE, VOCABULARY), optimizer(RECIPE), 1)
    one = SingleDeviceSharding(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0])
    shape = (RECIPE.trainer.batch_size, RECIPE.model.seq_len)
    given = (layout.named, jax.ShapeDtypeStruct(shape, jnp.int32), jax.ShapeDtypeStruct(shape, jnp.float32))
    placed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one), given)
    z = jax.ShapeDtypeStruct((), jnp.float32, sharding=one)
    gradient = gradient_of(RECIPE, layout)
    for way in ways:
        began = time.monotonic()
        with jax.enable_x64(True):
            compiled = jax.jit(replace(gradient, products=way).__call__).lower(z, *placed).compile()
        told = {
            "products": way,
            "seconds": round(time.monotonic() - began, 1),
            "temporary": compiled.memory_analysis().temp_size_in_bytes,
            "unguarded": unguarded(compiled.as_text()),
        }
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
