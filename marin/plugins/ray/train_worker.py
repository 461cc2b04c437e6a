"""What a Ray Train worker does: become one process of the training, train, and let the first one record.

The function runs in a thread of a worker process that Ray Train started; jax's settings are in the process's
environment before it starts. Nothing here decides bits: the recipe does, and it came from the driver.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ledger import LedgerError, Store, StoredFolder, Unavailable
from marin.execution.continued import checkout
from marin.execution.step import PREVIOUS, StepResult, Task
from marin.execution.tracker import following
from marin.history.runs import stream_of
from marin.plugins.ray.meeting import held_address
from marin.plugins.ray.software import other_software_than
from marin.plugins.ray.writer import SpooledJournal, WriterConnection
from marin.process.arithmetic import apply
from marin.process.interpreter import collect_less_often, with_room
from marin.process.logs import log_as_worker
from marin.recipe.schema import CPU_PROFILES, Execution, from_plain
from marin.record.events import Body, Json
from marin.record.root import open_root
from marin.runners.jobs import parts_of


class WorkerSetup(msgspec.Struct, frozen=True):
    """What every worker is told. ``inputs``: folder on the driver's machine (``node``) and stored tree, by step.
    ``scratch``: where workers on that machine keep spools and work. ``code``: what must be installed."""

    run: str
    root: str
    recipe: Json
    execution: Execution
    inputs: dict[str, tuple[str, str]]
    node: str
    scratch: str
    writer: str
    attempt: int
    launch: int
    code: str


class WorkerResult(msgspec.Struct, frozen=True):
    """What the leader made: a :class:`marin.execution.step.StepResult`, and its folder as a stored tree."""

    kind: str
    digest: str | None
    size: int | None
    metrics: dict[str, str]
    tables: dict[str, str]
    artifact: str
    trees: dict[str, str] = {}

    def result(self) -> StepResult:
        """As the step would have returned it."""
        return StepResult(
            self.kind,
            self.digest,
            self.size,
            {name: float.fromhex(value) for name, value in self.metrics.items()},
            self.tables,
            self.trees,
        )


STOP_POLL_SECONDS = 1.0
"""How often the leader asks whether the driver was told to end."""


class WorkerFailed(Exception):
    """An error that another attempt would meet again; its text is the JSON of the error's parts."""


class Silence:
    """The journal of a process that does not lead: the leader records, and tells the others what they must know."""

    def record(self, kind: str, body: Body) -> int:
        """Nothing."""
        return -1

    def history(self, kind: str) -> list[Body]:
        """Nothing."""
        return []

    def close(self) -> None:
        """Nothing."""


def train_loop(config: dict[str, Any]) -> bytes | None:
    """``train_loop_per_worker`` of :class:`ray.train.v2.jax.JaxTrainer`: the leader's :class:`WorkerResult` as JSON.

    Raises:
        WorkerFailed: the step refused; the driver raises it as the error that it was.
    """
    import ray
    from ray.train import get_context
    from ray.train.collective import broadcast_from_rank_zero

    setup = msgspec.json.decode(config["setup"], type=WorkerSetup)
    number, count = get_context().get_world_rank(), get_context().get_world_size()
    collect_less_often()
    log_as_worker()
    try:
        with_room(_ready, setup, number)
        with held_address(ray.util.get_node_ip_address()) as address:
            coordinator = broadcast_from_rank_zero(address if number == 0 else None)
            return with_room(_train, ray, setup, number, count, coordinator)
    except LedgerError as error:
        raise WorkerFailed(json.dumps(parts_of(error))) from error


def _ready(setup: WorkerSetup, number: int) -> None:
    """Refuse what no launch can mend, and import what takes long: the others are met afterwards."""
    if (refusal := other_software_than(setup.code, f"worker {number}")) is not None:
        raise refusal
    apply(from_plain(setup.recipe, where="recipe of the run").arithmetic, setup.execution)
    import marin.training.run  # noqa: F401


def _train(ray: Any, setup: WorkerSetup, number: int, count: int, coordinator: str) -> bytes | None:
    recipe = from_plain(setup.recipe, where="recipe of the run")
    from marin.training.run import train
    from marin.training.runtime import hosts
    from marin.training.runtime.stopping import request

    if recipe.arithmetic.profile in CPU_PROFILES:  # Ray Train joins accelerators; processors it leaves alone
        hosts.join(coordinator, count, number)
    root = open_root(setup.root)
    store = root.store()
    on_driver = ray.get_runtime_context().get_node_id() == setup.node
    own = f"{setup.attempt:04d}-{setup.launch:04d}-{os.getpid()}"
    scratch = Path(setup.scratch) if on_driver else root.local / "work" / "workers" / setup.run
    journal = (
        SpooledJournal(root, setup.run, scratch / "spool", own, lambda: WriterConnection(ray, setup.writer))
        if hosts.leader()
        else Silence()
    )
    scratch.mkdir(parents=True, exist_ok=True)
    with (
        closing(journal),
        TemporaryDirectory(prefix="worker-", dir=scratch, ignore_cleanup_errors=True) as folder,
        following(journal, root, setup.run, "train" if hosts.leader() else "") as followed,
        heeding(ray, setup, request) if hosts.leader() else nullcontext(),
    ):
        base = Path(folder)
        (base / "out").mkdir()
        (base / "work").mkdir()
        inputs, stored = training_inputs(store, setup.inputs, None if on_driver else base / "inputs")
        result = train(
            Task(
                run=setup.run,
                recipe=recipe,
                inputs=inputs,
                stored=stored,
                out=base / "out",
                work=base / "work",
                store=store,
                journal=followed,
                execution=setup.execution,
                attempt=setup.attempt,
            )
        )
        made = _encoded_result(store, base / "out", result) if hosts.leader() else None
        hosts.leave()
    return made


@contextmanager
def heeding(ray: Any, setup: WorkerSetup, stop: Callable[[], None]) -> Iterator[None]:
    """While entered, call ``stop`` as soon as the driver wants this training to save its state and end."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(STOP_POLL_SECONDS):
            with suppress(Unavailable):  # the writer is being restarted
                if WriterConnection(ray, setup.writer).asked_to_stop(stream_of(setup.run)):
                    stop()
                    break

    thread = threading.Thread(target=ask, name="heeding", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _encoded_result(store: Store, out: Path, result: StepResult) -> bytes:
    return msgspec.json.encode(
        WorkerResult(
            kind=result.kind,
            digest=result.digest,
            size=result.size,
            tables=dict(result.tables),
            metrics={name: value.hex() for name, value in result.metrics.items()},
            artifact=store.put_tree(out).digest,
            trees=dict(result.trees),
        )
    )


def training_inputs(
    store: Store, inputs: Mapping[str, tuple[str, str]], folder: Path | None
) -> tuple[dict[str, Path], dict[str, StoredFolder]]:
    """The inputs of a training on this machine: those in folders, and those that are read in the store. On the driver's
    machine (no ``folder``) they are there already; elsewhere tokens, of which a host needs its own sequences, stay in the
    store, and the others are taken out of it into ``folder``."""
    if folder is None:
        return {name: Path(path) for name, (path, _) in inputs.items()}, {}
    stored = {name: store.folder(artifact) for name, (_, artifact) in inputs.items() if name == "tokens"}
    taken = {name: artifact for name, (_, artifact) in inputs.items() if name not in stored}
    return {name: _input(store, name, artifact, folder / name) for name, artifact in taken.items()}, stored


def _input(store: Store, name: str, artifact: str, folder: Path) -> Path:
    """An input out of the store, on a machine that is not the driver's."""
    if name == PREVIOUS:
        return checkout(store, artifact, folder)
    folder.parent.mkdir(exist_ok=True)
    store.checkout(artifact, folder)
    return folder
