"""One process for each runner, which puts every kind of job through it; and on the same Ray, tasks through warm workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sessions import made_once

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

WARM = """
import json, os, pathlib, sys

class Work:
    def __init__(self, setup):
        self.folder = pathlib.Path(setup.decode())
        (self.folder / f"started-{os.getpid()}").touch()

    def __call__(self, task):
        job = json.loads(task)
        if job["die"] == "always" or (job["die"] == "once" and not (self.folder / f"died-{job['number']}").exists()):
            (self.folder / f"died-{job['number']}").touch()
            os._exit(9)
        if job["die"] == "fails":
            raise ZeroDivisionError("by nothing")
        return json.dumps([job["number"], os.getpid(), os.environ.get("CONTRACT"), os.environ.get("RAY_AUTH_MODE")]).encode()

def start(setup):
    return Work(setup)
"""

JOBS = """
import json, pathlib, time
from concurrent.futures import CancelledError
import work
from ledger import Unavailable
from marin.errors import DataError, StepFailed
from marin.record.creation import create_root
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job
from marin.runners.resources import Resources

def jobs(runner, folder):
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
    return report
"""

TASKS = """
import contextlib, json, os, pathlib
import warm
from ledger import Unavailable
from marin.plugins.ray.cluster import descendants
from marin.plugins.ray.data import execute_by_data, import_data
from marin.plugins.ray.pool import RayRunner

def listening():
    sockets = set()
    for process in descendants():
        with contextlib.suppress(OSError):
            sockets |= {os.readlink(link) for link in pathlib.Path(f"/proc/{process}/fd").iterdir()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}

def tasks(folder):
    report, addresses = {"failure": None}, set()

    def run(name, *deaths):
        # one task per word, on two workers
        (folder / name).mkdir(parents=True)
        asked = [json.dumps({"number": i, "die": die}).encode() for i, die in enumerate(deaths)]
        results = report[name] = []
        with RayRunner(2).run(warm.start, str(folder / name).encode(), asked) as answers:
            for answer in answers:
                results.append(json.loads(answer))
                addresses.update(listening())

    run("dies once", "no", "once", "no", "no", "no")
    try:
        run("dies always", "no", "always")
    except Unavailable as error:
        report["failure"] = str(error)

    context = import_data().DataContext.get_current()
    context.max_errored_blocks, context.execution_options.preserve_order = -1, True  # this program's, for data sets of its own
    for name, deaths in (("by data", ("no", "once", "no")), ("by data, one fails", ("no", "fails", "no"))):
        (folder / name).mkdir()
        asked = [json.dumps({"number": i, "die": die}).encode() for i, die in enumerate(deaths)]
        try:
            report[name] = sorted(number for number, _ in execute_by_data(warm.start, str(folder / name).encode(), asked, 2))
        except Unavailable as error:
            report[name] = str(error)
    report["context"] = [context.max_errored_blocks, context.execution_options.preserve_order]
    return report | {"addresses": sorted(addresses)}
"""

RUN = """
import contextlib, json, os, pathlib, sys
import ray  # before anybody could say what it should read
from run_jobs import jobs
from marin.plugins.ray.cluster import descendants, one_ray
runner, folder = sys.argv[1], pathlib.Path(sys.argv[2])
token = os.environ.get("RAY_AUTH_TOKEN")
with one_ray() if runner == "ray" else contextlib.nullcontext():
    report = {"jobs": jobs(runner, folder)}
    if runner == "ray":
        from run_tasks import tasks
        report["tasks"] = tasks(folder / "tasks")
if runner == "ray":
    from ray._private import ray_constants
    report["tasks"]["beyond this machine"] = ray_constants.ENABLE_RAY_CLUSTER
report |= {"left": sorted(descendants()), "driver": os.getpid(), "token": os.environ.get("RAY_AUTH_TOKEN") != token}
sys.stdout.write(json.dumps(report))
"""


def reported(runner: str, folder: Path) -> None:
    """What a process saw of a runner, in report.json. Its home and work are in ``folder``."""
    for name, text in (("work", WORK), ("warm", WARM), ("run_jobs", JOBS), ("run_tasks", TASKS)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    home = folder / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY")}
    environment |= {
        "PYTHONPATH": f"{REPOSITORY}:{folder}",
        "CONTRACT": "kept",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, runner, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1500,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.rglob("*token*")) == [], "the token is never written down"
    (folder / "report.json").write_text(done.stdout, encoding="utf-8")


def report_of(runner: str, factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The report of this session's process, and its folder."""
    folder = made_once(factory, f"runner-{runner}", lambda folder: reported(runner, folder))
    found = json.loads((folder / "report.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found, folder


@pytest.fixture(
    scope="session", params=["local", pytest.param("ray", marks=pytest.mark.long(together="jobs on Ray", seconds=60))]
)
def jobs_report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of each kind of job."""
    found, _ = report_of(request.param, tmp_path_factory)
    return {**found["jobs"], "left": found["left"], "runner": request.param}


@pytest.fixture(scope="session")
def tasks_report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of tasks that warm workers on Ray did, until one of them could not be done."""
    found, folder = report_of("ray", tmp_path_factory)
    names = [name for name in found["tasks"] if " " in name]
    started = {name: len(list((folder / "tasks" / name).glob("started-*"))) for name in names}
    return {**found, **found["tasks"], "started": started}
