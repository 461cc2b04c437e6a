"""Events, drafts and entry bundles: what comes back, what is refused, and what any bytes give."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import Draft, Event, EventTypes, LedgerError, Malformed, Refused, canonical_bytes, format_time, parse_time
from ledger.format.bundle import MAX_ENTRY_BYTES, pack_entries, unpack_entries

TIME = "2026-11-21T10:29:22.000000Z"
EVENT = Event("id-1", "train.segment/v1", "run/6f1c", 3, TIME, "somebody@host", {"steps": [1, 2], "loss": "0x1p+1"})


def test_the_entry_is_canonical_json_of_seven_fields():
    entry = EVENT.encode()
    assert entry == (
        b'{"actor":"somebody@host","body":{"loss":"0x1p+1","steps":[1,2]},"id":"id-1","seq":3,'
        b'"stream":"run/6f1c","time":"2026-11-21T10:29:22.000000Z","type":"train.segment/v1"}'
    )
    assert Event.decode(entry) == EVENT


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "train.segment"),
        ("type", "Train/v1"),
        ("type", "train/v"),
        ("type", "a" * 120 + "/v1"),
        ("stream", ""),
        ("stream", "run//1"),
        ("stream", "/run"),
        ("stream", "run/ 1"),
        ("stream", "s" * 201),
        ("id", ""),
        ("id", "has space"),
        ("id", "x" * 201),
        ("id", 7),
        ("actor", ""),
        ("actor", "two\nlines"),
        ("time", "2026-11-21T10:29:22Z"),
        ("time", "2026-13-21T10:29:22.000000Z"),
        ("time", "2026-11-21T10:29:22.000000+00:00"),
        ("seq", -1),
        ("seq", True),
        ("seq", "3"),
        ("seq", 2**53),
        ("body", []),
        ("body", None),
    ],
)
def test_a_bad_field_is_malformed_when_read_and_named(field, value):
    fields = dataclasses.asdict(EVENT) | {field: value}
    with pytest.raises(Malformed) as caught:
        Event.decode(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())
    assert field in caught.value.where


@pytest.mark.parametrize("field", ["type", "stream", "id", "actor", "time"])
def test_a_bad_draft_is_refused(field):
    draft = dataclasses.replace(Draft("a/v1", "s", {}), **{field: "\n"})
    with pytest.raises(Refused) as caught:
        draft.event(0, TIME, "actor")
    assert caught.value.where == field


def test_missing_and_unknown_fields_are_malformed():
    fields = dataclasses.asdict(EVENT)
    for wrong in ({**fields, "more": 1}, {key: fields[key] for key in fields if key != "actor"}, [], 3):
        with pytest.raises(Malformed):
            Event.decode(canonical_bytes(wrong))


def test_the_size_of_an_entry_is_bounded():
    overhead = len(dataclasses.replace(EVENT, body={"x": ""}).encode())
    fits = dataclasses.replace(EVENT, body={"x": "a" * (MAX_ENTRY_BYTES - overhead)})
    assert len(fits.encode()) == MAX_ENTRY_BYTES
    assert Event.decode(fits.encode()) == fits
    with pytest.raises(Refused, match="65535"):
        dataclasses.replace(EVENT, body={"x": "a" * (MAX_ENTRY_BYTES - overhead + 1)}).encode()
    with pytest.raises(Malformed):
        Event.decode(b"a" * (MAX_ENTRY_BYTES + 1))


def test_a_draft_keeps_its_id_and_knows_its_event():
    draft = Draft("a/v1", "s", {"x": 1})
    assert draft.id
    assert draft.id != Draft("a/v1", "s", {"x": 1}).id
    event = draft.event(5, TIME, "actor")
    assert draft.matches(event)
    for change in (
        {"body": {"x": 2}},
        {"type": "b/v1"},
        {"stream": "t"},
        {"actor": "other"},
        {"time": TIME[:-3] + "01Z"},
    ):
        assert not dataclasses.replace(draft, **change).matches(event), change
    assert dataclasses.replace(draft, expect_seq=5).matches(event)
    assert not dataclasses.replace(draft, expect_seq=6).matches(event)


def test_registered_types_are_checked_and_others_pass():
    def check(body):
        if "steps" not in body:
            raise Refused("no steps", where="steps")

    types = EventTypes()
    types.register("train/v1", check)
    types.check("train/v1", {"steps": 1})
    types.check("unknown/v9", {})
    with pytest.raises(Refused, match="no steps"):
        types.check("train/v1", {})
    with pytest.raises(Refused, match="twice"):
        types.register("train/v1", check)
    with pytest.raises(Refused):
        types.register("not a type", check)
    assert ("train/v1" in types, "x/v1" in types, types.names()) == (True, False, ["train/v1"])


def test_times_are_utc_with_microseconds():
    moment = datetime(2026, 11, 21, 12, 29, 22, 5, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-11-21T10:29:22.000005Z"
    assert parse_time("2026-11-21T10:29:22.000005Z") == moment.astimezone(UTC)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_bundles_come_back(entries):
    assert unpack_entries(pack_entries(entries)) == entries


def test_a_bundle_is_length_prefixed_big_endian():
    assert pack_entries([b"ab", b"", b"c" * 258]) == b"\x00\x02ab\x00\x00\x01\x02" + b"c" * 258
    with pytest.raises(Refused):
        pack_entries([bytes(MAX_ENTRY_BYTES + 1)])


@given(st.binary(max_size=200) | st.lists(st.binary(max_size=9)).map(pack_entries))
def test_any_bytes_are_a_bundle_or_malformed(data):
    try:
        entries = unpack_entries(data)
    except Malformed:
        return
    assert pack_entries(entries) == data


@given(st.binary(max_size=200) | st.builds(lambda d: json.dumps(d).encode(), st.dictionaries(st.text(), st.text())))
def test_any_bytes_are_an_event_or_our_own_error(data):
    with pytest.raises(LedgerError):
        Event.decode(data)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(-9, 9) | st.floats(-1, 1)
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20),
    st.integers(0, 2**53 - 1),
)
def test_an_entry_put_together_from_parts_is_that_of_the_event(body, actor, seq):
    draft = Draft("train.segment/v1", "run/6f1c", body, id="an-id:1")
    assert draft.entry(seq, TIME, actor) == draft.event(seq, TIME, actor).encode()
