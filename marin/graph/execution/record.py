"""What an execution of a graph writes into the ledger: its beginning, each step of a function, and how it ended.

The stream is ``graph/<id>``. Steps of the pipeline write their own events, in the run of their variant; the results of
graph.completed name all of them.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger import Draft, canonical_digest
from marin.errors import DataError, Diverged, StepFailed, UsageError
from marin.graph.graph import Graph, Node
from marin.graph.identity import Identity, kind_of
from marin.graph.inputs import ResolvedInput
from marin.graph.planning import Planner
from marin.graph.results import NodeResult, Results
from marin.graph.rows import canonical_list
from marin.graph.step import Adopted
from marin.history.changes import keep_listing
from marin.history.runs import stream_of_graph
from marin.history.table.sweeps import RECIPES, VARIED
from marin.kinds.families import graph as graph_events
from marin.provenance import environment
from marin.provenance.code import code_folder, provenance
from marin.recipe.schema import Execution
from marin.record import events
from marin.record.events import Output
from marin.work.recorded import Attempt, StoredResult

ENDS_SHOWN = 200
LASTING = (StepFailed, DataError, UsageError, Diverged)
"""Errors of the step's own making: the same step will fail again."""


@dataclass(frozen=True)
class Options:
    """How a graph is executed; none of it decides a bit.

    ``force``: execute even what has a result. ``force_failed``: execute again what failed by its own fault.
    ``check``: execute every step once more than needed and compare. ``max_concurrent``: processes at a time at most (0:
    as resources allow). ``execution``: on what, where a step says nothing else of its own. ``sweep``: digests of the recipes
    that were asked for together, and ``varied`` the keys in which they differ.
    """

    force: bool = False
    force_failed: bool = False
    check: bool = False
    max_concurrent: int = 0
    execution: Execution = field(default_factory=Execution)
    sweep: Sequence[str] = ()
    varied: Sequence[str] = ()


@dataclass(frozen=True)
class Failure:
    """A step that has no output. ``because`` is an address when a step that it needs failed, and ``error`` says why.
    ``paused``: it stopped where it was told to, and nothing is wrong."""

    address: str
    error: str
    because: str = ""
    paused: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a graph ended. ``event`` is the index of graph.completed, -1 where there was nothing to record; ``nondeterministic``
    are the steps whose results have differed."""

    graph: str
    results: Results
    failures: Mapping[str, Failure]
    event: int
    nondeterministic: Sequence[str] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many steps ended in which way."""
        counted = Counter[str](self.results.counts)
        counted.update(
            "skipped" if item.because else "paused" if item.paused else "failed" for item in self.failures.values()
        )
        return {how: count for how, count in sorted(counted.items()) if count}


@dataclass(frozen=True)
class Work:
    """A step that is to be executed: what it is, what it reads, which attempt this is, and how often it has moved.
    ``expected`` is the result that a second execution is compared with."""

    node: Node
    identity: Identity
    inputs: Mapping[str, ResolvedInput]
    attempt: int = 1
    move: int = 0
    expected: NodeResult | None = None

    @property
    def key(self) -> str:
        """What its lease is on: the identity, and for an execution apart its label with it."""
        label = self.node.step.apart
        return canonical_digest([self.identity.digest, label]) if label else self.identity.digest


@dataclass
class Record:
    """The events of one execution of a graph."""

    id: str
    graph: Graph
    planner: Planner
    options: Options
    file: Path | None
    executor: str
    begun: bool = False
    codes: set[str] = field(default_factory=set)

    def started(self, work: Work) -> Draft:
        """step.started of a function."""
        identity = work.identity
        return self.attempt(work).started(identity.config, identity.code, lock=identity.lock, number=work.attempt)

    def attempt(self, work: Work) -> Attempt:
        """An attempt at a function, as its events name it."""
        identity = work.identity
        return Attempt(
            self.id, identity.step, identity.digest, identity.inputs, work.node.address, stream_of_graph(self.id)
        )

    def keep_code(self, work: Work) -> None:
        """The list of a step's code files under its digest, so that a later run can say which of them changed."""
        if (digest := work.identity.code) not in self.codes:
            self.codes.add(digest)
            keep_listing(self.planner.store, kind_of(work.node.step).listing)

    def checked(self, work: Work, second: Output) -> Draft:
        """step.checked: whether a second execution made what the first one did."""
        assert work.expected is not None, "there is something to compare with"
        first = work.expected.output.digest
        return self._draft(
            graph_events.STEP_CHECKED,
            graph_events.StepChecked(
                step=work.identity.step,
                identity=work.identity.digest,
                address=work.node.address,
                deterministic=first == second.digest,
                outputs=[first, second.digest],
            ),
        )

    def beginning(self) -> list[Draft]:
        """graph.started, before the first step of this execution."""
        if self.begun:
            return []
        source = provenance(code_folder())
        if source.diff:
            self.planner.store.put_bytes(source.diff)
        return [
            self._draft(
                graph_events.GRAPH_STARTED,
                graph_events.GraphStarted(
                    graph=self.id,
                    name=self.graph.name,
                    file=self.file.name if self.file else "",
                    declaration=self.graph.declaration(),
                    steps=len(self.graph.nodes),
                    ends=list(self.graph.ends)[:ENDS_SHOWN],
                    options={
                        "force": self.options.force,
                        "force_failed": self.options.force_failed,
                        "runner": self.options.execution.runner,
                        "executor": self.executor,
                        **(
                            {RECIPES: list(self.options.sweep), VARIED: list(self.options.varied)}
                            if self.options.sweep
                            else {}
                        ),
                    },
                    code=source.describe(),
                    environment=environment.describe(self.planner.code.lock),
                ),
            )
        ]

    def ending(self, outcome: str, failures: Mapping[str, Failure]) -> list[Draft]:
        """How it ended; nothing for an execution in which nothing happened."""
        results = self.planner.results
        adoptions = [
            draft
            for node in self.graph.nodes.values()
            if isinstance(node.step.fn, Adopted)
            and node.address in results
            and not self.planner.cache.recorded(results[node.address].step, results[node.address].identity)
            for draft in self._adoption(node)
        ]
        if not self.begun and not adoptions:
            return []
        rows = (
            {
                "address": item.address,
                "step": item.step,
                "identity": item.identity,
                "action": item.action,
                "digest": item.output.digest,
                "artifact": item.output.artifact,
                "kind": item.output.kind,
                "size": item.output.size,
                "run": item.origin,
                "completed_at": item.completed_at,
            }
            for item in results.values()
        )
        with tempfile.TemporaryDirectory(prefix="marin-results-") as folder:
            file = Path(folder) / "results.json"
            with file.open("wb") as stream:
                stream.writelines(canonical_list(rows))
            listed = self.planner.store.put_file(file).digest
        ends = [address for address in self.graph.ends if address in results][:ENDS_SHOWN]
        return [
            *self.beginning(),
            *adoptions,
            self._draft(
                graph_events.GRAPH_COMPLETED,
                graph_events.GraphCompleted(
                    graph=self.id,
                    outcome=outcome,
                    counts=Outcome(self.id, results, failures, -1).counts,
                    results=listed,
                    outputs={address: results[address].output for address in ends},
                    failed=[item.address for item in failures.values() if not (item.because or item.paused)][
                        :ENDS_SHOWN
                    ],
                ),
            ),
        ]

    def _adoption(self, node: Node) -> list[Draft]:
        adopted, result = node.step.fn, self.planner.results[node.address]
        assert isinstance(adopted, Adopted)
        attempt = Attempt(self.id, result.step, result.identity, address=node.address, stream=stream_of_graph(self.id))
        return [
            self._draft(
                graph_events.ARTIFACT_ADOPTED,
                graph_events.ArtifactAdopted(
                    graph=self.id,
                    address=node.address,
                    artifact=adopted.digest,
                    kind=adopted.kind,
                    vouched_by=adopted.vouched_by,
                    note=adopted.note,
                ),
            ),
            attempt.completed(StoredResult(result.output, {})),
        ]

    def _draft(self, kind: str, body: events.Body) -> Draft:
        return Draft(kind, stream_of_graph(self.id), events.write(body))
