#!/usr/bin/env bash
# load_dataset("json") turns texts that look like a date into time stamps, if all of a column's first block do: "2024-01-01" becomes
# midnight, and "2024-01-01T00:00:00Z" loses its zone. One other text in the column, a fraction of a second, or the same values in CSV, and
# they stay texts. A column of text for a model so has another type by its content.
#
#   bash findings/datasets-json-times.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-4.8.5}
folder=$(mktemp -d "${TMPDIR:-/tmp}/datasets-json-times.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "datasets==$version" "pyarrow==25.0.1" "pandas==3.1.1" "numpy==2.5.5" >&2
cd "$folder"
HF_HOME=hub HF_DATASETS_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import json
import logging
import sys
from importlib.metadata import version

import datasets

print(f"datasets {version('datasets')}, pyarrow {version('pyarrow')}, Python {sys.version.split()[0]}")
datasets.disable_progress_bars()
logging.disable(logging.WARNING)
CASES = {
    "a date": (["2024-01-01"], "timestamp[s]"),
    "a time with zone": (["2024-01-01T00:00:00Z"], "timestamp[s]"),
    "a time and null": (["2024-01-01 12:30:00", None], "timestamp[s]"),
    "a time with fraction": (["2024-01-01T00:00:00.5"], "string"),
    "a date and a word": (["2024-01-01", "hello"], "string"),
    "a year": (["2024"], "string"),
}
changed = []
for k, (name, (texts, expected)) in enumerate(CASES.items()):
    with open(f"{k}.jsonl", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    rows = datasets.load_dataset("json", data_files=f"{k}.jsonl", split="train", cache_dir="cache")
    kind = rows.features["text"].dtype
    print(f"  {name + ':':22}{texts} becomes {kind}: {[str(value) for value in rows['text'][:]]}")
    if kind != expected:
        changed.append(f"{name}: {kind}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
