#!/usr/bin/env bash
# rfc3161-client drops the fraction of a second of a time stamp without a word: genTime 20261130043620.013Z is a datetime with microsecond 0, so of
# two tokens of one second the order is gone, and a time that was made after what it attests can be read as before it. The fraction, and the accuracy
# beside it (which the client reads), are what RFC 3161 orders tokens by. openssl prints it.
#
#   bash findings/rfc3161-client-fraction.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, openssl, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.0.9}
folder=$(mktemp -d "${TMPDIR:-/tmp}/rfc3161-client-fraction.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "rfc3161-client==$version" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from rfc3161_client import decode_timestamp_response

CONFIGURATION = """
[tsa]
default_tsa = authority
[authority]
serial = serial
signer_cert = certificate.pem
signer_key = key.pem
default_policy = 1.2.3.4
digests = sha256
signer_digest = sha256
accuracy = millisecs:5
ordering = yes
clock_precision_digits = 6
ess_cert_id_alg = sha256
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = authority
[extensions]
extendedKeyUsage = critical, timeStamping
"""


def openssl(arguments):
    return subprocess.run(["openssl", *arguments.split()], check=True, capture_output=True, text=True).stdout


print(f"rfc3161-client {version('rfc3161-client')}, {openssl('version').strip()}, Python {sys.version.split()[0]}")
Path("openssl.cnf").write_text(CONFIGURATION)
Path("file").write_text("what is stamped")
Path("serial").write_text("01\n")
openssl("req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -days 2 -config openssl.cnf")
openssl("ts -query -data file -sha256 -out query")
times, read = [], []
while len(times) < 2 or times[-1].split(b".")[0] != times[-2].split(b".")[0]:  # two in one second, each with a fraction
    openssl("ts -reply -queryfile query -out reply -config openssl.cnf")
    reply = Path("reply").read_bytes()
    written = re.search(rb"\d{14}\.\d+Z", reply)
    if written is None:  # a whole second has no fraction
        continue
    times.append(written.group())
    stamp = decode_timestamp_response(reply).tst_info
    read.append((stamp.gen_time, stamp.accuracy.millis))
    if len(times) > 200:
        sys.exit("no two tokens within one second")
for moment, (second, accuracy) in list(zip(times, read, strict=True))[-2:]:
    print(f"  in the token {moment.decode()}, by the client {second.isoformat()}, microsecond {second.microsecond}, accuracy {accuracy} ms")
changed = [] if read[-1][0] == read[-2][0] and read[-1][0].microsecond == 0 and times[-1] > times[-2] else [f"{times[-2:]}, {read[-2:]}"]
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
