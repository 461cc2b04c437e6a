"""Stages killed with SIGKILL before each of their changes to the disk, in real processes; and asked to stop by signals.

After every kill an ordinary call must end with the files that an undisturbed run has, and with a ledger in which
each step is completed once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from drawn import Tenth

from marin.history.runs import load_all
from marin.record.events import LEASES
from marin.record.root import open_root

TINY = Path(__file__).parents[1] / "tiny.py"


def call(mode: str, name: str, project: Path, *rest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TINY), mode, name, str(project), *rest],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def events(project: Path) -> list[str]:
    """What runs say; who executes their steps is told beside it."""
    read = open_root(str(project / ".marin")).reader().events()
    return [event.type.removesuffix("/v1") for _, event in read if event.stream != LEASES]


def pointers(project: Path) -> dict[str, bytes]:
    folders = (project / "artifacts", project / ".marin" / "receipts")
    return {
        str(path.relative_to(project)): path.read_bytes()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.long(seconds=10)
def test_killed_before_any_change_to_the_disk_and_called_again(
    tiny: ModuleType, project: Path, tmp_path: Path, tenth: Tenth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last stage of the plan, because it also completes the run. Always at each of the last points, where the
    result is recorded and the files are written. Each copy of the project is as if on a machine of its own."""
    for name in ("words", "upper"):
        tiny.run(name, project)
    whole = tmp_path / "whole"
    shutil.copytree(project, whole)
    monkeypatch.setenv("XDG_STATE_HOME", f"{whole}-state")
    undisturbed = call("killed", "count", whole, "1000000")
    done, changes, action = undisturbed.stdout.split()
    assert (done, action) == ("done", "executed"), undisturbed.stderr
    expected, total = pointers(whole), int(changes)
    points = sorted({*tenth(range(1, total + 1)), *range(max(1, total - 7), total + 1)})
    for point in points:
        folder = tmp_path / f"killed-{point}"
        shutil.copytree(project, folder)
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}-state")
        killed = call("killed", "count", folder, str(point))
        # How many changes are synced together depends on timing, so an execution may end with one fewer than the first.
        ended_before = killed.returncode == 0 and int(killed.stdout.split()[1]) < point
        assert ended_before or killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
        assert tiny.run("count", folder).completed, point
        assert pointers(folder) == expected, point
        recorded = events(folder)
        assert recorded.count("step.completed") == 3, (point, recorded)
        assert recorded.count("run.completed") == 1, (point, recorded)
        assert recorded.count("run.started") == 1, (point, recorded)
        shutil.rmtree(folder)


@contextmanager
def waiting(project: Path) -> Iterator[subprocess.Popen[str]]:
    """The stage `upper` in a process that has said that it is in its step."""
    with started("blocked", project) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


@contextmanager
def started(mode: str, project: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(TINY), mode, "upper", str(project)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_recorded_and_the_next_call_goes_on(
    tiny: ModuleType, project: Path, number: signal.Signals
) -> None:
    tiny.run("words", project)
    with waiting(project) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    last = errors.strip().splitlines()[-1]
    assert last == f"interrupted: step upper: found {number.name}; run the same command again: it goes on from here"
    assert events(project)[-1] == "step.failed"
    (view,) = load_all(open_root(str(project / ".marin")).history())
    assert view.failures[0].body.error == last
    found: list[str] = []
    tiny.before_upper.append(lambda task: found.append((task.work / "left behind").read_text()))
    assert tiny.run("upper", project).run == view.run
    assert found == ["by the first attempt"]
    assert "step.preempted" not in events(project), "it had told of its end itself"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_two_steps_leaves_no_open_run(tiny: ModuleType, project: Path, number: signal.Signals) -> None:
    run = tiny.run("words", project).run
    with started("between", project) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    last = errors.strip().splitlines()[-1]
    assert (
        last == f"interrupted: before step upper: found {number.name}; run the same command again: it goes on from here"
    )
    (view,) = load_all(open_root(str(project / ".marin")).history())
    assert (view.run, view.status, view.failures[-1].body.error) == (run, "interrupted", last)
    assert events(project).count("step.started") == 1, "nothing was begun"
    assert tiny.run("upper", project).run == run
    assert tiny.run("count", project).completed
    (view,) = load_all(open_root(str(project / ".marin")).history())
    assert view.status == "completed"


def test_killed_in_a_step_the_next_attempt_has_its_scratch_and_an_empty_out(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    with waiting(project) as process:
        (workspace,) = (project / ".marin" / "work").glob("upper-*")
        (workspace / "out" / "half").write_text("written")
        process.kill()
        process.wait()
    found: list[object] = []
    tiny.before_upper.append(
        lambda task: found.extend([task.attempt, sorted(os.listdir(task.out)), sorted(os.listdir(task.work))])
    )
    tiny.run("upper", project)
    assert found == [2, [], ["left behind"]]
    assert events(project).count("run.started") == 1
    assert events(project)[-3:] == ["step.preempted", "step.started", "step.completed"], (
        "its death is told by the next attempt"
    )
    (view,) = load_all(open_root(str(project / ".marin")).history())
    (death,) = view.preemptions
    assert (death.body.step, death.body.attempt, death.body.again) == ("upper", 1, True)


def test_a_second_process_waits_for_the_first_and_finds_its_result(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    with waiting(project) as first, started("stage", project) as second:
        assert second.stderr is not None
        line = second.stderr.readline()
        assert line.startswith("upper is being executed by executor ")
        assert second.poll() is None
        first.kill()  # its lock goes with it, and the second one executes
        output, errors = second.communicate(timeout=600)
    assert output.split()[::2] == ["done", "executed"], errors


def test_recording_is_possible_while_a_step_runs(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    with waiting(project):
        tiny.run("words", project, seed=9)
        assert events(project)[-3:] == ["run.started", "step.started", "step.completed"]
