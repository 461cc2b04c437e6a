"""One page as a document: its bytes decoded, and what it says of licence and of being used, as metadata.

The document's text is the markup; the step ``html`` makes text of it, so that how this is done is a setting of the collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

from marin.plugins.collections.document import MARKUP, XML, Document, Problem, Scalar, document_id
from marin.plugins.collections.sources.charset import declared_by_html, declared_by_xml, mark
from marin.plugins.collections.sources.encodings import decode, encoding_of

MOST_PAGE = 16 << 20
"""Bytes that a page may have."""
FEW, SHARE = 3, 10
"""Wrong sequences that a page may have: so many, or one for so many characters outside of ASCII. Of texts that say UTF-8 and are
in another encoding three quarters and more of these characters are wrong (docs/data.md)."""
CONTROLS, MOST_CONTROLS = bytes((*range(9), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20))), 50
"""Bytes of data, and for how many bytes one may stand in an encoding that knows no wrong ones: one in ten is packed data."""
HIGH, RUN = bytes(range(0x80, 0x100)), re.compile(rb"[\x80-\xff]{3,}")
XHTML = "application/xhtml+xml"
Rules = Literal["html", "xml", "text"]
"""Whose rules say what encoding bytes are in: those of HTML, of XML, or of what has no markup."""
ROBOTS = re.compile(r"<meta\s[^>]{0,200}?name\s*=\s*[\"']?(robots|tdm-reservation)\b[^>]{0,300}>", re.IGNORECASE)
CONTENT = re.compile(r"content\s*=\s*(?:\"([^\"]{0,200})\"|'([^']{0,200})'|([^\s>]{1,200}))", re.IGNORECASE)
LICENCE = re.compile(r"<(?:a|link)\s[^>]{0,400}?rel\s*=\s*[\"']?license\b[^>]{0,400}>", re.IGNORECASE)
HREF = re.compile(r"href\s*=\s*[\"']?([^\"'\s>]{1,300})", re.IGNORECASE)
NAMED = {"x-robots-tag": "robots_header", "tdm-reservation": "tdm_header", "link": "link_header"}


def read_html(path: Path, source: str) -> Iterator[Document | Problem]:
    """See :class:`marin.plugins.collections.document.Reader`: a file is one page."""
    with path.open("rb") as file:
        data = file.read(MOST_PAGE + 1)
    if len(data) > MOST_PAGE:
        yield Problem(source, 1, "too large", f"more than {MOST_PAGE} bytes")
    else:
        yield page(source, 1, data)


def page(
    source: str,
    position: int,
    data: bytes,
    *,
    mime: str = "text/html",
    rules: Rules = "html",
    charset: str = "",
    url: str = "",
    added: str = "",
    truncated: str = "",
    response: Mapping[str, str] | None = None,
) -> Document | Problem:
    """The document of a page's bytes, decoded as browsers do.

    Args:
        charset: the label of the transport, which goes before what the page says, and behind a byte order mark.
        truncated: why the bytes are not all of the page, where they are not.
    """
    response = response or {}
    found = decode_page(data, charset, rules)
    if not found.fits:
        return Problem(source, position, "not in its encoding", found.said)
    text = found.text
    if not text.strip():
        return Problem(source, position, "empty text")
    metadata: dict[str, Scalar] = {"position": position, "content_type": mime}
    if rules == XML:
        metadata[MARKUP] = XML
    if found.encoding != "utf-8":
        metadata["encoding"] = found.encoding
    if found.wrong:
        metadata["replaced_characters"] = found.wrong
    if truncated:
        metadata["truncated"] = truncated[:40]
    if url:
        metadata["url"] = url
    metadata |= {key: response[name][:500] for name, key in NAMED.items() if name in response}
    if mime != "text/plain":
        for signal in ROBOTS.finditer(text):
            if content := CONTENT.search(signal[0]):
                metadata.setdefault(signal[1].lower().replace("-", "_"), next(filter(None, content.groups()), ""))
        if (found_licence := LICENCE.search(text)) and (href := HREF.search(found_licence[0])):
            metadata["licence"] = href[1]
    return Document(
        document_id(source, position, text), text, source, added, _time(response.get("last-modified", "")), metadata
    )


@dataclass(frozen=True)
class Decoded:
    """``wrong``: sequences that became U+FFFD. ``fits``: that it may be the encoding of the page; ``why`` not."""

    text: str
    encoding: str
    wrong: int = 0
    fits: bool = True
    why: str = "bytes of data"

    @property
    def said(self) -> str:
        """Why it does not fit."""
        return f"{self.encoding}: {self.wrong} of {len(self.text)} characters are none" if self.wrong else self.why


def decode_page(data: bytes, charset: str, rules: Rules) -> Decoded:
    """The text of a page. Where no encoding is named (or an unknown name), it is UTF-8 where the bytes are, and else HTML's
    default, windows-1252, unless the bytes are of a script that it does not have."""
    if (marked := mark(data)) is not None:
        name, size = marked
        return _fitting(data[size:], name)
    named = encoding_of(charset) if charset else None
    if named is None and rules == "html":
        named = declared_by_html(data)
    elif named is None and rules == "xml":
        named = declared_by_xml(data) or "utf-8"
    if named is not None:
        return _fitting(data, named)
    text, wrong = decode(data, "utf-8")
    if wrong * SHARE <= _beyond_ascii(text):
        return Decoded(text, "utf-8", wrong)
    high = len(data) - len(data.translate(None, delete=HIGH))
    runs = sum(len(run) for run in RUN.findall(data) if len(set(run)) > 1)
    if runs * 2 > high:
        return Decoded("", "", fits=False, why="no encoding is named, and the bytes are neither UTF-8 nor windows-1252")
    return _fitting(data, "windows-1252")


def _fitting(data: bytes, name: str) -> Decoded:
    text, wrong = decode(data, name)
    if wrong > 0:
        return Decoded(text, name, wrong, wrong <= max(_beyond_ascii(text) // SHARE, min(FEW, len(text) // 20)))
    controls = 0 if name.startswith("utf-") else len(data) - len(data.translate(None, delete=CONTROLS))
    return Decoded(text, name, fits=controls * MOST_CONTROLS <= len(data))


def _beyond_ascii(text: str) -> int:
    return len(text) - len(text.encode("ascii", "ignore"))


def _time(said: str) -> str:
    """RFC 3339 of an HTTP date; empty where it is not one."""
    try:
        return parsedate_to_datetime(said).strftime("%Y-%m-%dT%H:%M:%SZ") if said else ""
    except (ValueError, TypeError, OverflowError):
        return ""
