"""The moment that a time stamp token supports: what `openssl ts` reads in it is the oracle, and tokens made by hand."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder, decode_timestamp_response
from time_authority import Authority

from ledger import LedgerError, Malformed, Unverified, format_time
from ledger.witness.instant import instant_of
from ledger.witness.timestamp import verify_stamp

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
TEXT = "what is stamped"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def stamped(authority: Authority, digits: int, accuracy: str) -> bytes:
    query = TimestampRequestBuilder().data(TEXT.encode()).hash_algorithm(HashAlgorithm.SHA256).build().as_bytes()
    answer: bytes = authority.precise(query, digits=digits, accuracy=accuracy)
    return answer


def read_by_openssl(authority: Authority) -> tuple[datetime, timedelta | None, int]:
    """Time, accuracy and digits of the fraction of the newest reply."""
    told = subprocess.run(
        ["openssl", "ts", "-reply", "-in", "reply", "-text"],
        cwd=authority.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    moment = re.search(r"Time stamp: (.*?)(?:\.([0-9]+))? ([0-9]{4}) GMT", told)
    assert moment is not None
    second = datetime.strptime(f"{moment[1]} {moment[3]}", "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    fraction = moment[2] or ""
    at = second + timedelta(microseconds=int(fraction.ljust(6, "0")))
    stated = re.search(r"Accuracy: (\S+) seconds, (\S+) millis, (\S+) micros", told)
    if stated is None:
        return at, None, len(fraction)
    seconds, millis, micros = (0 if one == "unspecified" else int(one, 16) for one in stated.groups())
    return at, timedelta(seconds=seconds, milliseconds=millis, microseconds=micros), len(fraction)


@pytest.mark.parametrize("digits", [0, 1, 3, 6])
@pytest.mark.parametrize(
    "accuracy", ["", "secs:1", "secs:2, millisecs:500, microsecs:100", "millisecs:999", "microsecs:7"]
)
def test_the_bound_is_the_time_with_its_fraction_and_its_accuracy(
    authority: Authority, digits: int, accuracy: str
) -> None:
    answer = stamped(authority, digits, accuracy)
    at, off, written = read_by_openssl(authority)
    bound = at + (timedelta(microseconds=10 ** (6 - written)) if off is None else off)
    assert verify_stamp(answer, TEXT, authority.certificates) == (format_time(bound), "CN=Test Authority")
    token = decode_timestamp_response(answer).time_stamp_token()
    assert instant_of(token).second == at.replace(microsecond=0)


def der(tag: int, *values: bytes) -> bytes:
    content = b"".join(values)
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2)
    return bytes([tag]) + length + content


def token(moment: bytes, *rest: bytes) -> bytes:
    """A token of this time, with these fields after it; nobody signed it."""
    info = der(0x30, der(2, b"\1"), der(6, b"*"), der(0x30), der(2, b"\1"), der(0x18, moment), *rest)
    inner = der(0x30, der(6, bytes.fromhex("2a864886f70d0109100104")), der(0xA0, der(4, info)))
    signed = der(0x30, der(2, b"\3"), der(0x31), inner)
    return der(0x30, der(6, bytes.fromhex("2a864886f70d010702")), der(0xA0, signed))


@pytest.mark.parametrize(
    ("moment", "accuracy", "bound"),
    [
        (b"20261129101500Z", None, "2026-11-29T10:15:01.000000Z"),
        (b"20261129101500.9Z", None, "2026-11-29T10:15:01.000000Z"),
        (b"20261129101500.9Z", [], "2026-11-29T10:15:00.900000Z"),
        (b"20261129101500.123456789Z", [], "2026-11-29T10:15:00.123457Z"),
        (b"20261129101500.999Z", [(2, 1), (0x80, 999), (0x81, 999)], "2026-11-29T10:15:02.998999Z"),
        (b"20261231235959.5Z", [(0x80, 500)], "2027-01-01T00:00:00.000000Z"),
        (b"20261129101500Z", [(2, 0)], "2026-11-29T10:15:00.000000Z"),
    ],
)
def test_bounds_by_hand(moment: bytes, accuracy: list[tuple[int, int]] | None, bound: str) -> None:
    parts = [der(tag, number.to_bytes(2 if number > 127 else 1)) for tag, number in accuracy or ()]
    stated = [] if accuracy is None else [der(0x30, *parts)]
    assert format_time(instant_of(token(moment, *stated)).bound) == bound


@pytest.mark.parametrize(
    "moment",
    [
        b"",
        b"20261129101500",
        b"20261129101500+0100",
        b"20261129101500.Z",
        b"20261129101500.50Z",
        b"20261129101500,5Z",
        b"202611291015Z",
        b"20261329101500Z",
        b"20261129101560Z",
        b"20261129101500.5z",
        b" 0261129101500Z",
        b"00001129101500Z",
    ],
)
def test_moments_that_are_none(moment: bytes) -> None:
    with pytest.raises(Malformed):
        instant_of(token(moment))


@pytest.mark.parametrize(
    "accuracy",
    [
        der(0x80, b"\0"),  # no milliseconds
        der(0x80, b"\3\xe8"),  # a thousand of them
        der(0x80, b"\xff"),  # fewer than none
        der(0x81, b"\1") + der(0x80, b"\1"),  # in another order
        der(2, b"\1") + der(2, b"\1"),
        der(2, b"\0\1"),  # not the shortest form
        der(2, b"\x7f" + b"\xff" * 7),  # aeons
        der(2, b"\x01" * 9),
        der(4, b"\1"),
        b"\2",
    ],
)
def test_accuracies_that_are_none(accuracy: bytes) -> None:
    with pytest.raises(Malformed):
        instant_of(token(b"20261129101500Z", der(0x30, accuracy)))


def test_a_moment_at_the_end_of_time_has_no_bound() -> None:
    with pytest.raises(Malformed):
        instant_of(token(b"99991231235959.9Z", der(0x30, der(2, b"\1"))))


def test_no_change_of_a_token_gives_an_earlier_bound(authority: Authority) -> None:
    """Each byte of a token that states all: what still verifies says the same."""
    answer = stamped(authority, 6, "secs:1, millisecs:2, microsecs:3")
    said = verify_stamp(answer, TEXT, authority.certificates)
    for at in range(len(answer)):
        changed = answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :]
        try:
            shown = verify_stamp(changed, TEXT, authority.certificates)
        except (Malformed, Unverified):
            continue
        assert shown == said, at


def test_any_cut_is_refused(authority: Authority) -> None:
    whole = decode_timestamp_response(stamped(authority, 3, "secs:1")).time_stamp_token()
    for end in range(len(whole)):
        with pytest.raises(LedgerError):
            instant_of(whole[:end])
