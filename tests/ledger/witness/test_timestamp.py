"""Time stamps by a real authority: openssl's `ts`, behind HTTP on the loopback interface."""

import base64
import shutil
from dataclasses import replace

import pytest
from time_authority import Authority, openssl, serving_authority

from ledger import (
    Draft,
    Log,
    LogReader,
    Malformed,
    Refused,
    Stamped,
    Tampered,
    Unavailable,
    Unverified,
    check_stamp,
    load_authorities,
    stamp_checkpoint,
)
from ledger.witness.timestamp import verify_stamp
from tests.ledger.memory import MemoryStorage

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    with serving_authority(tmp_path_factory.mktemp("authority")) as made:
        yield made


@pytest.fixture
def log(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as opened:
        opened.append([Draft("t/v1", "s", {"n": n}) for n in range(5)])
        yield opened, LogReader(storage, [signer.verifier])


def anchored(log, authority):
    opened, reader = log
    draft, _ = stamp_checkpoint(reader.refresh(), authority.url, authority.certificates)
    index = opened.append([draft])[0].index
    reader.refresh()
    return index, reader.event(index)


def test_a_stamp_says_which_events_existed_before_which_time(log, authority):
    reader = log[1]
    index, event = anchored(log, authority)
    shown = check_stamp(reader, index, event, authority.certificates)
    assert isinstance(shown, Stamped), shown
    assert (shown.index, shown.size, shown.root, shown.authority) == (5, 5, reader.root(5), "CN=Test Authority")
    assert shown.time == event.body["time"]


def test_openssl_itself_agrees(log, authority, tmp_path):
    _, event = anchored(log, authority)
    (tmp_path / "text").write_text(event.body["checkpoint"])
    (tmp_path / "token").write_bytes(base64.b64decode(event.body["token"]))
    openssl(tmp_path, "ts", "-verify", "-data", "text", "-in", "token", "-CAfile", str(authority.folder / "ca.pem"))


def test_stamps_that_show_nothing(log, authority, tmp_path_factory):
    reader = log[1]
    index, event = anchored(log, authority)

    def judged(**change: str):
        return check_stamp(reader, index, replace(event, body={**event.body, **change}), authority.certificates)

    other = Authority(tmp_path_factory.mktemp("other"))
    assert isinstance(check_stamp(reader, index, event, other.certificates), Unverified)
    assert isinstance(check_stamp(reader, index, event, []), Unverified)
    assert isinstance(judged(kind="other"), Malformed)
    assert isinstance(judged(token="AAAA"), Malformed)
    text = event.body["checkpoint"]
    assert isinstance(judged(checkpoint=text.replace("\n5\n", "\n4\n")), Tampered)
    assert isinstance(judged(checkpoint=text.replace("\n5\n", "\n50\n")), Tampered)
    assert isinstance(judged(checkpoint=text.replace("log.example/test", "log.example/other")), Tampered)
    with pytest.raises(Unverified):
        verify_stamp(base64.b64decode(event.body["token"]), text + "more\n", authority.certificates)


def test_every_changed_byte_of_a_stamp_is_noticed(log, authority):
    _, event = anchored(log, authority)
    token = base64.b64decode(event.body["token"])
    for at in range(len(token)):
        changed = token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :]
        try:
            shown = verify_stamp(changed, event.body["checkpoint"], authority.certificates)
        except (Malformed, Unverified):
            continue
        # What is outside of everything that is signed (the status, say) may change; the statement may not.
        assert shown == (event.body["time"], "CN=Test Authority"), at


def test_authorities_that_answer_nonsense_or_not_at_all(log, authority):
    checkpoint = log[1].refresh()
    authority.answers = [b"<html>"]
    with pytest.raises(Malformed):
        stamp_checkpoint(checkpoint, authority.url, authority.certificates)
    _, event = anchored(log, authority)  # an answer to another question, with another nonce
    authority.answers = [base64.b64decode(event.body["token"])]
    with pytest.raises(Unverified):
        stamp_checkpoint(checkpoint, authority.url, authority.certificates)
    authority.answers = [bytes(50_000)]
    with pytest.raises(Refused, match="too large"):
        stamp_checkpoint(checkpoint, authority.url, authority.certificates)
    with pytest.raises(Unavailable):
        stamp_checkpoint(checkpoint, "http://127.0.0.1:9/", authority.certificates)
    with pytest.raises(Refused):
        stamp_checkpoint(checkpoint, "ftp://example", authority.certificates)
    with pytest.raises(Unavailable):
        load_authorities(authority.folder / "missing")
    with pytest.raises(Malformed):
        load_authorities(authority.folder / "conf")
