"""Which tokens of a cache are learned: one byte for each token, in a column of Levanter's cache.

Only a corpus of chat documents has one (:mod:`marin.data.chat`); without it every token is learned. Where a chat template says
what the assistant says, the tokens are those of transformers' ``return_assistant_tokens_mask``: from the one that holds the
first letter of a stretch to the one that holds its last. Where that was found by difference, every token that holds a letter of a
stretch is learned, and the end of a document with its last character. In earlier recipes a token is learned when the characters
that it stands for begin inside a stretch, and special tokens are text.

The loss at a position is that of the token after it, so a sequence's weights are the mask of the tokens one further on. The mask
is a tensor of the step's content, ``<split>/loss_mask``: uint8[n], 1 for learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from marin.data.documents import Document, Span
from marin.data.tokenizer import Tokenizer
from marin.errors import DataError
from marin.recipe.form.data_rules import CHAT_REFERENCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marin.data.tokenizer import Encoding


def encoded_with_mask(
    tokenizer: Tokenizer, documents: Sequence[Document], end: list[int], reference: str | None = CHAT_REFERENCE
) -> Iterator[tuple[NDArray[np.int32], bytes]]:
    """The token ids of each document, in order, and its mask. With a ``reference`` the marks in its text are special tokens, and
    a document that ends by ``end`` gets no second one; None: as earlier recipes have it.

    Raises:
        DataError: a document does not say what is learned of it.
    """
    for document in documents:
        if document.learned is None or (reference is None and not document.learned):
            raise DataError(
                "a document without a loss mask",
                where=document.source,
                expected="learned stretches in every document",
                found=document.text[:60],
                cure="keep chat documents and plain text in corpora of their own",
            )
    before, tokenizer.encode_special_tokens = tokenizer.encode_special_tokens, reference is None
    try:
        encodings = tokenizer.encode_batch([document.text for document in documents], add_special_tokens=False)
    finally:
        tokenizer.encode_special_tokens = before
    for document, encoding in zip(documents, encodings, strict=True):
        learned = document.learned or ()
        closed = int(bool(learned) and learned[-1][1] == len(document.text))
        if reference is None:
            mask, behind = token_mask(encoding.offsets, learned), end
        else:
            mask = (
                overlapping(encoding.offsets, learned) if document.by_difference else assistant_mask(encoding, learned)
            )
            behind = [] if end and encoding.ids[-len(end) :] == end else end
            closed &= document.by_difference
        yield np.asarray(encoding.ids + behind, dtype=np.int32), bytes([*mask, *[closed] * len(behind)])


def assistant_mask(encoding: Encoding, learned: Sequence[Span]) -> list[int]:
    """1 for each token of the stretches that a template says the assistant says, as transformers 5.12.1 counts them
    (``apply_chat_template`` with ``return_assistant_tokens_mask``): if no token holds a stretch's first letter, it and all after
    it are not learned; if none holds its last, or the document's first token does, all to the end is."""
    mask = [0] * len(encoding.ids)
    for start, stop in learned:
        if stop < 1:
            continue
        first, last = encoding.char_to_token(start), encoding.char_to_token(stop - 1)
        if first is None:
            break
        for place in range(first, last + 1 if last else len(mask)):
            mask[place] = 1
    return mask


def overlapping(offsets: Sequence[Span], learned: Sequence[Span]) -> list[int]:
    """1 for each token that holds a letter of a learned stretch."""
    return [int(any(start < max(end, begin + 1) and begin < stop for start, stop in learned)) for begin, end in offsets]


def token_mask(offsets: Sequence[Span], learned: Sequence[Span]) -> list[int]:
    """1 for each token that begins inside a learned stretch. ``offsets``: where each token lies in the text, in
    characters."""
    return [int(any(start <= begin < stop for start, stop in learned)) for begin, _ in offsets]
