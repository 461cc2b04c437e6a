"""Jobs: one piece of work in a fresh process each, its errors as they were, deaths counted, nothing left running.

The same checks for processes and for Ray: a runner is what passes them.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger import Unavailable
from marin.errors import UsageError
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job, Resources, reference

REPOSITORY = Path(__file__).resolve().parents[3]

WORK = """
import json, os, pathlib, sys, time
from marin.errors import DataError

def describe(payload):
    print("a word on stdout is no result")
    return json.dumps({"payload": payload.decode(), "pid": os.getpid(), "flag": os.environ.get("XLA_FLAGS"),
                       "address": os.environ.get("MARIN_RAY_ADDRESS", ""),
                       "heavy": sorted({"jax", "mlflow"} & set(sys.modules))}).encode()

def refuse(payload):
    raise DataError("not this", where="here", expected="that", found="this", cure="another")

def stumble(payload):
    raise ZeroDivisionError("by nothing")

def die_twice(payload):
    folder = pathlib.Path(payload.decode())
    (folder / f"try-{os.getpid()}").touch()
    if len(list(folder.glob("try-*"))) < 3:
        os.kill(os.getpid(), 9)
    return b"third"

def record(payload):
    from ledger import Draft
    from marin.record.root import open_root
    (receipt,) = open_root(payload.decode()).append([Draft("note/v1", "notes", {"by": "a job"})])
    return str(receipt.index).encode()

def die(payload):
    os.kill(os.getpid(), 9)

def hang(payload):
    pathlib.Path(payload.decode()).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)
"""

RUN = """
import json, pathlib, sys, time
from concurrent.futures import CancelledError
import work
from ledger import Unavailable
from marin.errors import DataError, StepFailed
from marin.runners.ray.cluster import descendants
from marin.record.root import create_root
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job, Resources
runner, folder = sys.argv[1], pathlib.Path(sys.argv[2])
report, seen = {}, []

def failure(future):
    try:
        future.result()
    except (DataError, StepFailed, Unavailable, CancelledError) as error:
        return f"{type(error).__name__}: {error}"

location = str(folder / "root")
create_root(location)
without_key = {"MARIN_KEY": "/nowhere"} if runner == "ray" else {}
with open_jobs(runner, cpus=2, root=location) as jobs:
    records = [jobs.submit(Job(f"record {i}", work.record, location.encode(), environment=without_key)) for i in range(2)]
    report["recorded"] = sorted(int(future.result()) for future in records)
    beside = jobs.submit(Job("beside", work.describe, b"beside", launches=True)).result()
    report["beside"] = json.loads(beside)["address"]
    several = [jobs.submit(Job(f"describe {i}", work.describe, str(i).encode(), environment={"XLA_FLAGS": f"flag {i}"}))
               for i in range(3)]
    report["described"] = [json.loads(future.result()) for future in several]
    report["refused"] = failure(jobs.submit(Job("refuse", work.refuse, b"")))
    report["stumbled"] = failure(jobs.submit(Job("stumble", work.stumble, b"")))
    future = jobs.submit(Job("twice", work.die_twice, str(folder).encode(), retries=2, observe=seen.append))
    report["twice"] = future.result().decode()
    report["attempts"] = [[attempt.number, attempt.death] for attempt in future.attempts]
    report["observed"] = [attempt.number for attempt in seen]
    report["gave up"] = failure(jobs.submit(Job("die", work.die, b"", retries=1)))
    report["too much"] = ""
    try:
        jobs.submit(Job("large", work.describe, b"", Resources(cpus=3)))
    except Unavailable as error:
        report["too much"] = str(error)
    def hanging(name):
        future = jobs.submit(Job(name, work.hang, str(folder / name).encode()))
        while not (folder / name).exists() or not (folder / name).read_text():
            time.sleep(0.01)
        return future
    cancelled = hanging("cancelled")
    report["cancel"] = cancelled.cancel()
    report["cancelled"] = failure(cancelled)
    report["cancel again"] = cancelled.cancel()
    dropped = hanging("dropped")
report["dropped"] = failure(dropped)
report["left"] = sorted(descendants())
sys.stdout.write(json.dumps(report))
"""


@pytest.fixture(scope="module", params=["local", "ray"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process saw that put each kind of job through one runner."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY")}
    environment |= {
        "PYTHONPATH": f"{REPOSITORY}:{folder}",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, request.param, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found | {"runner": request.param}


def test_each_job_has_a_fresh_process_and_its_own_environment(report: dict[str, Any]) -> None:
    described = report["described"]
    assert [item["payload"] for item in described] == ["0", "1", "2"]
    assert [item["flag"] for item in described] == ["flag 0", "flag 1", "flag 2"]
    assert len({item["pid"] for item in described}) == 3
    assert all(item["heavy"] == [] for item in described), "nothing is imported before the job's own code"


def test_errors_arrive_as_what_they_were(report: dict[str, Any]) -> None:
    assert report["refused"] == "DataError: not this: here: expected that, found this; another"
    assert report["stumbled"].startswith("StepFailed: the job stopped")
    assert "ZeroDivisionError: by nothing" in report["stumbled"]


def test_a_process_that_dies_is_replaced_and_each_death_is_told(report: dict[str, Any]) -> None:
    assert report["twice"] == "third"
    assert [number for number, _ in report["attempts"]] == [1, 2, 3]
    assert [bool(death) for _, death in report["attempts"]] == [True, True, False]
    assert report["observed"] == [1, 2]


def test_retries_are_bounded_and_say_why_they_gave_up(report: dict[str, Any]) -> None:
    assert report["gave up"].startswith(
        "Unavailable: a job's process died again and again: job die: expected at most 1 restarts"
    )
    assert "attempt 1: " in report["gave up"] and "attempt 2: " in report["gave up"]
    assert "attempt 3" not in report["gave up"]


def test_a_job_that_can_never_run_is_refused_at_once(report: dict[str, Any]) -> None:
    assert report["too much"].startswith("a job needs more than ")


def test_cancelling_ends_the_process(report: dict[str, Any]) -> None:
    assert report["cancel"] is True
    assert report["cancelled"].startswith("CancelledError")
    assert report["cancel again"] is False
    assert report["dropped"].startswith("CancelledError")
    assert report["left"] == []


def test_jobs_record_through_the_one_writer_and_need_no_key(report: dict[str, Any]) -> None:
    assert report["recorded"] == [0, 1]


def test_a_job_that_launches_others_is_told_where_the_ray_is(report: dict[str, Any]) -> None:
    assert report["beside"].startswith("127.0.0.1:" if report["runner"] == "ray" else "")
    assert bool(report["beside"]) == (report["runner"] == "ray")


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


def test_a_job_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK, encoding="utf-8")
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
    assert select.select([descriptor], [], [], 60)[0], "the child has seen that its parent is gone"
    os.close(descriptor)
