"""Steps of an experiment's own, executed again: what the pipeline of a run takes from the store and did not make.

Which bytes a run began with is in its recipe, by digest; which function made them is only said by the log. The verifier
names their own file (``--experiment FILE``): the step of that address is executed from it, with everything that it
depends on, in an empty root that goes afterwards, and never anything that was brought. Where its identity (code,
configuration, inputs, lock) is the recorded one, equal bits establish the artifact, and other bits contradict it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ledger import LedgerError, copy_artifacts, create_key
from marin.data.collected import collections_of
from marin.errors import UsageError
from marin.graph.execution.loop import Outcome, execute_graph
from marin.graph.execution.work import by_bytes
from marin.graph.files import load_graph
from marin.graph.graph import Graph, Node
from marin.graph.step import Adopted
from marin.kinds.known import type_of
from marin.recipe.schema import Artifact, Recipe, artifacts
from marin.record import events
from marin.record.creation import create_root
from marin.record.events import StepCompleted
from marin.record.root import open_root
from marin.record.trust.keyfiles import KEY_VARIABLE
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job
from marin.verify.case import Case
from marin.verify.verdict import Verdict
from marin.work.placed import decode, encode

ORIGIN = "marin.local/verify"


class Again(msgspec.Struct, frozen=True):
    """Steps to be executed again: their addresses in ``file``, and the root whose store has what the file adopts."""

    file: str
    addresses: list[str]
    root: str


class RebuiltStep(msgspec.Struct, frozen=True):
    """What came of one: identity and artifact, or why there is none. ``collections``: those that it is made of."""

    identity: str = ""
    artifact: str = ""
    error: str = ""
    collections: list[str] = []


def judge_artifacts_taken(case: Case, file: Path | None) -> Verdict | None:
    """The verdict on what the recipe takes from the store; None where it takes nothing that a step made."""
    made = [item for item in artifacts(case.run.recipe).values() if item.maker is not None]
    if not made:
        return None
    found: dict[str, RebuiltStep] = {}
    if file is not None:
        again = Again(str(file.resolve()), [item.address for item in made], case.root.absolute)
        found = _execute(again, case.workshop)
        case.collections.extend(name for remade in found.values() for name in remade.collections)
    verdicts = [_judge(case, item, file, found.get(item.address)) for item in made]
    worst = next((v for word in ("FAIL", "UNAVAILABLE") for v in verdicts if v.outcome == word), verdicts[0])
    return Verdict(worst.outcome, tuple(line for verdict in verdicts for line in verdict.lines), worst.executed)


def _judge(case: Case, artifact: Artifact, file: Path | None, found: RebuiltStep | None) -> Verdict:
    what = f"{artifact.address}: {artifact.digest}, made by {artifact.maker}, a step of an experiment"
    if file is None or found is None:
        return Verdict("UNAVAILABLE", (f"{what}: not executed; `--experiment FILE` executes it",))
    recorded = _making_identities(case, artifact)
    if not recorded:
        return Verdict("UNAVAILABLE", (f"{what}: no step of that name and output is recorded in this log",))
    if found.error:
        return Verdict("UNAVAILABLE", (f"{what}: not executed: {found.error}",))
    if found.identity not in recorded:
        line = f"{what}: {file.name} has another step of that name (identity {found.identity}, recorded {recorded[-1]})"
        return Verdict("UNAVAILABLE", (f"{line}: other code, configuration, inputs or packages",))
    if found.artifact != artifact.digest:
        line = f"{artifact.address}: expected {artifact.digest}, found {found.artifact} by executing {artifact.maker}"
        return Verdict("FAIL", (line,), executed=True)
    return Verdict("PASS", (f"{artifact.address}: {artifact.digest}, made again by {artifact.maker} of {file.name}",))


def _making_identities(case: Case, artifact: Artifact) -> list[str]:
    """The identities under which the log says that this artifact was made, oldest first."""
    found = []
    for index, event in case.history.events(type=type_of(StepCompleted)):
        if event.body.get("address") != artifact.address or not event.stream.startswith("graph/"):
            continue
        body = events.read(StepCompleted, event.body, where=f"event {index}")
        if body.output.artifact == artifact.digest and body.step == artifact.maker:
            found.append(body.identity)
    return found


def _execute(again: Again, workshop: Path) -> dict[str, RebuiltStep]:
    """In a process of its own, whose root has a key of its own."""
    with tempfile.TemporaryDirectory(prefix="experiment-", dir=workshop) as folder:
        key = str(Path(folder) / "key")
        job = Job("experiment", execute_again, encode(again), environment={KEY_VARIABLE: key})
        try:
            with open_jobs("local") as jobs:
                return decode(jobs.submit(job).result(), dict[str, RebuiltStep])
        except LedgerError as error:
            return {address: RebuiltStep(error=str(error)) for address in again.addresses}


@by_bytes(Again)
def execute_again(again: Again) -> dict[str, RebuiltStep]:
    """Steps and what they depend on.

    Raises:
        UsageError: the file has no such step.
    """
    key = Path(os.environ[KEY_VARIABLE])
    create_key(key, ORIGIN)
    graph = load_graph(Path(again.file))
    missing = [address for address in again.addresses if address not in graph.nodes]
    if missing:
        raise UsageError(
            "the file has no such step",
            where=again.file,
            expected=", ".join(missing),
            found=", ".join(list(graph.nodes)[:8]),
            cure="name the file of the experiment that made it",
        )
    root = create_root(str(key.with_name("root")), origin=ORIGIN)
    wanted = Graph.of(graph.name, [graph.nodes[address].step for address in again.addresses])
    nodes = list(wanted.nodes.values())
    copy_artifacts(open_root(again.root).store(), root.store(), [*_adopted(nodes), *_collections(nodes)])
    outcome = execute_graph(wanted, root, file=Path(again.file))
    return {address: _remade(outcome, wanted, address) for address in again.addresses}


def _remade(outcome: Outcome, graph: Graph, address: str) -> RebuiltStep:
    if address in outcome.results:
        made = outcome.results[address]
        below = Graph.of(graph.name, [graph.nodes[address].step])
        return RebuiltStep(made.identity, made.output.artifact, collections=_collections(list(below.nodes.values())))
    failure = outcome.failures[address]
    failure = outcome.failures.get(failure.because, failure)
    return RebuiltStep(error=f"{failure.address}: {failure.error}")


def _collections(nodes: Sequence[Node]) -> list[str]:
    """The collections of documents that steps of the pipeline begin with: by digest too, and judged beside the run's own."""
    recipes = [node.step.config for node in nodes if isinstance(node.step.config, Recipe)]
    return list(dict.fromkeys(name for recipe in recipes for name in collections_of(recipe)))


def _adopted(nodes: Sequence[Node]) -> list[str]:
    """What the file brings in by digest: it is in the store of the verified root, or the file is another."""
    steps = [node.step for node in nodes]
    return [step.fn.digest for step in steps if isinstance(step.fn, Adopted)] + [
        step.override.digest for step in steps if step.override is not None
    ]
