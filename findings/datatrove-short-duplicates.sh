#!/usr/bin/env bash
# Equal documents of fewer words than a shingle are never duplicates to datatrove's MinHash: with the default of five words, three copies of "All rights
# reserved" stay three, for a document without shingles has no signature, while three copies of a document of five words become one. So the
# shortest boilerplate, of which a crawl has most copies, passes. (hash_fc="sha1", since the default needs xxhash before 4.)
#
#   bash findings/datatrove-short-duplicates.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.10.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/datatrove-short-duplicates.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "datatrove[io,processing]==$version" "spacy==3.8.18" "orjson==3.13.0" "numpy==2.4.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import json
from collections import Counter
from importlib.metadata import version

from pathlib import Path

from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig
from loguru import logger

print(f"datatrove {version('datatrove')}, spacy {version('spacy')}, Python {sys.version.split()[0]}")
logger.remove()
SHORT, FIVE, LONG = "All rights reserved", "one two three four five", "one two three four five six seven eight nine ten"
Path("in").mkdir()
lines = [json.dumps({"text": text, "id": str(n)}) for n, text in enumerate([SHORT, FIVE, LONG] * 3)]
Path("in", "0.jsonl").write_text("\n".join(lines) + "\n")
config = MinhashConfig(hash_config=HashConfig(hash_fc="sha1"))
stages = (
    ([JsonlReader("in"), MinhashDedupSignature("signatures", config)], 1),
    ([MinhashDedupBuckets("signatures", "buckets", config=config)], config.num_buckets),
    ([MinhashDedupCluster("buckets", "removed", config=config)], 1),
    ([JsonlReader("in"), MinhashDedupFilter("removed"), JsonlWriter("kept", compression=None)], 1),
)
for place, (pipeline, tasks) in enumerate(stages):
    LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=f"logs-{place}").run()
kept = Counter(json.loads(line)["text"] for file in Path("kept").glob("*") for line in file.read_text().splitlines())
changed = []
for text, left in ((SHORT, 3), (FIVE, 1), (LONG, 1)):
    print(f"  three documents {text!r}: {kept[text]} left")
    if kept[text] != left:
        changed.append(f"{text}: {kept[text]}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
