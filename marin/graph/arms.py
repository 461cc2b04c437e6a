"""Arms: the recipes of an experiment, and the run that each of them is recorded in.

A step of the pipeline is always a step of a run, so that `marin verify` can replay it and MLflow shows it. Steps of the
pipeline whose recipes agree are one run of one plan. A step that several arms share (their corpus, their tokenizer) is
executed in the run of the first of them; the others take its result over, as the pipeline itself would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marin.errors import UsageError
from marin.graph.graph import Graph
from marin.pipeline import PIPELINE
from marin.plan import Plan
from marin.recipe import Recipe, digest, plain
from marin.steps import StepDefinition


@dataclass(frozen=True)
class Arm:
    """One recipe, and the part of the pipeline that the experiment wants of it."""

    plan: Plan
    recipe: Recipe


def arms_of(graph: Graph) -> Mapping[str, Arm]:
    """The arm that each step of the pipeline is executed in, by address.

    Raises:
        UsageError: a step says something else about what it shares with the step that it feeds.
    """
    stages = {address: node for address, node in graph.nodes.items() if isinstance(node.step.fn, StepDefinition)}
    fed = {target for node in stages.values() for target, _ in node.inputs.values()}
    ends: dict[str, list[str]] = {}
    for address, node in stages.items():
        if address not in fed:
            ends.setdefault(digest(node.step.config), []).append(address)
    found: dict[str, Arm] = {}
    for addresses in ends.values():
        members = _upstream(graph, addresses)
        recipe = stages[addresses[0]].step.config
        definitions = {}
        for address in members:
            definition = stages[address].step.fn
            assert isinstance(definition, StepDefinition), "members are steps of the pipeline"
            _check_agreement(address, definition, stages[address].step.config, recipe)
            definitions[definition.name] = definition
        arm = Arm(Plan(graph.name, tuple(item for item in PIPELINE.steps if item.name in definitions)), recipe)
        for address in members:
            found.setdefault(address, arm)
    return found


def _upstream(graph: Graph, addresses: list[str]) -> list[str]:
    wanted = set(addresses)
    for address in reversed(list(graph.nodes)):
        if address in wanted:
            wanted.update(target for target, _ in graph.nodes[address].inputs.values())
    return [address for address in graph.nodes if address in wanted]


def _check_agreement(address: str, definition: StepDefinition, own: Recipe, arm: Recipe) -> None:
    if plain(definition.config(own)) != plain(definition.config(arm)):
        raise UsageError("a step and what it feeds have different recipes", where=f"step {address}",
                         expected=f"the same {definition.name} in both", found="two recipes that differ there",
                         cure="build the later step from the earlier one, as default_train does")
