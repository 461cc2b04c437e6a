"""Variants: the recipes of an experiment, and the run that each of them is recorded in.

A step of the pipeline is always a step of a run, so that `marin verify` can replay it and MLflow shows it. Steps of the
pipeline whose recipes agree are one run of one plan. A step that several variants share (their corpus, their tokenizer)
is executed in the run of the first of them; the others take its result over, as the pipeline itself would.

A variant whose recipe is a phase continues the training of another variant. Which state that leaves is not known when
the file is read: the recipe is completed (:func:`bound`) when the earlier training is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from marin.errors import UsageError
from marin.execution.plan import Plan
from marin.execution.step import ARTIFACT, PREVIOUS, StepDefinition
from marin.graph.graph import Graph, Node
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import ArtifactDataset, Recipe, digest, plain


@dataclass(frozen=True)
class Variant:
    """One recipe, and the part of the pipeline that the experiment wants of it. ``previous`` is the address of the
    training that it continues, and ``kept`` that of the tokenizer which it keeps; "" for a variant from the beginning.
    ``pinned`` are steps whose output is pinned, with their addresses; ``artifacts`` steps that take what a step of
    one's own makes, with the address of that."""

    plan: Plan
    recipe: Recipe
    previous: str = ""
    kept: str = ""
    pinned: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The addresses whose outputs must be known before the recipe is complete."""
        return (*([self.previous] if self.previous else []), *self.artifacts.values())


def variants_of(graph: Graph) -> Mapping[str, Variant]:
    """The variant that each step of the pipeline is executed in, by address.

    Raises:
        UsageError: a step says something else about what it shares with the step that it feeds; a step of the pipeline
            takes something that is not one; a recipe has no seed.
    """
    stages = {address: node for address, node in graph.nodes.items() if node.step.definition is not None}
    fed = {target for node in stages.values() for target in _feeding(stages, node)}
    ends: dict[tuple[str, str], list[str]] = {}
    for address, node in stages.items():
        if address not in fed:
            ends.setdefault((digest(node.step.config), node.step.apart), []).append(address)
    found: dict[str, Variant] = {}
    for (_, label), addresses in ends.items():
        recipe = stages[addresses[0]].step.config
        if recipe.seed is None:
            raise UsageError(
                "a step without a seed",
                where=f"step {addresses[0]}",
                expected="an integer",
                found="null",
                cure="say it in the file: a graph says beforehand what it will make",
            )
        variant = _variant(graph.name + (f".{label}" if label else ""), recipe, stages, _upstream(stages, addresses))
        for address in _upstream(stages, addresses):
            found.setdefault(address, variant)
    return found


def _variant(name: str, recipe: Recipe, stages: Mapping[str, Node], members: Sequence[str]) -> Variant:
    """The variant of ``recipe`` whose steps are ``members``."""
    definitions: dict[str, StepDefinition] = {}
    nodes: dict[str, Node] = {}
    for address in members:
        node = stages[address]
        assert node.step.definition is not None, "members are steps of the pipeline"
        _check_agreement(address, node.step.definition, node.step.config, recipe)
        definitions[node.step.definition.name] = node.step.definition
        nodes[node.step.definition.name] = node
    pins = {step: override.digest for step, node in nodes.items() if (override := node.step.override) is not None}
    plan = Plan(name, tuple(item for item in PIPELINE.steps if item.name in definitions), pins)
    previous = next((node.inputs[PREVIOUS][0] for node in nodes.values() if PREVIOUS in node.inputs), "")
    return Variant(
        plan,
        recipe,
        previous,
        kept=stages[previous].inputs["tokenizer"][0] if previous else "",
        pinned={step: nodes[step].address for step in pins},
        artifacts={step: node.inputs[ARTIFACT][0] for step, node in nodes.items() if ARTIFACT in node.inputs},
    )


def bound(recipe: Recipe, *, state: str, tokenizer: str) -> Recipe:
    """The recipe of a phase with the state that it begins with."""
    phase = recipe.phase
    if phase is None or phase.state is not None:
        return recipe
    return replace(recipe, phase=replace(phase, state=state, tokenizer=tokenizer))


def with_artifacts(recipe: Recipe, digests: Mapping[str, str]) -> Recipe:
    """The recipe with the artifacts that its steps take (by step), now that they are made."""
    if isinstance(recipe.dataset, ArtifactDataset) and (made := digests.get("corpus")):
        dataset = replace(recipe.dataset, artifact=replace(recipe.dataset.artifact, digest=made))
        recipe = replace(recipe, dataset=dataset)
    if recipe.tokens.artifact is not None and (made := digests.get("tokens")):
        recipe = replace(recipe, tokens=replace(recipe.tokens, artifact=replace(recipe.tokens.artifact, digest=made)))
    return recipe


def _feeding(stages: Mapping[str, Node], node: Node) -> list[str]:
    """The steps of the same variant that a step reads."""
    found = []
    for name, (target, path) in node.inputs.items():
        if name == ARTIFACT and not path:
            continue
        if target not in stages or path:
            raise UsageError(
                "a step of the pipeline takes something else",
                where=f"step {node.address}: {name}",
                expected="the whole output of a step of the pipeline",
                found=target + (f", file {path}" if path else ""),
                cure="use default_train and its like from experiments.defaults",
            )
        if name != PREVIOUS:
            found.append(target)
    return found


def _upstream(stages: Mapping[str, Node], addresses: list[str]) -> list[str]:
    wanted = set(addresses)
    for address in reversed(list(stages)):
        if address in wanted:
            wanted.update(_feeding(stages, stages[address]))
    return [address for address in stages if address in wanted]


def _check_agreement(address: str, definition: StepDefinition, own: Recipe, variant: Recipe) -> None:
    companion = PIPELINE.step(definition.name).beside
    if companion is not None and companion.asked(own) not in (None, companion.asked(variant)):
        raise UsageError(
            "what is to be measured on the way is not in the recipe of what the step feeds",
            where=f"step {address}",
            expected="the same evaluation.every, sets and tasks in both",
            found=f"{companion.asked(own)} and {companion.asked(variant)}",
            cure="build the later step from the earlier one, as default_eval does",
        )
    if plain(definition.config(own)) != plain(definition.config(variant)):
        raise UsageError(
            "a step and what it feeds have different recipes",
            where=f"step {address}",
            expected=f"the same {definition.name} in both",
            found="two recipes that differ there",
            cure="build the later step from the earlier one, as default_train does",
        )
