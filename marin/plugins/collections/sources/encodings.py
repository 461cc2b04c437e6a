"""The decoders of the Encoding Standard (WHATWG): which encoding a label means, and what text bytes are in it, as in a browser.

Labels are those of webencodings. Python's codecs were held to every byte and sequence of the standard's indexes (May 2026;
Python 3.12): single bytes differ where Python leaves 0x80 to 0x9F of windows-* empty, in two letters of KOI8-U and one of
windows-1255; gb18030 in 22 sequences, Big5 in 203, EUC-JP in 464, Shift_JIS in four bytes, ISO-2022-JP in its katakana and all of
NEC's and IBM's rows, EUC-KR in none. Behind a wrong byte Python goes on at another one than the standard, so such texts are
decoded here, by tables that Python's codecs fill.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import webencodings

REPLACED = "\ufffd"
type Decoder = Callable[[bytes], tuple[str, int]]


def encoding_of(label: str) -> str | None:
    """The name, in small letters, of the encoding that a label means; None: it is not a label of the web."""
    try:
        found = webencodings.lookup(label)
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return None if found is None else str(found.name)


def decode(data: bytes, name: str) -> tuple[str, int]:
    """The text of bytes without their byte order mark, and how many wrong sequences became U+FFFD in it.

    Args:
        name: as :func:`encoding_of` gives it.

    Source: https://encoding.spec.whatwg.org/ (8 to 14).
    """
    return _decoder(name)(data)


@cache
def _decoder(name: str) -> Decoder:
    if name in ("utf-8", "utf-16le", "utf-16be"):
        return _unicode(name)
    if name == "replacement":
        return lambda data: (REPLACED, 1) if data else ("", 0)
    if name == "x-user-defined":
        return _single("".join(map(chr, [*range(0x80), *range(0xF780, 0xF800)])))
    if name == "iso-2022-jp":
        return _iso_2022_jp
    if (several := _MULTIPLE.get("gb18030" if name == "gbk" else name)) is not None:
        return several
    return _single(_characters(name))


def _unicode(name: str) -> Decoder:
    def decoded(data: bytes) -> tuple[str, int]:
        try:
            return data.decode(name), 0
        except UnicodeDecodeError:
            text = data.decode(name, "replace")
        # U+FFFD that stands in the bytes is not a wrong sequence.
        return text, text.count(REPLACED) - data.decode(name, "ignore").count(REPLACED)

    return decoded


def _single(characters: str) -> Decoder:
    def decoded(data: bytes) -> tuple[str, int]:
        text = codecs.charmap_decode(data, "strict", characters)[0]
        return text, text.count(REPLACED)

    return decoded


def _characters(name: str) -> str:
    """The 256 characters of an encoding of single bytes; U+FFFD where it has none."""
    codec = codecs.getdecoder(webencodings.lookup(name).codec_info.name)
    others = {"koi8-u": {0xAE: "\u045e", 0xBE: "\u040e"}, "windows-1255": {0xCA: "\u05ba"}}.get(name, {})
    return "".join(others.get(byte) or _character(codec, byte, name) for byte in range(256))


def _character(codec: Callable[..., tuple[str, int]], byte: int, name: str) -> str:
    found = codec(bytes([byte]), "replace")[0]
    return chr(byte) if found == REPLACED and byte < 0xA0 and name.startswith("windows-") else found


# --- encodings of several bytes ---

_BIG5 = (
    "877a:3875,21d53,2369e,26021,3eec 87a1:258de,3af5,7afc,9f97,24161,2890d,231ea,20a8a,2325e,430a,8484,9f96,942f,"
    "4930,8613,5896,974a,9218,79d0,7a32,6660,6a29,889d,744c,7bc5,6782,7a2c,524f,9046,34e6,73c4,25db9,74c6,9fc7,"
    "57b3,492f,544c,4131,2368e,5818,7a72,27b65,8b8f,46ae,26e88,4181,25d99,7bae,224bc,9fc8,224c1,224c9,224cc,9fc9,"
    "8504,235bb,40b4,9fca,44e1,2adff,62c1,706e,9fcb 8e69:7bb8 8e6f:7c06 8e7e:7cce 8eab:7dd2 8eb4:7e1d 8ecd:8005 "
    "8ed0:8028 8f57:83c1 8f69:84a8 8f6e:840f 8fcb:89a6,89a9 8ffe:8d77 906d:90fd 907a:92b9 90dc:975c 90f1:97ff "
    "91bf:9f16 9244:8503 92af:5159,515b,515d,515e 92c8:936e 92d1:7479 9447:6d67 94ca:799b 95d9:9097 9644:975d "
    "96ed:701e 96fc:5b28 9b76:7201 9b78:77d7 9b7b:7e87 9bc6:99d6 9bde:91d4 9bec:60de 9bf6:6fb6 9c42:8f36 9c53:4fbb "
    "9c62:71df 9c68:9104 9c6b:9df0 9c77:83cf 9cbc:5c10,79e3 9cd0:5a67 9d57:8f0b 9d5a:7b51 9dc4:62d0 9ea9:6062 "
    "9eef:75f9 9efd:6c4a 9f60:9b2e 9f66:9f17 9fcb:50ed 9fd8:5f0c a063:880f a077:62ce a0d5:7468 a0df:7162 a0e4:7250 "
    "a145:2027 a14e:fe51 a1c2:af a1e3:ff5e a1f2:2295,2299 a241:2215,fe68 a244:ffe5 a246:ffe0,ffe1 a3c0:2400,2401,"
    "2402,2403,2404,2405,2406,2407,2408,2409,240a,240b,240c,240d,240e,240f,2410,2411,2412,2413,2414,2415,2416,2417,"
    "2418,2419,241a,241b,241c,241d,241e,241f,2421,20ac c6cf:5ef4 c6d3:65e0 c6d5:7676 c6d7:96b6 c6de:3003,4edd "
    "fa5f:5029 fa66:507d fabd:5305 fac5:5344 fad5:537f fb48:5605 fbb8:5a77 fbf3:5e75 fbf9:5ed0 fc4f:5f58 fc6c:60a4 "
    "fcb9:6490 fce2:6674 fcf1:675e fdb7:6c9c,6e1d fdbb:6e2f fdf1:716e fe52:732a fe6f:745c feaa:74e9 fedd:7809"
)
"""Sequences that Python's big5hkscs does not have: the first one, and the characters from there on."""


@dataclass(frozen=True)
class _Several:
    """Python's ``codec``, and what it says otherwise than the standard.

    ``token``: what the standard takes for one character, or for one wrong sequence. ``characters``: what stands in the place of
    characters of Python's. ``missing``: sequences that Python does not have; ``apart``: those whose characters it has twice.
    """

    codec: str
    token: re.Pattern[bytes]
    characters: Mapping[int, int | str]
    missing: Callable[[], Mapping[bytes, str]] = dict
    apart: Mapping[bytes, str] = field(default_factory=dict)

    def __call__(self, data: bytes) -> tuple[str, int]:
        text = "".join(self._pieces(data)) if any(one in data for one in self.apart) else self._text(data)
        wrong = text.count(WRONG)
        return text.replace(WRONG, REPLACED) if wrong else text, wrong

    def _text(self, data: bytes) -> str:
        text = data.decode(self.codec, self._handler)
        return text.translate(self.characters) if self.characters else text

    def _pieces(self, data: bytes) -> Iterator[str]:
        apart = b"|".join(map(re.escape, self.apart))
        others = re.compile(rb"(?:[\x00-\x7f]++|(?!%b)(?:%b))*+" % (apart, self.token.pattern), re.DOTALL)
        place = 0
        while place < len(data):
            found = others.match(data, place)
            assert found is not None, "it may be empty"
            yield self._text(found[0])
            place = found.end()
            for one in (one for one in self.apart if data.startswith(one, place)):
                yield self.apart[one]
                place += len(one)

    @cached_property
    def _handler(self) -> str:
        """The name of the handler of errors: Python stands at the first byte of a sequence that it does not have."""
        name = f"marin.{self.codec}"
        codecs.register_error(name, self._otherwise)
        return name

    def _otherwise(self, error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        match = self.token.match(error.object, error.start)
        assert match is not None, "there is one for every byte above 0x7F"
        token = match[0]
        if (found := self.missing().get(token)) is not None:
            return found, match.end()
        if len(token) == 4:
            return WRONG, error.start + 1
        # An ASCII byte behind a wrong one stays, so that no markup is swallowed.
        return WRONG, match.end() - (len(token) > 1 and token[-1] < 0x80 and not match.lastindex)


WRONG = "\udfff"
"""Stands for a wrong sequence while bytes are decoded: U+FFFD may stand in them."""


@cache
def _big5() -> Mapping[bytes, str]:
    table = {}
    for word in _BIG5.split():
        first, _, characters = word.partition(":")
        for number, character in enumerate(characters.split(",")):
            table[(int(first, 16) + number).to_bytes(2, "big")] = chr(int(character, 16))
    return table


@cache
def _jis0208() -> Mapping[bytes, str]:
    """By the two bytes of EUC-JP: the index that Shift_JIS has, too, in which two rows are one lead byte."""
    table = {}
    for row in range(94):
        for cell in range(94):
            lead, trail = row // 2 + (0x81 if row < 62 else 0xC1), cell + row % 2 * 94
            text = bytes((lead, trail + (0x40 if trail < 63 else 0x41))).decode("cp932", "replace")
            if len(text) == 1 and not "\ue000" <= text <= "\uf8ff":
                table[bytes((row + 0xA1, cell + 0xA1))] = text
    return table


_MULTIPLE: Mapping[str, Decoder] = {
    "gb18030": _Several(
        "gb18030",
        re.compile(
            rb"[\x81-\xfe][0-9][\x81-\xfe][0-9]|([\x81-\xfe][0-9][\x81-\xfe]?)\Z|[\x81-\xfe][\x40-\xff]|[\x80-\xff]",
            re.DOTALL,
        ),
        # GB18030 of 2000, and that of 2022 as the standard has it.
        str.maketrans(
            "\ue5e5\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue7c7\u1e3f"
            "\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864",
            "\u3000\ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19\u1e3f\ue7c7"
            "\u9fb4\u9fb5\u9fb6\u9fb7\u9fb8\u9fb9\u9fba\u9fbb",
        ),
        lambda: {b"\x80": "\u20ac"},
    ),
    "euc-kr": _Several("cp949", re.compile(rb"[\x81-\xfe][\x00-\xff]|[\x80-\xff]", re.DOTALL), {}),
    "shift_jis": _Several(
        "cp932",
        re.compile(rb"[\x81-\x9f\xe0-\xfc][\x00-\xff]|[\x80-\xff]", re.DOTALL),
        dict.fromkeys(range(0xF8F0, 0xF8F4), WRONG),
    ),
    "big5": _Several(
        "big5hkscs",
        re.compile(rb"[\x81-\xfe][\x00-\xff]|[\x80-\xff]", re.DOTALL),
        str.maketrans(
            "\u2022\uff64\u203e\u223c\u2641\u2609\xa5\xa2\xa3", "\u2027\ufe51\xaf\uff5e\u2295\u2299\uffe5\uffe0\uffe1"
        ),
        _big5,
        {b"\xa2\x41": "\u2215", b"\xa2\x42": "\ufe68"},
    ),
    "euc-jp": _Several(
        "euc_jp",
        re.compile(rb"\x8f[\xa1-\xfe][\x00-\xff]|[\x8e\x8f\xa1-\xfe][\x00-\xff]|[\x80-\xff]", re.DOTALL),
        str.maketrans("\u301c\u2016\u2212\xa2\xa3\xac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2"),
        _jis0208,
        {b"\x8f\xa2\xb7": "\uff5e"},
    ),
}

_ESCAPE = re.compile(rb"\x1b(?:\(([BJI])|\$([@B]))")


def _iso_2022_jp(data: bytes) -> tuple[str, int]:
    """A state for each escape sequence; two of them with nothing between are wrong, as is a byte that the state has not."""
    parts: list[str] = []
    state, place, wrong, empty = b"B", 0, 0, False

    def put(text: str | None) -> None:
        nonlocal wrong, empty
        empty = False
        wrong += text is None
        parts.append(REPLACED if text is None else text)

    while place < len(data):
        byte = data[place]
        if byte == 0x1B:
            escape = _ESCAPE.match(data, place)
            if escape is None:
                put(None)
                place += 1
                continue
            if empty:
                put(None)
            state, place, empty = escape[1] or b"$", escape.end(), True
        elif state == b"$":
            trail = data[place + 1] if place + 1 < len(data) else 0
            if not 0x21 <= byte <= 0x7E:
                put(None)
                place += 1
            else:
                put(_jis0208().get(bytes((byte | 0x80, trail | 0x80))) if 0x21 <= trail <= 0x7E else None)
                # The start of an escape sequence in the place of a trail byte is wrong itself, and begins one.
                place += 1 if trail == 0x1B else 2
        else:
            put(_iso_2022_jp_single(byte, state))
            place += 1
    return "".join(parts), wrong


def _iso_2022_jp_single(byte: int, state: bytes) -> str | None:
    if state == b"I":
        return chr(0xFF61 - 0x21 + byte) if 0x21 <= byte <= 0x5F else None
    if byte > 0x7F or byte in (0x0E, 0x0F):
        return None
    return {0x5C: "\xa5", 0x7E: "\u203e"}.get(byte, chr(byte)) if state == b"J" else chr(byte)
