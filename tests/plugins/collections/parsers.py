"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from __future__ import annotations

import gzip
from pathlib import Path

from marin.plugins.collections.sources.encodings import decode
from marin.plugins.collections.sources.lines import read
from marin.plugins.collections.sources.page import read_html
from marin.plugins.collections.sources.warc import read_warc
from tests.fuzz.parsers import Parser, given, on_file

PAGE = b"<html><head><meta charset=utf-8><title>a</title></head><body><p>The dog runs and runs.</p></body></html>"
HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + PAGE
RECORD = (
    b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: https://a.example/\r\n"
    b"Content-Type: application/http;msgtype=response\r\n"
    b"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000001>\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
    b"Content-Length: " + str(len(HTTP)).encode() + b"\r\n\r\n" + HTTP + b"\r\n\r\n"
)
ENCODINGS = (
    *("utf-8", "utf-16le", "gb18030", "big5", "euc-jp", "iso-2022-jp"),
    *("shift_jis", "euc-kr", "windows-1252", "x-user-defined"),
)


def decoded(data: bytes) -> None:
    """By every kind of decoder: each takes any bytes."""
    for name in ENCODINGS:
        text, _ = decode(data, name)
        text.encode("utf-8")


def lines(path: Path) -> None:
    """Documents, or problems that name the line."""
    list(read(path, "fuzz"))


PARSERS = [
    Parser(
        "bytes of a page by their encoding",
        decoded,
        given(PAGE, "the dog".encode("utf-16-le"), "犬".encode("euc-jp"), "犬".encode("iso2022_jp")),
        ("marin.plugins.collections.sources.encodings.decode",),
        most=1 << 15,  # of wrong bytes each is a call, and counting memory makes calls slow
    ),
    Parser(
        "documents in lines",
        on_file(lines, "documents.jsonl"),
        given(b'{"text": "a dog", "n": 1}\n{"text": "b", "m": {"a": [1, null]}}\n'),
        ("marin.plugins.collections.sources.lines.read",),
    ),
    Parser(
        "a page",
        on_file(lambda path: list(read_html(path, "fuzz")), "page.html"),
        given(PAGE),
        ("marin.plugins.collections.sources.page.read_html",),
    ),
    Parser(
        "records of a crawl",
        on_file(lambda path: list(read_warc(path, "fuzz")), "crawl.warc"),
        given(RECORD, gzip.compress(RECORD) + gzip.compress(RECORD)),
        ("marin.plugins.collections.sources.warc.read_warc",),
    ),
]
