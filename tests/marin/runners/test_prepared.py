"""Jobs that are alike: forks of one process, which has prepared what they need; each as alone as in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import job_work
import pytest

from ledger import Unavailable
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job, JobRunner

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parent)}


@pytest.fixture
def jobs() -> Iterator[JobRunner]:
    opened: AbstractContextManager[JobRunner] = open_jobs("local", cpus=1)
    with opened as jobs:
        yield jobs


def alike(function: Any, payload: bytes, key: str = "one", **more: Any) -> Job:
    return Job(
        "job", function, payload, **{"environment": ENVIRONMENT, "prepare": job_work.prepare, "alike": key} | more
    )


def described(jobs: JobRunner, job: Job) -> tuple[int, int, list[str]]:
    process, parent, prepared = json.loads(jobs.submit(job).result())
    return process, parent, prepared


def test_alike_jobs_are_forks_of_one_process_that_prepared_once_for_each(jobs: JobRunner) -> None:
    first, second = (described(jobs, alike(job_work.describe, payload)) for payload in (b"a", b"b"))
    assert first[0] != second[0] and first[1] == second[1] != os.getpid()
    assert (first[2], second[2]) == (["a"], ["a", "b"])
    assert described(jobs, alike(job_work.describe, b"c", "other"))[1:] != (first[1], ["a", "b", "c"])
    other = described(jobs, alike(job_work.describe, b"d", environment=ENVIRONMENT | {"XLA_FLAGS": "x"}))
    assert other[1] != first[1] and other[2] == ["d"], "another environment is another process"
    alone = described(jobs, Job("alone", job_work.describe, b"", environment=ENVIRONMENT))
    assert alone[1] == os.getpid() and alone[2] == []


@pytest.mark.parametrize("key", ["", "one"])
def test_what_is_to_be_done_at_the_end_of_a_process_is_done(tmp_path: Path, key: str) -> None:
    opened: AbstractContextManager[JobRunner] = open_jobs("local", cpus=1)
    with opened as jobs:
        for name in ("a", "b"):
            assert jobs.submit(alike(job_work.leave_slowly, bytes(tmp_path / name), key)).result() == b"answered"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("status", "told"),
    [(-9, "killed by SIGKILL"), (-15, "killed by SIGTERM"), (3, "exit status 3"), (0, "without an answer")],
)
def test_a_fork_that_dies_is_told_as_a_process_that_dies(jobs: JobRunner, status: int, told: str) -> None:
    before = described(jobs, alike(job_work.describe, b"a"))
    with pytest.raises(Unavailable, match=told):
        jobs.submit(alike(job_work.end, str(status).encode(), retries=0)).result()
    after = described(jobs, alike(job_work.describe, b"b"))
    assert after[1] != before[1] and after[2] == ["b"], "the process ended with its fork, and the next job has another"


def test_who_is_asked_to_end_may_put_things_away_first(jobs: JobRunner, tmp_path: Path) -> None:
    future = jobs.submit(alike(job_work.hang, str(tmp_path).encode()))
    while not (tmp_path / "begun").exists() or not (tmp_path / "begun").read_text():
        assert not future.done()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert (tmp_path / "ended").exists()
    assert described(jobs, alike(job_work.describe, b"x"))[2] == ["x"]


def test_what_cannot_be_prepared_is_the_jobs_own_answer(jobs: JobRunner) -> None:
    assert described(jobs, alike(job_work.describe, b"\xff"))[2] == []
