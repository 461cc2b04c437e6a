"""`marin backup` and `marin restore`: what comes back is what was there, and nothing else is believed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import marin
from ledger import check
from marin.cli.main import run
from marin.record.root import open_root


@pytest.fixture
def folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


def record(steps: int = 3) -> str:
    with marin.start_run("mine") as loop:
        for step in range(steps):
            loop.log(step, loss=1 / (step + 1))
        Path("model.bin").write_bytes(bytes(range(256)) * 40)
        loop.save("model", "model.bin")
    return loop.id


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_root_comes_back_from_its_backup_and_goes_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record()
    copy = str(tmp_path / "backup")
    one = told(capsys, "backup", copy)
    assert one["entries"] == open_root().reader().checkpoint().size and one["sent"] == 2
    second = record(4)
    two = told(capsys, "backup", copy)
    assert (two["sent"], two["there"]) == (1, 2), "only the new table of losses goes over"
    before = open_root().reader().checkpoint()
    shutil.rmtree(folder / ".marin")
    back = told(capsys, "--root", ".marin", "restore", copy)
    assert back["entries"] == before.size and open_root().reader().checkpoint() == before
    assert marin.open().run(first).status == marin.open().run(second).status == "completed"
    assert check(open_root().storage, [open_root().verifier]) == []
    assert run(["-q", "verify", second, "--only", "ledger,artifacts"]) == 0
    record()
    assert len(marin.open().runs()) == 3


def test_a_drill_beside_the_log_itself_is_a_copy(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is found in either is recorded in the log itself: two places that go on would be two histories under one key."""
    first = record()
    told(capsys, "backup", str(tmp_path / "backup"))
    before, drill = open_root().reader().checkpoint().size, str(tmp_path / "drill" / ".marin")
    assert run(["--root", drill, "restore", str(tmp_path / "backup")]) == 0
    assert "is a copy of it" in capsys.readouterr().err
    for place in (drill, ".marin"):
        assert run(["-q", "--root", place, "verify", first, "--only", "ledger"]) == 0
    assert open_root(".marin").reader().checkpoint().size == before + 2
    assert run(["-q", "--root", drill, "run", first, "tag", "b=2"]) == 2, "appended to a copy that its log left behind"
    assert "lives elsewhere" in capsys.readouterr().err
    assert open_root(drill).reader().checkpoint().size == before
    shutil.rmtree(folder / ".marin")
    assert run(["--root", drill, "restore", str(tmp_path / "backup"), "--older"]) == 0
    assert run(["-q", "--root", drill, "verify", first, "--only", "ledger", "--no-record"]) in (0, 1)


def test_what_was_altered_in_a_backup_does_not_come_back(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record()
    copy = tmp_path / "backup"
    told(capsys, "backup", str(copy))
    shutil.rmtree(folder / ".marin")
    bundle = next(file for file in (copy / "log" / "tile" / "entries").rglob("*") if file.is_file())
    data = bundle.read_bytes()
    bundle.chmod(0o644)
    bundle.write_bytes(data.replace(b"mine", b"ours", 1))
    assert run(["--root", ".marin", "restore", str(copy)]) != 0
    assert not (folder / ".marin" / "log" / "checkpoint").exists()
    bundle.write_bytes(data)
    blob = max((copy / "store" / "blobs").rglob("*"), key=lambda file: file.stat().st_size if file.is_file() else 0)
    blob.chmod(0o644)
    blob.write_bytes(b"x" + blob.read_bytes()[1:])
    assert run(["--root", ".marin", "restore", str(copy)]) != 0
    assert not (folder / ".marin" / "log" / "checkpoint").exists()


def test_an_older_backup_or_another_log_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = record()
    copy = str(tmp_path / "backup")
    told(capsys, "backup", copy)
    record()
    assert run(["-q", "verify", name, "--only", "ledger"]) == 0
    shutil.rmtree(folder / ".marin")
    assert run(["--root", ".marin", "restore", copy]) == 2
    assert "older than what was seen" in capsys.readouterr().err
    assert told(capsys, "--root", ".marin", "restore", copy, "--older")["entries"]
    other = tmp_path / "other"
    other.mkdir()
    marin_root = str(other / ".marin")
    from marin.record.creation import create_root

    create_root(marin_root, origin="marin.test/other")
    assert run(["--root", marin_root, "restore", copy]) == 2
    assert "another log" in capsys.readouterr().err
    assert run(["--root", marin_root, "restore", str(tmp_path)]) == 3


def test_a_dry_run_writes_nothing(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record()
    copy = tmp_path / "backup"
    assert told(capsys, "backup", str(copy), "--dry-run")["sent"] == 2
    assert not copy.exists() or not [file for file in copy.rglob("*") if file.is_file()]
