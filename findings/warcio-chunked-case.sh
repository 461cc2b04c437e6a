#!/usr/bin/env bash
# warcio leaves a body in chunks, with their lengths between the text, where the page says "Transfer-Encoding: Chunked": only lower case is known to it,
# though the names of transfer codings have no case (RFC 9112, section 7). Text that is extracted from such pages has hexadecimal numbers in it.
# FastWARC decodes all of them.
#
#   bash findings/warcio-chunked-case.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.8.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/warcio-chunked-case.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "warcio==$version" "fastwarc==2.0.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import io
from importlib.metadata import version

from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

print(f"warcio {version('warcio')}, fastwarc {version('fastwarc')}, Python {sys.version.split()[0]}")
def record(coding):
    page = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    head = {
        "WARC-Type": "response",
        "WARC-Record-ID": "<urn:uuid:00000000-0000-0000-0000-000000000001>",
        "WARC-Date": "2026-01-01T00:00:00Z",
        "WARC-Target-URI": "http://a/",
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": len(page),
    }
    return ("WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items()) + f"\r\n{page}\r\n\r\n").encode()


changed = []
for coding in ("chunked", "Chunked", "CHUNKED"):
    (slow,) = [each.content_stream().read() for each in ArchiveIterator(io.BytesIO(record(coding)))]
    (fast,) = [each.reader.read() for each in FastIterator(io.BytesIO(record(coding)), auto_decode="transfer")]
    print(f"  {coding}: warcio {slow!r}, fastwarc {fast!r}")
    if (slow == b"hello") != (coding == "chunked"):
        changed.append(f"{coding}: {slow!r}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
