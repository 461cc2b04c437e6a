#!/usr/bin/env bash
# draccus, which reads Levanter's configurations, reads each argument as YAML 1.1 and then makes a text of what came out, also for a field of type
# str: --id 0123 is "83", 12:30 is "750", 1_000 is "1000", on is "True", "run #3" is "run", and null is None in a field that may not be None. So a
# name or a digest of a commit that is all digits and begins with 0 is another in the record. A file of YAML is read so by everybody; on the command
# line tyro and jsonargparse give the text as it was written.
#
#   bash findings/draccus-text-argument.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.6}
folder=$(mktemp -d "${TMPDIR:-/tmp}/draccus-text-argument.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "draccus==$version" "tyro==1.0.17" "jsonargparse==4.53.0" "pyyaml==6.0.3" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from dataclasses import dataclass
from importlib.metadata import version

import draccus
import jsonargparse
import tyro

print(f"draccus {version('draccus')}, tyro {version('tyro')}, jsonargparse {version('jsonargparse')}, Python {sys.version.split()[0]}")


@dataclass
class Run:
    id: str = "unnamed"


READ = {"0012345": "5349", "12:30": "750", "1_000": "1000", "on": "True", "1.50": "1.5", "0x10": "16", "run #3": "run", "null": None, "[a]": "['a']", "1e5": "1e5"}
changed = []
for text, expected in READ.items():
    arguments = [f"--id={text}"]
    seen = draccus.parse(Run, args=arguments).id
    others = [tyro.cli(Run, args=arguments).id, jsonargparse.auto_cli(Run, args=arguments).id]
    print(f"  --id={text:8} draccus {seen!r:9} tyro and jsonargparse {others}")
    if seen != expected or others != [text, text]:
        changed.append(f"{text}: {seen!r}, {others}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
