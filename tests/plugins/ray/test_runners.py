"""Runners: results in order from warm workers, deaths survived and bounded, nothing left running afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledger import Unavailable
from marin.plugins.ray import cluster
from marin.plugins.ray.cluster import connect, one_ray
from marin.runners.workers import LocalRunner

REPOSITORY = Path(__file__).resolve().parents[3]


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


def test_workers_of_this_machine_never_import_ray() -> None:
    program = (
        "import sys\nfrom marin.runners.workers import warm_workers\nwarm_workers(1)\nwarm_workers(2)\n"
        "sys.exit('ray' in sys.modules or 'marin.plugins.ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=False).returncode == 0


@pytest.mark.long(together="jobs on Ray")
def test_ray_gives_results_in_order_and_survives_a_death(tasks_report: dict[str, Any]) -> None:
    results = tasks_report["dies once"]
    assert [number for number, *_ in results] == [0, 1, 2, 3, 4]
    assert {tuple(rest) for _, _, *rest in results} == {("kept", "token")}
    processes = {process for _, process, *_ in results}
    assert tasks_report["driver"] not in processes
    assert tasks_report["started"]["dies once"] == 3, "two workers and one successor: they stay warm"
    assert tasks_report["addresses"]
    assert all(str(address).endswith("0100007F") for address in tasks_report["addresses"]), (
        "127.0.0.1, as IPv4 or mapped into IPv6"
    )
    assert tasks_report["token"] is False, "the driver's environment is as it was"
    assert tasks_report["beyond this machine"] is True, "and what its own Ray would do"


@pytest.mark.long(together="jobs on Ray")
def test_a_task_that_kills_every_worker_is_given_up_and_nothing_is_left(tasks_report: dict[str, Any]) -> None:
    assert "worker died" in str(tasks_report["failure"])
    assert tasks_report["started"]["dies always"] == 4, "two workers and two successors"
    assert tasks_report["left"] == []


@pytest.mark.long(together="jobs on Ray")
def test_ray_data_leaves_no_task_out_whatever_the_program_allows_its_own_data_sets(
    tasks_report: dict[str, Any],
) -> None:
    assert tasks_report["by data"] == [0, 1, 2]
    assert "cannot go on" in str(tasks_report["by data, one fails"]), (
        "Ray Data would give the answers of the other blocks"
    )
    assert tasks_report["context"] == [-1, True], "and these stay the program's"


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
            with connect(None, cpus=cpus) as ray:
                seen.append(ray)
    assert seen == ["begun with 2 CPUs", "ray", "ray", "ended"]
    with connect(None, cpus=3):
        pass
    assert seen[4:] == ["begun with 3 CPUs", "ended"], "nothing is kept after the block"


def test_a_cluster_without_authentication_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(Unavailable, match="without authentication") as refused, connect("127.0.0.1:6379", cpus=1):
        pass
    assert refused.value.exit_code == 3
    assert os.environ["RAY_AUTH_MODE"] == "disabled", "nothing of ours is left in the environment"
