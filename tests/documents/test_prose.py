"""The words of the pages: plain English. Spelling is codespell's (`make site`); these are habits of our own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(PROJECT).as_posix()
    for pattern in ("*.md", "docs/*.md", "docs/decisions/*.md", "ledger/*.md", "bench/*.md", ".github/**/*.md")
    for path in PROJECT.glob(pattern)
    if path.name != "CHANGELOG.md"
)
ODD = {
    r"taken over": "reused",
    r"on (his|her) own machine": "on their machine",
    r"(compiled programs )?at hand": "here; compiled before",
    r"he|him|his|himself": "they, their: a reader, an operator and an attacker may be anybody",
    r"whoever": "anyone who, or a noun: the holder of a key, a reader, a client",
    r"(by|to|from|with) who|for who (?!has just)": "anyone who, or a noun: by anyone who has the key, by its readers",
    r"in order to": "to",
    r"dear|dearer|dearest": "expensive",
    r"shall": "must, or will",
    r"utili[sz]e[sd]?": "use",
    r"leverag(e|es|ing)": "use",
    r"functionality": "what it does",
    r"please": "nothing: an instruction is one",
    r"obviously|of course|needless to say": "nothing: what is obvious is not written",
    r"simply|easily|just": "nothing: the reader sees whether it is",
    r"state of the art|cutting[- ]edge|blazing(ly)?|powerful|seamless(ly)?|robust": "a figure, or nothing",
}
"""What is not written here, and what is written instead."""
WORDS = {re.compile(rf"(?<![\w-])({pattern})(?![\w-])", re.IGNORECASE): instead for pattern, instead in ODD.items()}
_CODE = re.compile(r"```.*?```|`[^`\n]*`|^    .*$|^\|.*$|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
"""Programs, their output, tables that programs write, and targets of links are no prose."""


def odd_words(text: str) -> list[str]:
    """``line: word: what instead`` for each odd word of a page."""
    prose = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return [
        f"{prose.count(chr(10), 0, found.start()) + 1}: {found[0]}: write {instead}"
        for pattern, instead in WORDS.items()
        for found in pattern.finditer(prose)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_in_plain_english(page: str) -> None:
    assert odd_words((PROJECT / page).read_text(encoding="utf-8")) == []


def test_odd_words_are_found_where_they_are_prose() -> None:
    text = "It is\ntaken over by his machine.\n\n    he taken over\n\n| taken over |\n\n`his` [x](just.md) adjust\n"
    assert [line.split(": ")[:2] for line in odd_words(text)] == [["2", "taken over"], ["2", "his"]]


WIDEST = 152
_NOT_WRAPPED = re.compile(
    r"```.*?```|<!-- [\w :]*begin -->.*?end -->|<!-- (table|judges) -->.*?<!-- /\1 -->|^(?:    |\||#|!?\[).*?$",
    re.MULTILINE | re.DOTALL,
)
"""Programs, what programs write, tables, headings, and links and pictures that are a line by themselves."""


@pytest.mark.parametrize(
    "page", [page for page in [*PAGES, "CHANGELOG.md"] if page.count("/") < 1 or page.startswith("docs/")]
)
def test_a_page_is_wrapped(page: str) -> None:
    """A paragraph of one line is one change to Git, whichever word was changed."""
    if page == "docs/commands.md":
        return  # made from help texts
    text = _NOT_WRAPPED.sub("", (PROJECT / page).read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if len(line) > WIDEST] == []


WRITTEN = ("*.py", "*.mjs", "*.html", "*.json", "*.sh", "*.yaml", "Dockerfile")


ODD_IN_PROGRAMS = {
    "whoever": (r"(?i)\bwhoever\b", "anyone who, or a noun: the holder of a key, a reader, a client"),
    "none": (r"(?<!there )(?<!here )\b(is|are|was|were) none\b(?! of)", "what it is: invalid, malformed, not a number"),
}
"""Beside a report of `there is none`, "none" stands for nothing that is there and wrong."""
BY_CHANCE = {"none": {"marin/plugins/collections/sources/page.py", "marin/plugins/lab/report.py"}}
"""What the first says is part of a collection's bytes; in the other a line begins within "there is none"."""


@pytest.mark.parametrize("word", ODD_IN_PROGRAMS)
def test_programs_say_it_with_a_noun(word: str) -> None:
    odd, instead = ODD_IN_PROGRAMS[word]
    rooms = ("bench", "conf", "docker", "experiments", "findings", "ledger", "marin", "tests")
    files = {path for room in rooms for kind in WRITTEN for path in (PROJECT / room).rglob(kind)} - {
        Path(__file__).resolve()
    }
    found = {
        path.relative_to(PROJECT).as_posix() for path in files if re.search(odd, path.read_text("utf-8", "replace"))
    }
    assert sorted(found - BY_CHANCE.get(word, set())) == [], f"write {instead}"
