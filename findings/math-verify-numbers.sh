#!/usr/bin/env bash
# math-verify, by which answers of mathematics are scored and models are rewarded, takes a prefix of a number that it does not know for the whole:
# outside of LaTeX 1e3, 1.5e-7 and 6.02e23 are 1, 1.5 and 6.02, and 2 1/4 is 1, for a number needs nothing after it, so what follows is left out; the
# answer 3e-4 is right where 3 was asked for, and wrong for 0.0003. In LaTeX $3e-4$ is 3 times Euler's number less 4. Further, 10% is both 0.1 and 10,
# and units are no part of an answer: 5 km is 5 m.
#
#   bash findings/math-verify-numbers.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.9.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/math-verify-numbers.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "math-verify==$version" "latex2sympy2_extended==1.11.0" "sympy==1.14.0" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import sys
from importlib.metadata import version

from math_verify import parse, verify

logging.disable(logging.CRITICAL)
print(f"math-verify {version('math-verify')}, Python {sys.version.split()[0]}")
CASES = (  # what was asked for, an answer, whether it is right
    ("1000", "1000", True),
    ("1", "1e3", True),
    ("1000", "1e3", False),
    ("1.5", "The answer is 1.5e-7.", True),
    ("6.02", "6.02e23", True),
    ("9/4", "2 1/4", False),
    ("1", "2 1/4", True),
    ("9/4", r"$2\frac{1}{4}$", True),
    ("0.0003", r"$3 \times 10^{-4}$", True),
    ("10", "10%", True),
    ("0.1", "10%", True),
    (r"$5\text{ m}$", r"$5\text{ km}$", True),
)
changed = []
for gold, answer, expected in CASES:
    seen = verify(parse(gold), parse(answer))
    print(f"  asked for {gold!r:15} answered {answer!r:26} read as {str(parse(answer)[0]):14} {'right' if seen else 'wrong'}")
    if seen is not expected:
        changed.append(f"{gold}, {answer}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
