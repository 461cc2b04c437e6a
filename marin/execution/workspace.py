"""One attempt at one step: its folders, its function, and what it made on the way into the store.

Folders, below ``work/`` of the root's local folder:

    <step>-<identity>/inputs/   what the step reads, out of the store, every byte hashed on the way
    <step>-<identity>/out/      filled by the step; emptied before each attempt
    <step>-<identity>/scratch/  kept until the step is done: a resumed attempt finds there what the last one left

They belong to the process that has their lock. A process that was stopped (SIGSTOP) or hangs keeps it, though its lease on the
step has ended: anyone who takes that over works in folders of its own, <step>-1-<identity>, and so on (:func:`own_workspace`).

All of it may be deleted whenever no stage runs. What an attempt left that nobody came back to is swept by
`marin store gc` (``sweep_abandoned``).
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ledger import DISK_FULL, LedgerError, Locked, PosixStorage, StorageFailed, Store, parse_digest
from marin.errors import MissingEvidence, StepFailed
from marin.execution.step import StepDefinition, StepResult, Task
from marin.record import outputs
from marin.record.events import Output
from marin.work.recorded import StoredResult

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""How long folders are waited for that belong to a process without a lease on their step."""
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Workspace:
    """The folders of one step's attempts."""

    folder: Path

    @classmethod
    def of(cls, local: Path, step: str, identity: str, place: int = 0) -> Workspace:
        """The workspace of the step with this identity, in a root's local folder."""
        return cls(local / cls.name(step, identity, place))

    @staticmethod
    def name(step: str, identity: str, place: int = 0) -> str:
        """Where it lies in a root's local folder; ``place`` counts those that others keep."""
        return f"work/{step}-{f'{place}-' if place else ''}{Workspace.tail(identity)}"

    @staticmethod
    def tail(identity: str) -> str:
        """The end of its name, after the step's."""
        return parse_digest(identity).hex()[:32]

    def lock(self) -> AbstractContextManager[None]:
        """This process's own for the length of a block.

        Raises:
            Locked: another process of this machine has it.
        """
        return locked_folder(self.folder, " ".join(sys.argv)[:200])

    @property
    def out(self) -> Path:
        """What the step fills."""
        return self.folder / "out"

    @property
    def scratch(self) -> Path:
        """What survives an interruption."""
        return self.folder / "scratch"

    def prepare(self, store: Store, inputs: Mapping[str, Output]) -> dict[str, Path]:
        """An empty ``out``, ``scratch`` as the last attempt left it, and the folders of the inputs by step.

        Inputs are taken from the store anew: bytes that lay here since an earlier attempt are not believed.
        """
        for stale in (self.out, self.folder / "inputs"):
            if stale.exists():
                remove_folder(stale)
        self.out.mkdir(parents=True)
        self.scratch.mkdir(exist_ok=True)
        return {step: self.take(step, partial(outputs.checkout, store, output)) for step, output in inputs.items()}

    def clear(self) -> None:
        """The step is done: nothing here is needed again."""
        try:
            remove_folder(self.folder)
        except OSError as error:
            log.warning("%s stays: %s", self.folder, error.strerror)

    def take(self, step: str, bring: Callable[[Path], object]) -> Path:
        """The output of ``step`` in a folder, or a file, of its own; ``bring`` takes it there at the first call."""
        folder = self.folder / "inputs" / step
        if folder.exists():
            return folder
        folder.parent.mkdir(exist_ok=True)
        try:
            bring(folder)
        except LedgerError as error:
            raise type(error)(
                error.what,
                where=f"input {step}: {error.where}",
                expected=error.expected,
                found=error.found,
                cure=f"make it again with `marin stage {step}`",
            ) from error
        return folder


def locked_folder(folder: Path, holder: str) -> AbstractContextManager[None]:
    """While no other process of this machine has the folder; :class:`ledger.Locked` where one has."""
    return PosixStorage(folder.parent.parent).lock(f"work/locks/{folder.name}", holder)


@contextmanager
def own_workspace(local: Path, step: str, identity: str, is_free: Callable[[], bool]) -> Iterator[Workspace | None]:
    """The first workspace of the step that no other process of this machine has. One that has the usual folders is waited for a
    while, as it may be about to leave; where the step is no longer ``is_free`` to be executed meanwhile, None."""
    until = time.monotonic() + PATIENCE_SECONDS
    place = 0
    with ExitStack() as held:
        own: Workspace | None = None
        while own is None:
            workspace = Workspace.of(local, step, identity, place)
            try:
                held.enter_context(workspace.lock())
                own = workspace
            except Locked as locked:
                if not is_free():
                    break
                if place or time.monotonic() >= until:
                    log.info("%s: another process keeps %s (%s)", step, workspace.folder.name, locked.found)
                    place += 1
                else:
                    time.sleep(POLL_SECONDS)
        yield own


def remove_folder(folder: Path) -> None:
    """Delete a folder whose files and folders may be read-only."""

    def again(function: Callable[[str], object], path: str, error: BaseException) -> None:
        if isinstance(error, FileNotFoundError):
            return
        Path(path).parent.chmod(0o700)
        Path(path).chmod(0o700)
        function(path)

    shutil.rmtree(folder, onexc=again)


def execute(definition: StepDefinition, task: Task) -> StoredResult:
    """Run the step, and put what it made into the store.

    Raises:
        LedgerError: StepFailed, StorageFailed, or what the step itself refused.
        KeyboardInterrupt: the process was asked to stop.
    """
    try:
        result = definition.run(task)
        return _stored(definition, task, result)
    except LedgerError:
        raise
    except (Exception, SystemExit) as error:
        log.debug("step %s stopped", definition.name, exc_info=True)
        raise explained(definition.name, error) from error


_BY_TENSORSTORE = re.compile(r'"(?P<file>[^"]+)".*os_error_code=.(?P<number>[0-9]{1,4})', re.S)
"""TensorStore says in the text of a ValueError what the system refused, and of which file."""


def _disk_full(where: str, found: str) -> StorageFailed:
    return StorageFailed("disk full", where=where, found=found, cure="free some space and run the same command again")


def explained(step: str, error: BaseException) -> LedgerError:
    """A foreign error as one of ours: what stopped the step, and what helps."""
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        # Of a copy the second is written.
        return _disk_full(f"step {step}: {error.filename2 or error.filename or 'a file'}", error.strerror or "")
    if (told := _BY_TENSORSTORE.search(str(error))) is not None and int(told["number"]) in DISK_FULL:
        return _disk_full(f"step {step}: {told['file']}", os.strerror(int(told["number"])))
    if isinstance(error, MemoryError):
        return StepFailed(
            "out of memory",
            where=f"step {step}",
            found=str(error) or "no memory left",
            cure="use a smaller model or batch, or a larger machine",
        )
    if isinstance(error, ModuleNotFoundError):
        return MissingEvidence(
            "a package is not installed", where=f"step {step}", found=str(error), cure="install requirements.lock"
        )
    text = " ".join(str(error).split())[:400]
    return StepFailed(
        "the step stopped",
        where=f"step {step}",
        found=f"{type(error).__name__}: {text}",
        cure="MARIN_DEBUG=1 shows where",
    )


def checked_metrics(step: str, told: Mapping[str, object]) -> dict[str, float]:
    """What a step measured, by name.

    Raises:
        StepFailed: one is not a finite number.
    """
    metrics = {}
    for name, value in sorted(told.items()):
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise StepFailed(
                "a metric is not a number",
                where=f"step {step}: {name}",
                expected="a finite number",
                found=repr(value)[:80],
                cure="look at what the step computes",
            )
        metrics[name] = float(value)
    return metrics


def _stored(definition: StepDefinition, task: Task, result: StepResult) -> StoredResult:
    metrics = checked_metrics(definition.name, result.metrics)
    if not any(task.out.iterdir()):
        raise StepFailed(
            "the step made nothing",
            where=f"step {definition.name}",
            expected="files in its folder",
            found="an empty folder",
            cure="this is a defect of the step",
        )
    artifact = task.store.put_tree(task.out, link=True, trees=result.trees)
    tables = {name: task.store.put_bytes(text.encode()).digest for name, text in sorted(result.tables.items())}
    return StoredResult(result.output(artifact.digest, artifact.size), metrics, tables)
