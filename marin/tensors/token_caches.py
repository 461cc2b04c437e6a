"""Token caches as they lie in the store: Levanter's arrays of token ids, digested by content.

A cache keeps ``input_ids`` as two zarr3 arrays of a size far above what they hold, and how many rows that is in the first
place of ``offsets``; the cache of chat documents has a column ``loss_mask`` beside it, with the same offsets. What counts is its
content, as a state of two to four tensors for each split:

    <split>/tokens      int32[n]    token ids of all documents, one after another
    <split>/offsets     int64[d+1]  where each document begins; the last is n
    <split>/loss_mask   uint8[n]    of chat documents only: which tokens are learned
    <split>/words       int64[1]    of the train split by a tokenizer from elsewhere only: words between white space of the text

An earlier form, which is read as well, has the mask as a file of one byte a token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ledger import TensorHasher, state_digest
from marin.errors import DataError
from marin.tensors.array_form import MOST_METADATA, ArrayForm
from marin.tensors.reading import PIECE, elements, open_array, pieces, plausible_bytes, unreadable

FIELD = "input_ids"
MASK, MASK_FILE = "loss_mask", "loss_mask.u8"
"""The column, and the file that it was."""
WORDS, WORDS_FILE = "words", "words.txt"
"""The tensor, and the file of a decimal number that it is: not every tokenizer keeps white space, so tokens do not tell it."""
LEDGER = "shard_ledger.json"
TOKEN_FILES = re.compile(
    r"(train|validation|train/[^/]+)/"
    r"(shard_ledger\.json|words\.txt|loss_mask\.u8|(input_ids|loss_mask)/(offsets|data)/(zarr\.json|c/[0-9]+))"
)
"""Files of the output of step ``tokens``."""


@dataclass(frozen=True)
class CacheContent:
    """What is in one cache: the digests of its tensors by name, how many tokens and documents, and their bytes."""

    tensors: dict[str, str]
    tokens: int
    documents: int
    nbytes: int


def cached_splits(folder: Path) -> list[str]:
    """The splits of a folder of caches: ``train`` or the parts of a mixture ``train/<part>``, and ``validation``."""
    train = folder / "train"
    single = (train / FIELD).exists()  # Levanter keeps a field as a folder of its own
    parts = [] if single or not train.is_dir() else sorted(path.name for path in train.iterdir() if path.is_dir())
    return [*(["train"] if single else [f"train/{part}" for part in parts]), "validation"]


Contents = Mapping[str, CacheContent]
"""What is in the cache of each split of a folder."""


def read_contents(folder: Path) -> Contents:
    """All caches of the output of step ``tokens`` that lies in ``folder``, read once.

    Raises:
        DataError: a cache is missing, unfinished, or not of the form that Levanter writes.
    """
    return {split: cache_content(folder / split) for split in cached_splits(folder)}


def stray_files(folder: Path, contents: Contents | None = None) -> list[str]:
    """Files of no split that is read, and chunks behind the end of their array: nothing digests them. Raises as
    :func:`read_contents`, where nobody has called it."""
    own = set()
    for split, content in (read_contents(folder) if contents is None else contents).items():
        own |= {f"{split}/{LEDGER}", f"{split}/{WORDS_FILE}"}
        column = has_column(folder / split)
        if not column:
            own.add(f"{split}/{MASK_FILE}")
        for field in (FIELD, MASK) if column else (FIELD,):
            for name, count in (("offsets", content.documents + 1), ("data", content.tokens)):
                chunks = -(-count // _form_of(folder / split, f"{field}/{name}").file)
                own |= {f"{split}/{field}/{name}/{file}" for file in ("zarr.json", *(f"c/{i}" for i in range(chunks)))}
    names = (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if not path.is_dir())
    return [name for name in names if name not in own]


def tokens_content(folder: Path, contents: Contents | None = None) -> tuple[str, int]:
    """The digest and the size in bytes of the output of step ``tokens`` that lies in ``folder``. Raises as
    :func:`read_contents`, where nobody has called it."""
    known = read_contents(folder) if contents is None else contents
    tensors = {f"{split}/{name}": one for split, content in known.items() for name, one in content.tensors.items()}
    return state_digest(tensors), sum(content.nbytes for content in known.values())


def cache_content(cache: Path) -> CacheContent:
    """What can be read back from one cache, in pieces.

    Raises:
        DataError: it is missing, unfinished, or says that it holds more than its bytes can be.
    """
    offsets = document_offsets(cache)
    rows, count = len(offsets) - 1, int(offsets[-1])
    by_token, by_offset = TensorHasher("int32", (count,)), TensorHasher("int64", offsets.shape)
    for piece in pieces(open_field(cache, f"{FIELD}/data"), (count,), "data"):
        by_token.update(elements(np.asarray(piece, dtype=np.int32)))
    by_offset.update(elements(offsets))
    tensors = {"tokens": by_token.digest(), "offsets": by_offset.digest()}
    nbytes = 4 * count + 8 * len(offsets)
    if has_column(cache):
        tensors[MASK] = _column_digest(cache, offsets)
    elif (cache / MASK_FILE).is_file():
        tensors[MASK] = _file_digest(cache / MASK_FILE, count)
    nbytes += count * (MASK in tensors)
    if (cache / WORDS_FILE).is_file():
        tensors[WORDS] = words_digest(read_words((cache / WORDS_FILE).read_bytes(), cache.name))
        nbytes += 8
    return CacheContent(tensors, count, rows, nbytes)


def words_digest(words: int) -> str:
    """The digest of a number of words as a tensor, int64[1]."""
    hasher = TensorHasher("int64", (1,))
    hasher.update(np.asarray([words], dtype="<i8").tobytes())
    return hasher.digest()


def read_words(data: bytes, where: str) -> int:
    """The number in a file of words.

    Raises:
        DataError: it is not one.
    """
    if re.fullmatch(rb"(0|[1-9][0-9]{0,17})\n", data) is None:
        raise DataError(
            "not a number of words",
            where=where,
            expected="a decimal number",
            found=repr(data[:40]),
            cure="make it again: marin stage tokens",
        )
    return int(data)


def document_offsets(cache: Path) -> np.ndarray:
    """Where each document of a cache begins in its token stream, with the end: int64[documents + 1].

    Raises:
        DataError: it is missing, unfinished, or says that it holds more than its bytes can be.
    """
    most = plausible_bytes(cache)
    ends = open_field(cache, f"{FIELD}/offsets")
    try:
        told = (cache / LEDGER).read_bytes()
    except OSError as error:
        raise unfinished(cache.name, str(error)) from error
    rows = finished_rows(told, cache.name)
    if not 0 <= 8 * rows <= most:
        raise _implausible(cache, f"{rows} documents", most)
    head = np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces(ends, (rows + 1,), "offsets")])
    if int(head[0]) != rows:
        raise _implausible(cache, f"{int(head[0])} documents beside {rows}", most)
    offsets = head.copy()
    offsets[0] = 0  # Levanter keeps the number of rows in the first place; the first document begins at 0
    if not 0 <= 4 * int(offsets[-1]) <= most or (np.diff(offsets) < 0).any():
        raise _implausible(cache, f"{int(offsets[-1])} tokens", most)
    return offsets


def has_column(cache: Path) -> bool:
    """Whether the cache has its loss mask as a column."""
    return (cache / MASK).is_dir()


def open_field(cache: Path, name: str) -> Any:
    """One of a cache's arrays, to read: ``name`` is ``input_ids/data`` (int32), ``loss_mask/data`` (uint8), or the ``offsets`` of
    either (int64).

    Raises:
        DataError: it is missing, or not of the form that Levanter writes.
    """
    looked_at = name
    try:
        form = _form_of(cache, name)
        for path in sorted((cache / name / "c").glob("*")):
            looked_at = f"{name}/c/{path.name}"
            with path.open("rb") as file:
                form.check_file(path.stat().st_size, partial(_read_at, file))
    except (OSError, ValueError) as error:
        raise unreadable(looked_at, error) from error
    return open_array({"driver": "file", "path": f"{cache}/"}, name)


def _form_of(cache: Path, name: str) -> ArrayForm:
    """How an array of :func:`open_field` lies in files. Raises OSError or ValueError."""
    dtype = "int64" if name.endswith("/offsets") else {FIELD: "int32", MASK: "uint8"}[name.partition("/")[0]]
    with (cache / name / "zarr.json").open("rb") as file:
        return ArrayForm.parse(file.read(MOST_METADATA + 1), dtype)


def _read_at(file: BinaryIO, begin: int, count: int) -> bytes:
    file.seek(begin)
    return file.read(count)


def _column_digest(cache: Path, offsets: np.ndarray) -> str:
    """The digest of the column as a tensor, uint8[tokens]; its documents end where those of the tokens do."""
    raw = offsets.copy()
    raw[0] = len(offsets) - 1
    ends = open_field(cache, f"{MASK}/offsets")
    found = [np.asarray(piece, dtype=np.int64) for piece in pieces(ends, offsets.shape, "offsets")]
    if not np.array_equal(np.concatenate(found), raw):
        raise _other_lengths(cache, "documents that end where those of the tokens do", "others")
    count = int(offsets[-1])
    return _mask_digest(cache, count, pieces(open_field(cache, f"{MASK}/data"), (count,), "data"))


def _file_digest(file: Path, tokens: int) -> str:
    """The digest of the earlier form as a tensor, uint8[tokens]."""
    size = file.stat().st_size
    if size != tokens:
        raise _other_lengths(file.parent, f"{tokens} bytes", f"{size}")
    whole = np.memmap(file, np.uint8, "r") if size else np.zeros(0, np.uint8)
    return _mask_digest(file.parent, tokens, (whole[at : at + PIECE] for at in range(0, size, PIECE)))


def _mask_digest(cache: Path, tokens: int, blocks: Iterable[np.ndarray]) -> str:
    hasher = TensorHasher("uint8", (tokens,))
    for block in blocks:
        if block.size and (most := int(block.max())) > 1:
            raise DataError(
                "a loss mask says more than whether a token is learned",
                where=cache.name,
                expected="0 and 1",
                found=str(most),
                cure="make it again: marin stage tokens",
            )
        hasher.update(elements(block))
    return hasher.digest()


def _other_lengths(cache: Path, expected: str, found: str) -> DataError:
    return DataError(
        "loss mask and tokens differ in length",
        where=cache.name,
        expected=expected,
        found=found,
        cure="make it again: marin stage tokens",
    )


def finished_rows(ledger: bytes, where: str) -> int:
    """How many documents a cache has by its ledger, Levanter's ``shard_ledger.json``.

    Raises:
        DataError: it was not finished.
    """
    try:
        told = json.loads(ledger)
        rows, finished = told["total_num_rows"], told["is_finished"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise unfinished(where, str(error)) from error
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 0 or finished is not True:
        raise unfinished(where, f"{rows} documents, finished: {finished}")
    return rows


def unfinished(where: str, found: str) -> DataError:
    """A cache that can not be opened."""
    return DataError(
        "token cache cannot be opened",
        where=where,
        expected="a finished cache",
        found=" ".join(found.split())[:200],
        cure="make it again: marin stage tokens",
    )


def _implausible(cache: Path, found: str, most: int) -> DataError:
    return DataError(
        "token cache does not hold what it says",
        where=cache.name,
        expected=f"offsets that grow, for at most {most} bytes",
        found=found,
        cure="make it again: marin stage tokens",
    )
