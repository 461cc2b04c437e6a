"""Trust comes from the verifier: `marin trust`, and what a root brings to be believed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ledger import Draft, Log, Signer, create_key, load_authorities, load_signer, open_storage, pem_bytes
from marin.history.runs import stream_of
from marin.process.cache import cache_folder
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import open_root
from marin.record.trust.keyfiles import key_path
from marin.record.trust.pins import Pins, default_pins
from marin.record.verdicts import NAMES

Marin = Any
EVENT = ("ledger", "append", "--type", "a/v1", "--stream", "s", "--body", "-")


@pytest.fixture
def foreign(marin: Marin, run: str, root: Path, own_keys: Path) -> Path:
    """The root of somebody else: this user has no key of it."""
    (key,) = own_keys.rglob("*.key")
    key.rename(root.parent / "the-operators.key")
    return root


def ledger_verdict(marin: Marin, *arguments: object) -> tuple[str, str]:
    report = marin("verify", "latest", "--only", "ledger", "--json", "--no-record", *arguments).json
    return report["verdicts"]["ledger"], " ".join(report["details"]["ledger"])


def test_keys_are_added_listed_and_removed(marin: Marin, foreign: Path) -> None:
    vkey = (foreign / "vkey").read_text().strip()
    for _ in range(2):
        added = marin("trust", "add", "--vkey", vkey)
        assert (added.status, added.err) == (0, f"trusted from now on: key {vkey}\n")
    assert marin("trust", "ls", "--json").json["keys"] == [vkey]
    assert marin("trust", "rm", "marin.test/cli").status == 0
    assert marin("trust", "rm", "marin.test/cli").status == 2


def test_another_trusted_key_of_the_origin_refuses_the_root_everywhere(
    marin: Marin, foreign: Path, tmp_path: Path
) -> None:
    other = create_key(tmp_path / "other.key", "marin.test/cli")
    marin("trust", "add", "--vkey", other.verifier)
    for command in (("ls",), ("log",), ("show", "latest"), ("verify", "latest", "--only", "artifacts", "--no-record")):
        assert marin(*command).status == 1, command


def test_no_record_leaves_nothing_behind(marin: Marin, foreign: Path) -> None:
    marin("verify", "latest", "--only", "ledger", "--no-record")
    assert not default_pins().exists()
    assert not (cache_folder() / "foreign" / "xla").exists(), "where nothing is executed, no compiled program is copied"
    marin("verify", "latest", "--only", "artifacts")
    assert len(list(default_pins().glob("*.json"))) == 1


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "latest", "--only", "artifacts", "--no-record"),
        ("verify", "latest", "--only", "data", "--no-record"),
        ("ls",),
        ("ls", "artifacts"),
        ("log",),
        ("show", "latest"),
        ("lineage", "latest"),
        ("diff", "latest", "latest"),
        ("ledger", "checkpoint"),
        ("ledger", "fsck"),
    ],
    ids=" ".join,
)
def test_every_reader_of_a_foreign_log_consults_the_pin(marin: Marin, foreign: Path, command: tuple[str, ...]) -> None:
    seen = open_root()  # before, as by a verification
    Pins(default_pins()).check(seen.reader(), seen.storage, seen.absolute)
    operator = load_signer(foreign.parent / "the-operators.key")
    shutil.rmtree(foreign / "log")
    Log.create(open_storage(str(foreign)), operator)  # the same key, another and shorter history
    outcome = marin(*command)
    assert outcome.status == 1, (outcome.out, outcome.err)
    assert "rolled back" in outcome.err + outcome.out


def test_a_key_that_signs_a_second_origin_is_refused_by_name(marin: Marin, foreign: Path, tmp_path: Path) -> None:
    marin("verify", "latest", "--only", "artifacts")
    operator = load_signer(foreign.parent / "the-operators.key")
    again = Signer("marin.test/renamed", operator.key)
    storage = open_storage(str(tmp_path / "renamed"))
    Log.create(storage, again)
    storage.ensure("vkey", f"{again.verifier}\n".encode())
    outcome = marin("--root", tmp_path / "renamed", "ls")
    assert outcome.status == 1
    assert "the key signs another log" in outcome.err
    assert "marin.test/cli" in outcome.err and "marin.test/renamed" in outcome.err


def test_a_corrupt_pin_is_told_and_no_defect(marin: Marin, foreign: Path) -> None:
    marin("verify", "latest", "--only", "artifacts")
    (path,) = default_pins().glob("*.json")
    path.write_bytes(b"\x00{")
    for command in (("verify", "latest", "--only", "ledger", "--allow", "unconfined"), ("ls",)):
        outcome = marin(*command)
        assert outcome.status == 3
        assert str(path) in outcome.err
        assert "restore the file" in outcome.err


@pytest.mark.long
def test_a_copy_that_went_on_does_not_accuse_the_original(
    marin: Marin, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(foreign, copy)
    key = key_path("marin.test/cli")
    shutil.copy(foreign.parent / "the-operators.key", key)
    key.chmod(0o600)
    with monkeypatch.context() as operators:  # machine, to which the log was moved
        operators.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        assert marin(*EVENT, "--root", copy, stdin=b"{}").status == 0
    key.unlink()
    vkey = (foreign / "vkey").read_text().strip()
    ledger_verdict(marin, "--root", copy, "--vkey", vkey)
    marin("verify", "latest", "--root", copy, "--only", "ledger", "--vkey", vkey)
    assert Pins(default_pins()).path("marin.test/cli").exists()
    marin("verify", "latest", "--only", "ledger", "--vkey", vkey)
    outcome, lines = ledger_verdict(marin, "--vkey", vkey)
    assert "rolled back" not in lines, outcome


def test_trust_that_cannot_be_read_says_where(marin: Marin, foreign: Path, own_keys: Path) -> None:
    file = own_keys / "marin" / "trust" / "keys"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nnonsense\n")
    outcome = marin("ls")
    assert outcome.status == 3
    assert str(file) in outcome.err


def test_trust_needs_something_to_trust(marin: Marin, own_keys: Path, tmp_path: Path) -> None:
    assert marin("trust", "add").status == 2
    assert marin("trust", "ls").data == b""
    assert marin("trust", "add", "--vkey", "nonsense").status in (1, 2)
    (tmp_path / "policy").write_text("quorum nobody\n")
    assert marin("trust", "add", "--policy", tmp_path / "policy").status in (1, 2)
    (tmp_path / "policy").write_text("quorum none\n")
    assert marin("trust", "add", "--policy", tmp_path / "policy", "--git", ".").status == 0
    shown = marin("trust", "ls", "--json").json
    assert (shown["policy"], len(shown["repositories"])) == ("quorum none\n", 1)


def test_authorities_are_added_once_and_only_if_they_are_certificates(
    marin: Marin, own_keys: Path, tmp_path: Path
) -> None:
    authority = Path(__file__).parents[2] / "fuzz" / "corpus" / "seeds" / "authority.pem"
    (tmp_path / "noted.pem").write_bytes(b"what no one reads\n" + authority.read_bytes())
    for _ in range(2):
        assert marin("trust", "add", "--ca", tmp_path / "noted.pem").status == 0
    (kept,) = own_keys.rglob("authorities.pem")
    trusted = kept.read_bytes()
    assert trusted == pem_bytes(load_authorities(authority)) and b"no one" not in trusted
    (tmp_path / "text").write_text("no certificate\n")
    assert marin("trust", "add", "--ca", tmp_path / "text").status in (1, 2)
    assert marin("trust", "add", "--ca", tmp_path / "missing").status in (1, 2, 3)
    assert kept.read_bytes() == trusted


def test_a_hybrid_root_names_both_halves_and_needs_both(marin: Marin, own_keys: Path, tmp_path: Path) -> None:
    made = create_root(str(tmp_path / "hybrid"), origin="marin.test/hybrid", hybrid=True)
    opened = open_root(made.location)
    assert len(opened.companions) == 1
    note = opened.reader().checkpoint()
    signer = opened.signer()
    stripped = note.sign([Signer(signer.name, signer.key)])
    opened.storage.replace("log/checkpoint", stripped.encode())
    outcome = marin("--root", made.location, "ls")
    assert outcome.status == 1
    assert "hybrid key is missing" in outcome.err


def verdicts_on(run: str, *, origin: str = "marin.test/cli", mode: str = "full", history: str = "") -> Draft:
    seen = open_root().reader().checkpoint()
    body = events.ReplayCompleted(
        run=run,
        verdicts=dict.fromkeys(NAMES, "PASS"),
        training={"mode": mode},
        first_divergence=None,
        log_checkpoint={"origin": origin, "size": seen.size, "root": history or seen.root.hex()},
        details={},
        environment={},
    )
    return Draft(events.REPLAY_COMPLETED, stream_of(run), events.write(body))


@pytest.mark.parametrize(
    ("draft", "column"),
    [
        ({}, "PASS"),
        ({"mode": "sampled"}, "PARTIAL, 4 of 5 PASS"),
        ({"origin": "other.example/log"}, "never"),
        ({"history": "00" * 32}, "never"),
    ],
    ids=["full", "sampled", "of another log", "of another log with this one's origin"],
)
def test_ls_counts_what_this_user_found_on_this_log(marin: Marin, run: str, draft: dict[str, str], column: str) -> None:
    open_root().append([verdicts_on(run, **draft)])
    (only,) = marin("ls", "--json").json
    assert (only["verdicts"] is None, only["claimed"]) == (column == "never", None)
    shown = "open" if column == "never" else column  # the run has no end, which is said where nothing else is
    assert marin("ls").out.rstrip().endswith(shown)
    assert len(marin("show", run, "--json").json["replays"]) == (0 if column == "never" else 1)


def test_ls_shows_as_partial_what_was_verified_before_the_run_went_on(marin: Marin, run: str) -> None:
    verified = verdicts_on(run)
    body = events.StepFailed(run=run, step="export", identity="sha256:" + "1" * 64, error="later")
    open_root().append([Draft(events.STEP_FAILED, stream_of(run), events.write(body))])
    open_root().append([verified])
    assert marin("ls").out.rstrip().endswith("PARTIAL, 0 of 5 PASS")


def test_ls_of_somebody_elses_root_shows_his_verdicts_as_claimed(marin: Marin, run: str, own_keys: Path) -> None:
    open_root().append([verdicts_on(run)])
    assert marin("ls").out.rstrip().endswith("PASS")
    (key,) = own_keys.rglob("*.key")
    key.unlink()
    (only,) = marin("ls", "--json").json
    assert only["verdicts"] is None
    assert set(only["claimed"].values()) == {"PASS"}
    assert "never (claimed by this log: PASS)" in marin("ls").out
    shown = marin("show", run, "--json").json
    assert (shown["replays"], len(shown["claimed"])) == ([], 1)
    marin("trust", "add", "--vkey", (Path(".marin") / "vkey").read_text().strip())
    assert marin("ls", "--json").json[0]["verdicts"] is None, "to trust a key is not to share its owner's verdicts"
