#!/usr/bin/env bash
# lm-evaluation-harness counts words by splitting at white space without dropping what is empty: a space or line end at the begin or end of
# a text is a word more. word_perplexity of one text with one log-likelihood is so much lower, if the text ends with a line end. The tokens,
# bytes and bits_per_byte do not differ by that.
#
#   bash findings/lm-eval-word-perplexity.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, three minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.4.13}
folder=$(mktemp -d "${TMPDIR:-/tmp}/lm-eval-word-perplexity.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "lm-eval==$version" "datasets==4.8.5" "jinja2==3.1.6" "numpy==2.5.5" >&2
cd "$folder"
HF_HOME=hub HF_DATASETS_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import json
import logging
import math
import sys
from importlib.metadata import version

import lm_eval
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

print(f"lm-eval {version('lm-eval')}, Python {sys.version.split()[0]}")
logging.disable(logging.WARNING)


class Constant(LM):
    """Every text has the log-likelihood -6."""

    def loglikelihood_rolling(self, requests):
        return [-6.0 for _ in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    def generate_until(self, requests):
        raise NotImplementedError


TEXTS = {"a b c": 3, "a b c\n": 4, " a b c\n": 5, "a  b\n\nc": 3}
changed = []
for k, (text, words) in enumerate(TEXTS.items()):
    with open(f"{k}.jsonl", "w") as file:
        file.write(json.dumps({"text": text}) + "\n")
    task = {
        "task": f"text{k}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"{k}.jsonl"}},
        "test_split": "test",
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}],
    }
    results = lm_eval.simple_evaluate(model=Constant(), tasks=[task], task_manager=TaskManager(include_defaults=False))
    measured = results["results"][f"text{k}"]["word_perplexity,none"]
    counted = 6 / math.log(measured)
    print(f"  {text!r:14}{len(text.split())} words, counted as {counted:.0f}: word_perplexity {measured:.4f}")
    if round(counted) != words:
        changed.append(f"{text!r}: {counted}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
