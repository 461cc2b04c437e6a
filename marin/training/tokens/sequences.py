"""The sequences of a token stream as examples of causal language modelling, as Levanter's loader asks for them.

They are those of Levanter's own data set (``TokenSeqDataset``, ``CausalLmDataset``), made here: its module imports what
builds caches, tokenizes and talks to clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import haliax as hax
import numpy as np
from haliax import Axis
from levanter.data.dataset import AsyncDataset
from levanter.layers.attention import AttentionMask
from levanter.models.lm_model import LmExample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marin.training.tokens.cache import TokenCache
    from marin.training.tokens.masks import Mask


class Sequences(AsyncDataset[LmExample]):
    """The stream of a cache, cut into sequences of ``seq_len``; what is left at its end is left out.

    A weight, float32[seq_len], is that of the loss of the token one further on: 1, or what the ``mask`` says; the last token
    has none in its sequence, so that its weight is 0.
    """

    def __init__(self, cache: TokenCache, mask: Mask | None, seq_len: int) -> None:
        self._cache, self._mask, self._seq_len = cache, mask, seq_len
        self._Pos = Axis("position", seq_len)

    def __len__(self) -> int:
        return self._cache.tokens // self._seq_len

    async def async_len(self) -> int:
        return len(self)

    def is_finite(self) -> bool:
        return True

    async def get_batch(self, indices: Sequence[int]) -> Sequence[LmExample]:
        if beyond := [index for index in indices if not 0 <= index < len(self)]:
            raise IndexError(f"sequence {beyond[0]} of {len(self)}")
        read = await self._cache.read([index * self._seq_len for index in indices], self._seq_len)
        return [self._example(tokens, self.weights_of(index)) for index, tokens in zip(indices, read, strict=True)]

    def _example(self, tokens: NDArray[np.int32], weights: NDArray[np.float32]) -> LmExample:
        return LmExample(
            tokens=hax.named(tokens, self._Pos),
            loss_weight=hax.named(weights, self._Pos),
            attn_mask=AttentionMask.causal(),
        )

    def weights_of(self, index: int) -> NDArray[np.float32]:
        """Those of sequence ``index``."""
        start = index * self._seq_len
        weights = np.zeros(self._seq_len, dtype=np.float32)
        weights[:-1] = 1.0 if self._mask is None else self._mask[start + 1 : start + self._seq_len]
        return weights
