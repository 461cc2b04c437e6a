"""One page as a document: its bytes decoded, and what it says of licence and of being used, as metadata.

The document's text is the markup; the step ``html`` makes text of it, so that how this is done is a setting of the collection.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path

from marin.collection.document import Document, Problem, Scalar, document_id

MOST_PAGE = 16 << 20
"""Bytes that a page may have."""
META = re.compile(rb"<meta\s[^>]{0,500}>", re.IGNORECASE)
CHARSET = re.compile(rb"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
ROBOTS = re.compile(r"<meta\s[^>]{0,200}?name\s*=\s*[\"']?(robots|tdm-reservation)\b[^>]{0,300}>", re.IGNORECASE)
CONTENT = re.compile(r"content\s*=\s*(?:\"([^\"]{0,200})\"|'([^']{0,200})'|([^\s>]{1,200}))", re.IGNORECASE)
LICENCE = re.compile(r"<(?:a|link)\s[^>]{0,400}?rel\s*=\s*[\"']?license\b[^>]{0,400}>", re.IGNORECASE)
HREF = re.compile(r"href\s*=\s*[\"']?([^\"'\s>]{1,300})", re.IGNORECASE)
NAMED = {"x-robots-tag": "robots_header", "tdm-reservation": "tdm_header", "link": "link_header"}


def read_html(path: Path, source: str) -> Iterator[Document | Problem]:
    """See :class:`marin.collection.document.Reader`: a file is one page."""
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
    charset: str = "",
    url: str = "",
    added: str = "",
    response: Mapping[str, str] | None = None,
) -> Document | Problem:
    """The document of a page's bytes. ``charset``: what the response says, which goes before what the page says; bytes of an
    encoding that nobody names are UTF-8. Bytes that do not fit are a problem: no guess decides about a text."""
    response = response or {}
    text = _decoded(data, charset)
    if text is None:
        return Problem(source, position, "not in its encoding", charset or "as the page says, or UTF-8")
    if not text.strip():
        return Problem(source, position, "empty text")
    metadata: dict[str, Scalar] = {"position": position, "content_type": mime}
    if url:
        metadata["url"] = url
    metadata |= {key: response[name][:500] for name, key in NAMED.items() if name in response}
    if mime != "text/plain":
        for found in ROBOTS.finditer(text):
            if content := CONTENT.search(found[0]):
                metadata.setdefault(found[1].lower().replace("-", "_"), next(filter(None, content.groups()), ""))
        if (found_licence := LICENCE.search(text)) and (href := HREF.search(found_licence[0])):
            metadata["licence"] = href[1]
    return Document(
        document_id(source, position, text), text, source, added, _time(response.get("last-modified", "")), metadata
    )


def _decoded(data: bytes, charset: str) -> str | None:
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return _as(data[len(mark) :], name)
    names = [charset, *(found[1].decode() for meta in META.findall(data[:4096]) if (found := CHARSET.search(meta)))]
    for name in filter(None, names):
        # As browsers do (WHATWG Encoding): who says Latin-1 means Windows-1252.
        name = "cp1252" if name.lower() in ("iso-8859-1", "latin1", "latin-1", "ascii", "us-ascii") else name
        if (text := _as(data, name)) is not None:
            return text
    return _as(data, "utf-8")


def _as(data: bytes, name: str) -> str | None:
    try:
        text = data.decode(name)
        text.encode("utf-8")
    except (LookupError, ValueError):  # no such encoding, or one of bytes; bytes that do not fit
        return None
    return text


def _time(said: str) -> str:
    """RFC 3339 of an HTTP date; empty where it is none."""
    try:
        return parsedate_to_datetime(said).strftime("%Y-%m-%dT%H:%M:%SZ") if said else ""
    except (ValueError, TypeError, OverflowError):
        return ""
