#!/usr/bin/env bash
# DVC compares parameters as Python does: a parameter that is changed from 1 to 1.0 or to true has not changed for dvc status and dvc repro,
# and the stage is not made again, although a program reads another type from params.yaml; .nan has changed always, so its stage is never up
# to date. A text "1" has changed.
#
#   bash findings/dvc-equal-params.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, three minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.67.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/dvc-equal-params.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "dvc==$version" "ruamel.yaml==0.19.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

print(f"dvc {version('dvc')}, Python {sys.version.split()[0]}")
DVC = Path(sys.executable).with_name("dvc")


def run(*command):
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "DVC_NO_ANALYTICS": "1"})
    return done.stdout


STAGE = "stages:\n  make:\n    cmd: cp params.yaml out\n    params: [x]\n    outs: [out]\n"
Path("dvc.yaml").write_text(STAGE)
run(DVC, "init", "--no-scm", "--quiet")
CASES = {"1": {"1": False, "1.0": False, "true": False, "'1'": True, "2": True}, "0.0": {"-0.0": False, "false": False}, ".nan": {".nan": True}}
changed = []
for before, after in CASES.items():
    Path("params.yaml").write_text(f"x: {before}\n")
    run(DVC, "repro", "--quiet")
    for value, expected in after.items():
        Path("params.yaml").write_text(f"x: {value}\n")
        differs = "modified" in run(DVC, "status")
        print(f"  x: {before:5} then x: {value + ',':7}{'changed' if differs else 'up to date'}")
        if differs != expected:
            changed.append(f"{before} then {value}: {differs}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
