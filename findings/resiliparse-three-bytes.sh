#!/usr/bin/env bash
# With `main_content=True` Resiliparse leaves out the text of an inline element whose UTF-8 bytes are three and whose last two are no
# ASCII: a bold "où", one Chinese character in italics, "…" in an element of its own. It takes them for the private-use signs of icon
# fonts, which have three bytes too. Two letters, two characters, or the same text without an element stay; so does everything without
# `main_content`. No error, and words on both sides run on as if nothing had stood between them.
#
#   bash findings/resiliparse-three-bytes.sh [VERSION]
#
# Installs the published package into a temporary folder (Python 3.12, a minute), prints the version and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.0.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/resiliparse-three-bytes.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "resiliparse==$version" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

from resiliparse.extract.html2text import extract_plain_text

print(f"resiliparse {version('resiliparse')}, Python {sys.version.split()[0]}")
PAGE = "<html><body><main><p>A first sentence that is long enough, then {} and the rest of the paragraph.</p></main></body></html>"
WANTED = {"<b>où</b>": False, "<b>ou</b>": True, "<b>oui</b>": True, "<i>爱</i>": False, "<i>爱你</i>": True, "爱": True, "<em>…</em>": False}
changed = []
for markup, stays in WANTED.items():
    text = markup.split(">")[1].split("<")[0] if "<" in markup else markup
    main, whole = (extract_plain_text(PAGE.format(markup), main_content=main) for main in (True, False))
    seen = f"then {text} and" in main
    print(f"  {markup:<12} main content: {'stays' if seen else 'left out'}; all content: {'stays' if text in whole else 'left out'}")
    if seen != stays or text not in whole:
        changed.append(markup)
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
