"""An experiment at a hundredth of its size: does every arm run from start to end, before hours are spent on the first?

Only trainings shrink: their train steps, segments, warm-up and moves, by :data:`FRACTION`. Data, tokenizers and measurements
stay whole, so that what they make is a hit for the real graph. A phase begins where the shrunken training before it ends.
Functions of the experiment's own get what they would get, with shorter curves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields

from msgspec.structs import replace

from marin.execution.phases import successor
from marin.execution.step import PREVIOUS
from marin.graph.graph import Graph
from marin.graph.step import Ref, Resources, Step
from marin.recipe.schema import Recipe, Trainer

FRACTION = 100
LEAST = 2
"""Train steps of a shrunken training at least: one to begin with, and one that has a step before it."""


def sanity(graph: Graph) -> Graph:
    """``graph`` with every training shrunk; its name says so, its addresses stay.

    Raises:
        UsageError: what a phase may not change (as for the graph itself).
    """
    made: dict[str, Step] = {}
    for node in graph.nodes.values():
        step = node.step
        inputs = {name: _small(value, made) for name, value in step.inputs.items()}
        config = _recipe(step.config, inputs) if isinstance(step.config, Recipe) else step.config
        made[step.name] = Step(step.name, step.fn, config, inputs, _resources(step), step.override, step.apart)
    return Graph.of(f"{graph.name}-sanity", [made[address] for address in graph.ends])


def _small(value: Step | Ref, made: Mapping[str, Step]) -> Step | Ref:
    return Ref(made[value.step.name], value.path) if isinstance(value, Ref) else made[value.name]


def _recipe(recipe: Recipe, inputs: Mapping[str, Step | Ref]) -> Recipe:
    trainer, segment = recipe.trainer, _part(recipe.trainer.steps_per_segment, least=1)
    words = tuple(sorted({_part(count, least=1) for count in trainer.states_at_words or ()})) or None
    small = replace(
        recipe,
        trainer=replace(trainer, num_steps=_train_steps(trainer), steps_per_segment=segment, states_at_words=words),
        optimizer=replace(recipe.optimizer, warmup_steps=_part(recipe.optimizer.warmup_steps, least=0)),
    )
    if recipe.evaluation.every is not None:
        small = replace(small, evaluation=replace(small.evaluation, every=segment))
    previous = inputs.get(PREVIOUS)
    return successor(previous.config, small) if isinstance(previous, Step) else small


def _train_steps(trainer: Trainer) -> int:
    return min(trainer.num_steps, _part(trainer.num_steps, least=LEAST))


def _part(count: int, *, least: int) -> int:
    return max(least, -(-count // FRACTION)) if count else 0


def _resources(step: Step) -> Resources:
    """Moves at a hundredth of their train steps, as many as still are at different ones."""
    if not isinstance(step.config, Recipe):
        return step.resources
    end, moves = _train_steps(step.config.trainer), dict[int, int]()
    for at, devices in step.resources.moves:
        moves.setdefault(_part(at, least=1), devices)
    return with_fields(step.resources, moves=tuple((at, devices) for at, devices in moves.items() if at < end))
