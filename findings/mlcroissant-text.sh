#!/usr/bin/env bash
# mlcroissant guesses the type of a column before it makes text of it: sc:Text of 007 is 7, of 1 beside an empty cell 1.0, and NA, null, nan
# and None are missing. A transform by a regular expression that does not match, or that has no group, leaves the whole text.
#
#   bash findings/mlcroissant-text.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.1.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/mlcroissant-text.XXXXXX")
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


GROUP, NONE = {"transform": {"regex": "^[a-z]+([0-9]+)$"}}, {"transform": {"regex": "[0-9]+"}}
CASES = (  # cells, transform, what they become
    (["007", "010"], {}, [b"7", b"10"]),
    (["007", "a"], {}, [b"007", b"a"]),
    (["1", ""], {}, [b"1.0", None]),
    (["NA", "null", "None", "a"], {}, [None, None, None, b"a"]),
    (["ab12", "cd"], GROUP, [b"12", b"cd"]),
    (["ab12", "cd"], NONE, [b"ab12", b"cd"]),
)
changed = []
for cells, transform, expected in CASES:
    values = records("cell", "sc:Text", cells, **transform)
    print(f"  {cells} {transform.get('transform', {}).get('regex', '')}: {values}")
    if values != expected:
        changed.append(f"{cells} {transform}: {values}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
