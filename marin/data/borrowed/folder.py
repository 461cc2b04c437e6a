"""A tokenizer that was made elsewhere: what a folder has of one, in the form in which the step ``tokenizer`` keeps it.

A folder is read as transformers' ``AutoTokenizer`` reads it (:mod:`marin.data.borrowed.reference`): its class may build a
tokenizer anew from the vocabulary, and add normalizers, tokens and templates that no file says. Kept is one ``tokenizer.json``
that makes the same ids by itself, without the settings of a call, and a ``tokenizer_config.json`` of its special tokens, which
transformers reads to the same again. A folder whose files say all that already is kept as it is. Without a class that
transformers knows are read: ``tokenizer.json`` alone, the two files of GPT-2's own release (``encoder.json`` and ``vocab.bpe``,
or ``vocab.json`` and ``merges.txt``), and Llama 3's vocabulary (:mod:`marin.data.borrowed.ranks`). Nothing of it is executed.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from marin.data import tokenizer
from marin.data.borrowed import ranks, reference
from marin.errors import UsageError

logger = logging.getLogger(__name__)

FILES = (tokenizer.FILE, tokenizer.CONFIG, tokenizer.SPECIAL_MAP, "chat_template.jinja")
"""What the step ``tokenizer`` may keep."""
PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names under which GPT-2's vocabulary and merges are found."""
MODEL = "config.json"
OTHERS = ("added_tokens.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "tekken.json", MODEL)
"""Further files by which transformers' classes read a tokenizer."""
WANTED = (*FILES, *(name for pair in PAIRS for name in pair), *ranks.NAMES, *OTHERS)
GENERAL = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that take ``tokenizer.json`` as it is."""
_NEUTRAL = frozenset(
    {
        *tokenizer.NAMED,
        "tokenizer_class",
        "additional_special_tokens",
        "clean_up_tokenization_spaces",
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
        "split_special_tokens",
        "model_max_length",
        "padding_side",
        "truncation_side",
        "model_input_names",
        "chat_template",
        "add_bos_token",
        "add_eos_token",
        "add_prefix_space",
    }
)
"""Settings that change nothing of what a tokenizer of :data:`GENERAL` makes of a text, or are read here. Where there is a
tokenizer.json, transformers leaves out ``add_bos_token`` and ``add_eos_token``."""
_SAME_CLASS = ("", "llama", "gpt2", "qwen3")
"""Models beside whose configuration a tokenizer of :data:`GENERAL` stays one."""
MOST_UNASKED = 100_000
"""From more tokens on transformers asks whether a tokenizer is Mistral's and cut by a wrong pattern, and finds so of every folder
whose config.json names no version of transformers, as exported ones do. What is kept is already what it makes: so it says no."""
_CARRIED = ("model_max_length", "padding_side", "truncation_side", "model_input_names", "chat_template")


@dataclass(frozen=True)
class Borrowed:
    """How many tokens it has, how many rows of an embedding they need, and which of them begin and end a text."""

    size: int
    rows: int
    begin: int
    end: int


def borrow(folder: Path, target: Path) -> Borrowed:
    """Write the tokenizer of ``folder`` into the empty folder ``target``.

    Raises:
        UsageError: there is none, transformers does not read it, or it does not say what ends a text.
        DataError: it cannot be read, or draws by chance.
    """
    found = keep(folder, target)
    end = found.special.id("eos_token")
    if end is None:
        raise UsageError(
            "a tokenizer that does not say what ends a text",
            where=str(folder / tokenizer.CONFIG),
            expected=f"eos_token, or a token {tokenizer.END_OF_TEXT}",
            found="none",
            cure=f"name it in {tokenizer.CONFIG}",
        )
    begin = found.special.id("bos_token")
    return Borrowed(found.get_vocab_size(), found.rows, end if begin is None else begin, end)


@contextmanager
def kept_folder(folder: Path) -> Iterator[Path]:
    """A folder with the tokenizer of ``folder`` in the form in which it is kept: itself where it has that form.

    Raises:
        UsageError, DataError: as :func:`borrow`, but for a tokenizer that does not say what ends a text.
    """
    if _as_it_is(folder):
        yield folder
        return
    with TemporaryDirectory(prefix="marin-tokenizer-") as base:
        keep(folder, Path(base))
        yield Path(base)


def keep(folder: Path, target: Path) -> tokenizer.Tokenizer:
    """Write the tokenizer of ``folder`` into the empty folder ``target``, whether or not it says what ends a text.

    Raises:
        UsageError, DataError: as :func:`borrow`.
    """
    if _as_it_is(folder):
        for name in FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, target / name)
        return tokenizer.open_tokenizer(target)
    config = tokenizer.read_settings(folder / tokenizer.CONFIG, UsageError)
    made = None if _has_class(folder, config) else _content(folder)
    if (folder / "chat_template.jinja").is_file():
        shutil.copyfile(folder / "chat_template.jinja", target / "chat_template.jinja")
    if made is not None:
        content, named = made
        (target / tokenizer.FILE).write_text(content + "\n", encoding="utf-8")
        given = {
            name: config[name]
            for name in (*tokenizer.NAMED, "additional_special_tokens")
            if config.get(name) is not None
        }
        _write(target, {**named, **given}, config)
        if not given:
            return tokenizer.open_tokenizer(target)
        with TemporaryDirectory(prefix="marin-tokenizer-") as base:  # tokens that the config adds
            shutil.copytree(target, base, dirs_exist_ok=True)
            return _by_reference(Path(base), target, {**config, **named})
    return _by_reference(folder, target, config)


def _by_reference(folder: Path, target: Path, config: Mapping[str, Any]) -> tokenizer.Tokenizer:
    """As transformers reads the folder, written to ``target``."""
    _check_paths(folder, config)
    before = (folder / tokenizer.FILE).read_bytes() if (folder / tokenizer.FILE).is_file() else None
    if before is not None and (settings := tokenizer.switched_on(before, where=str(folder / tokenizer.FILE))):
        logger.warning("%s: %s: settings of a call, switched off", folder / tokenizer.FILE, " and ".join(settings))
    with TemporaryDirectory(prefix="marin-tokenizer-") as base:
        for name in WANTED:
            if (folder / name).is_file() and "/" not in name:
                shutil.copyfile(folder / name, Path(base) / name)
        read = reference.read(Path(base), where=str(folder))
    for note in read.notes:
        logger.warning("%s: transformers: %s", folder, note)
    content = (read.tokenizer + "\n").encode()
    if before is not None and _same(before, content):
        content = before
    (target / tokenizer.FILE).write_bytes(content)
    named = dict(read.named)
    if "eos_token" not in named and f'"{tokenizer.END_OF_TEXT}"' in read.tokenizer:
        named["eos_token"] = tokenizer.END_OF_TEXT
    usual = {name: text for name, text in named.items() if name.endswith("_token")}
    others = {name: text for name, text in named.items() if name not in usual}
    kept = {
        **usual,
        **({"model_specific_special_tokens": others} if others else {}),
        **({"additional_special_tokens": read.extra} if read.extra else {}),
        **({"clean_up_tokenization_spaces": True} if read.cleans else {}),
        **({"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True} if read.forced else {}),
        **({"split_special_tokens": True} if read.splits else {}),
        **({"fix_mistral_regex": False} if read.size > MOST_UNASKED else {}),
    }
    _write(target, kept, config)
    return tokenizer.open_tokenizer(target)


def _write(target: Path, settings: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    carried = {name: config[name] for name in _CARRIED if config.get(name) is not None}
    own = {"tokenizer_class": GENERAL[0], **carried, **settings}
    (target / tokenizer.CONFIG).write_text(json.dumps(own, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _as_it_is(folder: Path) -> bool:
    """Whether transformers takes this ``tokenizer.json`` as it is, and what else there is says nothing more.

    Raises:
        DataError: it is not one, or draws by chance.
    """
    path = folder / tokenizer.FILE
    if not path.is_file() or not (folder / tokenizer.CONFIG).is_file():
        return False
    if (folder / tokenizer.SPECIAL_MAP).is_file() or (folder / "added_tokens.json").is_file():
        return False
    config = tokenizer.read_settings(folder / tokenizer.CONFIG, UsageError)
    own = {name for name in config if not name.endswith("_token")}
    if config.get("tokenizer_class") not in GENERAL or not own <= _NEUTRAL:
        return False
    if (folder / MODEL).is_file() and tokenizer.read_settings(folder / MODEL, UsageError).get(
        "model_type", ""
    ) not in _SAME_CLASS:
        return False
    data = path.read_bytes()
    if tokenizer.switched_on(data, where=str(path)):
        return False
    found = json.loads(data)
    added = found.get("added_tokens") or []
    if len(found["model"].get("vocab") or ()) + len(added) > MOST_UNASKED:
        return False
    special = {one["content"] for one in added if one.get("special") is True}
    listed = config.get("additional_special_tokens") or []
    said = [config[name] for name in config.keys() - own if not isinstance(config[name], bool | None.__class__)]
    return isinstance(listed, list) and all(isinstance(text, str) and text in special for text in (*said, *listed))


def _same(before: bytes, after: bytes) -> bool:
    """Whether both are one tokenizer without settings of a call."""
    mine, theirs = json.loads(before), json.loads(after)
    return bool(mine == theirs) and all(mine.get(name) is None for name in tokenizer.CALL)


def _has_class(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether transformers has a class for the folder, or its file is all that it needs."""
    model = tokenizer.read_settings(folder / MODEL, UsageError) if (folder / MODEL).is_file() else {}
    named = config.get("tokenizer_class") or model.get("tokenizer_class") or model.get("model_type")
    return (folder / tokenizer.FILE).is_file() or bool(named)


def _check_paths(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse settings that name files elsewhere, or arguments of a program."""
    for name, value in config.items():
        if (name.endswith("_file") and isinstance(value, str) and Path(value).exists()) or (
            name in ("init_inputs", "gguf_file", "tokenizer_object") and value
        ):
            raise UsageError(
                "a tokenizer's settings name what is not in its folder",
                where=f"{folder / tokenizer.CONFIG}: {name}",
                expected="files of the folder by their own names",
                found=str(value)[:80],
                cure=f"remove it from {tokenizer.CONFIG}",
            )


def _content(folder: Path) -> tuple[str, dict[str, str]]:
    """``tokenizer.json`` of a folder without one and without a class, and the special tokens of its texts."""
    pair = next((pair for pair in PAIRS if all((folder / name).is_file() for name in pair)), None)
    if pair is not None:
        content, has_end = _of_pair(folder, *pair)
        return content, dict.fromkeys(("bos_token", "eos_token", "unk_token"), tokenizer.END_OF_TEXT) if has_end else {}
    name = next((name for name in ranks.NAMES if (folder / name).is_file()), None)
    if name is not None:
        return ranks.llama(folder / name), {"bos_token": ranks.BEGIN, "eos_token": ranks.END}
    names = " or ".join([tokenizer.FILE, *(" with ".join(pair) for pair in PAIRS), *ranks.NAMES[:2]])
    raise UsageError(
        "a folder without a tokenizer",
        where=str(folder),
        expected=names,
        found="none of them",
        cure="files of other formats hold programs, and are not read",
    )


def _of_pair(folder: Path, vocabulary: str, merges: str) -> tuple[str, bool]:
    """``tokenizer.json`` of a byte-level BPE in two files, and whether it has GPT-2's end of text."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    try:
        made = Library(models.BPE.from_file(str(folder / vocabulary), str(folder / merges)))
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
    has_end = made.token_to_id(tokenizer.END_OF_TEXT) is not None
    if has_end:
        made.add_special_tokens([AddedToken(tokenizer.END_OF_TEXT, normalized=False, special=True)])
    return str(made.to_str(pretty=True)), has_end
