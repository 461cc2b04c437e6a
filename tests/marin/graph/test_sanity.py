"""An experiment at a hundredth of its size: which sizes change, and that phases and moves still fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.defaults import default_continue, default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Resources
from marin.graph.experiment.sanity import sanity
from marin.graph.files import load_graph
from marin.graph.graph import Graph
from marin.recipe.schema import Evaluation, GrammarDataset, Model, Optimizer, Recipe, Trainer

EXPERIMENTS = sorted((Path(__file__).resolve().parents[3] / "experiments").glob("exp*.py"))


def graph(steps: int = 400, moves: tuple[tuple[int, int], ...] = ()) -> Graph:
    corpus = default_corpus("text", GrammarDataset(train_bytes=50_000, validation_bytes=5_000, minimal_pairs=8))
    first = default_train(
        "first",
        default_tokenize("text-512", corpus, vocab_size=512),
        model=Model(),
        seed=1,
        trainer=Trainer(num_steps=steps, steps_per_segment=100),
        optimizer=Optimizer(warmup_steps=150),
        resources=Resources(devices=2, moves=moves),
    )
    second = default_continue("second", first, trainer=Trainer(num_steps=250, steps_per_segment=50))
    return Graph.of("ladder", [default_eval(second, Evaluation(max_sequences=64))])


def recipe(graph: Graph, address: str) -> Recipe:
    config = graph.nodes[address].step.config
    assert isinstance(config, Recipe)
    return config


def test_trainings_shrink_and_nothing_else() -> None:
    whole, small = graph(), sanity(graph())
    assert small.name == "ladder-sanity" and list(small.nodes) == list(whole.nodes)
    trainer, optimizer = recipe(small, "train/first").trainer, recipe(small, "train/first").optimizer
    assert (trainer.num_steps, trainer.steps_per_segment, optimizer.warmup_steps) == (4, 1, 2)
    for address in ("corpus/text", "tokenizer/text-512", "tokens/text-512"):
        before, after = recipe(whole, address), recipe(small, address)
        assert (after.dataset, after.tokenizer, after.model) == (before.dataset, before.tokenizer, before.model)
    assert recipe(small, "evaluate/second").evaluation == recipe(whole, "evaluate/second").evaluation


def test_a_phase_begins_where_the_small_one_before_it_ends() -> None:
    small = recipe(sanity(graph()), "train/second")
    assert small.phase is not None and small.phase.first_step == 4
    assert small.phase.first_sequence == 4 * small.trainer.batch_size and small.trainer.num_steps == 3


@pytest.mark.parametrize(
    ("steps", "moves", "expected"),
    [
        (400, ((100, 1), (300, 2)), ((1, 1), (3, 2))),
        (60, ((20, 1), (40, 2)), ((1, 1),)),  # both after the first of two train steps: one of them
        (1, (), ()),
    ],
)
def test_moves_stay_inside(
    steps: int, moves: tuple[tuple[int, int], ...], expected: tuple[tuple[int, int], ...]
) -> None:
    small = sanity(graph(steps, moves)).nodes["train/first"].step
    assert small.resources.moves == expected and small.config.trainer.num_steps <= max(2, steps // 100)
    assert small.config.trainer.num_steps <= steps and small.resources.devices == 2


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_every_experiment_here_can_be_shrunk(file: Path) -> None:
    whole, small = load_graph(file), sanity(load_graph(file))
    assert list(small.nodes) == list(whole.nodes) and small.ends == whole.ends
    trained = [address for address in small.nodes if address.startswith("train/")]
    for address in trained:
        before, after = (graph.nodes[address].step.config.trainer.num_steps for graph in (whole, small))
        assert after <= max(10, -(-before // 100)), address
    assert trained
