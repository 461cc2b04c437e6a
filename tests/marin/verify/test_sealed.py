"""What the parent of a confined verification takes from it: verdicts on the run that was asked for, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledger import LedgerError, Refused
from marin.data.reach import Reach
from marin.errors import UsageError
from marin.record.events import REPLAY_COMPLETED, REPLAY_SEGMENT, ReplayCompleted, ReplaySegment, write
from marin.verify import sealed
from marin.verify.sealed import Allowed, Entry

DIGEST = "sha256:" + "5" * 64
ASKED, OTHER = "kwixb67b", "tsud5z4m"


def verdict(run: str = ASKED, **changed: Any) -> dict[str, Any]:
    body = write(
        ReplayCompleted(
            run=run,
            verdicts={"training": "PASS"},
            training={},
            first_divergence=None,
            log_checkpoint={},
            details={},
            environment={},
        )
    )
    return {"type": REPLAY_COMPLETED, "stream": f"run/{run}", "body": body, "id": None} | changed


def segment(run: str = ASKED, **changed: Any) -> dict[str, Any]:
    body = write(ReplaySegment(run=run, start=0, end=4, segment=DIGEST, conditions=DIGEST))
    return {"type": REPLAY_SEGMENT, "stream": f"replay/{run}", "body": body, "id": None} | changed


def said(*items: Any) -> bytes:
    return json.dumps(items).encode() + b"\n"


def test_programs_that_others_could_write_are_not_copied_for_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy belongs to this user, no matter who wrote what was copied: it would pass for the user's own."""
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path))
    (tmp_path / "xla").mkdir(mode=0o700)
    (tmp_path / "xla" / "jit_step-cache").write_bytes(b"program")
    sealed.variables_of(tmp_path / "folder")
    assert (tmp_path / "foreign" / "xla" / "jit_step-cache").read_bytes() == b"program"
    (tmp_path / "xla").chmod(0o777)
    (tmp_path / "xla" / "jit_other-cache").write_bytes(b"somebody else's")
    with pytest.raises(Refused, match="others can write a cache"):
        sealed.variables_of(tmp_path / "folder")
    assert not (tmp_path / "foreign" / "xla" / "jit_other-cache").exists()


@pytest.mark.parametrize("name", [ASKED, ASKED[:3], "latest"])
def test_the_verdicts_on_the_run_are_taken(name: str) -> None:
    entry = Entry(name)
    (first, second), (third,) = entry.drafts(said(segment(), segment(id="a1"))), entry.drafts(said(verdict()))
    assert (first.stream, second.id, third.type) == (f"replay/{ASKED}", "a1", REPLAY_COMPLETED)
    assert third.body["run"] == ASKED
    assert entry.drafts(said()) == []


@pytest.mark.parametrize("name", [ASKED, ASKED[:3], "latest"])
@pytest.mark.parametrize("other", [verdict(OTHER), segment(OTHER), verdict(ASKED + "x"), segment(ASKED[:4])])
def test_another_run_is_refused_also_beside_the_right_one(name: str, other: dict[str, Any]) -> None:
    entry = Entry(name)
    entry.drafts(said(segment()))
    for request in (said(other), said(verdict(), other), said(other, verdict())):
        with pytest.raises(Refused, match="the run that it was asked for"):
            entry.drafts(request)
    assert entry.drafts(said(verdict()))


def test_a_name_that_does_not_fit_is_refused_from_the_beginning() -> None:
    for item in (verdict(OTHER), segment(OTHER)):
        with pytest.raises(Refused, match=f"expected run {ASKED[:3]}, found run {OTHER}"):
            Entry(ASKED[:3]).drafts(said(item))
    entry = Entry("latest")
    with pytest.raises(Refused):
        entry.drafts(said(verdict(), verdict(OTHER)))
    assert entry.drafts(said(verdict(OTHER))), "what was refused says nothing of which run it is"


@pytest.mark.parametrize(
    "item",
    [
        verdict(stream=f"run/{OTHER}"),
        verdict(stream=f"replay/{ASKED}"),
        segment(stream=f"run/{ASKED}"),
        segment(stream=f"replay/{OTHER}"),
        verdict(type="run.completed/v1"),
        verdict(type="model.registered/v1"),
        verdict(type=REPLAY_SEGMENT),
        verdict(body={"run": ASKED}),
        verdict(body={}),
        verdict(body=[]),
        verdict(stream=3),
        verdict(id=7),
        verdict(time="1999"),
        {"type": REPLAY_COMPLETED},
        7,
    ],
)
def test_anything_else_is_refused(item: Any) -> None:
    with pytest.raises(LedgerError):
        Entry("latest").drafts(said(item))
    with pytest.raises(LedgerError):
        Entry("latest").drafts(said(verdict(), item))


@pytest.mark.parametrize("request_", [b"", b"{}\n", b"nothing", b"\xff", b"[" * 100_000, said(*[segment()] * 65)])
def test_a_request_that_is_none_is_refused(request_: bytes) -> None:
    with pytest.raises(Refused):
        Entry(ASKED).drafts(request_)


def test_what_is_allowed_by_name_and_nothing_else(tmp_path: Path) -> None:
    nothing = Allowed.parse([])
    assert (nothing, nothing.hosts, nothing.reach()) == (Allowed(), None, Reach(folders=(), hosts=()))
    (tmp_path / "link").symlink_to(tmp_path / "texts")
    some = Allowed.parse(["network:data.example", f"read:{tmp_path}/link", "network:other.example"])
    assert some.reach() == Reach(folders=(str(tmp_path / "texts"),), hosts=("data.example", "other.example"))
    assert (some.unconfined, Allowed.parse(["unconfined"]).unconfined) == (False, True)
    folders = Allowed.parse([f"read:{tmp_path}"])
    assert folders.hosts is None, "a folder opens no network"
    for name in ("network", "network:", "read:", "everything", "write:/", "", "unconfined:x"):
        with pytest.raises(UsageError, match="--allow"):
            Allowed.parse([name])
