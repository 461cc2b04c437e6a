"""Workers that are forks of one process: results in order, deaths survived and bounded, and nothing left however it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing.connection import wait as ready
from pathlib import Path

import pytest
from forked_work import PREPARED, WORKER

from ledger import Unavailable
from marin.errors import Unsupported
from marin.runners.forked import RESTARTS, ForkedRunner
from marin.work.placed import encode, start

ENDS_WITHIN_SECONDS = 60


def answers(tasks: list[list[str]], workers: int = 2, setup: str = "setup") -> list[list[str]]:
    with WORKER.run(ForkedRunner(workers, variables={"TOLD": "yes"}).run, setup, tasks) as results:
        return list(results)


def test_results_come_in_order_from_forks_that_stay_warm() -> None:
    found = answers([["echo", str(number)] for number in range(40)])
    assert [answer[1] for answer in found] == list(map(str, range(40)))
    assert {answer[2] for answer in found} == {"yes"}, "the variable"
    processes = {answer[3] for answer in found}
    assert len(processes) <= 2 and str(os.getpid()) not in processes
    assert len({tuple(answer[4:]) for answer in found}) == 1 and {len(answer) for answer in found} == {5}, (
        "prepared once"
    )
    assert PREPARED == [], "not here"


def test_each_answer_has_the_number_of_its_task() -> None:
    found = dict(WORKER.each(ForkedRunner(3).each, "setup", [["echo", str(number)] for number in range(20)]))
    assert {number: answer[1] for number, answer in found.items()} == {number: str(number) for number in range(20)}
    assert answers([]) == []


def test_a_task_whose_worker_died_is_executed_again(tmp_path: Path) -> None:
    tasks = [["echo"], ["kill", str(tmp_path / "seen"), "once"], ["echo"], ["echo"]]
    assert [answer[0] for answer in answers(tasks)] == ["echo", "kill", "echo", "echo"]


def test_a_task_that_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"at most {RESTARTS} restarts.*killed by SIGKILL"):
        answers([["echo"], ["kill", str(tmp_path / "never")], ["echo"]])


def test_errors_are_those_of_the_worker() -> None:
    with pytest.raises(Unsupported, match="a worker that cannot begin"):
        answers([["echo"]], setup="cannot")
    with pytest.raises(Exception, match="RuntimeError: what no task should raise"):
        answers([["raise"]])


@pytest.fixture
def held(tmp_path: Path) -> list[str]:
    """A task that does not end: it says which processes are at it in the first pipe, and waits at the second."""
    pipes = [tmp_path / name for name in ("told", "never")]
    for pipe in pipes:
        os.mkfifo(pipe)
    return ["hold", *map(str, pipes)]


def at_work(task: list[str]) -> list[int]:
    """Descriptors of the worker at this task, and of the process that it was forked from."""
    return [os.pidfd_open(int(number)) for number in Path(task[1]).read_text().split()]


def assert_ended(processes: list[int]) -> None:
    for process in processes:
        assert ready([process], ENDS_WITHIN_SECONDS), "it is still there"
        os.close(process)


def test_leaving_early_ends_those_at_work(held: list[str]) -> None:
    with ForkedRunner(2).run(start, encode((WORKER.name, "setup")), [encode(["echo"]), encode(held)]) as results:
        next(results)
        processes = at_work(held)
    assert not [one for one in processes if not ready([one], 0)], "ended when the block is left"
    assert_ended(processes)


def test_nothing_outlives_the_process_that_asked(held: list[str]) -> None:
    program = (
        "import json, sys\nfrom marin.runners.forked import ForkedRunner\n"
        "from forked_work import WORKER\n"
        "with WORKER.run(ForkedRunner(2).run, 'setup', [json.loads(sys.argv[1])]) as results: list(results)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program, json.dumps(held)], env=environment) as asking:
        processes = at_work(held)
        asking.kill()
    assert_ended(processes)
