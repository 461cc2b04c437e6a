"""The measure of memory is measured: who holds what, in which group, and what is said where nothing can be limited."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.data import memory
from bench.data.limits import Groups, groups, own_group
from bench.data.watching import COMMAND, RAY, WORKER, Process, Watch, processes

HELD = 64 << 20
CHILD = "import sys; held = bytearray(b'x') * int(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
PARENT = f"""
import subprocess, sys
for name, size in (("ray::MapWorker(x)", "{HELD}"), ("ray::IDLE", "{HELD // 2}")):
    child = subprocess.Popen([name, "-c", {CHILD!r}, size], executable=sys.executable, stdout=subprocess.PIPE)
    child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    """A process with two below it that hold memory; all end with its standard input."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        yield running
        running.communicate()


def test_each_process_is_measured_by_itself(command: subprocess.Popen[bytes]) -> None:
    held = {one.kind: one.memory["anonymous"] for one in processes(command.pid)}
    assert set(held) == {COMMAND, WORKER, RAY}
    assert held[COMMAND] < HELD // 2 <= held[RAY] < HELD <= held[WORKER] < HELD * 3 // 2


def seen(number: int, kind: str, anonymous: int, began: int = 1) -> Process:
    return Process(number, began, kind, 1.0, {"anonymous": anonymous, "shared": anonymous // 10})


def test_peaks_are_of_a_process_also_where_its_number_is_given_again(tmp_path: Path) -> None:
    watch = Watch()
    (tmp_path / "collection" / "judge" / "000001.7.partial").mkdir(parents=True)
    watch.saw([seen(5, COMMAND, 100), seen(7, RAY, 300, 2), seen(8, RAY, 50)], tmp_path)  # 7 is not named yet
    (tmp_path / "collection" / "judge" / "000001.7.partial").rmdir()
    watch.saw([seen(5, COMMAND, 90), seen(7, WORKER, 200, 2), seen(8, RAY, 80)], tmp_path)
    watch.saw([seen(5, COMMAND, 120), seen(7, WORKER, 40, 3), seen(8, RAY, 60)], tmp_path)
    assert watch.told() == {
        "cpu_seconds": 4.0,
        "command_memory": {"anonymous": 120, "shared": 12},
        "worker_memory": [
            {"phases": ["judge"], "anonymous": 300, "shared": 30},
            {"phases": [], "anonymous": 40, "shared": 4},
        ],
        "rest_of_ray_memory": {"anonymous": 350, "shared": 8, "processes": 1},
    }


def test_the_group_of_memory_is_found_in_both_versions(tmp_path: Path) -> None:
    assert own_group("5:cpu:/a\n4:memory:/b/c\n0::/d\n", tmp_path) == (tmp_path / "memory/b/c", 1)
    assert own_group("0::/user/scope\n", tmp_path) == (tmp_path / "user/scope", 2)


def test_the_command_has_a_limit_the_workers_one_together_and_the_rest_of_ray_none(tmp_path: Path) -> None:
    made = Groups(tmp_path, 2, 1 << 30, 2)
    for process in (seen(5, COMMAND, 1), seen(7, RAY, 1), seen(8, RAY, 1), seen(7, WORKER, 1), seen(5, COMMAND, 1)):
        made.place(process)
    limits = {path.parent.name: path.read_text() for path in tmp_path.glob("*/memory.max")}
    assert limits == {COMMAND: str(1 << 30), WORKER: str(2 << 30)}
    placed = {path.parent.name: path.read_text() for path in tmp_path.glob("*/cgroup.procs")}
    assert placed == {COMMAND: "5", WORKER: "7", RAY: "8"}  # of each the last one
    for number, folder in enumerate(sorted(tmp_path.iterdir())):
        (folder / "memory.events").write_text(f"max 9\noom_kill {number}\n")
    assert made.ended() == 0 + 1 + 2


def test_where_the_kernel_offers_no_limit_nothing_is_limited_and_nothing_is_left(tmp_path: Path) -> None:
    own, _ = own_group(Path("/proc/self/cgroup").read_text(), tmp_path)
    own.mkdir(parents=True, exist_ok=True)
    with groups(1 << 30, 1, tmp_path) as made:
        assert made is None
    assert list(own.iterdir()) == []


@pytest.mark.long
def test_equal_documents_in_small(tmp_path: Path) -> None:
    first, second = memory.duplicates([20, 40], tmp_path)
    assert [line["documents"] for line in (first, second)] == [{"read": 20, "kept": 1}, {"read": 40, "kept": 1}]
    assert second["removed"] == {"exact_duplicate": 39} and second["bytes"] == 2 * first["bytes"]
    assert first["over_first"] == 1
    assert first["command_memory"]["resident"] > first["command_memory"]["anonymous"] > 0
    assert first["worker_memory"] == []


def test_two_digests_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(folder: Path, sources: str, workers: int, place: object) -> dict[str, Any]:
        return {"artifact": f"sha256:{workers}"}

    monkeypatch.setattr(memory, "built", built)
    with pytest.raises(SystemExit, match="2 digests"):
        list(memory.memory(0.0001, [1, 2], 0, tmp_path))
