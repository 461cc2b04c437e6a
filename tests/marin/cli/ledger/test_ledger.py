"""`marin ledger` and `marin log`: what tools rely on."""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger import Event, LogReader, VerifierKey, open_storage
from marin.record.root import open_root

Marin = Any
EVENT = ("ledger", "append", "--type", "note.added/v1", "--stream", "notes", "--body", "-")


def test_append_prints_where_the_event_is(marin: Marin, root: Path) -> None:
    first = marin(*EVENT, "--json", stdin=b'{"text": "one"}').json
    second = marin(*EVENT, "--json", stdin=b'{"text": "two"}').json
    assert (first["index"], first["seq"], first["tree_size"]) == (0, 0, 1)
    assert (second["index"], second["seq"], second["tree_size"]) == (1, 1, 2)
    key = VerifierKey.parse((root / "vkey").read_text().strip())
    reader = LogReader(open_storage(root), [key])
    assert reader.leaf_hash(1).hex() == second["leaf_hash"]
    assert dict(reader.event(1).body) == {"text": "two"}


def test_the_same_id_is_the_same_event(marin: Marin, root: Path) -> None:
    first = marin(*EVENT, "--id", "one", "--json", stdin=b'{"n": 1}')
    again = marin(*EVENT, "--id", "one", "--json", stdin=b'{"n": 1}')
    other = marin(*EVENT, "--id", "one", "--json", stdin=b'{"n": 2}')
    assert first.json["index"] == again.json["index"] == 0
    assert (other.status, other.data) == (1, b"")
    assert "the id is taken by another event" in other.err
    assert marin("ledger", "checkpoint", "--json").json["size"] == 1


def test_a_wrong_expectation_is_refused(marin: Marin, root: Path) -> None:
    assert marin(*EVENT, "--expect-seq", "0", stdin=b"{}").status == 0
    refused = marin(*EVENT, "--expect-seq", "0", stdin=b"{}")
    assert refused.status == 1
    assert "expected seq 0, found 1 is next" in refused.err


def test_a_batch_is_all_or_nothing(marin: Marin, root: Path, tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    lines = [{"type": "note.added/v1", "stream": f"notes/{n % 2}", "body": {"n": n}, "id": f"n{n}"} for n in range(5)]
    batch.write_text("\n\n".join(map(json.dumps, lines)))
    printed = marin("ledger", "append", "--batch", batch, "--json").lines
    assert [line["index"] for line in printed] == [0, 1, 2, 3, 4]
    assert [line["seq"] for line in printed] == [0, 0, 1, 1, 2]
    assert {line["tree_size"] for line in printed} == {5}
    assert marin("ledger", "append", "--batch", batch, "--json").lines == printed
    batch.write_text(json.dumps({**lines[0], "id": "new"}) + "\n" + json.dumps({**lines[1], "body": {"n": 7}}))
    assert marin("ledger", "append", "--batch", batch).status == 1
    assert marin("ledger", "checkpoint", "--json").json["size"] == 5


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type": "a/v1", "stream": "s"}', "no body"),
        (b'{"type": "a/v1", "stream": "s", "body": {}, "sequence": 1}', "unknown sequence"),
        (b'{"type": "a/v1", "stream": "s", "body": [1]}', "body: expected an object"),
        (b'{"type": "a/v1", "stream": "s", "body": {}, "expect_seq": true}', "expect_seq: expected a whole number"),
        (b'{"type": "a/v1", "stream": "s", "body": {"a": 1, "a": 2}}', "the key 'a' twice"),
        (b'{"type": "a/v1", "stream": "s", "body": {"a": NaN}}', "NaN"),
        (b'{"type": "a/v1", "stream": "s", "body": {"a": 9007199254740993}}', "9007199254740993"),
        (b'{"type": "a/v1", "stream": "s", "body": {"a": "\xff"}}', "UTF-8"),
        (b'{"type": "Pickle", "stream": "s", "body": {}}', "Pickle"),
        (b"[" * 100_000, "not JSON"),
        (b"7", "expected a JSON object, found int"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_appended(marin: Marin, root: Path, line: bytes, said: str) -> None:
    good = b'{"type": "a/v1", "stream": "s", "body": {}}\n'
    refused = marin("ledger", "append", "--batch", "-", stdin=good + line)
    assert (refused.status, refused.data) == (2, b"")
    assert refused.err.count("\n") == 1
    assert said in refused.err
    assert marin("ledger", "checkpoint", "--json").json["size"] == 0


@pytest.mark.parametrize("arguments", [("--type", "a/v1"), ("--batch", "-", "--id", "x"), ()])
def test_append_needs_either_an_event_or_a_batch(marin: Marin, root: Path, arguments: tuple[str, ...]) -> None:
    refused = marin("ledger", "append", *arguments)
    assert refused.status == 2
    assert refused.err.startswith("marin: ")


def test_an_event_of_ours_must_have_its_shape(marin: Marin, root: Path) -> None:
    body = b'{"run": "x"}'
    refused = marin("ledger", "append", "--type", "run.started/v1", "--stream", "run/x", "--body", "-", stdin=body)
    assert refused.status == 2
    assert "the body of an event does not fit its type" in refused.err
    assert marin("ledger", "checkpoint", "--json").json["size"] == 0


def test_log_prints_events_in_order_and_by_choice(marin: Marin, run: str) -> None:
    whole = marin("log", "--json").lines
    assert [event["index"] for event in whole] == list(range(6))
    assert set(whole[0]) == {"index", "id", "type", "stream", "seq", "time", "actor", "body"}
    assert marin("log", "--json", "--stream", f"run/{run}").lines == whole
    assert marin("log", "--json", "--stream", "run/other").lines == []
    segments = marin("log", "--json", "--type", "train.segment/v1").lines
    assert [event["index"] for event in segments] == [1, 2]
    assert marin("log", "--json", "-n", "2").lines == whole[-2:]
    assert marin("log", "--json", "--type", "train.segment/v1", "-n", "1").lines == segments[-1:]
    plain = marin("log").out.splitlines()
    assert len(plain) == 6
    assert all(event["type"] in line and event["stream"] in line for event, line in zip(whole, plain, strict=True))


def test_an_event_that_is_printed_can_be_encoded_to_its_leaf(marin: Marin, run: str) -> None:
    printed = marin("log", "--json").lines[3]
    index = printed.pop("index")
    proof = marin("ledger", "proof", index).data
    entry = proof.split(b"extra ")[1].split(b"\n")[0]
    assert base64.b64decode(entry) == Event(**printed).encode()


def test_log_does_not_believe_the_projection(marin: Marin, run: str, root: Path) -> None:
    assert marin("log", "--type", "train.segment/v1").status == 0
    (database,) = open_root(str(root)).views().glob("events.sqlite")
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE events SET body = '{\"forged\": true}'")
    connection.close()
    assert "forged" not in marin("log", "--json", "--type", "train.segment/v1").out


def test_follow_prints_what_is_appended_later(marin: Marin, root: Path) -> None:
    marin(*EVENT, stdin=b'{"n": 0}')
    command = [sys.executable, "-m", "marin.cli.main", "log", "--follow", "--json", "--root", str(root)]
    project = Path(__file__).resolve().parents[4]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=project, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            assert json.loads(process.stdout.readline())["body"] == {"n": 0}
            marin(*EVENT, stdin=b'{"n": 1}')
            assert json.loads(process.stdout.readline())["body"] == {"n": 1}
            process.send_signal(signal.SIGINT)
            assert process.stderr.read() == "marin: interrupted\n"
            assert process.wait() == 130
        finally:
            process.kill()


def test_checkpoint_is_the_signed_note(marin: Marin, run: str, root: Path) -> None:
    note = marin("ledger", "checkpoint").data
    assert note == (root / "log" / "checkpoint").read_bytes()
    origin, size, _, empty, signature, _ = note.decode().split("\n")
    shown = marin("ledger", "checkpoint", "--json").json
    assert (shown["origin"], shown["size"]) == (origin, int(size)) == ("marin.test/cli", 6)
    assert empty == "" and signature.startswith("— marin.test/cli ")


def test_a_proof_can_be_checked_without_a_root(marin: Marin, run: str, root: Path, tmp_path: Path) -> None:
    vkey = (root / "vkey").read_text()
    file = tmp_path / "proof"
    assert marin("ledger", "proof", 4, "--output", file).data == b""
    assert marin("ledger", "proof", 4).data == file.read_bytes()
    root.rename(root.with_name("gone"))
    shown = marin("ledger", "verify-proof", file, "--vkey", vkey, "--json")
    assert (shown.status, shown.json["index"], shown.json["signers"]) == (0, 4, ["marin.test/cli"])
    from_stdin = marin("ledger", "verify-proof", "-", "--vkey", vkey, stdin=file.read_bytes())
    assert "entry 4 is in marin.test/cli of 6 entries" in from_stdin.out


def test_a_proof_with_any_line_changed_shows_nothing(marin: Marin, run: str, root: Path) -> None:
    vkey = (root / "vkey").read_text()
    proof = marin("ledger", "proof", 4).data
    for number, line in enumerate(proof.splitlines()):
        if not line:
            continue
        lines = proof.splitlines(keepends=True)
        middle = len(line) // 2
        lines[number] = (
            line[:middle] + (b"A" if line[middle : middle + 1] != b"A" else b"B") + line[middle + 1 :] + b"\n"
        )
        refused = marin("ledger", "verify-proof", "-", "--vkey", vkey, stdin=b"".join(lines))
        assert (refused.status, refused.data) == (1, b""), line


def test_a_proof_under_another_key_shows_nothing(marin: Marin, run: str, tmp_path: Path) -> None:
    proof = marin("ledger", "proof", 0).data
    other = marin("init", "--root", tmp_path / "other", "--json").json["vkey"]
    refused = marin("ledger", "verify-proof", "-", "--vkey", other, stdin=proof)
    assert refused.status == 1
    assert marin("ledger", "verify-proof", "-", "--vkey", "nonsense", stdin=proof).status != 0


@pytest.mark.parametrize("index", [6, 2**62])
def test_a_proof_of_what_is_not_there_is_refused(marin: Marin, run: str, index: int) -> None:
    refused = marin("ledger", "proof", index)
    assert refused.status == 2
    assert f"index {index}" in refused.err


def test_fsck_of_a_whole_root(marin: Marin, run: str) -> None:
    done = marin("ledger", "fsck", "--json")
    assert done.status == 0
    assert done.json["whole"] is True and done.json["findings"] == []
    assert done.json["log_checkpoint"]["size"] == 6
    assert marin("ledger", "fsck").out.startswith("whole: 6 entries, 1 artifact, root ")


@pytest.mark.parametrize("pattern", ["log/tile/0/**/*", "log/tile/entries/**/*", "log/checkpoint", "store/blobs/**/*"])
def test_fsck_names_one_flipped_byte(marin: Marin, run: str, root: Path, pattern: str) -> None:
    (victim,) = [file for file in root.glob(pattern) if file.is_file()]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.chmod(0o644)
    victim.write_bytes(bytes(data))
    done = marin("ledger", "fsck")
    assert done.status == 1
    name = victim.relative_to(root).as_posix()
    assert name in done.out
    listed = marin("ledger", "fsck", "--json")
    assert listed.status == 1
    assert listed.json["findings"] and not listed.json["whole"]


def test_fsck_names_what_is_missing(marin: Marin, run: str, root: Path) -> None:
    (blob,) = [file for file in root.glob("store/blobs/**/*") if file.is_file()]
    blob.unlink()
    done = marin("ledger", "fsck")
    assert done.status == 1
    assert "artifact" in done.out


def test_fsck_names_a_file_that_a_tree_has_lost(marin: Marin, root: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "lost.txt").write_text("lost")
    digest = marin("store", "put", tmp_path / "tree").out.strip()
    (blob,) = [file for file in root.glob("store/blobs/**/*") if file.is_file()]
    blob.unlink()
    done = marin("ledger", "fsck")
    assert done.status == 1
    assert f"{digest}, file lost.txt" in done.out


def test_fsck_under_another_key(marin: Marin, run: str, tmp_path: Path) -> None:
    other = marin("init", "--root", tmp_path / "other", "--json").json["vkey"]
    done = marin("ledger", "fsck", "--vkey", other, "--json")
    assert done.status == 1
    assert done.json["log_checkpoint"] is None


def test_fsck_of_a_log_that_is_not_ours(marin: Marin, run: str, root: Path) -> None:
    vkey = (root / "vkey").read_text().strip()
    done = marin("ledger", "fsck", "--foreign", "--root", root / "log", "--vkey", vkey)
    assert done.out.startswith("whole: 6 entries, root ")
    assert marin("ledger", "fsck", "--foreign", "--root", root / "log").status == 2


@pytest.mark.parametrize(
    ("body", "options", "says"),
    [
        (b'{"x": "%s"}' % (b"y" * 70_000), (), "an event is too large"),
        (b'{"x": NaN}', (), "not JSON"),
        (b'{"x": 9007199254740993}', (), "no canonical JSON"),
        (b'{"x": 1e400}', (), "no canonical JSON"),
        (b'{"a": 1, "a": 2}', (), "not JSON"),
        (b"[1]", (), "not an object"),
        (b"\xff", (), "not JSON"),
        (b'{"run": 3}', ("--type", "run.started/v1"), "does not fit its type"),
        (b"{}", ("--type", "Bad Type"), "not an event"),
        (b"{}", ("--id", "has space"), "not an event"),
    ],
)
def test_bad_events_are_refused_with_what_was_expected_and_a_cure(
    marin: Marin, root: Path, body: bytes, options: tuple[str, ...], says: str
) -> None:
    outcome = marin(*EVENT, *options, stdin=body)
    assert (outcome.status, outcome.data) == (2, b""), outcome.err
    assert says in outcome.err
    assert "expected" in outcome.err
    assert "found" in outcome.err
    assert ";" in outcome.err  # the cure
    assert len(outcome.err.splitlines()) == 1
    assert marin("ledger", "checkpoint", "--json").json["size"] == 0


def test_a_root_that_cannot_be_read_or_is_another_logs(
    marin: Marin, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert marin(*EVENT, "--root", tmp_path / "file", stdin=b"{}").status == 3
    (root / "vkey").write_bytes(b"\xff")
    broken = marin(*EVENT, stdin=b"{}")
    assert (broken.status, "verifier key cannot be read" in broken.err) == (1, True)
    other = tmp_path / "other"
    key = marin("init", "--root", other, "--json").json["key"]
    third = tmp_path / "third"
    marin("init", "--root", third)
    monkeypatch.setenv("MARIN_KEY", key)
    wrong = marin(*EVENT, "--root", third, stdin=b"{}")
    assert (wrong.status, "not the one of this root" in wrong.err) == (2, True)
