"""Jobs: one piece of work in a fresh process each, its errors as they were, deaths counted, nothing left running.

The same checks for processes and for Ray: a runner is what passes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.connection import wait as ready
from pathlib import Path
from typing import Any

import pytest

from ledger import Unavailable
from marin.errors import UsageError
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job, reference
from marin.runners.resources import Resources

REPOSITORY = Path(__file__).resolve().parents[3]


def test_each_job_has_a_fresh_process_and_its_own_environment(jobs_report: dict[str, Any]) -> None:
    described = jobs_report["described"]
    assert [item["payload"] for item in described] == ["0", "1", "2"]
    assert [item["flag"] for item in described] == ["flag 0", "flag 1", "flag 2"]
    assert len({item["pid"] for item in described}) == 3
    assert all(item["heavy"] == [] for item in described), "nothing is imported before the job's own code"


def test_errors_arrive_as_what_they_were(jobs_report: dict[str, Any]) -> None:
    assert jobs_report["refused"] == "DataError: not this: here: expected that, found this; another"
    assert jobs_report["stumbled"].startswith("StepFailed: the job stopped")
    assert "ZeroDivisionError: by nothing" in jobs_report["stumbled"]


def test_a_process_that_dies_is_replaced_and_each_death_is_told(jobs_report: dict[str, Any]) -> None:
    assert jobs_report["twice"] == "third"
    assert [number for number, _ in jobs_report["attempts"]] == [1, 2, 3]
    assert [bool(death) for _, death in jobs_report["attempts"]] == [True, True, False]
    assert jobs_report["observed"] == [1, 2]


def test_retries_are_bounded_and_say_why_they_gave_up(jobs_report: dict[str, Any]) -> None:
    assert jobs_report["gave up"].startswith(
        "Unavailable: a job's process died again and again: job die: expected at most 1 restarts"
    )
    assert "attempt 1: " in jobs_report["gave up"] and "attempt 2: " in jobs_report["gave up"]
    assert "attempt 3" not in jobs_report["gave up"]


def test_a_job_that_can_never_run_is_refused_at_once(jobs_report: dict[str, Any]) -> None:
    assert jobs_report["too much"].startswith("a job needs more than ")


def test_cancelling_ends_the_process(jobs_report: dict[str, Any]) -> None:
    assert jobs_report["cancel"] is True
    assert jobs_report["cancelled"].startswith("CancelledError")
    assert jobs_report["cancel again"] is False
    assert jobs_report["dropped"].startswith("CancelledError")
    assert jobs_report["left"] == []


def test_jobs_record_through_the_one_writer_and_need_no_key(jobs_report: dict[str, Any]) -> None:
    assert jobs_report["recorded"] == [0, 1]


def test_a_job_that_launches_others_is_told_where_the_ray_is(jobs_report: dict[str, Any]) -> None:
    assert jobs_report["beside"].startswith("127.0.0.1:" if jobs_report["runner"] == "ray" else "")
    assert bool(jobs_report["beside"]) == (jobs_report["runner"] == "ray")


def test_only_functions_that_have_a_name_are_taken() -> None:
    def inner(payload: bytes) -> bytes:
        return payload

    for function in (inner, lambda payload: payload):
        with pytest.raises(UsageError, match="another process can find"):
            reference(function)
    with open_jobs("local", cpus=1) as jobs, pytest.raises(UsageError):
        jobs.submit(Job("inner", inner, b""))


def test_resources_are_never_negative() -> None:
    with pytest.raises(UsageError, match="negative"):
        Resources(cpus=-1)
    with open_jobs("local", cpus=1) as jobs, pytest.raises(Unavailable, match="this machine has"):
        jobs.submit(Job("gpu", reference_target, b"", Resources(gpus=1)))


def reference_target(payload: bytes) -> bytes:
    """A function with a name."""
    return payload


HANG = """
import os, pathlib, time

def hang(payload):
    pathlib.Path(payload.decode()).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)
"""


def test_a_job_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(HANG, encoding="utf-8")
    program = (
        "import sys, work\nfrom marin.runners.engines import open_jobs\nfrom marin.runners.jobs import Job\n"
        "with open_jobs('local', cpus=1) as jobs:\n"
        "    jobs.submit(Job('hang', work.hang, sys.argv[1].encode())).result()\n"
    )
    mark = tmp_path / "pid"
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
    with subprocess.Popen([sys.executable, "-c", program, str(mark)], env=environment, cwd=tmp_path) as parent:
        while not mark.exists() or not mark.read_text():
            assert parent.poll() is None
        descriptor = os.pidfd_open(int(mark.read_text()))
        parent.kill()
    assert ready([descriptor], 60), "the child has seen that its parent is gone"
    os.close(descriptor)
