"""Everything that a training on Ray consists of, killed (SIGKILL) at moments drawn from a seed; and what is left goes
on.

    make survival            SURVIVAL_SEED=7 make survival       SURVIVAL_ROUNDS=10 make survival

Each time the run must end with the bits of an undisturbed training in one process, with every acknowledged event, with
each train step recorded, and with every death in the ledger.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from raytraining import (
    CONTROLLER,
    HEAD,
    WORKER,
    WRITER,
    RayTraining,
    bodies,
    events,
    longer,
    nothing_left,
    processes,
    trained_digest,
    training,
)

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.survival

SEED = int(os.environ.get("SURVIVAL_SEED", "1"))
ROUNDS = int(os.environ.get("SURVIVAL_ROUNDS", "2"))
STEPS, SEGMENT = 144, 9  # so long that a kill or a signal finds it at work
SEGMENTS = STEPS // SEGMENT
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
REAP_SECONDS = 120.0
"""Within which a Ray whose driver was killed ends by itself."""


@pytest.fixture(scope="module")
def undisturbed(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, str]]:
    """A project whose training is not done, and the bits that it has to end with."""
    project = longer(trained.copy(tmp_path_factory.mktemp("undisturbed")), STEPS, SEGMENT)
    alone = project.copy(tmp_path_factory.mktemp("alone"))
    done = alone.marin("stage", "train")
    assert done.returncode == 0, done.stderr
    yield project, trained_digest(alone)


@pytest.fixture
def project(undisturbed: tuple[Project, str], tmp_path: Path) -> Project:
    return undisturbed[0].copy(tmp_path)


def segments(project: Project) -> list[tuple[int, int]]:
    """The recorded segments of the training that is under test."""
    run = bodies(project, "run.started/v1")[-1]["run"]
    return [(body["start"], body["end"]) for body in bodies(project, "train.segment/v1") if body["run"] == run]


def whole(project: Project, expected: str) -> None:
    """The bits, the chain, and that the log is sound."""
    assert trained_digest(project) == expected
    assert sorted(set(segments(project))) == [(n * SEGMENT, (n + 1) * SEGMENT) for n in range(SEGMENTS)]
    assert [body for body in bodies(project, "step.completed/v1") if body["step"] == "train"]
    done = project.marin("ledger", "fsck")
    assert done.returncode == 0, done.stdout + done.stderr
    verified = project.marin("verify", "latest", "--only", "ledger,artifacts", "--no-record")
    assert "ledger" in verified.stdout and "FAIL" not in verified.stdout, verified.stdout


def moment(run: RayTraining, chosen: random.Random) -> bool:
    """Wait for a moment: some segments more than there are, and then a little. False when the training ended first."""
    wanted = len(segments(run.project)) + chosen.randint(1, 4)
    delay = chosen.uniform(0.0, 0.5)
    reached = run.until(lambda: len(segments(run.project)) >= wanted)
    time.sleep(delay)  # the moment itself is random, nothing waits for it
    return reached


@pytest.mark.parametrize("number", range(ROUNDS))
def test_killed_at_random_moments(undisturbed: tuple[Project, str], project: Project, number: int) -> None:
    chosen = random.Random(1000 * SEED + number)
    victims = ["worker", "writer", "all workers", "driver"]
    chosen.shuffle(victims)
    killed: list[str] = []
    drivers = 1
    while True:
        with training(project) as run:
            while victims and moment(run, chosen):
                victim = victims.pop()
                acknowledged, deaths = len(events(project)), len(bodies(project, "step.preempted/v1"))
                if victim == "driver":
                    run.process.kill()
                    run.process.wait()
                elif not run.kill({"writer": WRITER}.get(victim, WORKER), 0 if victim == "all workers" else 1):
                    continue
                killed.append(victim)
                assert len(events(project)) >= acknowledged
                if victim == "driver":
                    break
                if victim != "writer":  # the next victim is one of the next launch
                    run.until_recorded("step.preempted/v1", deaths + 1)
            status, told = run.ended()
        if status == 0:
            break
        assert killed[-1] == "driver", told
        assert nothing_left(project, REAP_SECONDS), processes(project)
        drivers += 1
    whole(project, undisturbed[1])
    assert nothing_left(project)
    workers = [victim for victim in killed if "worker" in victim]
    preempted = bodies(project, "step.preempted/v1")
    assert len(preempted) >= len(workers), (killed, preempted)
    attempts = [body["attempt"] for body in bodies(project, "step.started/v1") if body["step"] == "train"]
    assert attempts[-1] == drivers, (killed, attempts)
    assert killed, "nothing was killed: make the training longer"


def test_the_controller_and_the_head_die(undisturbed: tuple[Project, str], project: Project) -> None:
    chosen = random.Random(SEED)
    drivers = 1
    with training(project) as run:
        assert moment(run, chosen)
        assert run.kill(CONTROLLER)
        assert run.until_recorded("step.preempted/v1", 1)
        assert moment(run, chosen)
        assert run.kill(HEAD)
        status, told = run.ended()
    if status != 0:  # Ray ends a driver that has lost its head: the next call goes on
        assert nothing_left(project, REAP_SECONDS), processes(project)
        drivers = 2
        done = project.marin("stage", "train", "--runner", "ray", "--processes", "2", "--devices", "8")
        assert done.returncode == 0, done.stderr + told
    whole(project, undisturbed[1])
    assert nothing_left(project)
    assert bodies(project, "step.started/v1")[-1]["attempt"] == drivers


@pytest.mark.parametrize("count", [1, 2])
def test_a_driver_that_is_asked_to_stop_loses_no_step(
    undisturbed: tuple[Project, str], project: Project, count: int
) -> None:
    longer(project, STEPS, STEPS)  # one segment: what is saved on the way is saved for the signal
    with training(project, processes=count, devices=4 * count) as run:
        assert run.until_recorded("train.started/v1", len(bodies(project, "train.started/v1")) + 1)
        run.process.send_signal(signal.SIGTERM)
        status, told = run.ended()
    assert status == 130, told
    assert "training was asked to stop" in told and "Traceback" not in told, told
    ((start, end),) = segments(project)
    assert start == 0 < end < STEPS, "the step that ran was ended and recorded"
    assert nothing_left(project)
    done = project.marin("stage", "train", "--runner", "ray", "--processes", "1", "--devices", "4")
    assert done.returncode == 0, done.stderr
    assert segments(project) == [(0, end), (end, STEPS)]
    assert trained_digest(project) == undisturbed[1], "where it was stopped decides no bit"


def test_retries_are_bounded_and_say_why(project: Project) -> None:
    with training(project, "--retries", "1") as run:
        for death in (1, 2):
            assert run.until(lambda: bool(processes(project, WORKER)))
            run.kill(WORKER, 0)
            run.until_recorded("step.preempted/v1", death)
        status, told = run.ended()
    assert status == 3, told
    assert "training died again and again" in told and "at most 1 deaths in a row" in told, told
    found = told.partition("found 1: ")[2].partition("; mend")[0]  # workers, or the group of them that never came up
    first, _, second = found.partition("; 2: ")
    assert all("worker" in death.lower() and (": " in death or "SYSTEM_ERROR" in death) for death in (first, second)), (
        told
    )
    assert [body["again"] for body in bodies(project, "step.preempted/v1")] == [True, False]
    assert "again and again" in bodies(project, "step.failed/v1")[-1]["error"]
    assert nothing_left(project)


AS_ANOTHER_MACHINE = """
import sys, ray._private.services as services
services.resolve_ip_for_localhost = lambda host: host  # otherwise a loopback address becomes that of a network card
from ray.scripts.scripts import main
sys.argv[0] = "ray"
main()
"""


@contextmanager
def loopback_alone() -> Iterator[None]:
    """A network namespace for this thread and what it starts, with the loopback interface and nothing else: a raylet
    that is not at 127.0.0.1 listens on every interface that there is."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        os.unshare(os.CLONE_NEWNET)
    except PermissionError:
        pytest.skip("needs a network namespace, which only root makes here")
    try:
        with socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM
        ) as any_socket:  # netdevice(7): struct ifreq, name and flags
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP | IFF_RUNNING))
        yield
    finally:
        os.setns(before, os.CLONE_NEWNET)
        os.close(before)


@contextmanager
def cluster(project: Project) -> Iterator[tuple[str, dict[str, str], str]]:
    """Two machines on one: a head and a second node with one processor each, as `ray start` makes them; ended
    afterwards. Gives the address, the environment for anyone who uses it, and the second node's raylet as it is found in
    /proc."""
    folder = Path(tempfile.mkdtemp(prefix="marin-cluster-"))  # Ray's sockets lie in it, and their paths must be short
    environment = project.environment() | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "f" * 64,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_health_check_initial_delay_ms": "0",
        "RAY_health_check_period_ms": "1000",
    }
    ray = [
        sys.executable,
        "-c",
        AS_ANOTHER_MACHINE,
        "start",
        "--num-cpus=1",
        "--num-gpus=0",
        "--object-store-memory=80000000",
        "--disable-usage-stats",
    ]

    def started(*arguments: str, **variables: str) -> None:
        done = subprocess.run(
            [*ray, *arguments], env=environment | variables, cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr

    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    try:
        started(
            "--head",
            "--include-dashboard=false",
            f"--port={port}",
            "--node-ip-address=127.0.0.1",
            f"--temp-dir={folder}",
        )
        first = set(processes(project, "raylet/raylet"))
        # Only a machine of its own may join, and this address is another one; it too is the loopback interface's.
        started(f"--address=127.0.0.1:{port}", "--node-ip-address=127.0.0.2", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1")
        (second,) = set(processes(project, "raylet/raylet")) - first
        yield f"127.0.0.1:{port}", environment, str(second)
    finally:
        for number in processes(project):
            os.kill(number, 9)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_machine_is_lost_and_the_rest_goes_on(undisturbed: tuple[Project, str], project: Project) -> None:
    with (
        loopback_alone(),
        cluster(project) as (address, environment, second),
        training(project, "--address", address, environment=environment) as run,
    ):
        assert run.until(lambda: len(segments(project)) >= 3)
        os.kill(int(second), 9)
        status, told = run.ended()
    assert status == 0, told
    whole(project, undisturbed[1])
    shapes = [(body["processes"], body["devices"]) for body in bodies(project, "train.started/v1")]
    assert shapes[-2:] == [(2, 8), (1, 4)], "what is left is one process with its four devices"


EXPERIMENT = """
import os
from marin.graph import Result, Step

def count(context):
    return {"letters": context.config["letters"], "ray": "RAY_JOB_ID" in os.environ}

def tell(context):
    (context.out / "report.md").write_text(f"{context.inputs['counts'].value['letters']} letters")
    return Result(kind="report", metrics={"letters": context.inputs["counts"].value["letters"]})

counts = Step("counts/x", count, {"letters": 26})
steps = [Step("report/x", tell, {}, {"counts": counts})]
"""


def ours_on(project: Project) -> list[str]:
    """What runs on the cluster for somebody: workers that are not idle, apart from a node's agents and what Ray Train
    leaves."""
    return [
        line
        for line in processes(project, "ray::").values()
        if not line.startswith(
            (
                "ray::IDLE",
                "ray::DashboardAgent",
                "ray::RuntimeEnvAgent",
                "ray::TrainStateActor",
                "ray::_AutoscalingCoordinatorActor",
            )
        )
    ]


def quiet(project: Project) -> bool:
    """Whether the cluster comes to rest: what a driver had there ends soon after it."""
    deadline = time.monotonic() + REAP_SECONDS
    while ours_on(project) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not ours_on(project)


def test_a_cluster_is_used_and_left_as_it_was(undisturbed: tuple[Project, str], project: Project) -> None:
    (project.folder / "letters.py").write_text(EXPERIMENT, encoding="utf-8")
    with loopback_alone(), cluster(project) as (address, environment, _):
        nodes = set(processes(project, "raylet/raylet")) | set(processes(project, HEAD))

        def marin(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
            program = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
            return subprocess.run(
                [sys.executable, "-c", program, *arguments, "--address", address],
                cwd=project.folder,
                env=environment | variables,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )

        stranger = marin("run", "letters.py", "--runner", "ray", RAY_AUTH_TOKEN="0" * 64)
        assert stranger.returncode == 3 and "no Ray cluster answers" in stranger.stderr, stranger.stderr
        assert "Traceback" not in stranger.stderr
        done = marin("run", "letters.py", "--runner", "ray", "--json")
        assert done.returncode == 0, done.stderr
        assert quiet(project), ours_on(project)
        trained = marin("stage", "train", "--runner", "ray", "--processes", "2", "--devices", "8")
        assert trained.returncode == 0, trained.stderr
        whole(project, undisturbed[1])
        assert quiet(project), ours_on(project)
        verified = marin("-q", "verify", "latest", "--only", "data,training", "--workers", "2", "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert '"training":{"mode":"full"' in verified.stdout.replace(" ", "").replace("\n", ""), verified.stdout
        assert quiet(project), ours_on(project)
        assert nodes <= set(processes(project)), "the cluster is as it was"
    assert nothing_left(project)
