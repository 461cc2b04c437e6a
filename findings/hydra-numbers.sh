#!/usr/bin/env bash
# A number in a file of Hydra's configuration and the same on its command line are two things: -.5, +.5 and .5e1 are texts in the file
# (OmegaConf reads YAML) and numbers in an override; 010, 0x1F, 12:30, on and .nan are numbers (or true) in the file and texts in an
# override. So lr: -.5 moved from one to the other changes its type, without a word.
#
#   bash findings/hydra-numbers.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.3.8}
folder=$(mktemp -d "${TMPDIR:-/tmp}/hydra-numbers.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "hydra-core==$version" "omegaconf==2.3.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

print(f"hydra-core {version('hydra-core')}, omegaconf {version('omegaconf')}, Python {sys.version.split()[0]}")
parser = OverridesParser.create()
CASES = {  # in a file, as an override
    "-.5": ("-.5", -0.5),
    "+.5": ("+.5", 0.5),
    ".5e1": (".5e1", 5.0),
    "010": (8, "010"),
    "0x1F": (31, "0x1F"),
    "12:30": (750, "12:30"),
    "on": (True, "on"),
    "inf": ("inf", float("inf")),
    "-.inf": (float("-inf"), "-.inf"),
    ".5": (0.5, 0.5),
    "-0.5": (-0.5, -0.5),
    "1e-3": (0.001, 0.001),
    "1_000": (1000, 1000),
}
changed = []
for text, expected in CASES.items():
    seen = OmegaConf.create(f"x: {text}").x, parser.parse_override(f"x={text}").value()
    print(f"  {text + ':':8}{seen[0]!r:10} in a file, {seen[1]!r:10} on the command line{'' if seen[0] == seen[1] else '   unlike'}")
    if repr(seen) != repr(expected):
        changed.append(f"{text}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
