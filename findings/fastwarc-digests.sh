#!/usr/bin/env bash
# FastWARC's two checks of one intact record never both hold: as it is read by default, with HTTP parsed, verify_payload_digest is true and
# verify_block_digest false; with parse_http=False it is the other way. A digest that is labelled "sha-1", or in lower-case base32, is false
# too, though it is right. So a scan for damage by them finds damage in every record.
#
#   bash findings/fastwarc-digests.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.0.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/fastwarc-digests.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "fastwarc==$version" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import base64
import hashlib
import io
import sys
from importlib.metadata import version

from fastwarc.warc import ArchiveIterator

print(f"fastwarc {version('fastwarc')}, Python {sys.version.split()[0]}")
PAGE = b"<p>a page</p>"
BLOCK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE


def base32(content):
    return base64.b32encode(hashlib.sha1(content).digest()).decode()


FORMS = {
    "sha1:BASE32": lambda content: f"sha1:{base32(content)}",
    "sha1:hex": lambda content: f"sha1:{hashlib.sha1(content).hexdigest()}",
    "sha-1:BASE32": lambda content: f"sha-1:{base32(content)}",
    "sha1:base32": lambda content: f"sha1:{base32(content).lower()}",
}
changed = []
for name, digest in FORMS.items():
    fields = {
        "WARC-Type": "response",
        "WARC-Record-ID": "<urn:uuid:00000000-0000-0000-0000-000000000001>",
        "WARC-Date": "2024-01-02T03:04:05Z",
        "WARC-Target-URI": "http://a.example/",
        "Content-Type": "application/http; msgtype=response",
        "WARC-Block-Digest": digest(BLOCK),
        "WARC-Payload-Digest": digest(PAGE),
        "Content-Length": len(BLOCK),
    }
    head = "WARC/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in fields.items()) + "\r\n"
    seen = []
    for parse_http in (True, False):
        for record in ArchiveIterator(io.BytesIO(head.encode() + BLOCK + b"\r\n\r\n"), parse_http=parse_http):
            seen += [record.verify_block_digest(), record.verify_payload_digest()]
    print(f"  {name + ':':15}block {seen[0]}, payload {seen[1]}; with parse_http=False block {seen[2]}, payload {seen[3]}")
    if seen != ([False, True, True, False] if name in ("sha1:BASE32", "sha1:hex") else [False] * 4):
        changed.append(f"{name}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
