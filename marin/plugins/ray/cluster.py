"""A Ray to work on (docs.ray.io, 2.60): one of this process's own on the loopback address, or a cluster that exists.

A Ray of one's own listens on the loopback address, without a dashboard, and asks for a token that is drawn by this
process and is known to it and its children only. When the block ends, so do all its processes: they are
waited for, not only asked. SIGTERM and SIGHUP are KeyboardInterrupt meanwhile, where nobody else handles them, so that the
block ends. If this process is killed (SIGKILL), Ray ends them by itself, the last of them within about a minute. Workers
inherit this process's environment, and with it the arithmetic contract that was put in force here. A cluster keeps its own
token: ``RAY_AUTH_TOKEN``, ``RAY_AUTH_TOKEN_PATH`` or ``~/.ray/auth_token``, as Ray reads it.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ledger import Unavailable
from marin.plugins.ray.signals import own_signals
from marin.process.interruption import Attended, assert_handlers
from marin.process.running import environment
from marin.runners.reservation import available_gpus

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 80 << 20
"""Tasks and results are kilobytes; this is about the least that Ray accepts."""
STARTS = 3
"""How often a Ray of one's own is started before it counts as one that does not start."""
PATIENCE_SECONDS = 20.0
"""How long the processes of a stopped Ray may take to end before they are killed."""
ADDRESS_VARIABLE = "MARIN_RAY_ADDRESS"
"""Where a job that launches work of its own finds the Ray that it belongs to; set for it by the runner."""
NAMESPACE = "marin"
"""Where named actors of this product are found, whichever driver made them."""


@contextmanager
def connect(address: str | None, *, cpus: float) -> Iterator[Any]:
    """The module ``ray``, connected: to the cluster at ``address``, to that of the runner which started this process,
    or to a Ray of one's own with ``cpus`` slots and the GPUs of this machine. Standard output is the caller's data, and
    Ray tells there of every worker that dies: meanwhile it is stderr.

    Inside :func:`one_ray` it is the one of that block.

    Raises:
        Unavailable: Ray is not installed, does not start, or does not answer under that address; or this process is
            connected to one already.
    """
    if _shared and address is None:
        yield _shared[-1].ray(cpus)
        return
    given, address = address, address or os.environ.get(ADDRESS_VARIABLE)
    mode = os.environ.get("RAY_AUTH_MODE", "token")
    if address is not None and mode != "token":
        raise Unavailable(
            "a cluster without authentication is refused",
            where=address,
            expected="RAY_AUTH_MODE=token",
            found=f"RAY_AUTH_MODE={mode}",
            cure="start the cluster with a token (docs/cluster.md)",
        )
    variables = _own_variables() if address is None else {**_COMMON, "RAY_AUTH_MODE": "token"}
    with (
        Attended(),
        redirect_stdout(sys.stderr),
        _settings(variables),
        _own_ray(cpus) if address is None else _cluster(address, here=given is None) as ray,
    ):
        yield ray


@contextmanager
def _settings(variables: Mapping[str, str]) -> Iterator[None]:
    """``variables`` in force for Ray and what it starts, also where ``ray`` was imported before: some it reads when it is
    imported. Afterwards it is set as it was."""
    if import_ray().is_initialized():
        raise Unavailable(
            "this process is connected to a Ray already",
            where="the runner ray",
            expected="a process that is connected to none",
            found="one that called ray.init() by itself",
            cure="call ray.shutdown() first, or run the command in a process of its own with --address",
        )
    from ray._private import ray_constants
    from ray._private.authentication_test_utils import reset_auth_token_state

    before = ray_constants.ENABLE_RAY_CLUSTER
    try:
        with environment(variables):
            reset_auth_token_state()
            ray_constants.ENABLE_RAY_CLUSTER = (
                before and variables.get(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR) != "0"
            )
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        reset_auth_token_state()  # after the variables are as they were


class _LazyRay:
    """A Ray that is begun when it is first wanted, and ended with the block that keeps it."""

    def __init__(self, address: str | None, stack: ExitStack, least: float) -> None:
        self._address, self._stack, self._least = address, stack, least
        self._ray: Any = None

    def ray(self, cpus: float) -> Any:
        """The module, connected."""
        if self._ray is None:
            kept = _shared.pop()  # what is begun now is not the kept one's user
            try:
                self._ray = self._stack.enter_context(connect(self._address, cpus=max(cpus, self._least)))
            finally:
                _shared.append(kept)
        return self._ray


_shared: list[_LazyRay] = []


@contextmanager
def one_ray(address: str | None = None, *, cpus: float = 0) -> Iterator[None]:
    """All work of this process inside the block that names no address of its own is done on one Ray: the cluster at
    ``address``, or one of its own that is begun when it is first wanted, with the slots that are wanted then, and ``cpus``
    at least. From then on standard output is stderr until the block ends. A block inside a block changes nothing."""
    with Attended(), ExitStack() as stack:
        if not _shared:
            _shared.append(_LazyRay(address, stack, cpus))
            stack.callback(_shared.clear)
        yield


@contextmanager
def _cluster(address: str, *, here: bool) -> Iterator[Any]:
    ray = import_ray()
    try:
        with own_signals():
            ray.init(
                address=address,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=_interpreter() if here else None,
            )
    except Exception as error:  # whatever Ray meets: gRPC, sockets, its own
        raise Unavailable(
            "no Ray cluster answers",
            where=address,
            expected="a running head and its token",
            found=" ".join(str(error).split())[:300],
            cure="see docs/cluster.md; without --address a Ray of this machine is started",
        ) from error
    try:
        yield ray
    finally:
        _shut_down(ray)


def _shut_down(ray: Any) -> None:
    try:
        ray.shutdown()
    finally:
        assert_handlers()


@contextmanager
def _own_ray(cpus: float) -> Iterator[Any]:
    """Ray with ``cpus`` slots on this machine; when the block ends, none of its processes is left."""
    ray = import_ray()
    before = descendants()
    with TemporaryDirectory(prefix="marin-ray-", ignore_cleanup_errors=True) as folder:
        try:
            _start(ray, Path(folder), before, cpus)
            logger.debug("a Ray with %g CPUs is up", cpus)
            yield ray
        finally:
            with _ended(descendants() - before):
                _shut_down(ray)


def _start(ray: Any, folder: Path, before: set[int], cpus: float) -> None:
    """Start it; again when a part of it did not come up within Ray's own patience, which a busy machine exhausts."""
    for attempt in range(1, STARTS + 1):
        place = folder / str(attempt)
        place.mkdir()
        try:
            with own_signals():
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    num_gpus=available_gpus(),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(place),
                    _node_ip_address=LOOPBACK,
                    namespace=NAMESPACE,
                    runtime_env=_interpreter(),
                )
            return
        except Exception as error:  # Ray raises bare ones here
            found = " ".join(str(error).split())[-300:]
            logger.debug("Ray does not start (%d of %d): %s", attempt, STARTS, found)
            with _ended(descendants() - before):
                _shut_down(ray)
            if attempt == STARTS:
                raise Unavailable(
                    "Ray does not start",
                    where=LOOPBACK,
                    expected=f"{cpus:g} CPUs after {STARTS} attempts",
                    found=found,
                    cure="do without it: one worker, or --runner local",
                ) from error


def _interpreter() -> dict[str, str] | None:
    """The Python of workers on this machine, where its path means something to a shell: Ray hands it to bash as it is,
    and a worker with variables of its own would never start below a folder whose name has a space."""
    quoted = shlex.quote(sys.executable)
    return {"py_executable": quoted} if quoted != sys.executable else None


def import_ray() -> Any:
    """The module ``ray``. Raises ``Unavailable`` where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise Unavailable(
            "Ray is not installed",
            where="the runner ray",
            expected="the locked ray",
            found=str(error),
            cure="install the locked requirements, or use --runner local",
        ) from error
    return ray


def logs_of(ray: Any) -> Path | None:
    """Where the processes of the connected Ray on this machine write; None where Ray does not say. It is not part of
    Ray's interface, so it serves explanations only."""
    with suppress(Exception):
        return Path(ray._private.worker._global_node.get_logs_dir_path())
    return None


_COMMON = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def _own_variables() -> Mapping[str, str]:
    """What Ray reads when it is imported and started: a token of our own, no reports to anybody, workers that are as
    welcome to the processor as this process is (Ray would make them nice by 15), and no address but the loopback one
    (whatever its name says, the last variable is asked on Linux too; ``_node_ip_address`` alone is turned into the
    machine's outer address)."""
    return {
        **_COMMON,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_worker_niceness": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_gcs_server_port_wait_time_s": "120",
        "RAY_agent_register_timeout_ms": "120000",
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_worker_register_timeout_seconds": "300",
        "RAY_health_check_timeout_ms": "60000",
        "RAY_health_check_failure_threshold": "10",  # busy is not dead
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    }  # nobody takes this machine away with a warning


def descendants() -> set[int]:
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
