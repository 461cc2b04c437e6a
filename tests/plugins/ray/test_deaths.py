"""What a ledger is told of a death: its kind, never the machine's name, an address or a path. The errors are Ray's
own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback, WorkerHealthCheckFailedError

from marin.plugins.ray.deaths import describe_death, redact


def test_a_killed_worker() -> None:
    context = ActorDiedErrorContext(
        error_message="The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
        "see /tmp/ray/session_1/logs",
        class_name="RayTrainWorker",
        node_ip_address="10.1.2.3",
        pid=4,
        actor_id=b"a" * 16,
    )
    death = ActorDiedError(context)
    assert "10.1.2.3" in str(death), "Ray says more than a ledger should"
    error = WorkerHealthCheckFailedError(f"A worker health check failed: hostname='{socket.gethostname()}'", death)
    assert describe_death(error) == "WorkerHealthCheckFailedError from ActorDiedError (SYSTEM_ERROR)"


def test_a_worker_that_ended_itself_said_why(tmp_path: Path) -> None:
    death = ActorDiedError(
        ActorDiedErrorContext(
            error_message="Worker exit type: SYSTEM_ERROR Worker exit detail: ...",
            class_name="RayTrainWorker",
            pid=47,
            actor_id=b"a" * 16,
        )
    )
    (tmp_path / "worker-aa-01000000-7.err").write_text("F0000 00:00:00.1 7 other.cc:1] not this process\n")
    (tmp_path / "worker-aa-01000000-47.err").write_text(
        "[Gloo] Rank 0 is connected\nF1121 21:00:00.1 47 client.h:80] Terminating process because 10.1.2.3:4567 is gone\nbye\n"
    )
    assert describe_death(death, tmp_path) == (
        "ActorDiedError (SYSTEM_ERROR: F1121 21:00:00.1 47 client.h:80] Terminating process because (address) is gone)"
    )
    (tmp_path / "worker-aa-01000000-47.err").write_text("[Gloo] Rank 0 is connected\n")
    assert describe_death(death, tmp_path) == describe_death(death) == "ActorDiedError (SYSTEM_ERROR)"


def test_an_error_of_the_training_itself() -> None:
    error = UserExceptionWithTraceback(
        RuntimeError("connection to 10.1.2.3:4567 lost in /home/ann/run.py"), "Traceback ..."
    )
    assert (
        describe_death(error) == "UserExceptionWithTraceback from RuntimeError: connection to (address) lost in (path)"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"node {'ab' * 28} is gone", "node (id) is gone"),
        (f"on {socket.gethostname()}:\n /var/log/x.txt", "on (host): (path)"),
        ("train step 3/40 of jax 0.11.2", "train step 3/40 of jax 0.11.2"),
    ],
)
def test_what_is_left_out(text: str, told: str) -> None:
    assert redact(text) == told
