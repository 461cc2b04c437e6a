"""The runner on Ray (docs.ray.io, 2.60): warm worker processes of a local Ray that lives as long as one ``run``.

The Ray listens on the loopback address, without a dashboard, and asks for a token that is drawn for this occasion and
is known to this process and its children only. When ``run`` ends, so do all its processes: they are waited for, not
only asked. If this process is killed (SIGKILL), Ray ends them by itself, the last of them within about a minute. Workers
inherit this process's environment, and with it the arithmetic contract that was put in force here.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ledger import Unavailable
from marin.runners import Start

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 80 << 20
"""Tasks and results are kilobytes; this is about the least that Ray accepts."""
RESTARTS = 2
"""How often a worker that died is started again, and its task with it, before it counts as a failure."""
PATIENCE_SECONDS = 20.0
"""How long the processes of a stopped Ray may take to end before they are killed."""


class RayRunner:
    """:class:`marin.runners.Runner` on ``workers`` processes of a Ray of its own."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @contextmanager
    def run(self, start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[Iterator[bytes]]:
        """The results in order. Workers take the next task as soon as they have finished one. Standard output is the
        caller's data, and Ray tells there of every worker that dies: meanwhile it is stderr."""
        count = max(1, min(self.workers, len(tasks)))
        with redirect_stdout(sys.stderr), _environment(_variables()), _local_ray(count) as ray:
            kind = ray.remote(num_cpus=1, max_restarts=RESTARTS, max_task_retries=RESTARTS)(_Worker)
            pool = [kind.remote(start, setup) for _ in range(count)]
            yield _in_order(ray, pool, tasks)


class _Worker:
    """The actor: a started piece of work that takes tasks."""

    def __init__(self, start: Start, setup: bytes) -> None:
        self._work = start(setup)

    def do(self, task: bytes) -> bytes:
        """One task."""
        return self._work(task)


def _in_order(ray: Any, pool: Sequence[Any], tasks: Sequence[bytes]) -> Iterator[bytes]:
    """Hand tasks to whoever is free, in order, and give the results out in order too."""
    idle = list(pool)
    running: dict[Any, tuple[int, Any]] = {}
    ready: dict[int, bytes] = {}
    following = 0
    for wanted in range(len(tasks)):
        while wanted not in ready:
            while idle and following < len(tasks):
                worker = idle.pop()
                running[worker.do.remote(tasks[following])] = (following, worker)
                following += 1
            (done,), _ = ray.wait(list(running), num_returns=1)
            number, worker = running.pop(done)
            idle.append(worker)
            try:
                ready[number] = ray.get(done)
            except ray.exceptions.RayActorError as error:
                raise Unavailable("a worker died again and again", where=f"task {number} of {len(tasks)}",
                                  expected=f"at most {RESTARTS} restarts", found=" ".join(str(error).split())[:300],
                                  cure="use fewer workers: each holds the whole state in memory") from error
        yield ready.pop(wanted)


@contextmanager
def _local_ray(workers: int) -> Iterator[Any]:
    """Ray with ``workers`` slots on this machine; when the block ends, none of its processes is left."""
    try:
        import ray
    except ImportError as error:
        raise Unavailable("Ray is not installed", where="more than one worker", expected="the locked ray",
                          found=str(error), cure="install the locked requirements, or use one worker") from error
    before = _descendants()
    with TemporaryDirectory(prefix="marin-ray-", ignore_cleanup_errors=True) as folder:
        try:
            try:
                ray.init(address="local", num_cpus=workers, num_gpus=0, include_dashboard=False, log_to_driver=False,
                         logging_level=logging.ERROR, object_store_memory=OBJECT_STORE_BYTES, _temp_dir=folder,
                         _node_ip_address=LOOPBACK)
            except (RuntimeError, OSError, ValueError, TimeoutError) as error:
                raise Unavailable("Ray does not start", where=LOOPBACK, expected=f"{workers} workers",
                                  found=" ".join(str(error).split())[:300], cure="use one worker") from error
            logger.debug("a Ray with %d workers is up", workers)
            yield ray
        finally:
            with _ended(_descendants() - before):
                ray.shutdown()


def _variables() -> Mapping[str, str]:
    """What Ray reads when it is imported and started: a token of our own, no reports to anybody, workers that are as
    welcome to the processor as this process is (Ray would make them nice by 15), and no address but the loopback one
    (whatever its name says, the last variable is asked on Linux too; ``_node_ip_address`` alone is turned into the
    machine's outer address)."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """``values`` in the environment of this process and of what it starts, and nothing of them afterwards."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _descendants() -> set[int]:
    """Processes below this one, from /proc; empty where there is none."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):  # ended meanwhile
            parent = int(entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found: set[int] = set()
    front = [os.getpid()]
    while front:
        below = children.get(front.pop(), [])
        found.update(below)
        front += below
    return found


@contextmanager
def _ended(processes: set[int]) -> Iterator[None]:
    """After the block, wait until ``processes`` have ended, and kill those that do not. They are held by descriptors
    (pidfd_open) taken before, so that a number that was given to a new process can not be meant."""
    held: list[int] = []
    for process in processes:
        with suppress(OSError):
            held.append(os.pidfd_open(process))
    try:
        yield
    finally:
        deadline = time.monotonic() + PATIENCE_SECONDS
        for descriptor in held:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                with suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], PATIENCE_SECONDS)
            os.close(descriptor)
