"""A state on its way to the store, beside the train steps that follow it.

At the end of a segment every process copies its slices from its devices; from there on training goes on. Beside it a
thread of each process hashes and writes these slices, straight into the store, and the leader's puts them together: the
digest of the whole, and the tree that names all slices. The tree is in the store before an event names it, and it is
there only when every slice is: a process that dies on the way leaves blobs that nothing names, and the checkpoint before
stays the last one.

Events are recorded by anyone who called, between two train steps (:meth:`Saver.settle`): a tracker or an evaluation that
follows the ledger computes on the devices too. At most one state is on its way. Where a copy would not fit into memory,
training waits.
"""

from __future__ import annotations

import logging
import mmap
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from ledger import Artifact, ManifestEntry, PartialTensor, StateManifest, Store, publish_slices, put_slice, write_slices
from marin.errors import StepFailed
from marin.training.checkpoints import digesting
from marin.training.checkpoints.digesting import Held
from marin.training.runtime import hosts
from marin.training.state import TrainState, arrays_of
from marin.training.step.slices import AT_ONCE, Layout, SlicedState

logger = logging.getLogger(__name__)

SHARE_OF_MEMORY = 0.5
"""A copy of the state may take this much of the memory that is free; training waits for the save where it would take more."""


@dataclass(frozen=True)
class Saved:
    """A state in the store: what it is, and the tree that holds it."""

    manifest: StateManifest
    artifact: Artifact


class _Report(msgspec.Struct, frozen=True):
    """What a process tells the leader: its slices as (path, bytes, digest, root of parts), what it knows of each tensor; or
    what went wrong."""

    slices: list[tuple[str, int, str, str | None]] = []
    tensors: bytes = b""
    failed: str = ""


def save(state: TrainState, folder: Path) -> None:
    """A whole state in ``folder``, which must not exist."""
    write_slices(folder, arrays_of(state))


class Saver(AbstractContextManager["Saver"]):
    """Saves states of one layout. All processes that train as one make one, and call the same methods in the same order."""

    def __init__(
        self, store: Store, layout: Layout, work: Path, *, pack: bool = False, base: str | None = None
    ) -> None:
        """``work``: a folder of this process's own, on the store's disk where there is one. ``pack``: slices are kept as what
        changed since the state before, whose tree is ``base`` at first."""
        self._store, self._layout, self._work, self._pack, self._base = store, layout, work, pack, base
        self._saves = 0
        self._running: Future[Saved | None] | None = None
        self._done: Callable[[Saved], None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")

    def __exit__(self, *_: object) -> None:
        """What is on its way and not settled is not recorded."""
        self._thread.shutdown(wait=True)

    def save(self, state: SlicedState, done: Callable[[Saved], None]) -> None:
        """Begin to save ``state``, once the one before is settled. ``done`` is called in the leader, in this thread, by
        :meth:`settle`."""
        self.settle(wait=True)
        held = self._layout.held(state)
        beside = sum(run.nbytes for runs in held.values() for run in runs.values()) <= SHARE_OF_MEMORY * free_memory()
        if beside:
            held = self._layout.held(state, copied=True)
        cut = digesting.finished(digesting.hashed(held, self._layout, "cut")) if hosts.processes() > 1 else None
        self._saves += 1
        self._done = done
        self._running = self._thread.submit(self._saved, f"save/{self._saves}", held, cut)
        if not beside:
            logger.debug("no memory for a copy of the state: training waits until it is saved")
            self.settle(wait=True)

    def settle(self, *, wait: bool = False) -> None:
        """Record the state that was on its way, if it has arrived; with ``wait``, as soon as it has.

        All processes must call it with ``wait`` before they end: none leaves before the leader has recorded.

        Raises:
            StepFailed, LedgerError: it could not be saved.
        """
        running, done = self._running, self._done
        if running is None or not (wait or running.done()):
            return
        saved = running.result()
        if saved is not None:
            assert done is not None, "set where the save began"
            done(saved)
            self._base = saved.artifact.digest
        if hosts.processes() > 1:
            name = f"save/{self._saves}/recorded"
            if hosts.leader():
                hosts.say(name, (self._base or "").encode())
            elif wait:
                self._base = hosts.hear(name).decode()
            else:
                return
        self._running = None

    def _saved(self, name: str, held: Held, cut: list[PartialTensor] | None) -> Saved | None:
        """In the thread: this process's slices; and in the leader, what all of them wrote."""
        report = self._reported(held, cut)
        if hosts.processes() == 1:
            return self._whole([report])
        if not hosts.leader():
            hosts.say(f"{name}/{jax.process_index()}", msgspec.msgpack.encode(report))
            return None
        others = [hosts.hear(f"{name}/{number}") for number in range(1, hosts.processes())]
        hosts.forget(name)
        return self._whole([report, *(msgspec.msgpack.decode(one, type=_Report) for one in others)])

    def _reported(self, held: Held, cut: list[PartialTensor] | None) -> _Report:
        try:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work.mkdir(parents=True)
            # One is hashed while the disk has another; one that is packed is made in memory, beside the copy of the state.
            with ThreadPoolExecutor(1 if self._pack else AT_ONCE) as writers:
                slices = list(writers.map(lambda number: self._write(number, held[number]), sorted(held)))
            parts = digesting.hashed(held, self._layout, "all" if cut is None else "whole")
            if cut is not None:
                parts = digesting.merged([digesting.packed([one.encode() for one in some]) for some in (parts, cut)])
            shutil.rmtree(self._work, ignore_errors=True)
            return _Report(
                [(one.path, one.size, one.digest, one.parts) for one in slices],
                digesting.packed([part.encode() for part in parts]),
            )
        except Exception as error:
            if hosts.processes() == 1:
                raise
            logger.debug("this process's slices", exc_info=True)
            return _Report(
                failed=f"process {jax.process_index()}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            )

    def _write(self, number: int, runs: Mapping[str, np.ndarray]) -> ManifestEntry:
        """One slice as a file, then into the store."""
        path = self._work / f"{number:05d}"
        with path.open("wb") as file:
            for name in sorted(runs, key=str.encode):
                file.write(_bytes(runs[name]))
        if self._pack and path.stat().st_size:
            with path.open("rb") as kept, mmap.mmap(kept.fileno(), 0, access=mmap.ACCESS_READ) as data:
                view = memoryview(data)
                try:
                    return put_slice(self._store, number, view, pack=True, base=self._base)
                finally:
                    view.release()
        return put_slice(self._store, number, path)

    def _whole(self, reports: list[_Report]) -> Saved:
        failed = [one.failed for one in reports if one.failed]
        if failed:
            raise StepFailed(
                "a state could not be saved",
                where="; ".join(failed)[:1000],
                expected="slices of all processes",
                found=f"{len(reports) - len(failed)} of {len(reports)}",
                cure="mend it and run the same command again: it goes on from the training checkpoint before",
            )
        manifest = digesting.manifest_from(digesting.merged([one.tensors for one in reports]), self._layout)
        entries = [ManifestEntry(*one[:3], parts=one[3]) for report in reports for one in report.slices]
        return Saved(manifest, publish_slices(self._store, manifest, self._layout.form, entries))


def free_memory() -> int:
    """Bytes of memory that can be had without anything being taken from others (Linux; a great many elsewhere)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 2**62


def _bytes(run: np.ndarray) -> Any:
    little = run.astype(run.dtype.newbyteorder("<"), copy=False)
    return memoryview(np.ascontiguousarray(little).reshape(-1).view(np.uint8))
