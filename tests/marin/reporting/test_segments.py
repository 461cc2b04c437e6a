"""Who is said to have executed a run again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledger import Draft, digest_bytes
from marin.history.run import record_digest
from marin.record.creation import create_root
from marin.record.events import REPLAY_SEGMENT, ReplaySegment, TrainSegment, write
from marin.record.root import open_root
from marin.reporting.verification.segments import reproducers

DIGEST = digest_bytes(b"")


def segment(loss: float) -> TrainSegment:
    return TrainSegment(
        run="abc",
        start=0,
        end=1,
        losses=[loss.hex()],
        batches=[DIGEST],
        fingerprints=[DIGEST],
        start_state=DIGEST,
        end_state=DIGEST,
        trace=DIGEST,
    )


@pytest.mark.parametrize(("executed", "by"), [(segment(1.0), 1), (segment(2.0), 0)])
def test_a_segment_of_another_run_of_the_same_name_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executed: TrainSegment, by: int
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = create_root(str(tmp_path / "root"))
    body = ReplaySegment(run="abc", start=0, end=1, segment=record_digest(executed), conditions=DIGEST)
    root.append([Draft(REPLAY_SEGMENT, "replay/abc", write(body))])
    run: Any = SimpleNamespace(run="abc", segments=[SimpleNamespace(body=segment(1.0))], verdicts=())
    assert len(reproducers(root, run)) == by


def test_a_name_in_somebody_elses_log_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone who publishes a log writes any actor into it: a famous one, and since when."""
    monkeypatch.delenv("MARIN_KEY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "publisher"))
    root = create_root(str(tmp_path / "root"))
    body = ReplaySegment(run="abc", start=0, end=1, segment=record_digest(segment(1.0)), conditions=DIGEST)
    root.append([Draft(REPLAY_SEGMENT, "replay/abc", write(body), actor="a famous laboratory")])
    run: Any = SimpleNamespace(run="abc", segments=[SimpleNamespace(body=segment(1.0))], verdicts=())
    assert [one.name for one in reproducers(root, run)] == ["a famous laboratory"], "what the user wrote, the user sees"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "reader"))
    assert reproducers(open_root(str(tmp_path / "root")), run) == []
