"""Executions of an experiment's graph, and what is recorded of its steps beside their results."""

from __future__ import annotations

from marin.kinds.body import Body, Digest, Json, Output
from marin.kinds.families.run import RunCompleted, RunStarted
from marin.kinds.kind import Fact, Folding, Kind

GRAPH_STARTED = "graph.started/v1"
GRAPH_COMPLETED = "graph.completed/v1"
STEP_CHECKED = "step.checked/v1"
ARTIFACT_ADOPTED = "artifact.adopted/v1"


class GraphStarted(Body, frozen=True):
    """One execution of an experiment's graph begins; its stream is ``graph/<graph>``. ``declaration`` is the digest of
    what the file says (addresses, configurations, functions, edges), ``steps`` how many there are, ``ends`` the wanted
    ones."""

    graph: str
    name: str
    file: str
    declaration: Digest
    steps: int
    ends: list[str]
    options: Json
    code: Json
    environment: Json


class GraphCompleted(Body, frozen=True):
    """The graph is through. ``outcome``: completed, failed or interrupted. ``counts`` by how steps ended. ``results``
    is the stored JSON list with one object for each step: address, step, identity, action, digest, artifact, kind,
    size, run and completed_at. ``outputs`` are those of the ends, by address."""

    graph: str
    outcome: str
    counts: dict[str, int]
    results: Digest
    outputs: dict[str, Output]
    failed: list[str]


class StepChecked(Body, frozen=True):
    """A step was executed a second time and its results were compared, by content digest."""

    step: str
    identity: Digest
    address: str
    deterministic: bool
    outputs: list[Digest]


class ArtifactAdopted(Body, frozen=True):
    """An artifact that was made elsewhere stands for the output of a step; ``vouched_by`` says so, nobody proved it."""

    graph: str
    address: str
    artifact: Digest
    kind: str
    vouched_by: str
    note: str


def _begins(run: Folding, fact: Fact[GraphStarted]) -> None:
    """An execution of a graph is the beginning of a run. It has no recipe; what it declares is its plan."""
    body = fact.body
    began = RunStarted(
        run=body.graph,
        pipeline=body.name,
        plan=body.declaration,
        recipe_digest=body.declaration,
        recipe={},
        code=body.code,
        environment=body.environment,
    )
    run.started = Fact(fact.index, fact.time, began, fact.actor)


def _ends(run: Folding, fact: Fact[GraphCompleted]) -> None:
    ended = RunCompleted(run=fact.body.graph, outputs=fact.body.outputs, metrics={})
    run.outcome, run.completed = fact.body.outcome, Fact(fact.index, fact.time, ended, fact.actor)


KINDS: tuple[Kind, ...] = (
    Kind(GRAPH_STARTED, GraphStarted, underway=True, fold=_begins),
    Kind(GRAPH_COMPLETED, GraphCompleted, fold=_ends),
    Kind(STEP_CHECKED, StepChecked),
    Kind(ARTIFACT_ADOPTED, ArtifactAdopted),
)
