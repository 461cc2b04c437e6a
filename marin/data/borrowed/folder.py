"""A tokenizer that was made elsewhere: what a folder has of one, in the form in which the step ``tokenizer`` keeps it.

A folder with ``tokenizer.json`` (Hugging Face's tokenizers) is taken as it is; the two files of GPT-2's own release,
``encoder.json`` and ``vocab.bpe`` (``vocab.json`` and ``merges.txt`` on the Hub), are written as one, and so is Llama 3's
vocabulary (:mod:`marin.data.borrowed.ranks`). Nothing of a folder is executed. The ends of texts are what
``tokenizer_config.json`` says, or those of GPT-2 or Llama.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin.data.borrowed import ranks
from marin.data.tokenizer import END_OF_TEXT, parse_tokenizer
from marin.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
FILES = (TOKENIZER, CONFIG, "special_tokens_map.json", "chat_template.jinja")
PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names under which GPT-2's vocabulary and merges are found."""
WANTED = (*FILES, *(name for pair in PAIRS for name in pair), *ranks.NAMES)


@dataclass(frozen=True)
class Borrowed:
    """How many tokens it has, and which of them begin and end a text."""

    size: int
    begin: int
    end: int


def borrow(folder: Path, target: Path) -> Borrowed:
    """Write the tokenizer of ``folder`` into the empty folder ``target``.

    Raises:
        UsageError: there is none, or it does not say what ends a text.
        DataError: it cannot be read.
    """
    for name in FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
    usual: tuple[str | None, str] = (None, END_OF_TEXT)
    if not (target / TOKENIZER).is_file():
        content, usual = _made(folder)
        (target / TOKENIZER).write_text(content + "\n", encoding="utf-8")
    tokenizer = parse_tokenizer((target / TOKENIZER).read_bytes(), where=str(folder / TOKENIZER))
    config = _config(target / CONFIG)
    begin = _token(tokenizer, config, "bos_token", usual[0])
    end = _token(tokenizer, config, "eos_token", usual[1])
    if end is None:
        raise UsageError(
            "a tokenizer that does not say what ends a text",
            where=str(folder / CONFIG),
            expected=f"eos_token, or a token {END_OF_TEXT}",
            found="none",
            cure=f"name it in {CONFIG}",
        )
    if not (target / CONFIG).is_file():
        own = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokenizer.id_to_token(end)}
        own |= {} if begin is None else {"bos_token": tokenizer.id_to_token(begin)}
        (target / CONFIG).write_text(json.dumps(own, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return Borrowed(tokenizer.get_vocab_size(), end if begin is None else begin, end)


def _made(folder: Path) -> tuple[str, tuple[str | None, str]]:
    """``tokenizer.json`` of a folder without one, and the tokens that begin and end its texts where nothing else is said."""
    pair = next((pair for pair in PAIRS if all((folder / name).is_file() for name in pair)), None)
    if pair is not None:
        return _of_pair(folder, *pair), (None, END_OF_TEXT)
    name = next((name for name in ranks.NAMES if (folder / name).is_file()), None)
    if name is not None:
        return ranks.llama(folder / name), (ranks.BEGIN, ranks.END)
    names = " or ".join([TOKENIZER, *(" with ".join(pair) for pair in PAIRS), *ranks.NAMES[:2]])
    raise UsageError(
        "a folder without a tokenizer",
        where=str(folder),
        expected=names,
        found="none of them",
        cure="files of other formats hold programs, and are not read",
    )


def _of_pair(folder: Path, vocabulary: str, merges: str) -> str:
    """``tokenizer.json`` of a byte-level BPE in two files."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    try:
        made = Tokenizer(models.BPE.from_file(str(folder / vocabulary), str(folder / merges)))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # what the library's Rust code raises, and where it panics
        raise UsageError(
            "a tokenizer cannot be read",
            where=str(folder),
            expected=f"{vocabulary} and {merges} of one vocabulary",
            found=" ".join(str(error).split())[:200],
        ) from None
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    if made.token_to_id(END_OF_TEXT) is not None:
        made.add_special_tokens([AddedToken(END_OF_TEXT, normalized=False, special=True)])
    return str(made.to_str(pretty=True))


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            "a tokenizer's settings cannot be read", where=str(path), expected="a JSON object", found="another"
        )
    return found


def _token(tokenizer: Tokenizer, config: dict[str, Any], name: str, otherwise: str | None) -> int | None:
    said = config.get(name, otherwise)
    text = said.get("content") if isinstance(said, dict) else said
    number = tokenizer.token_to_id(text) if isinstance(text, str) else None
    if text is not None and number is None and name in config:
        raise UsageError(
            "a token that the tokenizer does not have",
            where=f"{CONFIG}: {name}",
            expected="one of its tokens",
            found=str(text)[:80],
        )
    return number
