"""Our rules for web pages beside datatrove's, which made FineWeb: every decision on every shipped page.

Words are cut at white space for both: datatrove's own tokenizer is not what is compared. Where the two differ by definition
(docs/decisions/collections.md), datatrove is set to the papers' values, and what is left is asserted one by one.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import judges
import pytest
from programs import ask

pytest.importorskip("fastwarc", reason="fastwarc, a tool of the tests")

from marin.plugins.collections.document import Document
from marin.plugins.collections.sources.warc import read_warc
from marin.plugins.collections.steps.extraction import Html
from marin.plugins.collections.steps.rules import C4, fineweb, gopher_quality, gopher_repetition

pytestmark = pytest.mark.foreign
PROJECT = Path(__file__).resolve().parents[2]
JUDGE = """
import json, sys
from datatrove.data import Document
from datatrove.pipeline.filters import c4_filters, fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter
for module in (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter):
    module.split_into_words = lambda text, language: text.split()
filters = {
    "gopher_quality": gopher_quality_filter.GopherQualityFilter(),
    "gopher_repetition": gopher_repetition_filter.GopherRepetitionFilter(),
    "fineweb": fineweb_quality_filter.FineWebQualityFilter(char_duplicates_ratio=0.1, new_line_ratio=float("inf")),
    "c4": c4_filters.C4QualityFilter(
        filter_no_terminal_punct=False, min_num_sentences=-1, min_words_per_line=5, remove_citations=False),
}
for line in sys.stdin:
    text, said = json.loads(line), {}
    for name, one in filters.items():
        document = Document(text=text, id="0")
        found = one.filter(document)
        said[name] = ["", document.text] if found is True else [found[1], ""]
    print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def pages():
    """The texts of the shipped pages."""
    html = Html().make()
    read = [item for item in read_warc(PROJECT / "data" / "pages.warc.gz", "pages") if isinstance(item, Document)]
    return [judged.document.text for judged in map(html.judge, read) if judged.document is not None]


@pytest.fixture(scope="module")
def theirs(pages):
    """By page: what each of datatrove's filters says, and the text that it leaves."""
    (room,) = judges.room("datatrove").glob("lib/python*/site-packages")
    lines = "".join(json.dumps(text) + "\n" for text in pages).encode()
    environment = {"PYTHONPATH": os.pathsep.join([str(room), *sys.path])}
    status, said = ask(sys.executable, "-c", JUDGE, stdin=lines, env=environment, seconds=300)
    assert status == 0, said[-3000:]
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(found) == len(pages) > 150
    return found


@pytest.mark.parametrize(("name", "rules"), [("gopher_quality", gopher_quality), ("fineweb", fineweb)])
def test_the_same_pages_go(pages, theirs, name, rules):
    ours = [any(found.broken for found in rules(text)) for text in pages]
    assert ours == [bool(said[name][0]) for said in theirs]
    assert name == "gopher_quality" or 10 < sum(ours) < len(ours) - 10, "both answers occur"


def once(text, n):
    """Whether no n-gram of ``text`` occurs twice."""
    words = text.split()
    return max(Counter(zip(*(words[start:] for start in range(n)), strict=False)).values()) == 1


def test_repetition_is_the_same_but_for_what_never_repeats(pages, theirs):
    """datatrove calls the longest of n-grams repeated that occur once, in short texts."""
    differ = []
    for text, said in zip(pages, theirs, strict=True):
        reason = said["gopher_repetition"][0]
        if any(found.broken for found in gopher_repetition(text)) != bool(reason):
            assert reason.startswith("top_") and once(text, int(reason.split("_")[1])), reason
            differ.append(reason)
    assert len(differ) < len(pages) // 20


def test_c4_keeps_the_same_lines(pages, theirs):
    """datatrove looks for a curly bracket in the lines that are left, the paper in the page."""
    step, compared = C4(sentences=0).make(), 0
    for text, said in zip(pages, theirs, strict=True):
        judged, (reason, left) = step.judge(Document("0" * 32, text, "s")), said["c4"]
        if judged.document is None:
            assert reason in ("curly_bracket", "lorem_ipsum") or ("{" in text and "{" not in left)
        else:
            ours, lines = judged.document.text.splitlines(), left.splitlines()
            assert reason == "" and [line.strip() for line in ours if line.strip()] == [line for line in lines if line]
            compared += 1
    assert compared > 100
