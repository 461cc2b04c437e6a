"""The whole pipeline as a graph, for recipes that come from a command line instead of an experiment file.

Steps that several recipes have in common (their corpus, their tokens) are one node. The graph has the pipeline's own
name, so that its runs are of the plan that `dvc repro` has: a result of either is a hit for the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger import canonical_digest
from marin.execution.plan import step_config
from marin.execution.step import StepDefinition
from marin.graph.graph import Graph
from marin.graph.step import Resources, Step
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Recipe


def pipeline_graph(
    recipes: Sequence[Recipe], last: Sequence[str] = ("evaluate", "export")
) -> tuple[Graph, list[dict[str, str]]]:
    """The graph of all ``recipes`` up to the steps of these names, and for each recipe the address of each of its steps, by the
    step's name."""
    known: dict[str, Step] = {}
    addresses: list[dict[str, str]] = []
    ends: list[Step] = []
    for recipe in recipes:
        steps: dict[str, Step] = {}
        for definition in PIPELINE.steps:
            step = _step(definition, recipe, {name: steps[name] for name in definition.inputs})
            steps[definition.name] = known.setdefault(step.name, step)
        addresses.append({name: step.name for name, step in steps.items()})
        ends += [steps[name] for name in last]
    return Graph.of(PIPELINE.name, list(dict.fromkeys(ends))), addresses


def _step(definition: StepDefinition, recipe: Recipe, inputs: Mapping[str, Step]) -> Step:
    what = canonical_digest(
        {"config": step_config(definition, recipe), "inputs": {name: step.name for name, step in inputs.items()}}
    )
    cpus = recipe.arithmetic.threads if definition.devices != "none" else 1
    address = f"{definition.name}/{_label(definition.name, recipe)}-{what.removeprefix('sha256:')[:10]}"
    return Step(address, definition, recipe, inputs, Resources(cpus=cpus))


def _label(step: str, recipe: Recipe) -> str:
    """What people tell a step by; the digest beside it tells the rest."""
    if step == "corpus":
        return recipe.dataset.name
    if step in ("tokenizer", "tokens"):
        return f"{recipe.dataset.name}-bpe{recipe.tokenizer.vocab_size}"
    model = recipe.model
    return f"{model.architecture}-{model.num_layers}x{model.hidden_dim}-seed{recipe.seed}"
