"""The loss of every token, as Levanter computes it, by one program whatever the device.

Left to itself, Levanter asks which device it finds: on a GPU it takes another program, in blocks that a search chose, which
rounds otherwise. What is computed is part of a recipe, and a device is not; so the program and its blocks are named here:
those that Levanter takes on a processor. (A step layer by layer has blocks in its recipe: marin/plugins/scale/parts.py.)
"""

from __future__ import annotations

from typing import Any, cast

import haliax as hax
import jax
from haliax import NamedArray
from levanter.kernels.pallas.fused_cross_entropy_loss.config import BlockSizes
from levanter.kernels.pallas.fused_cross_entropy_loss.tuned_block_sizes import (
    infer_block_sizes_with_tuned_match,
    infer_xla_b_block_size,
    infer_xla_v_block_size,
)
from levanter.kernels.pallas.fused_cross_entropy_loss.xla import linear_softmax_cross_entropy_loss_xla
from levanter.models.lm_model import LmExample, LmHeadModel, split_activations
from levanter.models.loss import fused_cross_entropy_loss_and_logsumexp_penalty, next_token_loss_weight

from marin.training.runtime.parts import experts

BLOCKS_OF = "cpu"
"""The kind of device whose blocks Levanter is asked for."""


def token_losses(model: LmHeadModel, example: LmExample, z_loss: float | None = None) -> NamedArray:
    """How badly the token after each position is predicted: nats, float32, with the axes of ``example.tokens``, each times
    ``example.loss_weight``; 0 at the last position. ``z_loss``: how much of the square of log Z is added. What a mixture of
    experts would add for its router is left out."""
    hidden, _ = split_activations(model.activations(example.tokens, example.attn_mask, key=None))
    return _of_hidden(model, example, hidden, z_loss)


def routed_losses(model: Any, example: LmExample, z_loss: float | None) -> tuple[NamedArray, jax.Array]:
    """:func:`token_losses` of a mixture of experts, with what it adds for its router, once for each token that counts; and how
    many tokens each expert got, float32[layers, experts]."""
    hidden, beside, loads = experts().activated(model, example.tokens, example.attn_mask)
    weight = next_token_loss_weight(hidden.resolve_axis(model.Pos.name), example.loss_weight)
    return _of_hidden(model, example, hidden, z_loss) + beside * weight, loads


def _of_hidden(model: LmHeadModel, example: LmExample, hidden: NamedArray, z_loss: float | None) -> NamedArray:
    losses = fused_cross_entropy_loss_and_logsumexp_penalty(
        hidden,
        model.get_lm_head(),
        Contract=model.Embed,
        Label=model.Vocab,
        target_y=hax.roll(example.tokens, -1, model.Pos.name),
        reduction=None,
        weight=next_token_loss_weight(hidden.resolve_axis(model.Pos.name), example.loss_weight),
        logsumexp_weight=z_loss,
        dtype=example.loss_weight.dtype,
        implementation=cast(Any, (in_known_blocks,)),
    )
    return losses + 0  # as programs that were recorded have it


def in_known_blocks(
    x: jax.Array, labels: jax.Array, w: jax.Array, *, block_sizes: object, dtype: Any, **others: Any
) -> Any:
    """Levanter's program for any backend. ``x``: [rows, embed]; ``labels``: int32[rows]; ``w``: [embed, vocabulary];
    ``block_sizes``, those of the device that Levanter found, are left alone. Loss and log Z, each [rows]."""
    sizes = (*x.shape, w.shape[1])
    vocabulary = infer_xla_v_block_size(*sizes, dtype=dtype, device_kind=BLOCKS_OF)
    tuned, found = infer_block_sizes_with_tuned_match(
        *sizes, dtype=dtype, x_dtype=x.dtype, w_dtype=w.dtype, device_kind=BLOCKS_OF
    )
    rows = tuned.b_block_size if found else infer_xla_b_block_size(x.shape[0], vocabulary)
    blocks = BlockSizes(b_block_size=min(rows, x.shape[0]), v_block_size=vocabulary)
    return linear_softmax_cross_entropy_loss_xla(x, labels, w, block_sizes=blocks, dtype=dtype, **others)
