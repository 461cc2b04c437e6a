#!/usr/bin/env bash
# warcio cannot read a record whose body is compressed with Brotli (Content-Encoding: br) beside this brotli package: it sets an attribute
# unused_data on the decompressor, which takes none, and content_stream().read() raises AttributeError. gzip and deflate are read.
#
#   bash findings/warcio-brotli.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.8.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/warcio-brotli.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "warcio==$version" "brotli==1.2.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import gzip
import io
import sys
import zlib
from importlib.metadata import version

import brotli
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

print(f"warcio {version('warcio')}, brotli {version('brotli')}, Python {sys.version.split()[0]}")
BODY = b"<p>a page of text</p>" * 20
changed = []
for encoding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli.compress)):
    file = io.BytesIO()
    headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html"), ("Content-Encoding", encoding)], protocol="HTTP/1.1")
    writer = WARCWriter(file, gzip=False)
    payload = io.BytesIO(compress(BODY))
    writer.write_record(writer.create_warc_record("http://example.com/", "response", payload=payload, http_headers=headers))
    file.seek(0)
    for record in ArchiveIterator(file):
        try:
            seen = "the page" if record.content_stream().read() == BODY else "something else"
        except AttributeError as error:
            seen = f"AttributeError: {error}"
    print(f"  Content-Encoding: {encoding:8} {seen}")
    if (seen == "the page") != (encoding != "br"):
        changed.append(f"{encoding}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
