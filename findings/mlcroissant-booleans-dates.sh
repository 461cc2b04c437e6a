#!/usr/bin/env bash
# mlcroissant reads sc:Boolean as Python's bool of a text, so no, 0 and false are true wherever a column is not of True and False alone; and
# sc:Date row by row, so in one column 01/02/2024 is the second of January and 13/02/2024 the thirteenth of February. Nothing is said.
#
#   bash findings/mlcroissant-booleans-dates.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.1.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/mlcroissant-booleans-dates.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "mlcroissant==$version" "pandas==3.1.1" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import hashlib
import json
import logging
import sys
from importlib.metadata import version
from pathlib import Path

import mlcroissant

print(f"mlcroissant {version('mlcroissant')}, pandas {version('pandas')}, Python {sys.version.split()[0]}")
logging.disable(logging.CRITICAL)

CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{name: f"cr:{name}" for name in ("column", "extract", "field", "fileObject", "recordSet", "regex", "source", "transform")},
}


def records(column, kind, cells, **source):
    """What mlcroissant makes of one column of a CSV file that has a second one."""
    content = f"{column},other\n" + "".join(f"{cell},x\n" for cell in cells)
    Path("data.csv").write_text(content)
    file = {
        "@type": "cr:FileObject",
        "@id": "data.csv",
        "name": "data.csv",
        "contentUrl": "data.csv",
        "encodingFormat": "text/csv",
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
    }
    field = {
        "@type": "cr:Field",
        "@id": "rows/cell",
        "name": "rows/cell",
        "dataType": kind,
        "source": {"fileObject": {"@id": "data.csv"}, "extract": {"column": column}, **source},
    }
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": "example",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "distribution": [file],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "rows", "name": "rows", "field": [field]}],
    }
    Path("croissant.json").write_text(json.dumps(document))
    return [record["rows/cell"] for record in mlcroissant.Dataset(jsonld="croissant.json").records("rows")]


CASES = (  # type, cells, what they become
    ("sc:Boolean", ["True", "False"], "[True, False]"),
    ("sc:Boolean", ["yes", "no"], "[True, True]"),
    ("sc:Boolean", ["true", "false", "0", "no"], "[True, True, True, True]"),
    ("sc:Date", ["01/02/2024", "13/02/2024"], "['2024-01-02', '2024-02-13']"),
)
changed = []
for kind, cells, expected in CASES:
    values = records("cell", kind, cells)
    seen = str([bool(value) for value in values] if kind == "sc:Boolean" else [str(value)[:10] for value in values])
    print(f"  {kind + ':':12}{cells} become {seen}")
    if seen != expected:
        changed.append(f"{kind}, {cells}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
