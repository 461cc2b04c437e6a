"""Which encoding a page is in, as the HTML Standard says (13.2.3): byte order mark, transport, what the markup declares.

The prescan of the first 1,024 bytes is a guess, which the first ``meta`` element of the page corrects, wherever it stands; so the
element is looked for first. Elements are found by the tokenizer's rules (comments, attributes, the text of scripts and titles),
without a tree, in time linear in the bytes.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Mapping

from marin.plugins.collections.sources.encodings import encoding_of

PRESCAN = 1024
"""Bytes that the prescan sees."""
HEAD = 4096
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
RAW = frozenset((b"script", b"style", b"xmp", b"iframe", b"noembed", b"noframes", b"textarea", b"title"))
"""Elements whose content is text to the tokenizer; ``noscript`` is not one of them where no script is executed."""

_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*+(?:(>)|([^\t\n\f\r />][^\t\n\f\r />=]*+)"
    rb"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*+)\"|'([^']*+)'|([\"'])|([^\t\n\f\r >]*+)))?+)"
)
"""The end of a tag; or a name and its value in quotes, behind a quote that nothing ends, or bare."""
_OTHERS = re.compile(
    rb"(?:[^<]++|<(?![a-z/!?])|</?(?!(?:meta|plaintext|%b)[\t\n\f\r />])[a-z][^\t\n\f\r />]*+(?:[\t\n\f\r /]*+[^\t\n\f\r />]"
    rb"[^\t\n\f\r />=]*+(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])[^\t\n\f\r >]*+))?+)*+[\t\n\f\r /]*+>)*+"
    % b"|".join(sorted(RAW))
)
"""Text and tags that no step here looks at."""
_COMMENT = re.compile(rb"<!--(?:-?>|.*?--!?>)", re.DOTALL)
_TAG = re.compile(rb"</?([a-z][^\t\n\f\r />]*+)")
_META = re.compile(rb"<meta[\t\n\f\r /]", re.IGNORECASE)
_SCANNED_TAG = re.compile(rb"</?[a-z][^\t\n\f\r >]*+", re.IGNORECASE)
_CHARSET = re.compile(rb"charset[\t\n\f\r ]*+=[\t\n\f\r ]*+", re.IGNORECASE)
_BARE = re.compile(rb"[^\t\n\f\r ;]*+")
_XML = re.compile(rb"[\x00-\x20]*+=[\x00-\x20]*+(?:\"([^\"\x00-\x20]*)\"|'([^'\x00-\x20]*)')")
_ENDS = {name: re.compile(rb"</" + name + rb"(?=[\t\n\f\r />])", re.IGNORECASE) for name in RAW}


def mark(data: bytes) -> tuple[str, int] | None:
    """The encoding and the length of a byte order mark."""
    return next(((name, len(bytes_)) for bytes_, name in MARKS if data.startswith(bytes_)), None)


def declared_by_html(data: bytes) -> str | None:
    """The encoding that the markup of a page of HTML declares."""
    # What is found in the beginning is what is found in the whole, and nearly always there.
    return _element(data[:HEAD]) or (_element(data) if len(data) > HEAD else None) or _prescan(data[:PRESCAN])


def declared_by_xml(data: bytes) -> str | None:
    """The encoding of XML's declaration (XML 1.0, appendix F), or of its first letters, where they are UTF-16."""
    return _utf16(data) or _xml_declaration(data[:PRESCAN])


def _element(data: bytes) -> str | None:
    """Of the first ``meta`` element that names an encoding ("change the encoding", 13.2.6.4.4)."""
    small = data.lower()
    last = small.rfind(b"<meta") if b"charset" in small else -1
    place = _behind_others(small, 0)
    while place <= last:
        tag = _TAG.match(small, place)
        if tag is not None:
            begins = small[place + 1] != 0x2F
            attributes, place = _attributes(small, tag.end())
            if not place or (begins and tag[1] == b"plaintext"):
                return None
            if begins and tag[1] == b"meta" and (name := _named(attributes)):
                return name
            if begins and tag[1] in RAW:
                end = _ENDS[tag[1]].search(small, place)
                if end is None:
                    return None
                place = end.start()
        elif small.startswith(b"<!--", place):
            comment = _COMMENT.match(small, place)
            if comment is None:
                return None
            place = comment.end()
        else:  # <! and <? and </ with something else behind it end at the first sign
            place = small.find(b">", place) + 1
            if not place:
                return None
        place = _behind_others(small, place)
    return None


def _behind_others(data: bytes, place: int) -> int:
    found = _OTHERS.match(data, place)
    assert found is not None, "it may be empty"
    return found.end()


def _named(attributes: Mapping[bytes, bytes]) -> str | None:
    values = {name: html.unescape(value.decode("latin-1")) for name, value in attributes.items() if name in _NAMED}
    name = encoding_of(values.get(b"charset", ""))
    if name is None and values.get(b"http-equiv") == "content-type":
        name = _of_content(values.get(b"content", "").encode("latin-1", "replace"))
    return _for_markup(name)


_NAMED = (b"charset", b"http-equiv", b"content")


def _prescan(data: bytes) -> str | None:
    """ "Prescan a byte stream to determine its encoding" (13.2.3.2), with XML's declaration where nothing else is found."""
    if name := _utf16(data):
        return name
    place = 0
    while (place := data.find(b"<", place)) >= 0:
        if data.startswith(b"<!--", place):
            place = data.find(b"-->", place + 2) + 3
            if place < 3:
                break
        elif (tag := _SCANNED_TAG.match(data, place)) is not None:
            meta = _META.match(data, place)
            attributes, place = _attributes(data, tag.end() if meta is None else meta.end() - 1)
            if not place:
                break
            if meta is not None and (name := _guessed(attributes)):
                return name
        elif data[place + 1 : place + 2] in (b"!", b"/", b"?"):
            place = data.find(b">", place)
            if place < 0:
                break
        else:
            place += 1
    return _xml_declaration(data)


def _guessed(attributes: Mapping[bytes, bytes]) -> str | None:
    if b"charset" in attributes:
        return _for_markup(encoding_of(attributes[b"charset"].decode("latin-1")))
    if attributes.get(b"http-equiv", b"").lower() == b"content-type":
        return _for_markup(_of_content(attributes.get(b"content", b"")))
    return None


def _attributes(data: bytes, place: int) -> tuple[dict[bytes, bytes], int]:
    """The attributes of a tag from behind its name, and the place behind the tag; 0: the bytes end in it."""
    attributes: dict[bytes, bytes] = {}
    while (found := _ATTRIBUTE.match(data, place)) is not None and found[5] is None:
        place = found.end()
        if found[1]:
            return attributes, place
        attributes.setdefault(found[2].lower(), found[3] or found[4] or found[6] or b"")
    return attributes, 0


def _of_content(value: bytes) -> str | None:
    """ "Extract a character encoding from a meta element" (2.5.3)."""
    found = _CHARSET.search(value)
    if found is None:
        return None
    rest = value[found.end() :]
    if rest[:1] in (b'"', b"'"):
        label, quote, _ = rest[1:].partition(rest[:1])
        return encoding_of(label.decode("latin-1")) if quote else None
    bare = _BARE.match(rest)
    assert bare is not None, "it may be empty"
    return encoding_of(bare[0].decode("latin-1"))


def _for_markup(name: str | None) -> str | None:
    """Who reads ``meta`` in ASCII does not read UTF-16; x-user-defined is not an encoding of pages (13.2.3.4)."""
    return {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}.get(name or "", name)


def _utf16(data: bytes) -> str | None:
    return {b"<\0?\0x\0": "utf-16le", b"\0<\0?\0x": "utf-16be"}.get(data[:6])


def _xml_declaration(data: bytes) -> str | None:
    end = data.find(b">")
    place = data.find(b"encoding", 0, end)
    if not data.startswith(b"<?xml") or end < 0 or place < 0:
        return None
    found = _XML.match(data, place + 8, end)
    return _for_markup(encoding_of((found[1] or found[2] or b"").decode("latin-1"))) if found else None
