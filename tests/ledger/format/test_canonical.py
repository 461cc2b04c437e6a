"""Canonical JSON: published vectors, both ways of encoding against each other, and what is refused."""

import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from ledger import Malformed, Refused, canonical_bytes, canonical_digest, digest_bytes, parse_canonical, parse_digest

VECTORS = Path(os.environ.get("MARIN_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "vectors"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT
SCALARS = PLAIN | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


def published():
    found = sorted((VECTORS / "jcs" / "input").glob("*.json"))
    return found or [pytest.param(None, marks=pytest.mark.skip(f"no published vectors at {VECTORS}; set MARIN_SHARED"))]


@pytest.mark.parametrize("path", published(), ids=lambda p: p.name if p else "none")
def test_published_vectors(path):
    expected = (path.parent.parent / "output" / path.name).read_bytes()
    assert canonical_bytes(json.loads(path.read_bytes())) == expected
    assert canonical_bytes(parse_canonical(expected)) == expected


@given(JSON)
def test_every_value_encodes_as_the_reference_does_and_comes_back(value):
    encoded = canonical_bytes(value)
    assert encoded == rfc8785.dumps(value)
    again = parse_canonical(encoded)
    assert canonical_bytes(again) == encoded
    assert again == value


# By code points the last two sort otherwise.
@given(st.dictionaries(st.text("az\ufb01\U0001f600", max_size=3), st.integers(0, 9), max_size=8))
def test_keys_sort_by_utf16(value):
    keys = list(json.loads(canonical_bytes(value)))
    assert keys == sorted(keys, key=lambda key: key.encode("utf-16-be"))


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_all_three_ways_write_the_same_bytes(value):
    """`canonical_bytes` takes whichever is shortest; each is held against the reference by itself."""
    expected = rfc8785.dumps(value)
    assert canonical_bytes(value) == canonical_bytes([value])[1:-1] == expected
    assert parse_canonical(expected) == value


def test_every_ascii_character_is_escaped_as_the_reference_does():
    for code in range(128):
        value = {"text": chr(code), chr(code): [chr(code) * 2]}
        assert canonical_bytes(value) == canonical_bytes([value])[1:-1] == rfc8785.dumps(value)


@pytest.mark.parametrize("number", [0, -1, 2**53 - 1, -(2**53) + 1, 1.5, -0.0, 1e21, 1e16, 5e-324, 0.1, 1.0, True])
def test_numbers_inside_objects(number):
    value = {"n": number, "m": [number]}
    assert canonical_bytes(value) == rfc8785.dumps(value)
    assert canonical_bytes(parse_canonical(canonical_bytes(value))) == rfc8785.dumps(value)


def test_nothing_is_converted_on_the_short_way():
    class Text(str):
        pass

    assert canonical_bytes({"a": Text("b"), "c": (1, 2)}) == b'{"a":"b","c":[1,2]}'
    for value in ({1: 2}, {"a": {None: 1}}, {"a": datetime(2026, 1, 1, tzinfo=UTC)}, {"a": math.nan}, {"a": b"x"}):
        with pytest.raises(Refused):
            canonical_bytes(value)


def test_keys_above_the_surrogates_sort_by_utf16():
    # U+FFFD sorts behind U+1F600 by code unit and before it by code point.
    assert canonical_bytes({"\ufffd": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufffd":1}'.encode()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"),
        ({"a": [1, math.inf]}, "$.a[1]"),
        ({"a": {"b": 2**53}}, "$.a.b"),
        ([-(2**53)], "$[0]"),
        ({1: 2}, "$"),
        ({"a": "\ud800"}, "$.a"),
        ({"\udfff": 1}, "$"),
        ({"a": b"bytes"}, "$.a"),
        ({"a": {1, 2}}, "$.a"),
        (object(), "$"),
    ],
)
def test_what_has_no_exact_encoding_is_refused_with_its_path(value, path):
    with pytest.raises(Refused) as caught:
        canonical_bytes(value)
    assert caught.value.where.split(" ")[0] == path
    assert caught.value.exit_code == 2


def test_depth_is_bounded():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Refused):
        canonical_bytes(deep)
    with pytest.raises(Malformed):
        parse_canonical(b"[" * 100_000 + b"]" * 100_000)
    while deep:  # a structure of this depth must be taken apart by hand before the interpreter does
        deep = deep.pop()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b" {}",
        b"{} ",
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1.0}',
        b'{"a":1e2}',
        b'{"a":-0}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":"\\u0041"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b"9007199254740993",
        b"1" * 5000,
    ],
)
def test_bytes_that_are_not_canonical_are_malformed(data):
    with pytest.raises(Malformed):
        parse_canonical(data)


@given(st.binary(max_size=64) | st.text('0123456789.e+-"[]{},:', max_size=12).map(str.encode))
def test_any_bytes_parse_exactly_or_are_malformed(data):
    try:
        value = parse_canonical(data)
    except Malformed:
        return
    assert canonical_bytes(value) == data


def test_large_floats_keep_their_bytes():
    assert parse_canonical(b"100000000000000000000") == 1e20
    assert parse_canonical(b"1e+30") == 1e30


def test_digests():
    digest = digest_bytes(b"")
    assert digest == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert parse_digest(digest).hex() == digest[7:]
    assert canonical_digest({"b": 1, "a": 2}) == digest_bytes(b'{"a":2,"b":1}')
    for wrong in ("", "sha256:", digest[:-1], digest + "0", digest.upper(), "md5:" + digest[7:], digest + "\n"):
        with pytest.raises(Malformed):
            parse_digest(wrong)
