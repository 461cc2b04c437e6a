"""From a graph and what the ledger remembers to: this step has its output, by this event; that one must be executed.

A result counts when the ledger holds a step.completed of exactly this identity and every stored byte of it hashes to
what the event says. A pinned output counts when its bytes are whole; so does an adopted one. Identities of a step
follow from the content of its inputs, so they are known when those are made, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ledger import LedgerError, Store
from marin.errors import MissingEvidence
from marin.execution.plan import CodeIdentity
from marin.execution.run_results import RunResults
from marin.graph.graph import Graph, Node
from marin.graph.identity import Identity, identify
from marin.graph.inputs import ResolvedInput, file_digest
from marin.graph.results import Action, NodeResult, Results, results_at
from marin.graph.step import Adopted, Pinned
from marin.graph.variants import Variant, bound, variants_of, with_artifacts
from marin.history.fold import step_view
from marin.history.run import StepView
from marin.history.runs import facts
from marin.pipeline.stages import PIPELINE
from marin.provenance.code import code_folder, files_digest, lock_digest
from marin.recipe.schema import Recipe
from marin.record.events import Output, StepCompleted
from marin.record.outputs import bytes_of
from marin.record.root import Root
from marin.work.cached import ResultCache


@dataclass
class Planner:
    """Answers for one graph over one root."""

    graph: Graph
    root: Root

    def __post_init__(self) -> None:
        self.results = Results(self.graph)
        self.digests: dict[tuple[str, ...], str] = {}
        self.cache = ResultCache(self.root.history(), self.store)

    def catch_up(self) -> None:
        """Look results up in what the ledger holds by now."""
        self.cache.history = self.root.history()

    @cached_property
    def store(self) -> Store:
        """The artifacts."""
        return self.root.store()

    @cached_property
    def variants(self) -> Mapping[str, Variant]:
        """The variant of each step of the pipeline."""
        return variants_of(self.graph)

    @cached_property
    def code(self) -> CodeIdentity:
        """The lock, for steps that are functions: their code is their own."""
        return CodeIdentity({}, lock_digest(code_folder()))

    def code_of(self, node: Node) -> CodeIdentity:
        """The code of the steps of the pipeline that a node is one of, under its recipe, and the lock."""
        variant = self.variants.get(node.address)
        return self.code if variant is None else self._code(variant)

    def _code(self, variant: Variant) -> CodeIdentity:
        files = {step.name: step.code(variant.recipe) for step in variant.plan.steps}
        for code in files.values():
            if code not in self.digests:
                self.digests[code] = files_digest(code_folder(), code)
        return CodeIdentity({name: self.digests[code] for name, code in files.items()}, self.code.lock)

    def inputs_of(self, node: Node) -> dict[str, ResolvedInput]:
        """The outputs that are inputs of a node.

        Raises:
            UsageError: an input is a file that the output of its step does not have.
        """
        found = {}
        for name, (address, path) in node.inputs.items():
            source = self.results[address]
            digest = source.output.digest
            if path:
                digest = file_digest(self.store, bytes_of(source.output), path, f"{node.address}: {name}")
            found[name] = ResolvedInput(
                digest, bytes_of(source.output), source.output.kind, source.metrics, source.origin, path, source.tables
            )
        return found

    def recipe(self, node: Node) -> Recipe | None:
        """The recipe of a step of the pipeline; that of a phase with the state it begins with, once that is known."""
        variant = self.variants.get(node.address)
        return None if variant is None else self.bound(node.step.config, variant)

    def bound(self, recipe: Recipe, variant: Variant) -> Recipe:
        """A recipe of ``variant``, complete once what it awaits is known."""
        recipe = with_artifacts(
            recipe,
            {
                step: bytes_of(self.results[address].output)
                for step, address in variant.artifacts.items()
                if address in self.results
            },
        )
        if not variant.previous or variant.previous not in self.results:
            return recipe
        return bound(
            recipe,
            state=self.results[variant.previous].output.digest,
            tokenizer=self.results[variant.kept].output.digest,
        )

    def plans(self) -> list[RunResults]:
        """What the variants say of their plans, as far as their recipes are complete: for the runs that are to end."""
        cache = replace(self.cache, history=self.root.history())
        found = []
        for variant in {id(variant): variant for variant in self.variants.values()}.values():
            if any(address not in self.results for address in variant.awaited):
                continue
            pinned = {
                name: self.results[address].completed_at
                for name, address in variant.pinned.items()
                if address in self.results
            }
            recipe = self.bound(variant.recipe, variant)
            results = results_at(self.root, pinned)
            found.append(RunResults(variant.plan, recipe, self._code(variant), cache, None, None, results))
        return found

    def identity(self, node: Node, given: Mapping[str, ResolvedInput] | None = None) -> Identity:
        """What the step is, now that its inputs are known; ``given`` if they were asked for already."""
        inputs = {name: item.digest for name, item in (self.inputs_of(node) if given is None else given).items()}
        return identify(node.step, inputs, self.code_of(node), self.recipe(node))

    def hit(self, node: Node, identity: Identity) -> NodeResult | None:
        """The output that the step has already, re-verified; None when it must be executed.

        Raises:
            MissingEvidence: a pinned or adopted artifact is not in the store, or not whole.
        """
        if node.step.override is not None:
            return self._present(node, identity, node.step.override, "pinned")
        if isinstance(node.step.fn, Adopted):
            return self._present(node, identity, node.step.fn, "adopted")
        apart = self.variants[node.address].plan.name if node.step.apart else ""
        found = self.cache.hit(identity.step, identity.digest, apart)
        return None if found is None else NodeResult.of(node.address, "cached", found)

    def done(self, node: Node, identity: Identity) -> NodeResult | None:
        """:meth:`hit`, unless its companion has more to do: then a process reuses the output, and does that. A step marked
        ``apart`` never reuses another run's result."""
        hit = self.hit(node, identity)
        if hit is None or hit.action != "cached" or node.step.definition is None or node.step.apart:
            return hit
        beside, variant = PIPELINE.step(identity.step).beside, self.variants[node.address]
        asked = beside is not None and beside.lacks(self.root, self.bound(variant.recipe, variant), identity.digest)
        return None if asked else hit

    def found(self, result: NodeResult) -> None:
        """Remember an output, for anyone who depends on it."""
        self.results.add(result)

    def _present(self, node: Node, identity: Identity, wanted: Pinned | Adopted, action: Action) -> NodeResult:
        try:
            artifact = self.store.artifact(wanted.digest)
        except LedgerError as error:
            raise MissingEvidence(
                f"a step is {action}, and its artifact is not here",
                where=f"step {node.address}",
                expected=wanted.digest,
                found=error.what,
                cure="bring it in with `marin store put`",
            ) from error
        if damage := self.cache.damage_of([wanted.digest]):
            raise MissingEvidence(
                f"a step is {action}, and its artifact is not whole",
                where=f"step {node.address}",
                expected=wanted.digest,
                found=damage,
                cure="put it into the store again",
            )
        if action == "pinned":
            for view in map(step_view, facts(self.cache.history, StepCompleted)):
                if view.step == identity.step and wanted.digest in (view.output.artifact, view.output.digest):
                    return replace(NodeResult.of(node.address, action, view), identity=identity.digest)
            if node.address in self.variants:
                raise MissingEvidence(
                    "a step of the pipeline is pinned to something else",
                    where=f"step {node.address}",
                    expected=f"the stored output of a recorded step {identity.step}",
                    found=wanted.digest,
                    cure="name an artifact that `marin ls artifacts` shows for that step",
                )
        output = Output(kind=wanted.kind, digest=wanted.digest, size=artifact.size, artifact=wanted.digest)
        view = StepView(identity.step, identity.digest, {}, output, {}, {}, 0.0, -1, "", -1, "", cached=False)
        return NodeResult.of(node.address, action, view)
