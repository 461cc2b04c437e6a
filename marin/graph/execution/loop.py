"""The loop that executes a graph: brings every step to its output, in parallel as far as the machine allows, and records it.

One loop in one thread. A step whose inputs are known is looked up by identity; a hit is verified and costs nothing. For
what must be executed the loop takes leases (:mod:`marin.execution.leases.held`), in one batch with the step.started that
it writes, and has it executed by the strategy of its kind (:mod:`marin.graph.execution.strategies`): in a process of its
own, or right here, many steps between two commits. A result is in the store before its step.completed. That of a function
is recorded together with the release of its lease; that of a step of the pipeline is recorded by its own process, unless
another executor has the lease by then. So whenever this process is killed, what is recorded is done, what is not is not,
and starting again goes on.

A failed step takes down what depends on it and nothing else.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ledger import Draft, LedgerError, Unavailable
from marin.errors import Paused, UsageError
from marin.execution import tracker
from marin.execution.completion import complete_open_runs, interrupted_between_steps
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant
from marin.execution.leases.step import POLL_SECONDS
from marin.graph.execution.progress import Progress
from marin.graph.execution.record import LASTING, Failure, Options, Outcome, Record, Work
from marin.graph.execution.strategies import Ended, Functions, Stages, Strategies
from marin.graph.execution.work import StepWorkspace, call
from marin.graph.graph import Graph, Node
from marin.graph.planning import Planner
from marin.graph.results import NodeResult
from marin.graph.step import Adopted
from marin.history.run import new_id
from marin.history.table.nondeterminism import nondeterministic
from marin.process.interruption import Interruption
from marin.provenance.environment import available_cores
from marin.record.root import Root
from marin.runners.engines import open_jobs
from marin.runners.jobs import JobFuture, JobRunner
from marin.runners.reservation import available_gpus
from marin.work.recorded import StoredResult

__all__ = ["Failure", "Options", "Outcome", "execute_graph"]

log = logging.getLogger(__name__)

BATCH = 256
"""How many steps of this process share one commit."""
WINDOW = 4 * BATCH
"""How many steps are looked up ahead of their execution at most, and how many small values are kept for those that read
them."""
LARGEST_KEPT = 4096
"""Bytes of a value that is kept."""


def execute_graph(
    graph: Graph,
    root: Root,
    *,
    file: Path | None = None,
    options: Options | None = None,
    claimant: Claimant | None = None,
) -> Outcome:
    """Bring every step of ``graph`` to its output.

    Args:
        file: the experiment file that the graph came from; other processes load it again. None: functions are called in
            this process only, as in a notebook.

    Raises:
        LedgerError: the root cannot be read or written, or the graph cannot be planned. A step that fails raises
            nothing.
        KeyboardInterrupt: asked to stop; what was done is recorded and leases are given back.
    """
    root.check_writable()  # a missing or wrong key is said before hours of work, not after
    with Interruption() as interruption:
        execution = GraphExecution(graph, root, file, options or Options(), claimant or Claimant(new_id()))
        try:
            execution.run()
            return execution.end()
        except KeyboardInterrupt as signal:
            with interruption.shield():
                execution.abandon(str(signal))
            raise


class GraphExecution:
    """One execution of a graph: :meth:`run`, :meth:`end`. What it adds to memory does not grow with the number of steps: of
    one that has its output the ledger keeps everything, and a private file what its dependents ask for."""

    def __init__(self, graph: Graph, root: Root, file: Path | None, options: Options, claimant: Claimant) -> None:
        """What the ledger remembers, and what waits for what: all that is kept for each step, before the first is
        executed."""
        self.graph, self.root, self.options = graph, root, options
        self.id = new_id()
        self.failures: dict[str, Failure] = {}
        self.running: dict[JobFuture, Work] = {}
        self.leased: dict[str, Work] = {}
        self.planner = Planner(graph, root)
        self.leases = HeldLeases(root, claimant, self.planner.catch_up)
        self.record = Record(self.id, graph, self.planner, options, file, claimant.executor)
        stages = Stages(root, self.planner, options, claimant.executor)
        self.strategies = Strategies(Functions(root, file, options), stages)
        self.local = str(root.local)
        self.values: dict[str, bytes] = {}
        nodes = graph.nodes
        self.waiting, self.depth = array("I", [0]) * len(nodes), array("I", [0]) * len(nodes)
        for node in nodes.values():  # how many outputs a node waits for, and how many steps the longest way to it has
            self.waiting[node.number] = len(node.targets)
            self.depth[node.number] = 1 + max((self.depth[nodes[target].number] for target in node.targets), default=0)
        self.nondeterministic: list[str] = []
        self.ready = deque(address for address, node in nodes.items() if not self.waiting[node.number])
        self.ends = graph.ends
        self.todo: deque[Work] = deque()
        self.elsewhere: list[Work] = []
        self.jobs: JobRunner | None = None
        self.progress = Progress(len(nodes))
        self.stack = ExitStack()

    def run(self) -> None:
        """Bring every step to its output, or to its failure; once."""
        with self.stack:
            self.stack.callback(self.leases.stop)
            while self.ready or self.todo or self.running or self.elsewhere:
                self._look_up()
                if self._call_here() or self._start_jobs():
                    continue
                self._wait()

    # What has its output already

    def _look_up(self) -> None:
        """Settle what has a result; put on the list what must be executed, a window of it."""
        while self.ready and len(self.todo) < WINDOW:
            address = self.ready.popleft()
            node = self.graph.nodes[address]
            try:
                inputs = self.planner.inputs_of(node)
                identity = self.planner.identity(node, inputs)
                hit = None if self._is_forced(node) else self.planner.done(node, identity)
            except LedgerError as error:
                self._fail(address, str(error))
                continue
            if hit is not None and self.options.check and hit.action == "cached":
                self.todo.append(Work(node, identity, inputs, expected=hit))
            elif hit is not None:
                self._release(hit)
            elif (failed := self.planner.cache.failure(identity.digest)) and not (
                self.options.force_failed or self.options.force
            ):
                self._fail(
                    address,
                    f"it failed before (event {failed.index}): {failed.body.error}; "
                    "correct it, or --force-failed tries again",
                )
            else:
                self.todo.append(Work(node, identity, inputs))

    def _is_forced(self, node: Node) -> bool:
        return self.options.force and node.step.override is None and not isinstance(node.step.fn, Adopted)

    def _release(self, result: NodeResult) -> None:
        self.planner.found(result)
        self.progress.found(result.address, result.action, result.seconds)
        for address in self.graph.dependents(result.address):
            number = self.graph.nodes[address].number
            self.waiting[number] -= 1
            if not self.waiting[number] and address not in self.failures:
                self.ready.append(address)

    def _fail(self, address: str, error: str, because: str = "", *, paused: bool = False) -> None:
        if address in self.failures:
            return
        self.failures[address] = Failure(address, error, because, paused)
        self.progress.failed(address, error, because, paused=paused)
        front = [address]
        while front:
            for dependent in self.graph.dependents(front.pop()):
                if dependent not in self.failures:
                    ended = "paused" if paused else "failed"
                    self.failures[dependent] = Failure(dependent, f"it needs {address}, which {ended}", address)
                    self.progress.failed(dependent, "", address)
                    front.append(dependent)

    # Leases

    def _lease(self, wanted: Sequence[Work]) -> list[Work]:
        """Take the leases on what nobody else is at work on and nobody has finished; the rest waits for anyone who has it."""
        if not self.leases.known:  # anyone who finds all in the ledger has no business with leases
            self.leases.catch_up()
        while True:
            free = self._free(wanted)
            if not free:
                return []
            for work in free:
                self.record.keep_code(work)
            started = [self.record.started(work) for work in free if self._is_recorded(work)]
            steps = {work.key: work.node.address for work in free}
            with (
                Interruption() as interruption,
                interruption.shield(),
            ):  # what was taken is known here, or was not taken
                taken = self.leases.take(steps, self.record.beginning(), started)
                if taken:
                    self.record.begun = True
                    self.leased.update((work.key, work) for work in free)
            if taken:
                return free
            self.leases.catch_up()
            wanted = free  # the others have their outputs by now, or another's

    def _free(self, wanted: Sequence[Work]) -> list[Work]:
        free = []
        for work in wanted:
            hit = None if work.expected or self._is_forced(work.node) else self.planner.done(work.node, work.identity)
            if hit is not None:
                self._release(hit)
            elif (rival := self.leases.rival(work.key)) is not None:
                self.elsewhere.append(work)
                self.progress.held(work.node.address, rival.executor)
            else:
                free.append(work)
        return free

    # Execution in this process

    def _call_here(self) -> bool:
        """Call what is declared to be short, many between two commits. Whether there was anything."""
        here = list(islice((work for work in self.todo if self._is_here(work.node)), BATCH))
        if not here:
            return False
        chosen = {id(work) for work in here}
        self.todo = deque(work for work in self.todo if id(work) not in chosen)
        leased = self._lease(here)
        if not leased:
            return False
        made: list[tuple[Work, StoredResult | LedgerError]] = []
        try:
            made.extend((work, self._call(work)) for work in leased)
        finally:
            self._record(made)
        return True

    def _is_here(self, node: Node) -> bool:
        return self.strategies.of(node.step).is_here(node.step)

    def _is_recorded(self, work: Work) -> bool:
        return self.strategies.of(work.node.step).is_recorded

    def _call(self, work: Work) -> StoredResult | LedgerError:
        workspace = StepWorkspace(self.local, work.identity.digest, self.planner.store, self.values)
        tries = work.node.step.resources.retries + 1
        while True:
            tries -= 1
            try:
                made = call(work.node.step, work.inputs, workspace)
                workspace.clear()
                return made
            except LedgerError as error:
                if tries and not isinstance(error, UsageError):
                    log.info("%s: %s; again", work.node.address, error)
                    continue
                return error
            finally:
                workspace.close()

    # Execution in other processes

    def _start_jobs(self) -> bool:
        """Start what fits. Whether anything was started."""
        room = self._room()
        chosen: list[Work] = []
        for work in sorted(self.todo, key=lambda work: -self.depth[work.node.number]):  # results before more beginnings
            if self._is_here(work.node):
                continue
            needs = work.node.step.resources
            if len(self.running) + len(chosen) >= (self.options.max_concurrent or 10_000) or room <= 0:
                break
            if needs.cpus <= room or not (self.running or chosen):
                chosen.append(work)
                room -= needs.cpus
        if not chosen:
            return False
        gone = {id(work) for work in chosen}
        self.todo = deque(work for work in self.todo if id(work) not in gone)
        leased = self._lease(chosen)
        for work in leased:
            self._submit(work)
        return bool(leased)

    def _room(self) -> float:
        """How many cores are free. What a cluster has is the cluster's business: there its own queue decides."""
        if self.options.execution.runner == "ray":
            return 1e9
        return self._cores() - sum(min(work.node.step.resources.cpus, self._cores()) for work in self.running.values())

    @staticmethod
    def _cores() -> int:
        return available_cores()

    def _submit(self, work: Work) -> None:
        asked = self.options.execution
        if self.jobs is None:
            gpus = available_gpus() if asked.runner == "local" else 0
            self.jobs = self.stack.enter_context(
                open_jobs(asked.runner, address=asked.address, gpus=gpus, root=self.root.absolute)
            )
        try:
            self.running[self.jobs.submit(self.strategies.of(work.node.step).job(work))] = work
        except LedgerError as error:
            self._record([(work, error)])
            return
        self.progress.started(work.node.address)

    def _wait(self) -> None:
        """Until a job is done, or another executor is."""
        if not self.running:
            if self.elsewhere:
                time.sleep(POLL_SECONDS)
                self._look_elsewhere()
            return
        timeout = POLL_SECONDS if self.elsewhere else None
        done, _ = wait(self.running, timeout=timeout, return_when=FIRST_COMPLETED)
        finished: list[tuple[Work, Ended]] = []
        for future in [future for future in self.running if future in done]:
            work = self.running.pop(future)
            result = self._result(work, future)
            if result is None:
                log.info("%s paused, and moves", work.node.address)
                self._submit(replace(work, move=work.move + 1))
            else:
                finished.append((work, result))
        self._record(finished)
        if self.elsewhere and not done:
            self._look_elsewhere()

    def _look_elsewhere(self) -> None:
        """What have the other executors done? A result of theirs is a hit, a lease that ended is ours to take."""
        self.leases.catch_up()
        waiting, self.elsewhere = self.elsewhere, []
        for work in waiting:
            hit = None if work.expected or self._is_forced(work.node) else self.planner.done(work.node, work.identity)
            if hit is not None:
                self._release(hit)
            else:
                self.todo.append(work)

    def _result(self, work: Work, future: JobFuture) -> Ended | None:
        try:
            return self.strategies.of(work.node.step).ended(work, future.result())
        except LedgerError as error:
            return error

    # What is recorded

    def _record(self, finished: Sequence[tuple[Work, Ended]]) -> None:
        """Bytes first, then the results with the release of their leases, then the ones that waited for them."""
        for work, made in finished:
            if not self.leases.is_held(work.key):
                self._lost(work, made)
        finished = [(work, made) for work, made in finished if self.leases.is_held(work.key)]
        if not finished:
            return
        blobs = {
            made.output.artifact: made.data
            for _, made in finished
            if isinstance(made, StoredResult) and made.data is not None
        }
        if blobs:
            self.planner.store.blobs.put_many(blobs)
            self._remember_values(blobs)
        drafts: list[Draft] = []
        places: dict[str, int] = {}
        for work, made in finished:
            if work.expected is not None and isinstance(made, StoredResult | NodeResult):
                drafts.append(self.record.checked(work, made.output))
            elif isinstance(made, StoredResult):
                places[work.key] = len(drafts)
                drafts.append(self.record.attempt(work).completed(made))
            elif isinstance(made, LedgerError) and self._is_recorded(work):
                drafts.append(self.record.attempt(work).failed(made, lasting=isinstance(made, LASTING)))
        mine = [work.key for work, _ in finished]
        if (receipts := self.leases.end(mine, drafts)) is None:
            self._record(finished)  # one of them was lost, and is known to be
            return
        for digest in mine:
            self.leased.pop(digest, None)
        again = [work for work, made in finished if isinstance(made, LedgerError) and self._tries_again(work, made)]
        for work, made in finished:
            if work.expected is not None and (work not in again):
                self._compare(work, work.expected, made)
            elif isinstance(made, NodeResult):
                self._executed(work, made)
            elif isinstance(made, StoredResult):
                result = self.record.attempt(work).result(made, receipts[places[work.key]].index)
                self._executed(work, NodeResult.of(work.node.address, "executed", result))
            elif work not in again:
                self._fail(work.node.address, str(made), paused=isinstance(made, Paused))

    def _lost(self, work: Work, made: Ended) -> None:
        """Another executor has taken the lease over. What a process of ours recorded before stands."""
        self.leased.pop(work.key, None)
        if work.expected is not None:
            self._compare(work, work.expected, made)
        elif isinstance(made, NodeResult):
            self._executed(work, made)
        else:
            log.warning("%s: the lease was lost to another executor; its result is not recorded", work.node.address)
            self.todo.append(work)

    def _executed(self, work: Work, result: NodeResult) -> None:
        """A step was executed; under --check it is executed once more before anybody takes its output."""
        if self.options.check and result.action == "executed":
            self.todo.append(replace(work, attempt=1, move=0, expected=result))
        else:
            self._release(result)

    def _compare(self, work: Work, first: NodeResult, second: Ended) -> None:
        """The second execution against the first. The first result stands, whatever comes out."""
        found = str(second) if isinstance(second, LedgerError) else second.output.digest
        if isinstance(second, LedgerError) and not isinstance(second, LASTING):
            log.warning(
                "%s: its second execution came to no end, so nothing was compared: %s", work.node.address, second
            )
        elif found != first.output.digest:
            self.nondeterministic.append(work.node.address)
            log.warning("%s is not deterministic: made %s, and then %s", work.node.address, first.output.digest, found)
        self._release(first)

    def _tries_again(self, work: Work, error: LedgerError) -> bool:
        """Retry by the step's policy, for a step that ran in another process."""
        spent = work.attempt > work.node.step.resources.retries
        if spent or self._is_here(work.node) or isinstance(error, UsageError | Unavailable | Paused):
            return False
        self.todo.append(replace(work, attempt=work.attempt + 1))
        return True

    def _remember_values(self, blobs: Mapping[str, bytes]) -> None:
        self.values.update((digest, data) for digest, data in blobs.items() if len(data) <= LARGEST_KEPT)
        for digest in list(islice(self.values, max(0, len(self.values) - WINDOW))):
            del self.values[digest]

    def end(self, outcome: str = "") -> Outcome:
        """Record how it ended; an execution in which nothing happened leaves no trace."""
        broken = any(not failure.because and not failure.paused for failure in self.failures.values())
        outcome = outcome or ("failed" if broken else "interrupted" if self.failures else "completed")
        for run in complete_open_runs(self.root, self.planner.plans(), take_over=not self.options.force):
            tracker.completed(self.root, run)
        drafts = self.record.ending(outcome, self.failures)
        if not drafts:
            return Outcome("", self.planner.results, self.failures, -1, self._nondeterministic())
        event = self.root.append(drafts)[-1].index
        return Outcome(self.id, self.planner.results, self.failures, event, self._nondeterministic())

    def _nondeterministic(self) -> list[str]:
        """Steps found not to be deterministic, now or before."""
        known = nondeterministic(self.root.history())
        named = [item.address for item in self.planner.results.values() if item.identity in known] if known else []
        return sorted({*self.nondeterministic, *named})

    def abandon(self, signal: str) -> None:
        """Asked to stop by ``signal``: processes have been ended by now; give the leases back and say how far it came."""
        try:
            if self.leased:
                self.leases.catch_up()
                self.leases.end([key for key in self.leased if self.leases.is_held(key)])
                self.leased.clear()
            if self.record.begun:
                self.end("interrupted")
                interrupted_between_steps(self.root, self.planner.plans(), signal)
                log.warning("what is done is recorded: run the same command again, and it goes on from there")
        except LedgerError as error:
            log.warning("the interruption could not be recorded: %s", error)
