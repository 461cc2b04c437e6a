"""Bad input to the program itself: one clear line, an exit status that is not 0, no traceback, and nothing lost.

Only the light stages run here; a kill at every change to the disk is tests/marin/execution/test_executor_kills.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from warm import Warm

from tests.e2e.conftest import MARIN

PROJECT = Path(__file__).resolve().parents[2]
Marin = Callable[..., "subprocess.CompletedProcess[str]"]
TEXT = "\n\n".join(f"Paragraph {number} has its own words." for number in range(80))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of the user's own text, with a root."""
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    params["dataset"] = {"kind": "files", "globs": ["a.txt"]}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    return tmp_path


@pytest.fixture
def marin(folder: Path, warm: Callable[[], Warm]) -> Marin:
    """The program, in that project, with keys of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MARIN_")}
    environment = {
        **kept,
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(PROJECT),
    }

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return warm().run(MARIN, ("-q", *arguments), cwd=folder, environment=environment, timeout=600)

    made = call("init", "--origin", "marin.test/bad")
    assert made.returncode == 0, made.stderr
    return call


def refused(result: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert result.returncode == status, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("marin: ")
    for word in words:
        assert word in line
    assert result.stdout == ""


def log_bytes(folder: Path) -> dict[str, bytes]:
    root = folder / ".marin" / "log"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def key_file(folder: Path) -> Path:
    (key,) = (folder / "config" / "marin").glob("*.key")
    return key


def test_text_that_is_missing_empty_or_damaged(folder: Path, marin: Marin) -> None:
    assert marin("stage", "corpus").returncode == 0
    pointer = (folder / "artifacts" / "corpus.json").read_bytes()
    for data, words in [
        (b"", ("corpus is empty", "a.txt")),
        (b"ab\xff", ("not UTF-8", "a.txt: byte 2", "0xff")),
        (None, ("no file matches", "a.txt")),
    ]:
        (folder / "a.txt").unlink()
        if data is not None:
            (folder / "a.txt").write_bytes(data)
        refused(marin("stage", "corpus"), 1, *words)
        assert (folder / "artifacts" / "corpus.json").read_bytes() == pointer
    assert marin("ledger", "fsck").returncode == 0


def test_keys_that_are_lost_foreign_or_open(folder: Path, marin: Marin) -> None:
    key, before = key_file(folder), log_bytes(folder)
    secret = key.read_bytes()
    key.unlink()
    refused(marin("stage", "corpus"), 3, "no signing key", "MARIN_KEY", str(key))
    assert marin("--root", "other", "init", "--origin", "marin.test/other").returncode == 0
    key.write_bytes(next((folder / "config" / "marin").glob("*other.key")).read_bytes())
    key.chmod(0o600)
    refused(marin("stage", "corpus"), 2, "not the one of this root", "marin.test/bad+", "marin.test/other+")
    key.write_bytes(b"")
    refused(marin("stage", "corpus"), 2, "not a key file", str(key))
    key.write_bytes(secret)
    key.chmod(0o644)
    refused(marin("stage", "corpus"), 2, "0600", "0644", "chmod 600")
    assert log_bytes(folder) == before
    key.chmod(0o600)
    assert marin("stage", "corpus").returncode == 0


def test_a_lost_verifier_key_is_not_replaced_by_a_new_one(folder: Path, marin: Marin) -> None:
    vkey, before = folder / ".marin" / "vkey", log_bytes(folder)
    text = vkey.read_bytes()
    vkey.unlink()
    for command in (["init"], ["log"], ["stage", "corpus"]):
        refused(marin(*command), 3, "a log and no verifier key", "vkey", "marin init")
    assert not vkey.exists()
    vkey.write_bytes(text)
    assert log_bytes(folder) == before
    assert marin("log").returncode == 0


def test_a_pointer_whose_size_alone_was_changed(folder: Path, marin: Marin) -> None:
    assert marin("stage", "corpus").returncode == 0
    path = folder / "artifacts" / "corpus.json"
    whole = path.read_text()
    path.write_text(whole.replace('"size": ', '"size": 9'))
    refused(marin("stage", "tokenizer"), 1, "corpus.json", "bytes), found", "marin stage corpus")
    assert marin("stage", "corpus").returncode == 0
    assert path.read_text() == whole


def test_an_execution_that_can_not_have_the_recipes_bits_is_refused_before_any_step(folder: Path, marin: Marin) -> None:
    before = log_bytes(folder)
    refused(
        marin("stage", "train", "--devices", "3"),
        2,
        "--devices",
        "a divisor of arithmetic.logical_shards (8)",
        "found 3",
    )
    refused(marin("train", "model=nano", "trainer=smoke", "--devices", "16"), 2, "--devices", "found 16")
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(text.replace("max_isa=AVX2", "max_isa=AVX512"))
    refused(
        marin("stage", "train"),
        3,
        "one processor only",
        "arithmetic.xla_flags",
        "AVX512",
        "conf/profile/portable-cpu.yaml",
    )
    assert log_bytes(folder) == before
