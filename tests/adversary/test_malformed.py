"""A foreign log with malformed events: they are named and left out, the run whose they are is not PASS, and all else works.

The operator of a log writes what the operator wants. Real events are changed at random places: fields that are missing, of other
types, huge, nested deeply; unknown fields and types; references to nothing.
"""

from __future__ import annotations

import json
import random
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sessions import new_cache

from ledger import Draft, Log, PosixStorage
from marin.cli.main import run
from marin.history.runs import run_ids, stream_of
from marin.kinds.known import own_kinds
from marin.recipe.schema import Execution
from marin.record.creation import create_root
from marin.record.events import LEASES
from marin.record.root import open_root
from marin.record.trust.evidence import NOBODY
from marin.verify.verification import Options, Verification
from tests.adversary.changed import changed as bytes_changed
from tests.adversary.forgeries.workshop import Leaf

PROGRAM = """
import marin, numpy as np
for name in ("good", "bad"):
    with marin.start_run("mine", recipe={"lr": 0.1, "name": name}, tags={"team": name}) as run:
        for step in range(4):
            run.log(step, loss=1 / (step + 1), batch=f"batch {step}")
            if step % 2 == 1:
                run.state({"weights": np.full(4, step)})
        open("model.txt", "w").write("weights")
        run.save("model", "model.txt")
"""
BODIES = {kind.type: kind.body for kind in own_kinds()}
EVENTS, LEAVES = 60, 6
"""How many malformed events a log gets, and how many entries that are no events."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("malformed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MARIN_ROOT", str(folder / "root"))
        patch.setenv("MARIN_KEY", str(folder / "key"))
        patch.setenv("MARIN_PINS", str(folder / "pins"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        create_root(str(folder / "root"), origin="malformed.invalid/x")
        (folder / "train.py").write_text(PROGRAM)
        runpy.run_path("train.py")
        yield folder


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = {"a": value}
    return value


def odd(draw: random.Random) -> Any:
    """What no field expects, or no reader."""
    return draw.choice(
        [
            None,
            True,
            -1,
            0,
            2**53 - 1,
            -(2**53) + 1,
            "",
            "x" * 5000,
            "\u202e\x1b[2J",
            [],
            [[]],
            {},
            deep(3),
            deep(200),
            deep(900),
        ]
    )


def changed(body: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The body with one odd place, at any depth."""
    body = json.loads(json.dumps(body))
    place: Any = body
    while True:
        key = draw.choice(sorted(place)) if isinstance(place, dict) else draw.randrange(len(place))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.6:
            place = inner
        elif isinstance(place, dict) and draw.random() < 0.3:
            del place[key]
            return body
        elif isinstance(place, dict) and draw.random() < 0.1:
            place["unheard"] = odd(draw)
            return body
        else:
            place[key] = odd(draw)
            return body


def malformed(root: Path, bad: str, draw: random.Random) -> Iterator[Draft]:
    """Events of the run ``bad``, and of leases: real ones, changed, and of every other type what does not fit."""
    real = [(event.type, dict(event.body)) for _, event in open_root(str(root)).history().events(stream=stream_of(bad))]
    others = sorted(BODIES.keys() - {kind for kind, _ in real})
    for _ in range(EVENTS):
        if draw.random() < 0.5:
            kind, body = draw.choice(real)
            body = changed(body, draw)
        else:
            kind = draw.choice(others)
            fields = [field for field in BODIES[kind].__struct_fields__ if draw.random() < 0.8]
            body = {field: bad if field == "run" else odd(draw) for field in fields}
        if draw.random() < 0.05:
            kind = "unheard.of/v7"
        stream = LEASES if kind.startswith("lease.") else stream_of(bad) if draw.random() < 0.8 else f"evaluation/{bad}"
        yield Draft(kind, stream, body)


def leaves(root: Path, bad: str, draw: random.Random) -> Iterator[Draft]:
    """Entries that are no events of the log: bytes of the bad run's, changed; one of its events again; noise of nobody."""
    entries = [event.encode() for _, event in open_root(str(root)).history().events(stream=stream_of(bad))]
    for _ in range(LEAVES):
        entry = draw.choice(entries)
        yield Leaf.of(draw.choice((entry, bytes_changed(entry, draw), entry.replace(b":", b" :"), entry[1:])))
    yield Leaf.of(b"\xff no event of anybody")


def verdict(root: Path, name: str) -> str:
    opened = open_root(str(root))
    options = Options(execution=Execution(), remember=False, trusted=(opened.verifier,), sources=NOBODY)
    return Verification(opened, name, options).report(("ledger", "artifacts")).verdicts["ledger"].outcome


@pytest.mark.parametrize("seed", range(4))
def test_malformed_events_touch_their_own_run_and_nothing_else(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    root, draw = tmp_path / "root", random.Random(seed)
    shutil.copytree(base / "root", root)
    good, bad = run_ids(open_root(str(root)).history())
    assert verdict(root, good) == "PASS"
    drafts = [*malformed(root, bad, draw), *leaves(root, bad, draw)]
    draw.shuffle(drafts)
    with Log.open(PosixStorage(root), open_root(str(root)).signer()) as log:  # which knows of no types
        for draft in drafts:
            log.append([draft])
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "another.key"))
    monkeypatch.setenv("MARIN_ROOT", str(root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MARIN_CACHE", str(new_cache(tmp_path / "cache")))
    monkeypatch.chdir(tmp_path)
    for command in (
        ["ls"],
        ["ls", "--json"],
        ["log"],
        ["show", good],
        ["show", good, "--json"],
        ["lineage", good],
        ["diff", good, good],
        ["sync"],
        ["experiment", "ls"],
        ["store", "gc", "--dry-run"],
        ["site", str(tmp_path / "site")],
    ):
        assert run(command) == 0, (command, capsys.readouterr().err[-2000:])
        capsys.readouterr()
    assert run(["ledger", "fsck"]) == 1
    assert "not JSON" in capsys.readouterr().out
    for command in (["show", bad], ["diff", good, bad], ["lineage", bad]):
        assert run(command) in (0, 1, 3), command
        assert "defect" not in capsys.readouterr().err
    assert verdict(root, good) == "PASS"
    assert run(["verify", bad, "--no-record", "--only", "ledger,artifacts", "--json"]) in (1, 3)
    told = capsys.readouterr()
    assert "defect" not in told.err
    assert '"ledger": {"outcome": "PASS"' not in told.out
