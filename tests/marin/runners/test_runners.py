"""Runners: results in order from warm workers, deaths survived and bounded, nothing left running afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledger import Unavailable
from marin.runners.local import LocalRunner
from marin.runners.ray import cluster
from marin.runners.ray.cluster import connected, one_ray

REPOSITORY = Path(__file__).resolve().parents[3]

WORK = """
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
        return json.dumps([job["number"], os.getpid(), os.environ.get("CONTRACT"), os.environ.get("RAY_AUTH_MODE")]).encode()

def start(setup):
    return Work(setup)
"""

RUN = """
import contextlib, json, os, pathlib, sys
import work
from ledger import Unavailable
from marin.runners.ray.pool import RayRunner
from marin.runners.ray.cluster import descendants
from marin.runners.ray.cluster import one_ray
report, addresses = {}, set()

def listening():
    sockets = set()
    for process in descendants():
        with contextlib.suppress(OSError):
            sockets |= {os.readlink(link) for link in pathlib.Path(f"/proc/{process}/fd").iterdir()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}

def run(name, *deaths):
    # one task per word, on two workers
    folder = pathlib.Path(sys.argv[1], name)
    folder.mkdir()
    tasks = [json.dumps({"number": i, "die": die}).encode() for i, die in enumerate(deaths)]
    results = report[name] = []
    with RayRunner(2).run(work.start, str(folder).encode(), tasks) as answers:
        for answer in answers:
            results.append(json.loads(answer))
            addresses.update(listening())

with_token = os.environ.get("RAY_AUTH_TOKEN")
try:
    with one_ray():
        run("dies once", "no", "once", "no", "no", "no")
        report["failure"] = None
        run("dies always", "no", "always")
except Unavailable as error:
    report["failure"] = str(error)
sys.stdout.write(json.dumps(report | {"left": sorted(descendants()), "driver": os.getpid(), "addresses": sorted(addresses),
                                      "token": os.environ.get("RAY_AUTH_TOKEN") != with_token}))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process saw that had tasks done on a Ray of its own, until one of them could not be."""
    folder = tmp_path_factory.mktemp("runners")
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    home = folder / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY")}
    environment |= {"PYTHONPATH": f"{REPOSITORY}:{folder}", "CONTRACT": "kept", "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.rglob("*token*")) == [], "the token is never written down"
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found | {"started": {name: len(list((folder / name).glob("started-*"))) for name in found if " " in name}}


def test_the_local_runner_works_on_demand() -> None:
    asked: list[bytes] = []

    def start(setup: bytes):
        def work(task: bytes) -> bytes:
            asked.append(task)
            return setup + task

        return work

    with LocalRunner().run(start, b"s", [b"1", b"2", b"3"]) as results:
        assert [next(results), next(results)] == [b"s1", b"s2"]
    assert asked == [b"1", b"2"]


def test_one_worker_never_imports_ray() -> None:
    program = "import sys\nfrom marin.verify.segments.replay import runner\nrunner(1)\nsys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=False).returncode == 0


def test_ray_gives_results_in_order_and_survives_a_death(report: dict[str, Any]) -> None:
    results = report["dies once"]
    assert [number for number, *_ in results] == [0, 1, 2, 3, 4]
    assert {tuple(rest) for _, _, *rest in results} == {("kept", "token")}
    processes = {process for _, process, *_ in results}
    assert report["driver"] not in processes
    assert report["started"]["dies once"] == 3, "two workers and one successor: they stay warm"
    assert report["addresses"]
    assert all(str(address).endswith("0100007F") for address in report["addresses"]), (
        "127.0.0.1, as IPv4 or mapped into IPv6"
    )
    assert report["token"] is False, "the driver's environment is as it was"


def test_a_task_that_kills_every_worker_is_given_up_and_nothing_is_left(report: dict[str, Any]) -> None:
    assert "worker died" in str(report["failure"])
    assert report["started"]["dies always"] == 4, "two workers and two successors"
    assert report["left"] == []


def test_a_kept_ray_is_begun_when_it_is_wanted_and_ended_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    @contextmanager
    def begun(cpus: float) -> Iterator[str]:
        seen.append(f"begun with {cpus:g} CPUs")
        yield "ray"
        seen.append("ended")

    monkeypatch.setattr(cluster, "_own_ray", begun)
    with one_ray(), one_ray():
        assert seen == []
        for cpus in (2, 1):
            with connected(None, cpus=cpus) as ray:
                seen.append(ray)
    assert seen == ["begun with 2 CPUs", "ray", "ray", "ended"]
    with connected(None, cpus=3):
        pass
    assert seen[4:] == ["begun with 3 CPUs", "ended"], "nothing is kept after the block"


def test_a_cluster_without_authentication_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(Unavailable, match="without authentication") as refused, connected("127.0.0.1:6379", cpus=1):
        pass
    assert refused.value.exit_code == 3
    assert os.environ["RAY_AUTH_MODE"] == "disabled", "nothing of ours is left in the environment"
