"""Attention by the TPU's splash kernel, inside a program of one device.

Levanter's attention hands the kernel to a mesh and asks the devices that it finds for its settings. Here a program is compiled
for one device, whatever finds itself in this machine, and the recipe says the blocks; so Levanter's layers, which do all
the rest, are given this function in place of theirs.

Source of the kernel: ``jax.experimental.pallas.ops.tpu.splash_attention`` (of the locked jax).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import haliax as hax
import jax
import levanter.layers.attention as levanter_attention
from haliax import NamedArray
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from levanter.layers.attention import AttentionMask

BATCH, HEADS, GROUPED, LENGTH, SIZE = "batch", "kv_head", "q_heads_per_group", "position", "head_size"
"""Axes of Levanter's queries; keys and values have no grouped heads, and positions of their own."""


@contextmanager
def splash(block: int, *, interpret: bool = False) -> Iterator[None]:
    """While entered, what is traced with Levanter's backend ``SPLASH`` is the kernel in blocks of at most ``block``
    positions, for one device. ``interpret``: without a TPU, for tests."""
    theirs = levanter_attention._tpu_splash_attention

    def ours(
        QPos: Any, KPos: Any, Key: Any, query: NamedArray, key: NamedArray, value: NamedArray, *more: Any, **how: Any
    ) -> Any:
        return attention(query, key, value, more[0], how["scaling_factor"], block, interpret=interpret)

    levanter_attention._tpu_splash_attention = ours
    try:
        yield
    finally:
        levanter_attention._tpu_splash_attention = theirs


def attention(
    query: NamedArray,
    key: NamedArray,
    value: NamedArray,
    mask: AttentionMask,
    scale: float,
    block: int,
    *,
    interpret: bool = False,
) -> NamedArray:
    """Causal attention, within segments where the mask has some; the axes of ``query``."""
    assert mask.is_causal and mask.explicit_mask is None, "a language model's mask is causal, and may have segments"
    axes = (BATCH, HEADS, GROUPED, LENGTH, SIZE)
    batch, heads, grouped, length, size = (query.resolve_axis(name) for name in axes)
    theirs = (BATCH, HEADS, "key_position", SIZE)
    q = (query * scale).rearrange(axes).array
    k, v = key.rearrange(theirs).array, value.rearrange(theirs).array
    one = min(block, length.size)
    sizes = kernel.BlockSizes(
        block_q=one,
        block_kv=one,
        block_kv_compute=one,
        block_q_dkv=one,
        block_kv_dkv=one,
        block_kv_dkv_compute=one,
        block_q_dq=one,
        block_kv_dq=one,
    )
    causal = masks.MultiHeadMask([masks.CausalMask((length.size, length.size))] * grouped.size)
    splashed = kernel.make_splash_mqa(causal, block_sizes=sizes, head_shards=1, q_seq_shards=1, interpret=interpret)
    segments = mask.segment_ids
    if segments is None:
        found = jax.vmap(jax.vmap(splashed))(q, k, v)
    else:
        first, second = segments
        ids = kernel.SegmentIds(first.rearrange((BATCH, LENGTH)).array, second.rearrange((BATCH, ...)).array)
        over_heads = jax.vmap(lambda q, k, v, ids: splashed(q, k, v, segment_ids=ids), in_axes=(0, 0, 0, None))
        found = jax.vmap(over_heads)(q, k, v, ids)
    return hax.named(found, (batch, heads, grouped, length, size))
