"""The same model as Levanter's own trainer would shard it: parameters over their embedding axis, the batch over all chips, one
program for the whole step. What a step of ours costs is set beside it.

It has the recipe's sizes, optimizer, precision, attention and rematerialisation; its loss is Levanter's, in Levanter's own
blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import jmp
import levanter.kernels.pallas.fused_cross_entropy_loss.tuned_block_sizes as tuned
import numpy as np
import optax
from haliax import Axis, NamedArray
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from levanter.layers.attention import AttentionBackend, AttentionMask
from levanter.models.lm_model import LmExample

from marin.recipe.schema import Recipe
from marin.training.model import model_config
from marin.training.optimizers.rule import optimizer
from marin.training.state import vocabulary

PARAMETERS = {"embed": "data"}
COMPUTE = {"batch": ("replica", "data")}
"""Levanter's axis mappings of a fully sharded training (``TrainerConfig``)."""


def lowered(recipe: Recipe, devices: Sequence[Any], vocab_size: int) -> jax.stages.Lowered:
    """The whole train step, lowered for these devices."""
    kind = str(devices[0].device_kind)
    tuned._normalized_device_kind = lambda given=None: (given or kind).lower()  # it asks the devices that are here
    mesh = Mesh(np.array(list(devices)).reshape(1, -1, 1), ("replica", "data", "model"))
    attention = AttentionBackend.SPLASH if recipe.arithmetic.attention == "splash" else AttentionBackend.VANILLA
    config: Any = dataclasses.replace(model_config(recipe.model), attn_backend=attention, gradient_checkpointing=True)
    if recipe.arithmetic.attention == "splash":
        config = dataclasses.replace(config, flash_attention_block_size=recipe.arithmetic.attention_block)
    precision = jmp.get_policy(f"p=f32,c={recipe.arithmetic.compute_dtype}")
    chain = optax.chain(optax.clip_by_global_norm(recipe.optimizer.max_grad_norm), optimizer(recipe))
    Batch, Pos = Axis("batch", recipe.trainer.batch_size), Axis("position", recipe.model.seq_len)

    def placed(tree: Any) -> Any:
        def one(x: Any) -> Any:
            named = isinstance(x, NamedArray)
            spec = hax.partitioning.pspec_for_axis(x.axes, PARAMETERS) if named else P()
            like = x.array if named else x
            array = jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=NamedSharding(mesh, spec))
            return NamedArray(array, x.axes) if named else array

        return jax.tree.map(one, tree, is_leaf=lambda x: isinstance(x, NamedArray))

    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), hax.axis_mapping(PARAMETERS):
        example = eqx.filter_eval_shape(lambda: config.build(vocabulary(vocab_size), key=jax.random.PRNGKey(0)))
        arrays = placed(eqx.filter(example, lambda x: isinstance(x, jax.ShapeDtypeStruct)))
        static = eqx.filter(example, lambda x: isinstance(x, jax.ShapeDtypeStruct), inverse=True)
        moments = placed(eqx.filter_eval_shape(chain.init, arrays))

        def step(arrays: Any, moments: Any, tokens: jax.Array, weights: jax.Array) -> Any:
            def loss(arrays: Any) -> Any:
                with hax.axis_mapping(COMPUTE):
                    model = eqx.combine(precision.cast_to_compute(arrays), static)
                    one = LmExample(
                        tokens=hax.named(tokens, (Batch, Pos)),
                        loss_weight=hax.named(weights, (Batch, Pos)),
                        attn_mask=AttentionMask.causal(),
                    )
                    found = model.compute_next_token_loss(hax.shard(one, COMPUTE))
                    return found.scalar() if isinstance(found, NamedArray) else found

            value, grads = jax.value_and_grad(loss)(arrays)
            updates, after = chain.update(hax.shard(grads, PARAMETERS), moments, arrays)
            return hax.shard(eqx.apply_updates(arrays, updates), PARAMETERS), hax.shard(after, PARAMETERS), value

        rows = NamedSharding(mesh, P(("replica", "data")))
        shape = (Batch.size, Pos.size)
        batch = [jax.ShapeDtypeStruct(shape, kind, sharding=rows) for kind in (jnp.int32, jnp.float32)]
        return jax.jit(step, donate_argnums=(0, 1)).lower(arrays, moments, *batch)
