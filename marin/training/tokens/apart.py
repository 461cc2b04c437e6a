"""Documents that are a sequence each: what a training on preferences reads, of which two neighbours are compared.

Behind a document come tokens of the end until the sequence is full, and none of them is learned. No other document attends to
it, and the token stream is cut where documents end, so everything that finds documents in sequences finds these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from marin.errors import DataError

if TYPE_CHECKING:
    from marin.training.tokens.encoding import Encoded


def apart(documents: Iterator[Encoded], length: int, end: int, where: str) -> Iterator[Encoded]:
    """Each document, with its mask, filled up to ``length`` tokens.

    Raises:
        DataError: one is longer, and what were cut off might be all that is preferred.
    """
    for number, (ids, mask) in enumerate(documents):
        lacking = length - len(ids)
        if lacking < 0:
            raise DataError(
                "a preference that is longer than a sequence",
                where=f"{where}, document {number}",
                expected=f"at most model.seq_len = {length} tokens",
                found=str(len(ids)),
                cure="raise model.seq_len, or leave the line out",
            )
        yield np.concatenate([ids, np.full(lacking, end, dtype=np.int32)]), mask + bytes(lacking)
