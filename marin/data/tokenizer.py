"""A tokenizer.json that somebody made, read by the library that owns the format (Hugging Face's ``tokenizers``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marin.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_TEXT = "<|endoftext|>"
"""The token after each document: it has the id 0."""


def token_ids(data: bytes, *, where: str) -> frozenset[int]:
    """The numbers of all tokens of a tokenizer, special ones too.

    Raises:
        DataError: ``data`` describes no tokenizer.
    """
    return frozenset(parse_tokenizer(data, where=where).get_vocab(with_added_tokens=True).values())


def parse_tokenizer(data: bytes, *, where: str) -> Tokenizer:
    """The tokenizer that ``data`` describes.

    Raises:
        DataError: it describes none. The library raises bare exceptions for that, and where its Rust code panics one
            that is no ``Exception`` at all.
    """
    from tokenizers import Tokenizer  # some 50 ms that only whoever reads one waits for

    try:
        return Tokenizer.from_str(data.decode("utf-8"))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise DataError(
            "a tokenizer cannot be read",
            where=where,
            expected="a tokenizer.json of the library tokenizers",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            cure="make it again with `marin stage tokenizer`",
        ) from None
