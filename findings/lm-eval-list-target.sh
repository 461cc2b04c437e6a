#!/usr/bin/env bash
# In lm-evaluation-harness a right answer that looks like a list of Python is one: a target of text "['a', 'b']" is taken for the
# alternatives a and b, so a model that answers ['a', 'b'] is wrong by exact_match, and one that answers b is right. (1, 2) stays a text.
#
#   bash findings/lm-eval-list-target.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, three minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.4.13}
folder=$(mktemp -d "${TMPDIR:-/tmp}/lm-eval-list-target.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "lm-eval==$version" "datasets==4.8.5" "jinja2==3.1.6" "numpy==2.5.5" >&2
cd "$folder"
HF_HOME=hub HF_DATASETS_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import json
import logging
import sys
from importlib.metadata import version

import lm_eval
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

print(f"lm-eval {version('lm-eval')}, Python {sys.version.split()[0]}")
logging.disable(logging.WARNING)


class Says(LM):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def generate_until(self, requests):
        return [self.answer for _ in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError


CASES = (  # target, answer, score
    ("12", "12", 1.0),
    ("(1, 2)", "(1, 2)", 1.0),
    ("[1, 2]", "[1, 2]", 0.0),
    ("['a', 'b']", "['a', 'b']", 0.0),
    ("['a', 'b']", "b", 1.0),
)
changed = []
for k, (target, answer, expected) in enumerate(CASES):
    with open(f"{k}.jsonl", "w") as file:
        file.write(json.dumps({"question": "?", "target": target}) + "\n")
    task = {
        "task": f"task{k}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"{k}.jsonl"}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{target}}",
        "metric_list": [{"metric": "exact_match"}],
    }
    results = lm_eval.simple_evaluate(model=Says(answer), tasks=[task], task_manager=TaskManager(include_defaults=False))
    score = float(results["results"][f"task{k}"]["exact_match,none"])
    print(f"  target {target!r}, answer {answer!r}: exact_match {score}")
    if score != expected:
        changed.append(f"{target!r}, {answer!r}: {score}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
