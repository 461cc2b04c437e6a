"""``python -m tests.adversary.faults --follow``: faults put into trainings that run, each with a follower that may stop it.

Two processes for each row, as in life: one trains and records, one follows. A row is good when the follower's request stopped
the training before two further segments were recorded after the first one that is not what an honest training records; of a
clean run, when it came to its end. Both are forks of this process, which has imported what computes and computed nothing.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marin.process.arithmetic import apply
from marin.provenance.code import code_folder, files_digest
from marin.record import events
from tests.adversary.faults.flagged import in_force
from tests.adversary.faults.params import EXECUTION
from tests.adversary.faults.params import recipe as honest_recipe

CLEAN, CLEAN_RUNS = "clean run", 10
READY = ("ready: ", "the training is asked to stop")
"""What a follower says when it may be left alone with a training."""
PATIENCE = 300.0
"""Seconds that a process of a row is waited for at most, beyond which the row is bad."""


@dataclass(frozen=True)
class Row:
    """One fault in a running training. ``stopped``: it did not come to its end; ``further``: segments that were recorded after
    the first one that is not honest, -1 where there is none; ``said``: what the follower says, or what the training itself
    refused."""

    row: int
    kind: str
    what: str
    stopped: bool
    further: int
    said: str
    seconds: float

    @property
    def good(self) -> bool:
        """Stopped in time; of a clean run: not stopped."""
        return not self.stopped and self.further == -1 if self.kind == CLEAN else self.stopped and self.further < 2


def main(base: Path, seed: int, per_kind: int, *, row: int | None, kinds: str | None, rows: Path | None) -> int:
    """Execute what is not there yet, one of each kind first, and say how many were stopped in time; the exit status."""
    known = earlier(rows) if rows is not None else {}
    found = list(known.values())
    wanted = [
        item
        for item in plan(per_kind)
        if item[0] not in known and row in (None, item[0]) and (kinds is None or item[1] in kinds.split(","))
    ]
    for one in run(base, seed, sorted(wanted, key=lambda item: item[2])):
        found.append(one)
        if rows is not None:
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(one)) + "\n")
        mark = "ok " if one.good else "BAD"
        sys.stdout.write(
            f"{one.row:4} {one.kind:18} {mark} {one.further:3} {one.seconds:5.1f} s  {one.what} | {one.said}\n"
        )
        sys.stdout.flush()
    faults, clean = [one for one in found if one.kind != CLEAN], [one for one in found if one.kind == CLEAN]
    sys.stdout.write(
        f"{sum(one.good for one in faults)} of {len(faults)} faults stopped before two further segments were recorded; "
        f"{sum(not one.good for one in clean)} false stops in {len(clean)} whole runs\n"
    )
    return 0 if all(one.good for one in found) else 1


def plan(per_kind: int) -> list[tuple[int, str, int]]:
    """(number of the row, kind, number within the kind) of all rows, clean runs last."""
    from tests.adversary.faults.kinds import KINDS

    faults = [(i * per_kind + j, kind, j) for i, kind in enumerate(KINDS) for j in range(per_kind)]
    return faults + [(len(faults) + j, CLEAN, j) for j in range(CLEAN_RUNS)]


def earlier(path: Path) -> dict[int, Row]:
    """Good rows of an earlier call."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {row.row: row for line in lines if (row := Row(**json.loads(line))).good}


def run(base: Path, seed: int, rows: Sequence[tuple[int, str, int]]) -> Iterator[Row]:
    """Execute the rows, one after the other."""
    apply(honest_recipe().arithmetic, EXECUTION)
    os.environ["MARIN_KEY"] = str(base / "operator.key")
    from marin.plugins.follow import follower  # noqa: F401 - for the forks
    from marin.verify.jax import replay  # noqa: F401
    from tests.adversary.faults import running

    gc.freeze()
    honest = _honest(base, running)
    for number, kind, within in rows:
        began = time.monotonic()
        folder = base / "live" / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.environ["MARIN_PINS"] = str(folder / "state" / "pins")
        fault = running.drawn(kind, within, seed)
        try:
            _play(base, folder, running, fault, (kind, within, seed))
            stopped, further, said = _judged(folder, fault, honest)
        except Exception as error:  # the bench's own: to be seen
            traceback.print_exc()
            stopped, further, said = kind == CLEAN, 99, f"{type(error).__name__}: {error}"[:300]
        one = Row(number, kind, fault.what, stopped, further, said, round(time.monotonic() - began, 1))
        yield one
        if not one.good:
            continue  # it is there to be looked at
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
        shutil.rmtree(folder)


def _honest(base: Path, running: Any) -> dict[int, dict[str, Any]]:
    """What an honest training records of its segments, by their first train step; and the root before it. Those of other
    code are made anew: this code's steps would not find their inputs there."""
    place, told = base / "before", base / "honest.json"
    code = files_digest(code_folder(), ("ledger", "marin"))
    honest = json.loads(told.read_text()) if told.exists() else {}
    if honest.get("code") != code:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        os.environ["MARIN_PINS"] = str(base / "state" / "before")
        _wait(
            _forked(lambda: running.prepare(place, running.Fault("nothing", 0)), base / "before.log"),
            base / "before.log",
        )
        whole = base / "whole"
        shutil.rmtree(whole, ignore_errors=True)
        shutil.copytree(place, whole)
        os.environ["MARIN_PINS"] = str(base / "state-whole" / "pins")
        _wait(
            _forked(lambda: running.train(whole, running.Fault("nothing", 0)), base / "whole.log"), base / "whole.log"
        )
        honest = {"code": code, "segments": _of(whole, events.TRAIN_SEGMENT)}
        told.write_text(json.dumps(honest))
    return {body["start"]: body for body in honest["segments"]}


def _play(base: Path, folder: Path, running: Any, fault: Any, row: tuple[str, int, int]) -> None:
    """One row: what comes before, then the follower, and the training as soon as it follows."""
    if fault.upstream:
        _wait(_forked(lambda: running.prepare(folder, fault), folder / "before.log"), folder / "before.log")
    else:
        shutil.copytree(base / "before" / ".marin", folder / ".marin")
    (folder / "follow.log").touch()
    following = _forked(lambda: _follow(folder), folder / "follow.log")
    try:
        told = folder / "follow.log"
        _until(lambda: any(word in told.read_text() for word in READY), following)
        if fault.since is not None:
            _wait(
                _forked(lambda: running.train(folder, fault, pause_at=fault.since), folder / "first.log"),
                folder / "first.log",
            )
            program = [sys.executable, "-m", "tests.adversary.faults.running", str(folder), row[0], *map(str, row[1:])]
            with (folder / "train.log").open("wb") as out:
                subprocess.run(program, env={**os.environ, **in_force(fault.flag)}, stderr=out, stdout=out, check=False)
        else:
            _wait(_forked(lambda: running.train(folder, fault), folder / "train.log"), None)
    finally:
        os.kill(following, signal.SIGKILL)
        os.waitpid(following, 0)


def _follow(folder: Path) -> None:
    from marin.plugins.follow.follower import follow
    from marin.plugins.follow.stop_request import StopRequests
    from marin.record.root import open_root
    from marin.record.trust.evidence import NOBODY
    from marin.record.verdicts import NAMES
    from marin.verify.verification import Options

    root = open_root(str(folder / ".marin"))

    def say(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    options = Options(execution=EXECUTION, own=root, sources=NOBODY)
    requests = StopRequests.of(root, back=False)
    follow(root, "latest", options, only=NAMES, requests=requests, say=say, patience=PATIENCE)


def _judged(folder: Path, fault: Any, honest: dict[int, dict[str, Any]]) -> tuple[bool, int, str]:
    """Whether it did not come to its end, how many segments came after the first that is not honest, and why."""
    segments = _of(folder, events.TRAIN_SEGMENT)
    completed = [one for one in _of(folder, events.STEP_COMPLETED) if one["step"] == "train"]
    followed, trained = ((folder / name).read_text(errors="replace") for name in ("follow.log", "train.log"))
    other = [one["start"] for one in segments if _facts(one) != _facts(honest[one["start"]])]
    clean = fault.what == "nothing"
    first = min([*other, *([] if clean else [fault.step // 4 * 4])], default=-1)
    further = -1 if clean and not other else sum(one["start"] > first for one in segments)
    if "StoppedByFollower" in trained:
        said = next((line for line in followed.splitlines() if " FAIL: " in line), followed)
    else:
        said = f"the training itself: {trained.strip().splitlines()[-1:]}; the follower: {followed[-200:]}"
    # A training that ends without a word, or that could not begin, was stopped by nobody.
    stopped = not completed and bool(trained.strip()) and "MissingInput" not in trained
    return stopped, further, f"{len(segments)} segments; {' '.join(said.split())[:300]}"


def _facts(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "run"}


def _of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The bodies of the events of a type that the training appended, as the bench itself took note of them."""
    from tests.adversary.faults.running import TOLD

    lines = (folder / TOLD).read_text("utf-8").splitlines() if (folder / TOLD).exists() else []
    return [body for told, body in map(json.loads, lines) if told == kind]


def _forked(act: Callable[[], None], told: Path) -> int:
    """A fork of this process that does this and ends; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with told.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        act()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int, told: Path | None) -> None:
    """Until it has ended; ``told``: where it says why, if it has to end well."""
    _, status = os.waitpid(child, 0)
    if told is not None and status and "Paused" not in told.read_text():
        raise RuntimeError(told.read_text()[-500:])


def _until(ready: Callable[[], bool], child: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline or os.waitpid(child, os.WNOHANG)[0]:
            raise RuntimeError("the follower does not follow")
        time.sleep(0.05)
