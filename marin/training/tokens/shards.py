"""The token stream made in shards of documents, for a verifier with several workers: what comes out is the content of
the step ``tokens``, digested like a cache, without a cache being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ledger import TensorHasher, state_digest
from marin.data.documents import Document
from marin.data.tokenizer import Tokenizer
from marin.record.events import Output
from marin.tensors.token_caches import WORDS, words_digest
from marin.training.tokens.encoding import encode_documents
from marin.work.recorded import StoredResult


def encode_shard(tokenizer: Tokenizer, documents: Iterable[Document], end: list[int], target: Path) -> list[int]:
    """Write the token ids (int32, little-endian) of ``documents`` to ``target``; returns how many tokens each has."""
    lengths = []
    with target.open("wb") as file:
        for ids, _ in encode_documents(tokenizer, documents, end, masked=False):
            file.write(ids.astype("<i4").tobytes())
            lengths.append(len(ids))
    return lengths


def join_shards(
    shards: Mapping[str, Sequence[tuple[Path, Sequence[int]]]], words: Mapping[str, int] | None = None
) -> StoredResult:
    """What the step ``tokens`` makes of these shards (by split, in order). ``artifact`` has no meaning here and repeats the
    digest. ``words``: of the splits whose words are counted."""
    tensors: dict[str, str] = {}
    metrics: dict[str, float] = {}
    size = 0
    for split, pieces in shards.items():
        offsets = np.cumsum([0, *(length for _, lengths in pieces for length in lengths)], dtype="<i8")
        total = int(offsets[-1])
        hasher = TensorHasher("int32", (total,))
        for path, _ in pieces:
            hasher.update(path.read_bytes())
        by_offset = TensorHasher("int64", offsets.shape)
        by_offset.update(offsets.tobytes())
        tensors |= {f"{split}/tokens": hasher.digest(), f"{split}/offsets": by_offset.digest()}
        metrics |= {f"{split}_tokens": float(total), f"{split}_documents": float(len(offsets) - 1)}
        size += 4 * total + 8 * len(offsets)
    for split, number in (words or {}).items():
        tensors[f"{split}/{WORDS}"] = words_digest(number)
        size += 8
    digest = state_digest(tensors)
    return StoredResult(Output(kind="tokens", digest=digest, size=size, artifact=digest), metrics)
