#!/usr/bin/env bash
# The names of documents decide nDCG and reciprocal rank in pytrec_eval where scores are equal: the name that is last in the alphabet comes first.
# And scores are equal more often than they look, for they become float32: 20.0000002 and 20.0000001 are a tie, so a retriever that
# ranks the right document first gets 0.63 where it is called "a" and 1.0 where it is called "z".
#
#   bash findings/pytrec-eval-ties.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.5.11}
folder=$(mktemp -d "${TMPDIR:-/tmp}/pytrec-eval-ties.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "pytrec_eval-terrier==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import pytrec_eval

print(f"pytrec_eval-terrier {version('pytrec_eval-terrier')}, Python {sys.version.split()[0]}")
def judged(right, wrong, high, low):
    evaluator = pytrec_eval.RelevanceEvaluator({"query": {right: 1, wrong: 0}}, {"ndcg", "recip_rank"})
    return evaluator.evaluate({"query": {right: high, wrong: low}})["query"]


changed = []
for high, low in ((1.0, 1.0), (20.0000002, 20.0000001), (20.2, 20.1)):
    first, last = judged("a", "m", high, low), judged("z", "m", high, low)
    print(f"  scores {high} and {low}: nDCG {first['ndcg']:.4f} if the right document is called a, {last['ndcg']:.4f} if z")
    if (first["ndcg"] == last["ndcg"]) != (high == 20.2) or last["recip_rank"] != 1:
        changed.append(f"{high}, {low}: {first}, {last}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
