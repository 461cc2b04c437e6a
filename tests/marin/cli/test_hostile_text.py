"""A log whose every piece of text would like to print something else: no command lets it."""

# Taken by their commands: marin.plugins.mlflow.

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from ledger import Draft
from marin.errors import DataError
from marin.history.runs import stream_of
from marin.record.root import open_root

from .conftest import Marin

FORGED = "x\r\n\x1b[2J\x1b]0;owned\x07training  PASS\n\u202eSSAP\u2066\u2028\u200b\x85\x9b31m\x7f"


def only_our_newlines(text: str) -> None:
    unseen = {letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n"}
    assert unseen == set()
    assert not any(line.startswith(("training  PASS", "SSAP")) for line in text.split("\n"))


@pytest.fixture
def hostile(run: str) -> str:
    """The run of the fixture with a second one whose events are hostile, copied from the first one's."""
    root = open_root()
    other = "zzzzhost"
    drafts = []
    for _, event in list(root.reader().events()):
        if event.stream == stream_of(run):
            body = json.loads(json.dumps(dict(event.body)).replace(run, other))
            drafts.append(Draft(event.type, stream_of(other), poisoned(body)))
    root.append(drafts)
    root.append([Draft("my.note/v1", "notes", {"text": FORGED, FORGED: FORGED})])
    return other


def poisoned(body: dict[str, object]) -> dict[str, object]:
    """The same body with hostile words where a schema takes any."""
    for name in ("code", "environment"):
        if isinstance(body.get(name), dict):
            body[name] = {"commit": FORGED, "version": FORGED, FORGED: FORGED}
    for name in ("error", "reason", "tokenizer"):
        if name in body:
            body[name] = FORGED
    for name in ("metrics", "losses"):
        if isinstance(body.get(name), dict):
            body[name] = {FORGED: (1.5).hex()}
    return body


@pytest.mark.parametrize(
    "command",
    [
        ("log",),
        ("log", "--json"),
        ("log", "--stream", "notes"),
        ("ls",),
        ("ls", "artifacts"),
        ("ls", "--json"),
        ("show", "RUN"),
        ("show", "RUN", "--json"),
        ("show", "RUN", "--recipe"),
        ("show", "0"),
        ("lineage", "RUN"),
        ("verify", "RUN", "--only", "ledger", "--no-record"),
        ("verify", "RUN", "--only", "ledger", "--no-record", "--json"),
        ("verify", "RUN", "--only", "ledger,artifacts", "--no-record", "--html", "page.html"),
        ("show", FORGED),
        ("verify", FORGED),
        ("ledger", "fsck"),
        ("--root", FORGED.replace("\x00", ""), "ls"),
    ],
    ids=lambda command: " ".join(command)[:40].encode("unicode_escape").decode(),
)
def test_no_command_lets_it_out(marin: Marin, hostile: str, command: tuple[str, ...], tmp_path: Path) -> None:
    done = marin(*(hostile if part == "RUN" else part for part in command))
    assert done.status in (0, 1, 2, 3, 4), done.err
    only_our_newlines(done.out)
    only_our_newlines(done.err)
    if "--json" in command:
        assert [json.loads(line) for line in done.out.splitlines()]
    page = tmp_path / "work" / "page.html"
    if page.exists():
        only_our_newlines(page.read_text().replace("\t", ""))


def test_the_last_event_is_told_in_escapes(marin: Marin, hostile: str) -> None:
    shown = marin("log", "--last", "1").out
    assert shown.count("\n") == 1
    assert "\\x1b[2J" in shown and "\\u202e" in shown


def test_an_error_is_one_line(marin: Marin, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from marin.cli import main

    def fail(arguments: object) -> int:
        raise DataError("a file is wrong", where=FORGED, found=FORGED)

    monkeypatch.setattr(main, "call", fail)
    done = marin("ls")
    assert done.status == 1 and done.err.count("\n") == 1
    only_our_newlines(done.err)


def test_mlflow_has_the_text_as_it_was_recorded(marin: Marin, hostile: str) -> None:
    """A filter by the true value finds it. What MLflow's pages draw is made visible where it is drawn
    (tests/e2e/pages/test_ui_logged.py)."""
    assert marin("sync").status == 0
    root = open_root()
    names = list(root.views().rglob("*.db"))
    assert names
    import sqlite3

    with sqlite3.connect(names[0]) as connection:
        values = [
            text
            for table in ("tags", "params", "metrics", "experiments")
            for row in connection.execute(f"SELECT * FROM {table}")
            for text in row
            if isinstance(text, str)
        ]
    assert any("\x1b" in text for text in values)
