#!/usr/bin/env bash
# A system that is compared with itself is better by chance less than once in a thousand: sacreBLEU's paired bootstrap and its approximate
# randomization give p = 1/1001 where the two outputs are the same text. Those trials count that are beyond the real difference, and none is
# beyond a difference of 0 that all trials have.
#
#   bash findings/sacrebleu-same-system.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.6.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/sacrebleu-same-system.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "sacrebleu==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

print(f"sacrebleu {version('sacrebleu')}, Python {sys.version.split()[0]}")
references = [[f"on day {n} the cat sat on mat {n % 7} and looked at {n % 5} dogs" for n in range(60)]]
system = [text.replace("looked", "stared") if n % 3 else text for n, text in enumerate(references[0])]
worse = [text.replace("mat", "rug") if n % 2 else text for n, text in enumerate(system)]
changed = []
for way in ("bs", "ar"):
    for other, output in (("the same output", list(system)), ("a worse output", worse)):
        metrics = {"BLEU": BLEU(references=references), "chrF": CHRF(references=references)}
        _, found = PairedTest([("system", system), ("other", output)], metrics, references=None, test_type=way, n_samples=1000)()
        for metric in [name for name in found if name != "System"]:
            first, second = found[metric]
            print(f"  {way}, {metric:6}{first.score:.2f} against {second.score:.2f} of {other}: p = {second.p_value:.4f}")
            if other == "the same output" and not second.p_value < 0.002:
                changed.append(f"{way}, {metric}: p = {second.p_value} of equal outputs")
            assert other == "the same output" or second.p_value < 0.05, "a difference that both see"
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
