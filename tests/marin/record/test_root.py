"""The root: made, found, and refused with a cure."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from buckets import Bucket

from ledger import Conflict, Draft, LedgerError, Log, LogCheckpoint, Malformed, Refused, Unavailable, check, create_key
from ledger.log.view import LogView
from marin.cli.verifying.verify import own_root
from marin.kinds.kind import Fact
from marin.record.creation import create_root
from marin.record.events import ReplayCompleted
from marin.record.root import open_root
from marin.record.trust.homes import VKEY
from marin.record.trust.keyfiles import key_path
from marin.verify import sealed


def events(location: Path) -> list[int]:
    return [index for index, _ in open_root(str(location)).history().events()]


def test_a_root_and_its_key_are_made_once(tmp_path: Path, own_keys: Path) -> None:
    first = create_root(str(tmp_path / "r"))
    key = key_path(first.verifier.name)
    assert key.is_relative_to(own_keys)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not list((tmp_path / "r").rglob("*.key"))
    before = key.read_bytes()
    assert create_root(str(tmp_path / "r")).verifier == first.verifier
    assert key.read_bytes() == before
    assert (tmp_path / "r" / "vkey").read_text() == f"{first.verifier}\n"


def test_an_interrupted_init_goes_on(tmp_path: Path, own_keys: Path) -> None:
    root = create_root(str(tmp_path / "r"))
    (tmp_path / "r" / "log" / "checkpoint").unlink()
    assert create_root(str(tmp_path / "r")).verifier == root.verifier
    assert open_root(str(tmp_path / "r")).reader().checkpoint().size == 0


def test_the_environment_names_root_and_key(tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "my.key"))
    made = create_root(origin="example.org/log")
    assert (tmp_path / "my.key").is_file()
    assert not own_keys.exists()
    assert open_root().verifier == made.verifier
    with pytest.raises(
        Refused,
        match=r"the key signs another log: .*my.key: expected a key that signs no log yet, found that of .*elsewhere",
    ):
        create_root(str(tmp_path / "second"))
    assert not (tmp_path / "second" / "vkey").exists()
    shutil.rmtree(tmp_path / "elsewhere")
    again = create_root(str(tmp_path / "second"))
    assert again.verifier == made.verifier, "an existing key is used again, where its log is gone"


def test_another_origin_is_refused(tmp_path: Path, own_keys: Path) -> None:
    create_root(str(tmp_path / "r"), origin="example.org/one")
    with pytest.raises(Refused, match=r"expected example.org/two, found example.org/one"):
        create_root(str(tmp_path / "r"), origin="example.org/two")


def test_no_root_names_the_cure(tmp_path: Path) -> None:
    for location in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Unavailable, match=r"marin init.*MARIN_ROOT") as caught:
            open_root(str(location))
        assert caught.value.exit_code == 3
    assert not (tmp_path / "missing").exists()


def test_a_key_that_others_can_read_is_refused(tmp_path: Path, own_keys: Path) -> None:
    root = create_root(str(tmp_path / "r"))
    key_path(root.verifier.name).chmod(0o644)
    with pytest.raises(Refused, match="mode 0600, found 0644"):
        root.append([Draft("a.b/v1", "s", {})])


def test_events_of_ours_are_checked_and_others_pass(tmp_path: Path, own_keys: Path) -> None:
    root = create_root(str(tmp_path / "r"))
    with pytest.raises(LedgerError, match=r"step.failed"):
        root.append([Draft("step.failed/v1", "run/x", {"run": 7})])
    with pytest.raises(Conflict):
        root.append([Draft("a.b/v1", "s", {}, expect_seq=4)])
    root.append([Draft("weather.seen/v1", "run/x", {"any": "thing"})])
    assert events(tmp_path / "r") == [0]


def test_history_gives_out_only_what_the_log_proves(tmp_path: Path, own_keys: Path) -> None:
    """The read model is a guide: rows that were changed in it never reach anybody."""
    import sqlite3

    root = create_root(str(tmp_path / "r"))
    root.append([Draft("a.b/v1", f"run/{number % 2}", {"n": number}) for number in range(600)])
    root.history()
    with sqlite3.connect(root.views() / "events.sqlite") as database:
        database.execute("UPDATE events SET body = '{\"n\":1000000}'")
    found = [event.body["n"] for _, event in root.history().events(stream="run/1")]
    assert found == list(range(1, 600, 2))


def test_a_history_stays_as_it_was(tmp_path: Path, own_keys: Path) -> None:
    root = create_root(str(tmp_path / "r"))
    root.append([Draft("a.b/v1", "s", {})])
    history = root.history()
    root.append([Draft("a.b/v1", "s", {})])
    root.history()
    assert [index for index, _ in history.events()] == [0]
    assert [index for index, _ in root.history().events()] == [0, 1]


def test_a_root_that_can_not_be_written_is_read(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = create_root(str(tmp_path / "r"))
    root.append([Draft("a.b/v1", "s", {}), Draft("c.d/v1", "s", {})])
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path / "file" / "cache"))  # the test may run as root
    assert [event.type for _, event in root.history().events(type="c.d/v1")] == ["c.d/v1"]
    assert root.projection_path() is None


def test_bytes_that_are_no_verifier_key(tmp_path: Path, own_keys: Path) -> None:
    create_root(str(tmp_path / "r"))
    for data in (b"\xff\xfe", b"", b"name+00000000+AAAA"):
        (tmp_path / "r" / "vkey").write_bytes(data)
        with pytest.raises(Malformed, match="verifier key cannot be read"):
            open_root(str(tmp_path / "r"))


def test_the_index_of_a_root_in_a_bucket_is_kept_here(
    tmp_path: Path, own_keys: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = create_root(f"{bucket.url}/root", origin="example.org/log")
    root.append([Draft("t/v1", "s", {"n": n}, id=f"id-{n}") for n in range(300)])
    path = root.index_path()
    assert path is not None
    assert path.exists()
    read: list[str] = []
    monkeypatch.setattr(LogView, "entries", lambda view, *range: read.append(str(range)) or iter(()))
    with root.log():
        assert read == []  # nothing was folded again


def test_the_root_of_a_folder_above_is_found_and_a_new_one_is_made_here(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = project / "texts" / "deep"
    (below / ".marin" / "receipts").mkdir(parents=True)
    monkeypatch.chdir(below)
    assert open_root().absolute == str(project / ".marin"), "receipts alone are no root"
    own = create_root(origin="marin.test/below")
    assert own.absolute == open_root().absolute == str(below / ".marin")


def test_a_read_model_that_a_root_brings_hides_nothing(tmp_path: Path, own_keys: Path) -> None:
    """Anyone who publishes a root can make a read model that fits the log in all but one event."""
    import shutil
    import sqlite3

    root = create_root(str(tmp_path / "r"))
    root.append([Draft("a.b/v1", "run/x", {"n": number}) for number in range(5)])
    root.history()
    forged = root.local / "projections"
    shutil.copytree(root.views(), forged, dirs_exist_ok=True)
    with sqlite3.connect(forged / "events.sqlite") as database:
        database.execute("DELETE FROM events WHERE idx = 3")
    shutil.rmtree(root.views())
    for fresh in (False, True):
        found = open_root(str(tmp_path / "r")).history(fresh=fresh).events(stream="run/x")
        assert [event.body["n"] for _, event in found] == [0, 1, 2, 3, 4]


def test_a_verification_believes_no_read_model_at_all(tmp_path: Path, own_keys: Path) -> None:
    import sqlite3

    root = create_root(str(tmp_path / "r"))
    root.append([Draft("a.b/v1", "run/x", {"n": number}) for number in range(5)])
    root.history()
    with sqlite3.connect(root.views() / "events.sqlite") as database:
        database.execute("DELETE FROM events WHERE idx = 3")
    assert len(list(root.history(fresh=True).events(stream="run/x"))) == 5


def test_two_logs_in_one_place_have_views_of_their_own(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = create_root(str(tmp_path / "r"))
    copy = create_root(str(tmp_path / "s"))
    assert len({root.views(), copy.views()}) == 2
    mine = root.views()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody else"))
    assert open_root(root.location).views() != mine, "whose the verdicts are is in what is folded"


def test_a_view_that_others_could_write_is_not_opened(tmp_path: Path, own_keys: Path) -> None:
    root = create_root(str(tmp_path / "r"))
    root.append([Draft("a.b/v1", "run/x", {})])
    folder = root.views()
    folder.chmod(0o770)
    with pytest.raises(Refused, match="others can write a cache"):
        root.history()
    folder.chmod(0o700)
    assert len(list(root.history().events())) == 1


def test_what_a_root_says_of_files_is_not_believed_when_they_are_put(tmp_path: Path, own_keys: Path) -> None:
    root, folder = create_root(str(tmp_path / "r")), tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"bytes")
    os.utime(folder / "file", (1e9, 1e9))
    root.store().put_tree(folder)
    assert not list((root.local / "projections").glob("store-stat*"))
    assert list(root.views().glob("store-stat*"))


def verdict_over(checkpoint: LogCheckpoint) -> ReplayCompleted:
    said = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    return ReplayCompleted("x", {"training": "PASS"}, {"mode": "full"}, None, said, {}, {})


def test_a_root_that_names_ones_own_key_is_somebody_elses_under_another_one(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can put the verifier's own public key beside another log: it is read confined all the same."""
    mine = create_root(str(tmp_path / "mine"), origin="me.example/log")
    stranger = create_key(tmp_path / "stranger.key", "stranger.example/log")
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "theirs"))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / VKEY).write_text(f"{mine.verifier}\n")
    theirs = open_root()
    Log.create(theirs.storage, stranger)
    with Log.open(theirs.storage, stranger) as log:
        log.append([Draft("a.b/v1", "run/x", {})])
        assert not theirs.history([stranger.verifier]).counts(Fact(0, "", verdict_over(log.checkpoint)))
    mine.append([Draft("a.b/v1", "run/x", {})])
    assert mine.history().counts(Fact(0, "", verdict_over(mine.reader().checkpoint()))), "the same of one's own log"
    assert sealed.opened_own([stranger.verifier]) is None
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "mine"))
    assert sealed.opened_own() is not None
    assert sealed.opened_own([mine.verifier]) is not None


def said(location: Path, text: str) -> None:
    body = {"run": "abc", "step": "train", "identity": "sha256:" + "1" * 64, "error": text}
    open_root(str(location)).append([Draft("step.failed/v1", "run/abc", body)])


def recorded_in(location: Path) -> Path:
    found = own_root(open_root(str(location)), True, None)
    assert found is not None
    return Path(found.absolute)


def test_nothing_is_signed_into_a_copy_of_ones_own_log(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who hands over a copy of somebody's log would get a second history under that key, for being verified."""
    log, copy, moved = tmp_path / "log", tmp_path / "copy", tmp_path / "moved"
    create_root(str(log))
    said(log, "one")
    shutil.copytree(log, copy)
    assert (recorded_in(log), recorded_in(copy)) == (log, log)
    said(log, "two")
    assert recorded_in(copy) == log, "an older copy"
    elsewhere = "a copy of a log that lives elsewhere"
    with pytest.raises(Refused, match=elsewhere):
        said(copy, "another history")
    with pytest.raises(Refused, match=elsewhere):
        open_root(str(copy)).check_writable()  # so it is said before the work, too
    open_root(str(log)).check_writable()
    with monkeypatch.context() as machine:  # that knows nothing of the first
        machine.setenv("XDG_STATE_HOME", str(tmp_path / "machine"))
        said(copy, "another history")
        said(copy, "which is longer")
    with pytest.raises(Refused, match=elsewhere):
        said(copy, "a longer one is no log either")
    assert (recorded_in(copy), recorded_in(log)) == (log, log)
    shutil.rmtree(copy)
    log.rename(moved)
    assert recorded_in(moved) == moved
    shutil.copytree(moved, copy)
    assert recorded_in(copy) == moved, "the log lives where it moved to"
    with pytest.raises(Refused, match=elsewhere):
        said(copy, "an equal one")
    moved.rename(tmp_path / "away")
    said(copy, "three")
    (tmp_path / "away").rename(moved)
    assert (recorded_in(copy), recorded_in(moved)) == (copy, copy), "the log lives where it went on"
    with pytest.raises(Refused, match=elsewhere):
        said(moved, "four")


def test_a_copy_does_not_take_the_place_of_a_log_that_cannot_be_asked(tmp_path: Path, own_keys: Path) -> None:
    log, copy = tmp_path / "log", tmp_path / "copy"
    create_root(str(log))
    said(log, "one")
    shutil.copytree(log, copy)
    said(log, "two")
    checkpoint = (log / "log" / "checkpoint").read_bytes()
    (log / "log" / "checkpoint").write_bytes(b"half of a disk\n")
    for append in (lambda: said(copy, "another history"), lambda: recorded_in(copy)):
        with pytest.raises(Unavailable, match="cannot be asked"):
            append()
    (log / "log" / "checkpoint").write_bytes(checkpoint)
    said(log, "three")
    assert recorded_in(copy) == log


def test_a_log_that_is_shown_otherwise_the_second_time_is_not_the_one_that_was_read(
    tmp_path: Path, own_keys: Path
) -> None:
    """Two logs that one key signed: an audit of the second says nothing of what was read of the first."""
    root = create_root(str(tmp_path / "r"))
    empty = root.reader().checkpoint()
    root.append([Draft("note/v1", "notes", {"text": "first"})])
    first = root.reader().checkpoint()
    assert check(root.storage, [root.verifier], continues=first) == []
    root.append([Draft("note/v1", "notes", {"text": "later"})])
    for known in (empty, first):
        assert check(root.storage, [root.verifier], continues=known) == []
    shutil.rmtree(tmp_path / "r" / "log")
    Log.create(root.storage, root.signer())
    for text in ("other", "and more"):
        root.append([Draft("note/v1", "notes", {"text": text})])
        (finding,) = check(root.storage, [root.verifier], continues=first)
        assert "another log" in str(finding)
