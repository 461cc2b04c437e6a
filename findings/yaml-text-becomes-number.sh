#!/usr/bin/env bash
# YAML that one of Python's libraries writes means something else to another, in silence: PyYAML writes the texts 1e3 and 12e4567 (the begin
# of a commit, say) without quotes, and ruamel.yaml, DVC and OmegaConf read 1000.0 and infinity. ruamel.yaml, and so DVC, writes on, yes and
# 12:30 without quotes, and PyYAML and OmegaConf read true, true and 750. OmegaConf's own files are read alike by all, but for 0o10.
#
#   bash findings/yaml-text-becomes-number.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-6.0.3}
folder=$(mktemp -d "${TMPDIR:-/tmp}/yaml-text-becomes-number.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyyaml==$version" "ruamel.yaml==0.19.1" "omegaconf==2.3.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import sys
from importlib.metadata import version

import yaml
from omegaconf import OmegaConf
from ruamel.yaml import YAML

print(f"pyyaml {version('pyyaml')}, ruamel.yaml {version('ruamel.yaml')}, omegaconf {version('omegaconf')}, Python {sys.version.split()[0]}")


def by_ruamel(document):
    file = io.StringIO()
    YAML().dump(document, file)
    return file.getvalue()


WRITERS = {"PyYAML": yaml.safe_dump, "ruamel.yaml": by_ruamel, "OmegaConf": lambda document: OmegaConf.to_yaml(OmegaConf.create(document))}
READERS = {
    "PyYAML": yaml.safe_load,
    "ruamel.yaml": lambda text: YAML(typ="safe").load(text),
    "OmegaConf": lambda text: OmegaConf.to_container(OmegaConf.create(text)),
}
TEXTS = ("1e3", "12e4567", "0o10", "on", "yes", "12:30", "010", "1_000", "2024-01-02", ".5", "null")
EXPECTED = {
    ("PyYAML", "1e3"): {"ruamel.yaml": 1000.0, "OmegaConf": 1000.0},
    ("PyYAML", "12e4567"): {"ruamel.yaml": float("inf"), "OmegaConf": float("inf")},
    ("PyYAML", "0o10"): {"ruamel.yaml": 8},
    ("ruamel.yaml", "on"): {"PyYAML": True, "OmegaConf": True},
    ("ruamel.yaml", "yes"): {"PyYAML": True, "OmegaConf": True},
    ("ruamel.yaml", "12:30"): {"PyYAML": 750, "OmegaConf": 750},
    ("OmegaConf", "0o10"): {"ruamel.yaml": 8},
}
changed = []
for writer, write in WRITERS.items():
    for text in TEXTS:
        document = write({"x": text})
        others = {reader: value for reader, read in READERS.items() if (value := read(document)["x"]) != text}
        if others:
            print(f"  {writer} writes the text {text!r} as {document.strip()!r}: {', '.join(f'{r} reads {v!r}' for r, v in others.items())}")
        if others != EXPECTED.get((writer, text), {}):
            changed.append(f"{writer}, {text!r}: {others}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
