"""One execution of a function step: its inputs by digest, its folders, its function, and what it made.

The same code runs in the executor's own process and in a process of its own (:func:`execute_job`): there the experiment
file is loaded again, and the step found by its address. Nothing of a step is ever pickled: what travels is the path
that the user gave, the address, and digests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial, wraps
from pathlib import Path

from ledger import LedgerError, Locked, Store, canonical_bytes, digest_bytes
from marin.errors import StepFailed
from marin.execution.workspace import Workspace, checked_metrics, explained
from marin.graph.execution.guard import confined, unconfined
from marin.graph.files import load_graph
from marin.graph.graph import Graph
from marin.graph.identity import reveal
from marin.graph.inputs import ResolvedInput
from marin.graph.step import Context, Input, Result, Step
from marin.record.events import Output
from marin.record.root import open_root
from marin.work.placed import Work, decode, encode
from marin.work.recorded import StoredResult

PLACES = 8
"""How many processes of a machine may keep the folders of one step: one is at work, and others are stopped or hang."""
VALUE = "value"
VALUE_FILE = "value.json"
LARGEST_VALUE = 1 << 20


@dataclass
class StepWorkspace:
    """Where a step works: made when it is asked for, because most small steps never do. Until then its folder is a
    text: every part of a :class:`pathlib.Path` is interned, and some Pythons keep that for ever."""

    local: str
    identity: str
    store: Store
    values: Mapping[str, bytes] = field(default_factory=dict)
    used: bool = False
    outside: ThreadPoolExecutor | None = None
    """A thread that was there before the step was confined, for what is done on its behalf; None: the step's own
    thread."""
    held: ExitStack = field(default_factory=ExitStack)
    """The lock of its folders, as long as they are used."""
    place: int = 0

    @cached_property
    def folders(self) -> Workspace:
        """Its folders, of this process alone: those of one that was stopped and lost its lease stay that one's.

        Raises:
            StepFailed: too many processes keep theirs.
        """
        for self.place in range(PLACES):
            workspace = Workspace(Path(self.folder))
            with suppress(Locked):
                self.held.enter_context(workspace.lock())
                return workspace
        raise StepFailed(
            "other processes keep the folders of a step",
            where=self.folder,
            expected=f"at most {PLACES - 1} of them",
            cure="end those that are stopped or hang",
        )

    @property
    def folder(self) -> str:
        """Where it works, whether that is there or not."""
        return self._at(self.place)

    @property
    def allowed(self) -> list[str]:
        """Where the step may write: below its folders, wherever these will be."""
        places = [self.place] if self.used else range(PLACES)
        return [f"{self._at(place)}/{name}" for place in places for name in ("out", "scratch")]

    def _at(self, place: int) -> str:
        return f"{self.local}/{Workspace.name('step', self.identity, place)}"

    def read(self, given: ResolvedInput) -> bytes:
        """The bytes of a value, of one file, or of the value beside files."""
        if not given.path and given.digest in self.values:
            return self.values[given.digest]
        return self.do(lambda: _content(self.store, given))

    def table(self, digest: str) -> str:
        """A small text that a step recorded beside its output."""
        return self.do(lambda: self.store.read(digest).decode())

    def out(self) -> Path:
        """The empty folder to fill."""
        self._prepare()
        return self.folders.out

    def scratch(self) -> Path:
        """The folder that survives an interruption."""
        self._prepare()
        return self.folders.scratch

    def take(self, name: str, given: ResolvedInput) -> Path:
        """An input, out of the store."""
        self._prepare()
        folder = self.do(lambda: self.folders.take(name, lambda at: self.store.checkout(given.artifact, at)))
        return folder / given.path if given.path else folder

    def filled(self) -> bool:
        """Whether the step left files."""
        return self.used and any(self.folders.out.iterdir())

    def has_leavings(self) -> bool:
        """Whether there is something of an attempt that was killed."""
        return os.path.exists(self.folder)

    def clear(self) -> None:
        """The step is done."""
        if self.used:
            self.folders.clear()

    def close(self) -> None:
        """Nothing of it is used any more; after a failure its files stay, for the next attempt."""
        self.held.close()
        self.__dict__.pop("folders", None)
        self.used = False

    def _prepare(self) -> None:
        if not self.used:
            self.do(lambda: self.folders.prepare(self.store, {}))  # which takes the lock too: no business of the step's
            self.used = True

    def do[T](self, action: Callable[[], T]) -> T:
        """Something of the executor's, in the middle of the step's doing."""
        if self.outside is not None:
            return self.outside.submit(action).result()
        with unconfined():
            return action()


def call(step: Step, inputs: Mapping[str, ResolvedInput], workspace: StepWorkspace) -> StoredResult:
    """Call the function of ``step``. Where ``workspace`` has a thread outside, this thread is confined for good.

    Raises:
        LedgerError: what the step refused, or StepFailed for an error of its own; StepFailed when it writes elsewhere,
            makes nothing, or makes something that cannot be kept.
    """

    def view(name: str, given: ResolvedInput) -> Input:
        return Input(
            given.digest,
            given.kind,
            given.metrics,
            lambda: workspace.read(given),
            lambda: workspace.take(name, given),
            given.run,
            {table: partial(workspace.table, digest) for table, digest in given.tables.items()},
        )

    context = Context(
        step.name,
        reveal(step.config),
        {name: view(name, given) for name, given in inputs.items()},
        workspace.out,
        workspace.scratch,
    )
    assert callable(step.fn), "pipeline steps and adopted artifacts are not called"
    begun = time.monotonic()
    try:
        if workspace.has_leavings():
            workspace.out()  # leavings of an attempt that was killed
        with confined(step.name, workspace.allowed, alone=workspace.outside is not None):
            returned = step.fn(context)
        seconds = round(time.monotonic() - begun, 6)
        return workspace.do(lambda: _store_result(step.name, returned, workspace, seconds))
    except LedgerError:
        raise
    except (Exception, SystemExit) as error:
        raise explained(step.name, error) from error


def _store_result(address: str, returned: object, workspace: StepWorkspace, seconds: float) -> StoredResult:
    result = returned if isinstance(returned, Result) else Result(returned)
    metrics = checked_metrics(address, result.metrics)
    if workspace.filled():
        if result.value is not None:
            (workspace.folders.out / VALUE_FILE).write_bytes(_encoded(address, result.value))
        artifact = workspace.store.put_tree(workspace.folders.out)
        return StoredResult(
            Output(kind=result.kind or "files", digest=artifact.digest, size=artifact.size, artifact=artifact.digest),
            metrics,
            seconds=seconds,
        )
    if result.value is None and not metrics:
        raise StepFailed(
            "the step made nothing",
            where=f"step {address}",
            expected="a value returned, or files in context.out",
            found="None and an empty folder",
            cure="return what it made; True says that there is nothing to keep",
        )
    data = _encoded(address, result.value)
    digest = digest_bytes(data)
    return StoredResult(
        Output(kind=result.kind or VALUE, digest=digest, size=len(data), artifact=digest),
        metrics,
        seconds=seconds,
        data=data,
    )


def _encoded(address: str, value: object) -> bytes:
    try:
        data = canonical_bytes(value)
    except LedgerError as error:
        raise StepFailed(
            "a step returned what JSON cannot say",
            where=f"step {address}: {error.where}",
            expected="texts, finite numbers, lists, mappings with text keys",
            found=error.expected or str(error),
            cure="return plain values, or write files into context.out",
        ) from error
    if len(data) > LARGEST_VALUE:
        raise StepFailed(
            "a returned value is too large",
            where=f"step {address}",
            expected=f"at most {LARGEST_VALUE} bytes",
            found=f"{len(data)}",
            cure="write it into a file in context.out",
        )
    return data


def _content(store: Store, given: ResolvedInput) -> bytes:
    """The bytes of a value, of one file, or of the value beside files."""
    path = given.path
    if not path and store.kind(given.artifact) == "blob":
        return store.read(given.artifact)
    with store.open_file(given.artifact, path or VALUE_FILE) as stream:
        return stream.read()


# In a process of its own


@dataclass(frozen=True)
class FunctionTask:
    """The step at ``address`` of an experiment file, whose path may be no UTF-8."""

    root: str
    file: bytes
    address: str
    identity: str
    inputs: dict[str, ResolvedInput]


def by_bytes[T, A](task: type[T]) -> Callable[[Callable[[T], A]], Work]:
    """Makes of a function of a task one of bytes, under the same name: what a job executes."""

    def wrapped(do: Callable[[T], A]) -> Work:
        @wraps(do)
        def function(data: bytes) -> bytes:
            return encode(do(decode(data, task)))

        return function

    return wrapped


@by_bytes(FunctionTask)
def execute_job(task: FunctionTask) -> StoredResult:
    """A function step in a fresh process."""
    root = open_root(task.root)
    node = graph_of(Path(os.fsdecode(task.file))).nodes[task.address]
    with ThreadPoolExecutor(1) as outside:
        workspace = StepWorkspace(str(root.local), task.identity, root.store(), outside=outside)
        workspace.out()  # it must be there before the kernel is told about it; and the thread too
        made = call(node.step, task.inputs, workspace)
        if (data := made.data) is not None:
            workspace.do(lambda: workspace.store.put_bytes(data))
        workspace.do(workspace.clear)
    return replace(made, data=None)


@cache
def graph_of(file: Path) -> Graph:
    """The graph of an experiment file, loaded once in this process."""
    return load_graph(file)
