#!/usr/bin/env bash
# With datatrove's Trafilatura the text of a page depends on the pages that the same task saw before: deduplicate=True is its default, under which
# trafilatura leaves out a paragraph of more than 100 characters that its process has seen three times already, on whatever page, and a page that it
# has seen so often becomes no text at all. The memory is one LRU cache of a module (trafilatura/deduplication.py, LRU_TEST). So another number of
# tasks, another order of files, a task that is tried again or a page that runs into the time limit gives other texts of the same pages; FineWeb's
# script has it so (datatrove#295, trafilatura#778). deduplicate=False is a function of the page.
#
#   bash findings/datatrove-trafilatura-neighbours.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.10.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/datatrove-trafilatura-neighbours.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "datatrove==$version" "trafilatura==1.11.0" "lxml==6.1.3" "lxml_html_clean==0.4.6" "orjson==3.13.0" >&2
cd "$folder"
cat > main.py <<'PYTHON'
import logging
import sys
from importlib.metadata import version

from datatrove.data import Document
from datatrove.pipeline.extractors import Trafilatura

NOTICE = "All of this may be copied under the licence of the archive by anyone who names its author and keeps this notice with each copy of it."


def page(number):
    own = f"Page {number} tells of something that no other page tells, in a paragraph that is long enough to be taken for the main text of it. " * 2
    return f"<html><body><article><h1>Page {number}</h1><p>{own}</p><p>{NOTICE}</p><p>{own} So ends page {number}.</p></article></body></html>"


def texts(pages, deduplicate=True):
    documents = [Document(text=text, id=str(place)) for place, text in enumerate(pages)]
    return [document.text for document in Trafilatura(timeout=120, deduplicate=deduplicate).run(documents, 0, 1)]


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"datatrove {version('datatrove')}, trafilatura {version('trafilatura')}, Python {sys.version.split()[0]}")
    pages = [page(number) for number in range(6)]
    whole = [NOTICE in text for text in texts(pages)]
    halves = [NOTICE in text for text in texts(pages[:3]) + texts(pages[3:])]
    without = [NOTICE in text for text in texts(pages, deduplicate=False)]
    same = len(texts(pages[:1] * 6))
    print(f"  six pages in one task: the notice is in the text of {whole}")
    print(f"  the same in two tasks of three pages: {halves}")
    print(f"  in one task with deduplicate=False: {without}")
    print(f"  one page six times: {same} texts")
    changed = []
    if (whole, halves, without, same) != ([True] * 3 + [False] * 3, [True] * 6, [True] * 6, 3):
        changed.append(f"{whole}, {halves}, {without}, {same}")
    print("\n".join(["CHANGED", *changed]) if changed else "as described")
    sys.exit(1 if changed else 0)
PYTHON
"$folder/venv/bin/python" main.py
