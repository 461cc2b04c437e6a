#!/usr/bin/env bash
# FastWARC gives an empty page for a response whose HTTP header lines end with LF alone, which RFC 9112 lets a reader accept and servers do
# send: the whole block is taken for the header, without an error. warcio gives the page. The WARC record itself is as the standard wants
# it.
#
#   bash findings/fastwarc-lf-headers.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.0.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/fastwarc-lf-headers.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "fastwarc==$version" "warcio==1.8.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import sys
from importlib.metadata import version

from fastwarc.warc import ArchiveIterator as FastWarc
from warcio.archiveiterator import ArchiveIterator as Warcio

print(f"fastwarc {version('fastwarc')}, warcio {version('warcio')}, Python {sys.version.split()[0]}")
WARC = """WARC/1.0\r
WARC-Type: response\r
WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000001>\r
WARC-Date: 2024-01-02T03:04:05Z\r
WARC-Target-URI: http://a.example/\r
Content-Type: application/http; msgtype=response\r
Content-Length: {}\r
\r
"""
changed = []
for name, end in (("CRLF", b"\r\n"), ("LF", b"\n")):
    block = end.join([b"HTTP/1.1 200 OK", b"Content-Type: text/html", b"Server: a", b"", b"<p>a page</p>"])
    record = WARC.format(len(block)).encode() + block + b"\r\n\r\n"
    by_fastwarc = [entry.reader.read() for entry in FastWarc(io.BytesIO(record))]
    by_warcio = [entry.content_stream().read() for entry in Warcio(io.BytesIO(record))]
    print(f"  header lines end with {name + ':':6}FastWARC {by_fastwarc}, warcio {by_warcio}")
    if by_warcio != [b"<p>a page</p>"] or by_fastwarc != [b"<p>a page</p>" if name == "CRLF" else b""]:
        changed.append(f"{name}: {by_fastwarc}, {by_warcio}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
