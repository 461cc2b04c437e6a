"""The ledger's writer on a cluster: one named actor, and workers that lose nothing to it.

The actor runs on the machine of the driver, where the signing key is; the key never travels. It takes batches from many
workers at a time and commits what is waiting together. It opens the log for one commit and closes it again, so that
the driver and other commands of the same root write between its commits.

A worker makes each batch durable in a spool of its own before it sends it, and sends it until it is acknowledged, over
deaths of the actor, of itself and of the cluster's head. Drafts carry ids, so that what was committed and not
acknowledged is not committed twice.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import uuid
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ledger import Draft, GroupCommit, LedgerError, Locked, LogCheckpoint, Receipt, Spool, Unavailable
from marin.history.executions import bodies_of, stream_of
from marin.plugins.ray.cluster import NAMESPACE
from marin.record import events
from marin.record.events import Body
from marin.record.root import Root, open_root
from marin.record.writer import LOCK_SECONDS
from marin.runners.jobs import error_of, parts_of

ANSWER_SECONDS = LOCK_SECONDS + 60.0
"""How long a worker waits for one acknowledgement before it sends again: longer than the actor may wait for the
lock."""
RESEND_SECONDS = 300.0
"""How long a worker keeps sending one batch before its work counts as failed. The batch stays in its spool."""

Appended = tuple[list[Receipt], list[str]]
"""Receipts, or the parts of an error."""


class Commits:
    """What :class:`ledger.GroupCommit` appends to: the root's log, opened for each commit or through its append
    service."""

    def __init__(self, root: Root) -> None:
        self._root = root

    @property
    def checkpoint(self) -> LogCheckpoint:
        """The log as it is now."""
        return self._root.reader().checkpoint()

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        """Several atomic batches in one commit, each with its own outcome."""
        with closing(self._root.writer()) as writer:
            return writer.append_each(requests)


class LedgerWriter:
    """The actor. One per log; its methods are called from many threads at a time."""

    def __init__(self, location: str) -> None:
        root = open_root(location)
        root.signer()  # a missing key is said at once
        self._commits = GroupCommit(Commits(root))
        self._mutex = threading.Lock()
        self._progress: dict[str, tuple[int, str]] = {}
        self._stopping: set[str] = set()

    def append(self, drafts: Sequence[Draft]) -> Appended:
        """One atomic batch; answered when it is durable and under a signed log checkpoint."""
        try:
            receipts = self._commits.submit(drafts).result()
        except LedgerError as error:
            return [], parts_of(error)
        self._note(drafts)
        return receipts, []

    def progress(self, stream: str) -> tuple[int, str] | None:
        """Train steps recorded in ``stream`` since this actor lives, and the last loss."""
        with self._mutex:
            return self._progress.get(stream)

    def ask_to_stop(self, stream: str, stop: bool) -> None:
        """Keep for the workers of ``stream`` whether its driver wants them to save and end. A new actor does not
        know."""
        with self._mutex:
            (self._stopping.add if stop else self._stopping.discard)(stream)

    def asked_to_stop(self, stream: str) -> bool:
        """What :meth:`ask_to_stop` was told last."""
        with self._mutex:
            return stream in self._stopping

    def _note(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if draft.type == events.TRAIN_SEGMENT:
                body = events.read(events.TrainSegment, draft.body, where=draft.stream)
                with self._mutex:
                    self._progress[draft.stream] = (body.end, f"loss {float.fromhex(body.losses[-1]):.3f}")


def writer_name(root: Root) -> str:
    """The actor's name in the namespace of this product: one for each log."""
    return "ledger-writer-" + hashlib.sha256(str(root.verifier).encode()).hexdigest()[:32]


def start_writer(ray: Any, root: Root, location: str) -> Any:
    """The handle of this root's writer: the one that runs, or a new one on this machine. Ray starts it again if it
    dies."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    return (
        ray.remote(LedgerWriter)
        .options(
            name=writer_name(root),
            namespace=NAMESPACE,
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=64,
            scheduling_strategy=here,
        )
        .remote(location)
    )


class WriterConnection:
    """A worker's way to the actor, as :class:`ledger.LogClient` is the way to a service."""

    def __init__(self, ray: Any, name: str) -> None:
        self._ray = ray
        try:
            self._writer = ray.get_actor(name, namespace=NAMESPACE)
        except (ValueError, ray.exceptions.RayError) as error:
            raise _gone(name, error) from error

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Hand in one batch. Raises ``Unavailable`` when there is no answer: the outcome is unknown, hand it in
        again."""
        try:
            receipts, parts = self._ray.get(self._writer.append.remote(list(drafts)), timeout=ANSWER_SECONDS)
        except self._ray.exceptions.RayError as error:  # it died, is being restarted, or takes too long
            raise _gone("the ledger's writer", error) from error
        if parts:
            raise error_of(parts)
        return list(receipts)

    def asked_to_stop(self, stream: str) -> bool:
        """Whether the driver wants the work of ``stream`` to end; False where there is no answer."""
        try:
            return bool(self._ray.get(self._writer.asked_to_stop.remote(stream), timeout=ANSWER_SECONDS))
        except self._ray.exceptions.RayError:
            return False

    def close(self) -> None:
        """Nothing is held."""


def _gone(where: str, error: Exception) -> Unavailable:
    return Unavailable(
        "the ledger's writer does not answer",
        where=where,
        found=" ".join(str(error).split())[:200],
        cure="hand the same drafts in again when it is back: what was committed is not appended twice",
    )


class SpooledJournal:
    """:class:`marin.execution.step.Journal` of a worker: every fact is on this machine's disk before it is sent.

    ``folder`` belongs to the run on this machine and ``own`` to this process; what others left there is sent first.
    """

    def __init__(self, root: Root, run: str, folder: Path, own: str, connect: Any) -> None:
        self._root, self._stream = root, stream_of(run)
        for left in sorted(folder.iterdir()) if folder.is_dir() else ():
            if left.name != own:
                _send_left(left, connect)
        self._folder = folder / own
        self._folder.mkdir(parents=True, exist_ok=True)
        self._spool = Spool(self._folder, connect)

    def record(self, kind: str, body: Body) -> int:
        """Spool one event, send it until it is acknowledged, and return its index."""
        self._spool.put([Draft(kind, self._stream, events.write(body))])
        receipts = self._spool.drain(seconds=RESEND_SECONDS)
        return receipts[-1].index

    def history(self, kind: str) -> Sequence[Body]:
        """The bodies of all events of this type that the training recorded under its present identity, oldest first,
        out of the verified log."""
        return bodies_of(self._root.history(), self._stream, "train", kind)

    def close(self) -> None:
        """Everything is acknowledged: the spool goes."""
        self._spool.close()
        if not len(self._spool):
            shutil.rmtree(self._folder, ignore_errors=True)


class SpooledAppender:
    """:data:`marin.record.root.Appender` of a worker process: spooled on this machine's disk, then sent until
    acknowledged."""

    def __init__(self, ray: Any, root: Root) -> None:
        self._folder = root.local / "work" / "spool" / f"job-{uuid.uuid4().hex}"
        self._connect = lambda: WriterConnection(ray, writer_name(root))
        self._mutex = threading.Lock()

    def __call__(self, root: Root, drafts: Sequence[Draft]) -> list[Receipt]:
        """The receipts of ``drafts``; raises what the log refuses them with."""
        with self._mutex:
            spool = Spool(self._folder, self._connect)
            spool.put(drafts)
            try:
                receipts = spool.drain(seconds=RESEND_SECONDS)
            finally:
                spool.close()
                if not len(spool):  # acknowledged, or refused, which is raised
                    shutil.rmtree(self._folder, ignore_errors=True)
        return receipts[-len(drafts) :]


def _send_left(folder: Path, connect: Any) -> None:
    """What a process that died had spooled and not seen acknowledged. One that still lives keeps its own."""
    spool = Spool(folder, connect)
    with suppress(Locked):
        spool.drain(seconds=RESEND_SECONDS)
    spool.close()
    if not len(spool):
        shutil.rmtree(folder, ignore_errors=True)
