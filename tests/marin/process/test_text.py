"""What others wrote is seen and does nothing: no character of it steers a terminal, reorders a line or hides."""

from __future__ import annotations

import io
import json
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.process.logs import OneLine
from marin.process.text import several, visible, visible_json

UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of the Unicode database, an oracle that visible() does not ask."""

STEERING = [
    *map(chr, [*range(0x20), *range(0x7F, 0xA0)]),
    *map(chr, [0x061C, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070)]),
    *map(chr, [0x2028, 0x2029, 0xFEFF, 0xFFF9, 0xE0001, 0xE0041, 0xD800, 0xDFFF, 0x3164, 0x115F, 0x2800, 0xFE0F]),
]


def seen(text: str) -> bool:
    return all(unicodedata.category(letter) not in UNSEEN for letter in text)


@pytest.mark.parametrize("letter", STEERING, ids=lambda letter: f"U+{ord(letter):04X}")
def test_every_character_that_steers_is_named(letter: str) -> None:
    shown = visible(f"a{letter}b")
    assert shown.isascii() and shown.startswith("a\\") and shown.endswith("b")
    assert shown[1:-1].encode().decode("unicode_escape") == letter


@given(st.text(st.characters(codec=None)))
def test_nothing_unseen_is_left(text: str) -> None:
    assert seen(visible(text))
    shown = visible(text, keep="\n")
    assert seen(shown.replace("\n", "")) and shown.count("\n") == text.count("\n")


@pytest.mark.parametrize("text", ["", "plain", "C:\\new", "naïve Ωμέγα 漢字 שלום 😀"])
def test_what_draws_glyphs_stays(text: str) -> None:
    assert visible(text) is text


@given(
    st.recursive(
        st.text(st.characters(codec=None)) | st.integers(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_json_is_the_same_value_and_one_visible_line(value: object) -> None:
    text = visible_json(value)
    assert json.loads(text) == value
    assert seen(text)
    assert json.loads(laid_out := visible_json(value, indent=2)) == value
    assert seen(laid_out.replace("\n", ""))


def test_a_record_of_ours_is_one_line_and_a_library_keeps_its_own() -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(OneLine("%(message)s"))
    for name in ("marin.data", "library"):
        record = logging.LogRecord(name, logging.INFO, "", 0, "fetched %s", ("x\n\x1b[2Kledger PASS",), None)
        handler.emit(record)
    assert said.getvalue() == "fetched x\\n\\x1b[2Kledger PASS\nfetched x\n\\x1b[2Kledger PASS\n"


def test_a_command_in_a_record_of_the_library_is_one_that_can_be_typed() -> None:
    record = logging.LogRecord(
        "ledger.service", logging.INFO, "", 0, "see `%s people` or `marin ledger`", ("ledger key",), None
    )
    assert OneLine("%(message)s").format(record) == "see `marin ledger key people` or `marin ledger`"


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 train steps"), (1, "1 train step"), (2, "2 train steps"), (11, "11 train steps")]
)
def test_one_is_said_as_one(count: int, said: str) -> None:
    assert several(count, "train steps") == said
