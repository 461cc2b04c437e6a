#!/usr/bin/env bash
# `import jax` reads and parses the METADATA of every installed distribution (it looks for one called jax-rocm…-plugin), so it becomes slower with each
# package beside it, related or not: every worker of a pool, data loader and short command pays. `import numpy` reads none.
#
#   bash findings/jax-import-reads-metadata.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-import-reads-metadata.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax==$version" "jaxlib==$version" "numpy==2.5.5" "rich==14.2.0" "jinja2==3.1.6" >&2
cd "$folder"
cat >"$folder/opened.py" <<'PYTHON'
"""Which METADATA files an import opens: names of their folders, one a line."""
import importlib
import os
import sys

seen = set()


def look(event, values):
    if event == "open" and str(values[0]).endswith("METADATA"):
        seen.add(os.path.basename(os.path.dirname(str(values[0]))).partition("-")[0].lower())


sys.addaudithook(look)
importlib.import_module(sys.argv[1])
print("\n".join(sorted(seen)))
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
from importlib.metadata import distributions, version

print(f"jax {version('jax')}, Python {sys.version.split()[0]}")
installed = {one.metadata["Name"].replace("-", "_").lower() for one in distributions()}


def opened(name):
    said = subprocess.run([sys.executable, "opened.py", name], capture_output=True, text=True, check=True).stdout
    return set(said.split())


of_jax, of_numpy = opened("jax"), opened("numpy")
print(f"  installed: {len(installed)}; read by `import jax`: {len(of_jax & installed)}, by `import numpy`: {len(of_numpy)}")
print(f"  rich and jinja2, which jax does not use, among them: {sorted({'rich', 'jinja2'} & of_jax)}")
as_described = of_jax >= installed and not of_numpy
print("as described" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PYTHON
