"""Plain text to lines, paragraphs and documents, with the place of every fault."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.data.text import lines, paragraphs, split_text
from marin.errors import DataError


def read(data: bytes) -> list[str]:
    return list(lines(io.BytesIO(data), where="a.txt"))


def test_line_ends_and_byte_order_mark() -> None:
    assert read(b"\xef\xbb\xbfone\r\ntwo\n\nthree") == ["one", "two", "", "three"]
    assert read(b"") == []


def test_carriage_returns_alone_are_no_line_ends_and_said() -> None:
    for data in (b"one\rtwo\r", b"one\r\rtwo"):
        with pytest.raises(DataError, match=r"lines that end by a carriage return alone.*tr '\\r' '\\n'"):
            read(data)
    assert read(b"one\r") == ["one"] and read(b"a\rb\nc") == ["a\rb", "c"]


@pytest.mark.parametrize(
    ("data", "offset", "byte"),
    [
        (b"\xff", 0, "0xff"),
        (b"good\nba\xe9d\n", 7, "0xe9"),
        (b"\xef\xbb\xbfab\xc3\n", 5, "0xc3"),
        ("ü\n".encode() * 1000 + b"\xf0\x9f\x98", 3000, "0xf0"),
        (b"\xed\xa0\x80", 0, "0xed"),
    ],
)
def test_invalid_utf8_is_found_at_its_byte(data: bytes, offset: int, byte: str) -> None:
    with pytest.raises(DataError) as caught:
        read(data)
    assert caught.value.where == f"a.txt: byte {offset}"
    assert byte in caught.value.found
    assert caught.value.cure


def test_paragraphs_end_at_white_lines() -> None:
    assert list(paragraphs(["", "a", "b", "  ", "", "c"])) == ["a\nb", "c"]
    assert list(paragraphs(["", " "])) == []


def test_splits() -> None:
    text = ["a", "b", "", "c", "", "d"]
    assert list(split_text(text, "lines", 1)) == ["a", "b", "c", "d"]
    assert list(split_text(text, "paragraphs", 2)) == ["a\nb\n\nc", "d"]
    assert list(split_text(text, "file", 1)) == ["a\nb\n\nc\n\nd"]
    assert [list(split_text(["", " "], kind, 1)) for kind in ("lines", "paragraphs", "file")] == [[], [], []]


@given(st.lists(st.text(alphabet="ab \t\u2028ü"), max_size=12), st.integers(1, 5))
def test_no_letter_is_lost_or_made_up(text: list[str], group: int) -> None:
    data = "\n".join(text).encode()
    letters = [letter for letter in "".join(text) if letter.strip()]
    for kind in ("lines", "paragraphs", "file"):
        documents = list(split_text(read(data), kind, group))
        assert [letter for letter in "".join(documents) if letter.strip()] == letters
        assert all(document.strip() for document in documents)
