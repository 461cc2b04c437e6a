"""An experiment at a hundredth of its size: does every arm run from start to end, before hours are spent on the first?

Only trainings shrink: their train steps, segments, warm-up and moves, by :data:`FRACTION`. Data, tokenizers and measurements
stay whole, so that what they make is a hit for the real graph. A phase begins where the shrunken training before it ends.
Functions of the experiment's own get what they would get, with shorter curves.

Where one train step is more than :data:`FLOPS`, a processor would take minutes for it, and the model shrinks too: to
:data:`LAYERS` layers, heads of :data:`HEAD` numbers and sequences of :data:`LENGTH` tokens, and the batch to one microbatch a
shard (under profile ``exact``, whose devices share it, it stays). Architecture, numbers of heads, proportion of the layers'
widths, tied embeddings and vocabulary stay, so the programs are those of the whole model with other sizes. What is evaluated
or exported is that model. A phase shrinks where the training before it does; a model from elsewhere is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields

from msgspec.structs import replace

from marin.execution.phases import successor
from marin.execution.step import PREVIOUS
from marin.graph.graph import Graph
from marin.graph.step import Ref, Resources, Step
from marin.recipe.cost import TRAINING_PASSES, flops_per_token
from marin.recipe.schema import Model, Recipe, Trainer

FRACTION = 100
LEAST = 2
"""Train steps of a shrunken training at least: one to begin with, and one that has a step before it."""
FLOPS = 1e12
"""Of a train step, at most, of a model that stays as it is: some twenty seconds of a processor."""
LAYERS, HEAD, LENGTH = 2, 8, 128
"""Of a shrunken model, at most."""


def sanity(graph: Graph) -> Graph:
    """``graph`` with every training shrunk; its name says so, its addresses stay.

    Raises:
        UsageError: what a phase may not change (as for the graph itself).
    """
    made: dict[str, Step] = {}
    for node in graph.nodes.values():
        step = node.step
        inputs = {name: _small(value, made) for name, value in step.inputs.items()}
        config = _recipe(step, inputs) if isinstance(step.config, Recipe) else step.config
        made[step.name] = Step(step.name, step.fn, config, inputs, _resources(step), step.override, step.apart)
    return Graph.of(f"{graph.name}-sanity", [made[address] for address in graph.ends])


def _small(value: Step | Ref, made: Mapping[str, Step]) -> Step | Ref:
    return Ref(made[value.step.name], value.path) if isinstance(value, Ref) else made[value.name]


def _recipe(step: Step, inputs: Mapping[str, Step | Ref]) -> Recipe:
    recipe: Recipe = step.config
    trainer, segment = recipe.trainer, _part(recipe.trainer.steps_per_segment, least=1)
    words = tuple(sorted({_part(count, least=1) for count in trainer.states_at_words or ()})) or None
    whole, before = (_before(of) for of in (step.inputs, inputs))
    if whole is not None and before is not None:
        narrow = (whole.model, whole.trainer.batch_size) != (before.model, before.trainer.batch_size)
    else:
        narrow = _is_large(recipe)
    recipe = _narrow(recipe) if narrow else recipe
    small = replace(
        recipe,
        trainer=replace(
            recipe.trainer, num_steps=_train_steps(trainer), steps_per_segment=segment, states_at_words=words
        ),
        optimizer=replace(recipe.optimizer, warmup_steps=_part(recipe.optimizer.warmup_steps, least=0)),
    )
    if recipe.evaluation.every is not None:
        small = replace(small, evaluation=replace(small.evaluation, every=segment))
    return successor(before, small) if before is not None else small


def _before(inputs: Mapping[str, Step | Ref]) -> Recipe | None:
    """The training that a phase continues."""
    previous = inputs.get(PREVIOUS)
    return previous.config if isinstance(previous, Step) else None


def _is_large(recipe: Recipe) -> bool:
    """Whether a recipe's model shrinks: its train step is too much. A phase goes by the training before it."""
    step = TRAINING_PASSES * flops_per_token(recipe.model, recipe.vocabulary) * recipe.trainer.batch_size
    return recipe.initial is None and step * recipe.model.seq_len > FLOPS


def _narrow(recipe: Recipe) -> Recipe:
    """The recipe with a small model and batch; under ``exact`` the batch stays, for its devices share it."""
    arithmetic, batch = recipe.arithmetic, recipe.trainer.batch_size
    if arithmetic.profile != "exact":
        batch = min(batch, arithmetic.logical_shards * arithmetic.microbatch_size)
    return replace(recipe, model=_small_model(recipe.model), trainer=replace(recipe.trainer, batch_size=batch))


def _small_model(model: Model) -> Model:
    hidden = model.num_heads * min(HEAD, max(1, model.hidden_dim // model.num_heads))
    return replace(
        model,
        head_dim=None if model.head_dim is None else min(HEAD, model.head_dim),
        num_layers=min(LAYERS, model.num_layers),
        hidden_dim=hidden,
        intermediate_dim=max(1, model.intermediate_dim * hidden // model.hidden_dim),
        seq_len=min(LENGTH, model.seq_len),
    )


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
