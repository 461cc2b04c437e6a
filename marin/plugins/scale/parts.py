"""A model in parts that are computed one after the other: what comes before its layers, a layer, and what comes after.

Each part is a function of its own weights, and they are what the step gathers (:mod:`marin.plugins.scale.layered`). The parts
are Levanter's own modules, put together from the weights that are given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from haliax import Axis, NamedArray
from levanter.kernels.pallas.fused_cross_entropy_loss.config import BlockSizes
from levanter.kernels.pallas.fused_cross_entropy_loss.xla import linear_softmax_cross_entropy_loss_xla
from levanter.layers.attention import AttentionBackend

from marin.plugins.scale.attention import splash
from marin.recipe.schema import Recipe
from marin.training.blank import embedded, weighted
from marin.training.model import attention_mask, compute_dtype, model_config
from marin.training.state import TrainState

Part = Literal["first", "layer", "last"]
PARTS: Sequence[Part] = ("first", "layer", "last")
STACKS = {"llama": "layers", "gpt2": "blocks", "qwen3": "layers"}
"""Where in ``model.transformer`` the stack of layers is."""
NORMS = {"llama": "norm", "gpt2": "ln_f", "qwen3": "norm"}


def stack_of(recipe: Recipe) -> str:
    """The path of the stack of layers in a state (``model/transformer/layers``)."""
    return f"model/transformer/{STACKS[recipe.model.architecture]}"


class Parts:
    """The parts of one recipe's model. Weights are arrays in the order of ``indices``, in the dtype that computes; tokens are
    int32[sequences, seq_len]; what goes from part to part is [sequences, seq_len, hidden_dim].

    ``blank``: a batch may have blank positions (:mod:`marin.training.blank`).
    """

    def __init__(self, recipe: Recipe, example: TrainState, names: Sequence[str], *, blank: bool = False) -> None:
        """``names``: the paths of the model's parameters in the order of its tree."""
        self._recipe, self._blank = recipe, blank
        model = _attending_by_kernel(recipe, example.model) if recipe.arithmetic.attention else example.model
        arrays, self._static = eqx.partition(model, _has_numbers)
        likes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
        self._likes, self._tree = jax.tree.flatten(likes)
        shapes = eqx.combine(likes, self._static)  # an example's own arrays are not kept
        self._stack = getattr(shapes.transformer, STACKS[recipe.model.architecture])
        stack = f"{stack_of(recipe)}/"
        tied = model.get_lm_head() is model.embeddings.token_embeddings.weight
        head = "model/embeddings/token_embeddings/" if tied else "model/lm_head/"
        norm = f"model/transformer/{NORMS[recipe.model.architecture]}/"
        self.indices: dict[Part, tuple[int, ...]] = {
            "first": _of(names, "model/embeddings/"),
            "layer": _of(names, stack),
            "last": (*_of(names, norm), *_of(names, head)),
        }
        self.tied = tuple(i for i in self.indices["last"] if i in self.indices["first"])
        """Weights of both ends: a block's two gradients of them are one before they leave."""
        assert set().union(*self.indices.values()) == set(range(len(names))), "every parameter belongs to a part"
        self.layers = self._likes[self.indices["layer"][0]].shape[0]

    def shapes(self, part: Part) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The weights of a part; of one layer."""
        dtype = compute_dtype(self._recipe)
        cut = 1 if part == "layer" else 0
        return tuple(jax.ShapeDtypeStruct(self._likes[i].shape[cut:], dtype) for i in self.indices[part])

    def first(self, weights: Sequence[jax.Array], tokens: jax.Array) -> jax.Array:
        """Tokens embedded."""
        model, ids = self._model("first", weights), self._ids(tokens)
        if self._recipe.model.architecture == "gpt2":
            places = hax.arange(ids.resolve_axis("position"), dtype=jnp.int32)
            return self._plain(model.embeddings.embed(ids, key=None, pos_ids=places))
        return self._plain(model.embeddings.embed(ids))

    def layer(self, weights: Sequence[jax.Array], x: jax.Array, tokens: jax.Array) -> jax.Array:
        """One layer."""
        layer = self._layer(weights)
        axes = (*self._ids(tokens).axes, self._embed)
        mask = attention_mask(self._recipe, hax.named(tokens, axes[:2]), blank=self._blank)
        with self._attention():
            if self._recipe.model.architecture == "gpt2":
                found = layer(hax.named(x, axes), mask, hax.named(jnp.zeros((), jnp.int32), ()), key=None)
            else:
                found = layer(hax.named(x, axes), mask, key=None)
        return self._plain(found)

    def last(
        self, weights: Sequence[jax.Array], x: jax.Array, tokens: jax.Array, counted: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Sums of loss and of weight, float32, over the tokens that are to be predicted. ``counted``: float32, how much each
        token counts; the last of a sequence predicts none."""
        model = self._model("last", weights)
        Batch, Pos = self._ids(tokens).axes
        normed = getattr(model.transformer, NORMS[self._recipe.model.architecture])(
            hax.named(x, (Batch, Pos, self._embed))
        )
        head = model.get_lm_head().rearrange((self._embed.name, ...)).array
        counted = weighted(tokens, counted) if self._blank else counted
        target = jnp.roll(embedded(tokens) if self._blank else tokens, -1, axis=1)
        counts = counted * (jnp.arange(Pos.size) < Pos.size - 1).astype(counted.dtype)
        arithmetic = self._recipe.arithmetic
        rows = tokens.size
        block = min(arithmetic.loss_block or rows, rows)
        sizes = BlockSizes(block, self._embed.size, min(arithmetic.loss_vocabulary or head.shape[1], head.shape[1]))
        loss, normalizer = linear_softmax_cross_entropy_loss_xla(
            self._plain(normed).reshape(rows, -1),
            target.reshape(-1),
            head,
            block_sizes=sizes,
            dtype=jnp.float32,
            fast_backward=True,
            bwd_batch_block_size=block,
        )
        if self._recipe.trainer.z_loss is not None:
            loss = loss + np.float32(self._recipe.trainer.z_loss) * jnp.square(normalizer)
        return jnp.sum(loss * counts.reshape(-1)), jnp.sum(counted)

    @property
    def _embed(self) -> Axis:
        return Axis("embed", self._recipe.model.hidden_dim)

    def _attention(self) -> AbstractContextManager[None]:
        arithmetic = self._recipe.arithmetic
        return splash(arithmetic.attention_block or 0) if arithmetic.attention == "splash" else nullcontext()

    def _ids(self, tokens: jax.Array) -> NamedArray:
        ids = embedded(tokens) if self._blank else tokens
        return hax.named(ids, (Axis("batch", tokens.shape[0]), Axis("position", tokens.shape[1])))

    def _plain(self, x: NamedArray) -> jax.Array:
        return x.rearrange(("batch", "position", "embed")).array.astype(compute_dtype(self._recipe))

    def _model(self, part: Part, weights: Sequence[jax.Array]) -> Any:
        """The model with the weights of a part, and shapes in the place of all others."""
        values = list(self._likes)
        for index, value in zip(self.indices[part], weights, strict=True):
            values[index] = value
        return eqx.combine(jax.tree.unflatten(self._tree, values), self._static)

    def _layer(self, weights: Sequence[jax.Array]) -> Any:
        """One layer's module, of the stacked one."""
        given = iter(weights)

        def one(x: Any) -> Any:
            if not isinstance(x, NamedArray):
                return x
            assert x.axes[0].name == self._stack.Block.name, "a stack's first axis is that of its layers"
            return hax.named(next(given), x.axes[1:])

        return jax.tree.map(one, self._stack.stacked, is_leaf=lambda x: isinstance(x, NamedArray))


def _attending_by_kernel(recipe: Recipe, model: Any) -> Any:
    """The shapes of a model whose layers attend by Levanter's backend ``SPLASH``, which :func:`splash` replaces. Only programs
    of this step are made of it; what evaluates, and the state, have Levanter's plain attention."""
    config: Any = dataclasses.replace(model_config(recipe.model), attn_backend=AttentionBackend.SPLASH)
    return eqx.filter_eval_shape(lambda: config.build(model.Vocab, key=jax.random.PRNGKey(0)))


def _has_numbers(x: Any) -> bool:
    return isinstance(x, jax.Array | jax.ShapeDtypeStruct | np.ndarray) and jnp.issubdtype(x.dtype, jnp.inexact)


def _of(names: Sequence[str], prefix: str) -> tuple[int, ...]:
    return tuple(index for index, name in enumerate(names) if name.startswith(prefix))
