"""Sequences of a token cache with the weights of their losses, as Levanter's loader asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from levanter.data.dataset import AsyncDataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marin.training.tokens.masks import Mask


class MaskedSequences(AsyncDataset[dict[str, Any]]):
    """Sequences of a token stream with the weights of their losses: float32[seq_len], that of the token one further
    on; the last has none in its sequence."""

    def __init__(self, sequences: AsyncDataset[Any], mask: Mask, seq_len: int) -> None:
        self._sequences, self._mask, self._seq_len = sequences, mask, seq_len

    async def async_len(self) -> int:
        return await self._sequences.async_len()

    def is_finite(self) -> bool:
        return True

    async def get_batch(self, indices: Sequence[int]) -> Sequence[dict[str, Any]]:
        items = await self._sequences.get_batch(indices)
        return [{**item, "loss_weights": self.weights_of(index)} for index, item in zip(indices, items, strict=True)]

    def weights_of(self, index: int) -> NDArray[np.float32]:
        start = index * self._seq_len
        weights = np.zeros(self._seq_len, dtype=np.float32)
        weights[:-1] = self._mask[start + 1 : start + self._seq_len]
        return weights
