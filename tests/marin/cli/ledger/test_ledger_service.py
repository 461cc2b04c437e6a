"""The commands around the log as a user meets them: serve, spool, witness, anchor, key, publish. Servers are
processes."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import foreign_log
import pytest

from ledger import Draft, LogClient, Unavailable
from marin.record.root import open_root
from marin.record.trust.pins import default_pins

Marin = Any
Start = Callable[..., "Server"]
EVENT = ("ledger", "append", "--type", "note.added/v1", "--stream", "notes", "--body", "-", "--json")


class Server:
    """A command that runs until it is told to end; `ready` is the line of JSON that it began with."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "marin.cli.main", *arguments, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1].decode()
        self.ready = json.loads(line)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=600)
        return self.process.returncode


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Server] = []

    def begin(*arguments: str) -> Server:
        started.append(Server(*arguments))
        return started[-1]

    yield begin
    for server in started:
        if server.process.poll() is None:
            server.stop()


def test_appends_go_through_the_service_by_themselves(marin: Marin, root: Path, start: Start) -> None:
    server = start("ledger", "serve")
    endpoint = Path(server.ready["endpoint"])
    assert stat.S_IMODE(endpoint.stat().st_mode) == 0o600
    assert [marin(*EVENT, stdin=b"{}").json["index"] for _ in range(3)] == [0, 1, 2]
    assert open_root().append([Draft("note.added/v1", "notes", {})])[0].index == 3  # as stages do
    assert server.stop(signal.SIGINT) == 0
    assert not endpoint.exists()
    assert marin(*EVENT, stdin=b"{}").json["index"] == 4
    assert marin("ledger", "fsck", "--json").json["whole"]


def test_a_client_of_the_service_needs_no_key(
    marin: Marin, root: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("ledger", "serve")
    monkeypatch.setenv("MARIN_KEY", "/nowhere")
    assert marin(*EVENT, stdin=b"{}").json["index"] == 0


@pytest.fixture
def bob(marin: Marin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Marin:
    """`marin ARGUMENT...` on another machine, with folders of its own."""

    def call(*arguments: object, root: str = "", **more: Any) -> Any:
        with monkeypatch.context() as away:
            for variable, folder in (
                ("XDG_CONFIG_HOME", "config"),
                ("XDG_STATE_HOME", "state"),
                ("MARIN_CACHE", "cache"),
            ):
                away.setenv(variable, str(tmp_path / "bob" / folder))
            if root:
                away.setenv("MARIN_ROOT", root)
            return marin(*arguments, **more)

    return call


def test_a_lab_of_two_machines_and_what_comes_after_a_revocation(
    marin: Marin, root: Path, start: Start, bob: Marin, tmp_path: Path
) -> None:
    assert marin("ledger", "key", "new", "ada@desk").status == 0
    at = f"127.0.0.1:{start('ledger', 'serve', '--at', '127.0.0.1:0').ready['at']}"
    line = marin("ledger", "key", "invite", at).out.strip()
    asked = bob("ledger", "key", "join", line, "--as", "bob@gpu", "--json").json
    far = asked["root"]
    early = bob("ls", root=far)
    assert (early.status, "the log has not enrolled this key" in early.err) == (1, True)
    assert marin("ledger", "key", "enrol", asked["request"]).status == 0
    assert bob(*EVENT, root=far, stdin=b"{}").json["seq"] == 0
    taken = bob("ledger", "key", "join", line, "--as", "other@gpu")
    assert (taken.status, "expected no key, or that of other@gpu" in taken.err) == (2, True)
    refused = bob("ledger", "key", "revoke", "ada@desk", root=far)
    assert refused.status == 3 and "it stays with the one who serves this root" in refused.err
    assert "restore" not in refused.err
    assert marin("ledger", "key", "revoke", "bob@gpu").status == 0
    out = bob(*EVENT, root=far, stdin=b"{}")
    assert (out.status, "or revoked it" in out.err) == (1, True)
    again = marin("ledger", "key", "enrol", asked["request"])
    assert again.status == 2 and "`marin ledger key join LINE --as NAME`" in again.err
    following = bob("ledger", "key", "join", line, "--as", "bob@desk", "--json")
    kept = Path(asked["key"] + "." + asked["vkey"].split("+")[1])
    assert f"the key of bob@gpu, which this log does not take, is kept as {kept}" in following.err and kept.is_file()
    assert marin("ledger", "key", "enrol", following.json["request"]).status == 0
    assert bob(*EVENT, root=far, stdin=b"{}").json["seq"] == 1


def test_a_service_that_was_killed_keeps_nobody_from_appending(marin: Marin, root: Path, start: Start) -> None:
    server = start("ledger", "serve")
    assert marin(*EVENT, "--id", "one", stdin=b"{}").json["index"] == 0
    server.stop(signal.SIGKILL)
    assert Path(server.ready["endpoint"]).exists()
    assert marin(*EVENT, "--id", "one", stdin=b"{}").json["index"] == 0
    assert marin(*EVENT, stdin=b"{}").json["index"] == 1
    assert marin("ledger", "fsck").status == 0


def test_a_service_of_another_machine_or_log_is_not_used(marin: Marin, root: Path, start: Start) -> None:
    server = start("ledger", "serve")
    endpoint = Path(server.ready["endpoint"])
    content = json.loads(endpoint.read_text())
    assert content["host"] == socket.gethostname()
    copy = endpoint.with_name("copy.json")
    copy.write_text(json.dumps(content | {"host": "elsewhere"}))
    copy.chmod(0o600)
    with pytest.raises(Unavailable, match="another machine"):
        LogClient(copy)
    other = root.parent / "other"
    assert marin("init", "--root", other, "--origin", "other.test/log").status == 0
    (other / "service.json").write_text(json.dumps(content))
    (other / "service.json").chmod(0o600)
    refused = marin(*EVENT, "--root", other, stdin=b"{}")
    assert (refused.status, "another log" in refused.err) == (2, True)
    (other / "service.json").chmod(0o644)
    assert "0644" in marin(*EVENT, "--root", other, stdin=b"{}").err


def test_a_second_service_is_told_who_holds_the_log(marin: Marin, root: Path, start: Start) -> None:
    server = start("ledger", "serve")
    second = marin("ledger", "serve")
    assert second.status == 1
    assert f"held by process {server.process.pid}" in second.err


def test_a_spool_is_sent_again_until_it_is_acknowledged(
    marin: Marin, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    batch = tmp_path / "batch.jsonl"
    batch.write_text('{"type": "note.added/v1", "stream": "notes", "body": {}, "id": "a"}\n')
    with monkeypatch.context() as away:
        away.setenv("MARIN_KEY", "/nowhere")
        away.setattr("time.monotonic", iter(range(0, 100_000, 50)).__next__)
        lost = marin("ledger", "append", "--batch", batch, "--spool", spool)
    assert lost.status == 3
    assert len(list((spool / "spool").iterdir())) == 1
    batch.write_text(batch.read_text().replace('"a"', '"b"'))
    sent = marin("ledger", "append", "--batch", batch, "--spool", spool, "--json")
    assert [line["index"] for line in sent.lines] == [0, 1]
    assert list((spool / "spool").iterdir()) == []


def test_an_empty_batch_says_so(marin: Marin, root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    outcome = marin("ledger", "append", "--batch", tmp_path / "empty", "--json")
    assert (outcome.status, outcome.data) == (0, b"")
    assert "holds no events" in outcome.err


def test_witnesses_cosign_and_a_fork_is_refused_with_both_roots(marin: Marin, root: Path, start: Start) -> None:
    vkey = (root / "vkey").read_text().strip()
    marin(*EVENT, stdin=b"{}")
    for number, need in ((1, 1), (2, 2)):
        witness = start(
            "ledger", "witness", "serve", "--log", vkey, "--folder", f"w{number}", "--name", f"w.test/{number}"
        )
        added = marin(
            "ledger",
            "witness",
            "add",
            witness.ready["address"],
            "--vkey",
            witness.ready["vkeys"][0],
            "--need",
            need,
            "--json",
        )
        assert (added.status, added.json["met"]) == (0, True), added.err
    assert marin("ledger", "checkpoint").out.count("— w.test/") == 2
    assert marin("ledger", "witness", "policy").out.endswith("group witnesses 2 w.test/1 w.test/2\nquorum witnesses\n")
    # What the root says of its witnesses is its own word, until its reader names them.
    alone = marin("ledger", "fsck", "--json").json
    assert alone["vouched"] == []
    assert "witnesses of the root's own choice" in alone["claimed"][0]
    (root / "witness-policy").replace(root.parent / "mine")
    assert marin("ledger", "fsck", "--json").json["claimed"] == []
    (root.parent / "mine").rename(root / "witness-policy")
    (vouched,) = marin("ledger", "fsck", "--json", "--policy", root / "witness-policy").json["vouched"]
    assert (vouched["kind"], vouched["size"], vouched["by"]) == ("witnesses", 1, "w.test/1, w.test/2")
    fork = root.parent / "fork"
    subprocess.run(["cp", "-r", str(root), str(fork)], check=True)
    marin(*EVENT, stdin=b"{}")
    assert marin("ledger", "witness", "ask", "--json").json["met"]
    assert marin(*EVENT, "--root", fork, stdin=b'{"n": 1}').status == 2, "a copy whose log went on elsewhere"
    shutil.rmtree(default_pins().with_name("homes"))  # as anyone who forks would
    marin(*EVENT, "--root", fork, stdin=b'{"n": 1}')
    forked = marin("ledger", "witness", "ask", "--root", fork)
    assert forked.status == 1
    roots = [marin("ledger", "checkpoint", "--json", "--root", where).json["root"] for where in (root, fork)]
    assert all(found in forked.err for found in roots)
    assert "two roots of the same size" in forked.err


def test_a_mirror_follows_the_log_and_another_follows_its_copy(marin: Marin, root: Path, start: Start) -> None:
    vkey = (root / "vkey").read_text().strip()
    origin = vkey.partition("+")[0]
    marin(*EVENT, stdin=b"{}")
    mirror = start("ledger", "mirror", "serve", "--log", vkey, "--folder", "m1", "--name", "m.test/1")
    assert len(mirror.ready["vkeys"]) == 2, "Ed25519, and ML-DSA-44, which signs subtrees too"
    address, key = mirror.ready["address"], mirror.ready["vkeys"][1]
    added = marin("ledger", "witness", "add", address, "--vkey", key, "--json")
    assert (added.status, added.json["met"], added.json["cosigned"]) == (0, True, ["m.test/1"]), added.err
    assert "\n— m.test/1 " in marin("ledger", "checkpoint").out
    assert marin("ledger", "fsck", "--policy", root / "witness-policy").status == 0
    # Its copy is a log of its own right, which the next one fetches.
    second = start(
        *("ledger", "mirror", "serve", "--log", vkey, "--folder", "m2", "--name", "m.test/2"),
        *("--follow", f"{origin}={mirror.ready['logs'][origin]}", "--every", "1"),
    )
    marin(*EVENT, stdin=b'{"n": 1}')
    assert marin("ledger", "witness", "ask").status == 0
    lines_of(second, until="size 2")
    compared = marin("ledger", "witness", "compare", "--json").json
    assert compared == {"agree": True, "seen": [{"name": "m.test/1", "size": 2, "why": "", "conflict": False}]}
    older = root.parent / "older"
    subprocess.run(["cp", "-r", str(root), str(older)], check=True)
    marin(*EVENT, stdin=b'{"n": 2}')
    assert marin("ledger", "witness", "ask").status == 0
    shutil.rmtree(default_pins().with_name("homes"))
    rolled_back = marin("ledger", "witness", "compare", "--root", older)
    assert (rolled_back.status, "rolled back" in rolled_back.err) == (1, True), rolled_back.err
    wrong = marin("ledger", "mirror", "serve", "--log", vkey, "--follow", "example.org/other=https://log.example")
    assert (wrong.status, "--log" in wrong.err) == (2, True)


def test_a_log_vouches_for_a_key_of_another_kind(marin: Marin, root: Path) -> None:
    marin(*EVENT, stdin=b"{}")
    vouched = marin("ledger", "key", "vouch", "--json").json
    assert (vouched["index"], vouched["public"].startswith("-----BEGIN PUBLIC KEY-----")) == (1, True)
    assert Path(vouched["key"]).stat().st_mode & 0o777 == 0o600
    assert marin("ledger", "key", "vouch", "--json").json == vouched, "the same key, and no second event"
    assert marin("ledger", "fsck").status == 0
    (root / "none").mkdir()
    vkey = (root / "vkey").read_text().strip()
    empty = marin("ledger", "key", "attested", root / "none", "--vkey", vkey)
    assert (empty.status, "key.tlog-proof" in empty.err) == (1, True), empty.err
    assert marin("ledger", "append", "log.key-vouched/v1", "--stream", "log/keys", stdin=b"{}").status == 2


def test_a_witness_that_is_away_leaves_the_policy_unmet(marin: Marin, root: Path, start: Start) -> None:
    vkey = (root / "vkey").read_text().strip()
    witness = start("ledger", "witness", "serve", "--log", vkey, "--folder", "w")
    marin("ledger", "witness", "add", witness.ready["address"], "--vkey", witness.ready["vkeys"][0], "--no-ask")
    witness.stop()
    asked = marin("ledger", "witness", "ask")
    assert asked.status == 1
    assert "cannot be reached" in asked.err
    audit = marin("ledger", "fsck", "--policy", root / "witness-policy")
    assert audit.status == 1
    assert "too few witnesses cosigned" in audit.out
    port = witness.ready["address"].rpartition(":")[2]
    again = start("ledger", "witness", "serve", "--log", vkey, "--folder", "w", "--port", port)
    assert again.ready["vkeys"] == witness.ready["vkeys"]
    assert marin("ledger", "witness", "ask").status == 0
    assert marin("trust", "add", "--policy", root / "witness-policy").status == 0
    audit = marin("ledger", "fsck")
    assert (audit.status, "witnesses: the empty log" in audit.out) == (0, True)


def lines_of(server: Server, *, until: str) -> str:
    """What a server says on stderr up to a line with this text."""
    assert server.process.stderr is not None
    said = ""
    for line in iter(server.process.stderr.readline, b""):
        said += line.decode()
        if until in said:
            return said
    raise AssertionError(said)


@pytest.mark.long
def test_a_service_has_its_checkpoints_cosigned_by_itself(marin: Marin, root: Path, start: Start) -> None:
    vkey = (root / "vkey").read_text().strip()
    witness = start("ledger", "witness", "serve", "--log", vkey, "--folder", "w", "--name", "w.test/1")
    marin("ledger", "witness", "add", witness.ready["address"], "--vkey", witness.ready["vkeys"][0], "--no-ask")
    server = start("ledger", "serve", "--witness-every", "1")
    assert marin(*EVENT, stdin=b"{}").status == 0
    cosigned = "witnesses of size 1: w.test/1"
    lines_of(server, until=cosigned)
    assert "— w.test/1 " in (root / "log" / "checkpoint").read_text()
    # Asked for by hand, the service does it: nobody waits for its lock.
    assert marin(*EVENT, stdin=b'{"n": 1}').status == 0
    asked = marin("ledger", "witness", "ask", "--json")
    assert (asked.status, asked.json) == (0, {"size": 2, "cosigned": ["w.test/1"], "met": True, "failed": {}})
    assert "\n2\n" in (root / "witnessed").read_text()
    # A witness that is away is named, and the service goes on; back again, it cosigns.
    witness.stop()
    assert marin(*EVENT, stdin=b'{"n": 2}').json["index"] == 2
    assert "cannot be reached" in lines_of(server, until="witness w.test/1: ")
    away = marin("ledger", "witness", "ask")
    assert (away.status, "cannot be reached" in away.err) == (1, True)
    assert marin(*EVENT, stdin=b'{"n": 3}').json["index"] == 3
    port = witness.ready["address"].rpartition(":")[2]
    start("ledger", "witness", "serve", "--log", vkey, "--folder", "w", "--port", port)
    lines_of(server, until="witnesses of size 4: w.test/1")
    assert server.stop() == 0
    assert marin("ledger", "fsck").status == 0


def test_keys_change_when_no_service_signs_with_the_old_one(marin: Marin, root: Path, start: Start) -> None:
    marin(*EVENT, stdin=b"{}")
    before = (root / "vkey").read_text()
    server = start("ledger", "serve")
    refused = marin("ledger", "key", "rotate")
    assert refused.status == 1
    assert f"held by process {server.process.pid}" in refused.err
    assert "stop `marin ledger serve`" in refused.err
    assert (root / "vkey").read_text() == before
    assert marin(*EVENT, stdin=b"{}").status == 0
    server.stop()
    assert marin("ledger", "key", "rotate").status == 0
    assert (root / "vkey").read_text() != before
    start("ledger", "serve")
    assert marin(*EVENT, stdin=b"{}").status == 0
    refused = marin("ledger", "key", "retire", before.split("+")[1])
    assert (refused.status, "stop `marin ledger serve`" in refused.err) == (1, True)


def test_a_witness_is_added_while_a_service_runs(marin: Marin, root: Path, start: Start) -> None:
    vkey = (root / "vkey").read_text().strip()
    marin(*EVENT, stdin=b"{}")
    start("ledger", "serve")
    witness = start("ledger", "witness", "serve", "--log", vkey, "--folder", "w")
    added = marin("ledger", "witness", "add", witness.ready["address"], "--vkey", witness.ready["vkeys"][0], "--json")
    assert (added.status, added.json["met"]) == (0, True), added.err


@pytest.mark.parametrize(
    "vkey", ["", "nonsense", "a+1+b", "x.test/log+00000000+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"]
)
@pytest.mark.parametrize(
    "command", [("fsck",), ("verify-proof", "-"), ("witness", "add", "http://127.0.0.1:9"), ("witness", "serve")]
)
def test_a_key_that_is_none_is_wrong_usage(marin: Marin, root: Path, command: tuple[str, ...], vkey: str) -> None:
    option = "--log" if command == ("witness", "serve") else "--vkey"
    outcome = marin("ledger", *command, option, vkey)
    assert outcome.status == 2, outcome.err
    assert "verifier key" in outcome.err


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_the_root_in_git_notes_and_trailers(marin: Marin, root: Path) -> None:
    git("init", "-q")
    git("config", "user.name", "t")
    git("config", "user.email", "t@t")
    git("commit", "-q", "--allow-empty", "-m", "first")
    for _ in range(2):
        marin(*EVENT, stdin=b"{}")
    assert marin("ledger", "anchor", "--git-note", "HEAD", "--json").json["commit"] == git("rev-parse", "HEAD")
    marin(*EVENT, stdin=b"{}")
    git(
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "run",
        "--trailer",
        marin("ledger", "anchor", "--git-trailer").out.strip(),
    )
    marin(*EVENT, stdin=b"{}")
    assert marin("ledger", "anchor", "--check", "--json").json["vouched"] == [], "Git is asked where it is named"
    shown = marin("ledger", "anchor", "--check", "--git", ".", "--json").json
    assert [(v["kind"], v["size"]) for v in shown["vouched"]] == [("Git trailer", 3), ("Git note", 2)]
    assert all(v["time"] for v in shown["vouched"])
    assert marin("ledger", "anchor", "--git-note", "no-such-commit").status == 2
    # The log is put back to before the commit: the commit remembers.
    subprocess.run(["rm", "-rf", str(root / "log"), str(root / "projections")], check=True)
    from ledger import Log

    opened = open_root()
    Log.create(opened.storage, opened.signer())
    marin(*EVENT, stdin=b"{}")
    outcome = marin("ledger", "anchor", "--check", "--git", ".")
    assert outcome.status == 1
    assert "a commit names a longer log" in outcome.out
    assert marin("ledger", "fsck").status == 0
    assert marin("trust", "add", "--git", ".").status == 0
    assert marin("ledger", "fsck").status == 1


def test_one_way_to_anchor_at_a_time(marin: Marin, root: Path) -> None:
    assert marin("ledger", "anchor").status == 2
    assert marin("ledger", "anchor", "--check", "--git-trailer").status == 2
    assert marin("ledger", "anchor", "--tsa", "http://127.0.0.1:9").status == 2  # an empty log
    marin(*EVENT, stdin=b"{}")
    assert marin("ledger", "anchor", "--tsa", "http://127.0.0.1:9").status == 3


def test_keys_are_rotated_and_retired(marin: Marin, root: Path) -> None:
    marin(*EVENT, stdin=b"{}")
    old = (root / "vkey").read_text().strip()
    rotated = marin("ledger", "key", "rotate", "--json").json
    assert (rotated["old"], (root / "vkey").read_text().strip()) == (old, rotated["vkey"])
    assert (
        stat.S_IMODE(Path(rotated["kept"]).stat().st_mode) == stat.S_IMODE(Path(rotated["key"]).stat().st_mode) == 0o600
    )
    assert marin(*EVENT, stdin=b"{}").status == 0
    for vkey in (old, rotated["vkey"]):
        assert marin("ledger", "fsck", "--vkey", vkey).status == 0
    retired = marin("ledger", "key", "retire", old.split("+")[1], "--json").json
    assert retired["until"] == 3
    assert marin("ledger", "fsck", "--vkey", old).status == 0
    assert marin("ledger", "key", "retire", rotated["vkey"]).status == 2
    assert marin("ledger", "key", "retire", "nonsense").status == 2
    assert [key["until"] for key in marin("ledger", "key", "list", "--json").json] == [None]


def test_an_interrupted_rotation_is_finished_by_the_next(
    marin: Marin, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marin(*EVENT, stdin=b"{}")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("ledger.rotate_key", "marin.record.keys.retired_key_path"):
        with monkeypatch.context() as killed:
            killed.setattr(name, die)
            assert marin("ledger", "key", "rotate").status == 130
    done = marin("ledger", "key", "rotate", "--json").json
    assert done["vkey"] == (root / "vkey").read_text().strip()
    assert marin(*EVENT, stdin=b"{}").status == 0
    assert marin("ledger", "fsck", "--vkey", done["old"]).status == 0
    events = [line for line in marin("log", "--json").lines if line["type"] == "log.key-rotated/v1"]
    assert len(events) == 1


def test_a_passphrase_is_asked_for_and_needed(marin: Marin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as one:
        one.setenv("MARIN_KEY_PASSPHRASE", "")
        made = marin("init", "--passphrase", "--hybrid", "--json", stdin=b"secret\nsecret\n")
    assert made.status == 0, made.err
    key = Path(json.loads(made.out.splitlines()[-1])["key"])
    assert b"ENCRYPTED" in key.read_bytes()
    monkeypatch.delenv("MARIN_KEY_PASSPHRASE", raising=False)
    assert marin(*EVENT, stdin=b"{}").status == 3
    monkeypatch.setenv("MARIN_KEY_PASSPHRASE", "wrong")
    assert marin(*EVENT, stdin=b"{}").status == 2
    monkeypatch.setenv("MARIN_KEY_PASSPHRASE", "secret")
    assert marin(*EVENT, stdin=b"{}").status == 0
    key.chmod(0o640)
    refused = marin(*EVENT, stdin=b"{}")
    assert (refused.status, "0640" in refused.err, "chmod 600" in refused.err) == (2, True, True)


def test_a_published_copy_audits_by_itself(marin: Marin, root: Path, tmp_path: Path) -> None:
    for _ in range(3):
        marin(*EVENT, stdin=b"{}")
    target = tmp_path / "public"
    assert marin("ledger", "publish", "--to", target, "--json").json["from_size"] == 0
    vkey = (root / "vkey").read_text().strip()
    assert marin("ledger", "fsck", "--root", target, "--log-only", "--vkey", vkey).status == 0
    assert marin("ledger", "fsck", "--root", target / "log", "--foreign", "--vkey", vkey).status == 0
    assert marin("ledger", "fsck", "--root", target / "log", "--vkey", vkey).status == 0
    marin(*EVENT, stdin=b"{}")
    assert marin("ledger", "publish", "--to", target, "--json").json["size"] == 4


def test_a_root_in_a_bucket(marin: Marin, bucket: Any) -> None:
    where = ("--root", f"{bucket.url}/ledger")
    vkey = marin("init", *where, "--json").json["vkey"]
    assert [marin(*EVENT, *where, stdin=b"{}").json["index"] for _ in range(3)] == [0, 1, 2]
    assert marin("ledger", "fsck", *where).status == 0
    assert marin("ledger", "fsck", *where, "--vkey", vkey, "--log-only").status == 0
    assert [line["index"] for line in marin("log", *where, "--stream", "notes", "-n", "2", "--json").lines] == [1, 2]
    assert marin("ledger", "key", "rotate", *where).status == 0
    assert marin(*EVENT, *where, stdin=b"{}").json["index"] == 4
    assert marin("ledger", "fsck", *where, "--vkey", vkey, "--log-only").status == 0


def test_a_folder_of_other_software_and_a_changed_byte_in_it(marin: Marin, tmp_path: Path) -> None:
    foreign_log.write_log(tmp_path / "theirs", [f"no event {n}".encode() for n in range(300)])
    clean = marin("ledger", "fsck", "--root", tmp_path / "theirs", "--vkey", foreign_log.vkey())
    assert (clean.status, clean.out.startswith("whole: 300 entries")) == (0, True), clean.err
    bundle = tmp_path / "theirs" / "tile" / "entries" / "000"
    data = bytearray(bundle.read_bytes())
    data[1000] ^= 1
    bundle.write_bytes(data)
    found = marin("ledger", "fsck", "--root", tmp_path / "theirs", "--vkey", foreign_log.vkey())
    assert (found.status, "tile/entries/000" in found.out) == (1, True)
