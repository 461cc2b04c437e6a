#!/usr/bin/env bash
# datatrove's SamplerFilter(rate, seed) draws the same places of every file: each task begins with the same generator, which the filter makes in its
# constructor and which each task gets a copy of. With as many tasks as files a tenth is the same tenth of line numbers in all of them, so in shards
# that are aligned or sorted (by length, by time, by source) it is no random sample, and what is kept depends on the number of tasks. One task for all
# files draws other places in each.
#
#   bash findings/datatrove-sampler-places.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.10.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/datatrove-sampler-places.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "datatrove==$version" "orjson==3.13.0" "regex==2026.11.15" >&2
cd "$folder"
cat > main.py <<'PYTHON'
import json
import logging
import sys
from importlib.metadata import version
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import SamplerFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from loguru import logger


def places(tasks):
    """Of each of three files the lines that are left."""
    steps = [JsonlReader("in"), SamplerFilter(rate=0.2, seed=0), JsonlWriter(f"out{tasks}", compression=None)]
    LocalPipelineExecutor(steps, tasks=tasks, workers=1, logging_dir=f"log{tasks}").run()
    kept = {name: [] for name in "abc"}
    for path in sorted(Path(f"out{tasks}").iterdir()):
        for line in path.read_text().splitlines():
            name, place = json.loads(line)["id"].split("-")
            kept[name].append(int(place))
    return kept


if __name__ == "__main__":
    logger.remove()
    logging.disable(logging.CRITICAL)
    print(f"datatrove {version('datatrove')}, Python {sys.version.split()[0]}")
    Path("in").mkdir()
    for name in "abc":
        lines = [json.dumps({"text": "words", "id": f"{name}-{place}"}) for place in range(50)]
        Path(f"in/{name}.jsonl").write_text("\n".join(lines) + "\n")
    changed = []
    for tasks, alike in ((3, True), (1, False)):
        kept = places(tasks)
        print(f"  {tasks} task(s): " + "; ".join(f"{name} {lines}" for name, lines in kept.items()))
        if (kept["a"] == kept["b"] == kept["c"]) is not alike:
            changed.append(f"{tasks} tasks: {kept}")
    print("\n".join(["CHANGED", *changed]) if changed else "as described")
    sys.exit(1 if changed else 0)
PYTHON
"$folder/venv/bin/python" main.py
