"""The door to every tokenizer: what opens one, what it is asked, and the special tokens that it has.

The library ``tokenizers`` owns the file format, and a file holds settings of a call beside the vocabulary. Here a tokenizer maps
a text to ids, the same ones in every place: training, evaluation, serving, generation, words and export ask for nothing else. So
truncation and padding are switched off, and that is said once; what draws by chance is refused by name; a post-processor acts
only where it is asked for. Whatever the library throws is an answer: where its Rust code panics, that is no ``Exception``.

Of what the library (0.22.2) is known to end the process by, nothing reaches it (:func:`switched_on`): a compiled map of
characters that says of itself to be larger than it is takes as much memory as it says; replacements one after another that each
lengthen a text take memory without a bound. A template that repeats the text or leaves it out changes ids although no special
token was asked for, and of two tokens with one number each process decodes another.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin.errors import DataError, MarinError

if TYPE_CHECKING:
    from tokenizers import Encoding as Encoding  # its name for who reads one
    from tokenizers import Tokenizer as Library

logger = logging.getLogger(__name__)

END_OF_TEXT = "<|endoftext|>"
"""The token after each document: it has the id 0 in every tokenizer that is trained here."""
FILE, CONFIG, SPECIAL_MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Special tokens with a name, as transformers names them."""
_BEFORE = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
"""What ``clean_up_tokenization_spaces`` takes the spaces of, in order (transformers 5.12.1, ``PreTrainedTokenizerBase``)."""
MOST_BYTES = 1 << 28
"""Of a file: sixteen times Gemma's."""
DEEPEST = 64
"""Lists and objects within each other."""
MOST_PARTS = 256
"""Normalizers, pre-tokenizers and the like of a tokenizer, all together."""
MOST_GROWTH = 256
"""How many times longer replacements may make a text."""
LAST_ID = 2**31 - 1
"""Ids are kept as int32."""
CALL = ("truncation", "padding")
_LISTS = ("normalizers", "pretokenizers", "processors", "decoders")


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer, as transformers names them.

    ``named``: the texts of those of :data:`NAMED` that it has, and of others whose name ends with ``_token``, which are variables
    of chat templates too. ``extra``: others that are declared (``additional_special_tokens``). ``ids``: text -> id of all added
    tokens that are special, and of the named ones.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    ids: Mapping[str, int] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """The text of ``bos_token`` and the like."""
        return self.named.get(name)

    def id(self, name: str) -> int | None:
        """The id of ``bos_token`` and the like; None where there is none."""
        said = self.named.get(name)
        return None if said is None else self.ids.get(said)


class Tokenizer:
    """A tokenizer as the pipeline uses it. The methods are those of the library's class that are needed, without its settings
    of a call.

    Args:
        cleans: :meth:`decode` removes spaces before punctuation, as transformers does where
            ``clean_up_tokenization_spaces`` is set.
        where: names it in errors.
    """

    def __init__(self, library: Library, special: SpecialTokens, *, cleans: bool = False, where: str = "") -> None:
        self._library, self.special, self.cleans, self._where = library, special, cleans, where

    @property
    def encode_special_tokens(self) -> bool:
        """Whether a special token that stands in a text is text."""
        return bool(self._library.encode_special_tokens)

    @encode_special_tokens.setter
    def encode_special_tokens(self, value: bool) -> None:
        self._library.encode_special_tokens = value

    @property
    def decoder(self) -> Any:
        """The library's, or None."""
        return self._library.decoder

    @property
    def byte_fallback(self) -> bool:
        """Whether letters without a token of their own are tokens of bytes, ``<0xE6>``."""
        return bool(getattr(self._library.model, "byte_fallback", False))

    @property
    def gives_back(self) -> bool:
        """Whether decoding gives the text back, with its white space: of byte-level tokenizers without a normalizer."""
        decoder = self._library.decoder
        return self._library.normalizer is None and type(decoder).__name__ == "ByteLevel" and not self.cleans

    def unsettled(self, text: str) -> int:
        """How many letters at the end of a text of tokens further ones may change: the beginning of what loses its space."""
        begun, left = [part[:size] for part in _BEFORE for size in range(1, len(part))], text
        while self.cleans and (most := max((len(one) for one in begun if left.endswith(one)), default=0)):
            left = left[:-most].rstrip(" ")
        return len(text) - len(left)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> Encoding:
        """The ids of ``text`` and where each token lies in it; with ``add_special_tokens`` inside of what the post-processor puts
        around a text.

        Raises:
            DataError: the library cannot.
        """
        with _answers("encode", self._where):
            return self._library.encode(text, add_special_tokens=add_special_tokens)

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = False) -> list[Encoding]:
        """As :meth:`encode`, each by itself."""
        with _answers("encode", self._where):
            return list(self._library.encode_batch(list(texts), add_special_tokens=add_special_tokens))

    def encode_batch_fast(self, texts: Sequence[str], *, add_special_tokens: bool = False) -> list[Encoding]:
        """As :meth:`encode_batch`, without places in the text."""
        with _answers("encode", self._where):
            return list(self._library.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of ``ids``, as transformers' ``decode`` gives it.

        Raises:
            DataError: the library cannot.
        """
        with _answers("decode", self._where):
            return self._cleaned(self._library.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def decode_batch(self, ids: Sequence[Sequence[int]], *, skip_special_tokens: bool = False) -> list[str]:
        """As :meth:`decode`, each by itself."""
        with _answers("decode", self._where):
            found = self._library.decode_batch([list(one) for one in ids], skip_special_tokens=skip_special_tokens)
        return [self._cleaned(text) for text in found]

    def id_to_token(self, number: int) -> str | None:
        """The token's name in the vocabulary."""
        found: str | None = self._library.id_to_token(number)
        return found

    def token_to_id(self, token: str) -> int | None:
        """The number of a token."""
        found: int | None = self._library.token_to_id(token)
        return found

    def get_vocab(self) -> dict[str, int]:
        """All tokens, added ones too."""
        return dict(self._library.get_vocab(with_added_tokens=True))

    def get_vocab_size(self) -> int:
        """How many tokens there are, added ones too."""
        return int(self._library.get_vocab_size(with_added_tokens=True))

    @property
    def rows(self) -> int:
        """One more than its last token's number. That is more than there are tokens where numbers are left out."""
        return max(self.get_vocab().values(), default=-1) + 1

    def to_str(self) -> str:
        """The content of its ``tokenizer.json``."""
        return str(self._library.to_str())

    def copy(self) -> Tokenizer:
        """Another one, whose settings can be others."""
        from tokenizers import Tokenizer as Library

        return Tokenizer(Library.from_str(self.to_str()), self.special, cleans=self.cleans, where=self._where)

    def _cleaned(self, text: str) -> str:
        return cleaned(text) if self.cleans else text


def cleaned(text: str) -> str:
    """``text`` without spaces before punctuation, as transformers' ``clean_up_tokenization`` makes it."""
    for spaced in _BEFORE:
        text = text.replace(spaced, spaced.strip())
    return text


def token_ids(data: bytes, *, where: str) -> frozenset[int]:
    """The numbers of all tokens of a tokenizer, special ones too.

    Raises:
        DataError: ``data`` describes no tokenizer.
    """
    return frozenset(parse_tokenizer(data, where=where).get_vocab().values())


def load_tokenizer(folder: Path, *, as_recorded: bool = False) -> Tokenizer:
    """The tokenizer of a folder, in the state in which documents are encoded. A special token that stands in a text is what it is
    to transformers: that token, unless the folder sets ``split_special_tokens``. ``as_recorded``: see :func:`parse_tokenizer`;
    it is text then, as in every tokenizer that is trained here, so that no text of a corpus forges the end of one.

    Raises:
        DataError: there is none, or it is refused.
    """
    found = open_tokenizer(folder, as_recorded=as_recorded)
    found.encode_special_tokens = found.encode_special_tokens or as_recorded
    return found


def open_tokenizer(folder: Path, *, as_recorded: bool = False) -> Tokenizer:
    """The tokenizer of a folder for what a person writes: a special token in a text is that token, as in transformers, unless
    the folder sets ``split_special_tokens``.

    Raises:
        DataError: there is none, or it is refused.
    """
    path = folder / FILE
    return parse_tokenizer(
        path.read_bytes() if path.is_file() else b"",
        where=str(path),
        config=read_settings(folder / CONFIG),
        special_map=read_settings(folder / SPECIAL_MAP),
        as_recorded=as_recorded,
    )


def parse_tokenizer(
    data: bytes,
    *,
    where: str,
    config: Mapping[str, Any] | None = None,
    special_map: Mapping[str, Any] | None = None,
    as_recorded: bool = False,
) -> Tokenizer:
    """The tokenizer that ``data`` describes.

    Args:
        data: the content of ``tokenizer.json``. ``config``, ``special_map``: of the files beside it. ``as_recorded``: with the
            truncation and padding that the file switches on, as runs have it whose recipe does not say ``tokenizer.reading``.

    Raises:
        DataError: it describes none, or one that draws by chance, or holds what the library is known to fail at.
    """
    from tokenizers import Tokenizer as Library  # some 50 ms that only a reader of one waits for

    settings = switched_on(data, where=where, as_recorded=as_recorded)
    with _answers("read", where):
        library = Library.from_str(data.decode("utf-8"))
        if settings and not as_recorded:
            logger.warning("%s: %s: settings of a call, switched off", where, " and ".join(settings))
            library.no_truncation()
            library.no_padding()
        config = config or {}
        special = _special_tokens(library, config, special_map or {})
        library.encode_special_tokens = config.get("split_special_tokens") is True
        forced = config.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output") is True
        bpe = type(library.model).__name__ == "BPE"
        cleans = config.get("clean_up_tokenization_spaces") is True and (forced or not bpe) and not as_recorded
    return Tokenizer(library, special, cleans=cleans, where=where)


def named_tokens(config: Mapping[str, Any], special_map: Mapping[str, Any]) -> dict[str, str]:
    """The texts of special tokens by name: of the content of ``tokenizer_config.json`` and of ``special_tokens_map.json``, by the
    precedence of transformers 5.12.1: the map first, and not at all where the config has ``added_tokens_decoder``."""
    said = _special_config(config, special_map)
    names = (*NAMED, *(name for name in said if name.endswith("_token") and name not in NAMED))
    named = {name: text for name in names if (text := _content(said.get(name))) is not None}
    for others in (_listed(said), said.get("model_specific_special_tokens")):
        if isinstance(others, dict):
            named |= {str(name): text for name, one in others.items() if (text := _content(one)) is not None}
    return named


def _special_tokens(library: Library, config: Mapping[str, Any], special_map: Mapping[str, Any]) -> SpecialTokens:
    """The special tokens of ``library``, as the files beside it name them (:func:`named_tokens`)."""
    named, listed = named_tokens(config, special_map), _listed(_special_config(config, special_map))
    extra = tuple(text for each in (listed if isinstance(listed, list) else ()) if (text := _content(each)) is not None)
    ids = {token.content: number for number, token in library.get_added_tokens_decoder().items() if token.special}
    for text in (*named.values(), *extra):
        if (number := library.token_to_id(text)) is not None:
            ids[text] = number
    return SpecialTokens(named, extra, ids)


def _special_config(config: Mapping[str, Any], special_map: Mapping[str, Any]) -> dict[str, Any]:
    return dict(config) if "added_tokens_decoder" in config else {**config, **special_map}


def _listed(said: Mapping[str, Any]) -> Any:
    return said.get("extra_special_tokens", said.get("additional_special_tokens")) or ()


def _content(value: object) -> str | None:
    text = value.get("content") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) else None


def read_settings(path: Path, error: type[MarinError] = DataError) -> dict[str, Any]:
    """What a file of JSON beside a tokenizer holds; nothing, where there is no such file.

    Raises:
        DataError, or the ``error`` of who asks: it holds something else than an object.
    """
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise error("a tokenizer's settings cannot be read", where=str(path), expected="a JSON object", found="another")
    return found


@contextmanager
def _answers(what: str, where: str) -> Iterator[None]:
    """Whatever the library throws, as a DataError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, DataError):
        raise
    except BaseException as error:
        raise DataError(
            f"a tokenizer cannot {what}" if what != "read" else "a tokenizer cannot be read",
            where=where,
            expected="a tokenizer.json of the library tokenizers"
            if what == "read"
            else "an answer of the library tokenizers",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            cure="make it again with `marin stage tokenizer`" if what == "read" else "take another tokenizer",
        ) from None


# -- what a file may hold, before the library sees it


def switched_on(data: bytes, *, where: str, as_recorded: bool = False) -> tuple[str, ...]:
    """The settings of a call that the file switches on, by name. ``as_recorded``: what was read before there were these checks
    and does no harm to a process is read, so that runs which were recorded with it can be judged.

    Raises:
        DataError: ``data`` is not a tokenizer, draws by chance, or holds what the library is known to fail at.
    """
    found = _read(data, where)
    model = found.get("model")
    if not isinstance(model, dict):
        raise tokenizer_error(where, "a model", "an object", type(model).__name__)
    _check_chance(model, where)
    _check_ids(found, model, where, twice=as_recorded)
    count = 0
    growth = {"normalizer": 1, "decoder": 1}
    for kind in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        for part in parts(found.get(kind)):
            count += 1
            if count > MOST_PARTS:
                raise tokenizer_error(where, "parts", f"at most {MOST_PARTS}", "more")
            if kind in growth:
                growth[kind] *= _growth(part)
                if growth[kind] > MOST_GROWTH:
                    raise tokenizer_error(
                        where, f"{kind}: replacements", f"a text at most {MOST_GROWTH} times as long", "longer"
                    )
            _check_part(kind, part, where, repeated=as_recorded)
    return tuple(name for name in CALL if found.get(name) is not None)


def parts(value: object) -> Iterator[Mapping[str, Any]]:
    """A component, or those of a sequence of them, in order."""
    if not isinstance(value, dict):
        return
    inner = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if inner is None:
        yield value
        return
    for each in inner:
        yield from parts(each)


def tokenizer_error(where: str, what: str, expected: str, found: str) -> DataError:
    """The refusal of one setting."""
    return DataError(
        "a tokenizer cannot be read",
        where=f"{where}: {what}",
        expected=expected,
        found=found[:120],
        cure="make it again with `marin stage tokenizer`, or correct the file",
    )


def _read(data: bytes, where: str) -> dict[str, Any]:
    if len(data) > MOST_BYTES:
        raise tokenizer_error(where, "its size", f"at most {MOST_BYTES} bytes", str(len(data)))
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise tokenizer_error(where, "its content", "a tokenizer.json of the library tokenizers", str(error)) from None
    if not isinstance(found, dict):
        raise tokenizer_error(where, "its content", "a JSON object", type(found).__name__)
    if (deep := _depth(found)) > DEEPEST:
        raise tokenizer_error(where, "its content", f"{DEEPEST} levels at most", str(deep))
    return found


def _depth(value: object) -> int:
    deepest, left = 0, [(value, 1)]
    while left:
        one, depth = left.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        if inner is None:
            continue
        deepest = max(deepest, depth)
        left += [(each, depth + 1) for each in inner if isinstance(each, dict | list)]
    return deepest


def _check_chance(model: Mapping[str, Any], where: str) -> None:
    for name in ("dropout", "alpha", "nbest_size"):
        value = model.get(name)
        if value is not None and (isinstance(value, bool) or value != 0):
            raise DataError(
                "a tokenizer that draws by chance",
                where=f"{where}: model.{name}",
                expected="null: the same text has the same tokens every time",
                found=repr(value)[:40],
                cure="set it to null in tokenizer.json; no run with it could be verified",
            )


def _check_ids(found: Mapping[str, Any], model: Mapping[str, Any], where: str, *, twice: bool) -> None:
    vocabulary = model.get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    if any(type(number) is not int or not 0 <= number <= LAST_ID for number in ids):
        odd = next(number for number in ids if type(number) is not int or not 0 <= number <= LAST_ID)
        raise tokenizer_error(where, "model.vocab", f"ids from 0 to {LAST_ID}", repr(odd))
    if len(set(ids)) != len(ids) and not twice:
        ordered = sorted(ids)
        first = next(number for number, after in pairwise(ordered) if number == after)
        raise DataError(
            "a tokenizer that draws by chance",
            where=f"{where}: model.vocab",
            expected="a number for each token",
            found=f"two tokens with the number {first}, of which each process decodes another",
            cure="correct the vocabulary",
        )
    added = found.get("added_tokens") or []
    if not isinstance(added, list) or any(
        not isinstance(one, dict)
        or not isinstance(one.get("content"), str)
        or not one["content"]
        or type(one.get("id")) is not int
        or not 0 <= one["id"] <= LAST_ID
        for one in added
    ):
        raise tokenizer_error(where, "added_tokens", f"a content and an id from 0 to {LAST_ID} each", "another")


def _check_part(kind: str, part: Mapping[str, Any], where: str, *, repeated: bool) -> None:
    name = part.get("type")
    if name == "Precompiled":
        _check_compiled(part.get("precompiled_charsmap"), where)
    elif name == "FixedLength" and part.get("length") == 0:
        raise tokenizer_error(where, "pre_tokenizer: FixedLength", "a length", "0")
    elif name == "TemplateProcessing" and not repeated:
        single = part.get("single")
        texts = (
            [one for one in single if isinstance(one, dict) and "Sequence" in one] if isinstance(single, list) else []
        )
        names = [one["Sequence"].get("id") if isinstance(one["Sequence"], dict) else None for one in texts]
        if names != ["A"]:
            raise tokenizer_error(where, "post_processor: single", "the text once", f"{names}")


def _check_compiled(value: object, where: str) -> None:
    """SentencePiece's compiled map of characters: the size of a trie in bytes (uint32, little-endian), the trie, and texts."""
    try:
        raw = base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except ValueError:
        raw = b""
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 8 or size % 4 or not 0 < size <= len(raw) - 4:
        raise tokenizer_error(
            where, "normalizer: Precompiled", "a map as large as it says", f"{len(raw)} bytes that say {size}"
        )


def _growth(part: Mapping[str, Any]) -> int:
    content = part.get("content", part.get("prepend"))
    if part.get("type") != "Replace" or not isinstance(content, str) or len(content) < 2:
        return 1
    return len(content) + 1
