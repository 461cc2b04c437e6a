"""The command line in this process, on a root and with a key of the test's own."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ledger import Draft
from marin.cli import main
from marin.history.runs import stream_of
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import open_root


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit status and what it printed."""

    status: int
    data: bytes
    err: str

    @property
    def out(self) -> str:
        return self.data.decode()

    @property
    def json(self) -> Any:
        """stdout as one JSON value."""
        assert self.data, self.err
        return json.loads(self.data)

    @property
    def lines(self) -> list[Any]:
        """stdout as one JSON value a line."""
        return [json.loads(line) for line in self.data.splitlines()]


Marin = Callable[..., Outcome]


class Stdin(io.BytesIO):
    """Bytes under the name that the real stdin has."""

    name = "<stdin>"


@pytest.fixture
def marin(
    own_keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Marin:
    """`marin ARGUMENT...` in an empty folder whose `.marin` does not exist yet."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MARIN_DEBUG", raising=False)

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Stdin(stdin)))
        capsysbinary.readouterr()
        with monkeypatch.context() as one_process:  # --root stays in the environment of its process only
            one_process.setenv("MARIN_ROOT", os.environ.get("MARIN_ROOT", ".marin"))
            status = main.run([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return Outcome(status, out, err.decode())

    return call


@pytest.fixture
def root(marin: Marin) -> Path:
    """A root in the working folder."""
    return create_root(origin="marin.test/cli").local


def digest_of(character: str) -> str:
    return "sha256:" + character * 64


@pytest.fixture
def run(root: Path) -> str:
    """A run that trained, evaluated and exported, with artifacts in the store."""
    opened = open_root()
    name = "2khr7ocq"
    artifact = opened.store().put_bytes(b"model").digest

    def output(kind: str) -> events.Output:
        return events.Output(kind=kind, digest=digest_of("d"), size=5, artifact=artifact)

    def completed(step: str, **metrics: float) -> tuple[str, events.Body]:
        return events.STEP_COMPLETED, events.StepCompleted(
            run=name,
            step=step,
            identity=digest_of("1"),
            inputs={},
            output=output(step),
            metrics={key: value.hex() for key, value in metrics.items()},
            seconds=1.5,
        )

    def segment(start: int, losses: list[float], before: str, after: str) -> tuple[str, events.Body]:
        return events.TRAIN_SEGMENT, events.TrainSegment(
            run=name,
            start=start,
            end=start + len(losses),
            losses=[loss.hex() for loss in losses],
            batches=["b"] * len(losses),
            fingerprints=["f"] * len(losses),
            start_state=digest_of(before),
            end_state=digest_of(after),
            trace=digest_of("7"),
        )

    bodies: list[tuple[str, events.Body]] = [
        (
            events.RUN_STARTED,
            events.RunStarted(
                run=name,
                pipeline="default",
                plan=digest_of("a"),
                recipe_digest=digest_of("b"),
                recipe={
                    "dataset": {"name": "grammar"},
                    "trainer": {"num_steps": 4},
                    "model": {"architecture": "llama", "num_layers": 2, "hidden_dim": 32},
                },
                code={"commit": "c0ffee", "dirty": True},
                environment={"cores": 2},
            ),
        ),
        segment(0, [7.5, 6.25], "0", "1"),
        segment(2, [5.0, 4.5], "1", "2"),
        completed("train", loss_first=7.5, loss_last=4.5),
        completed("evaluate", loss=4.0, perplexity=54.598),
        completed("export"),
    ]
    opened.append([Draft(kind, stream_of(name), events.write(body)) for kind, body in bodies])
    with opened.log():  # publishes what waits in the journal
        return name
