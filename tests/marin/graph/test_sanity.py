"""An experiment at a hundredth of its size: which sizes change, and that phases and moves still fit."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from experiments.defaults import default_continue, default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Resources
from marin.graph.experiment.sanity import FLOPS, sanity
from marin.graph.files import load_graph
from marin.graph.graph import Graph
from marin.recipe.composition import compose
from marin.recipe.cost import flops_per_token
from marin.recipe.schema import Arithmetic, Evaluation, GrammarDataset, Model, Optimizer, Recipe, Trainer, check, digest

EXPERIMENTS = sorted((Path(__file__).resolve().parents[3] / "experiments").glob("exp*.py"))


TEXT = default_tokenize(
    "text-512",
    default_corpus("text", GrammarDataset(train_bytes=50_000, validation_bytes=5_000, minimal_pairs=8)),
    vocab_size=512,
)


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


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_only_a_model_too_large_for_a_processor_shrinks(file: Path) -> None:
    """Of every other one nothing changes but how long it is trained: the sanity recipes that it always had."""
    whole, small = load_graph(file), sanity(load_graph(file))
    for address, node in small.nodes.items():
        before, after = whole.nodes[address].step.config, node.step.config
        if not isinstance(after, Recipe):
            continue
        step = 3 * flops_per_token(before.model, before.vocabulary) * before.trainer.batch_size * before.model.seq_len
        if step > FLOPS:
            assert file.stem == "exp007_babylm", address
            continue
        lengths = ("num_steps", "steps_per_segment", "states_at_words")
        trainer = replace(after.trainer, **{name: getattr(before.trainer, name) for name in lengths})
        optimizer = replace(after.optimizer, warmup_steps=before.optimizer.warmup_steps)
        evaluation = replace(after.evaluation, every=before.evaluation.every)
        same = replace(after, trainer=trainer, optimizer=optimizer, evaluation=evaluation, phase=before.phase)
        assert digest(same) == digest(before), address


def large(name: str, **changed: object) -> Recipe:
    """The sanity recipe of a training of a model of this name, and of its evaluation, which is of the same model."""
    corpus = default_corpus("text", GrammarDataset(train_bytes=50_000, validation_bytes=5_000, minimal_pairs=8))
    train = default_train(
        "large",
        default_tokenize("text-512", corpus, vocab_size=512),
        model=replace(compose([f"model={name}"]).recipe.model, **changed),
        seed=1,
        trainer=Trainer(num_steps=1000, batch_size=128),
        arithmetic=Arithmetic(microbatch_size=4),
    )
    then = default_continue("then", train, trainer=Trainer(num_steps=100, batch_size=32))
    small = sanity(Graph.of("large", [default_eval(train), default_eval(then)]))
    assert recipe(small, "evaluate/large").model == recipe(small, "train/large").model
    assert (
        recipe(small, "evaluate/then").model == recipe(small, "train/then").model == recipe(small, "train/large").model
    )
    return recipe(small, "train/large")


def test_a_large_model_keeps_its_form() -> None:
    gpt2, llama = large("gpt2-small"), large("llama-135m")
    assert (gpt2.model.hidden_dim, gpt2.model.intermediate_dim, gpt2.model.num_heads) == (96, 384, 12)
    assert gpt2.model.architecture == "gpt2" and gpt2.model.tie_word_embeddings
    assert (llama.model.hidden_dim, llama.model.intermediate_dim) == (72, 192)
    assert (llama.model.num_heads, llama.model.num_kv_heads) == (9, 3) and llama.model.architecture == "llama"
    for one in (gpt2, llama):
        assert (one.model.num_layers, one.model.seq_len, one.trainer.num_steps) == (2, 128, 10)
        assert one.trainer.batch_size == 8 * 4, "a microbatch a shard"
        check(one, where="test")
    assert large("gpt2-small") == gpt2


def test_a_model_at_the_bound_stays() -> None:
    assert large("1m").model == compose(["model=1m"]).recipe.model


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_phase_shrinks_with_what_is_before_it_where_only_length_and_batch_do(
    architecture: Literal["gpt2", "llama"],
) -> None:
    """Two layers and heads of eight numbers are as small as they get; one train step of this batch is too much all the same."""
    model = Model(
        architecture=architecture,
        num_layers=2,
        num_heads=12,
        num_kv_heads=12,
        hidden_dim=96,
        intermediate_dim=384,
        seq_len=1024,
    )
    trained = [default_train("before", TEXT, model=model, seed=1, trainer=Trainer(num_steps=1000, batch_size=4096))]
    trained.append(default_continue("then", trained[0], trainer=Trainer(num_steps=100, batch_size=4096)))
    small = sanity(Graph.of("large", [default_eval(trained[-1])]))
    for step in trained:
        one = recipe(small, step.name)
        assert (one.model.seq_len, one.trainer.batch_size, one.model.hidden_dim) == (128, 8, 96), step.name


def test_under_exact_the_batch_is_still_shared_by_its_devices() -> None:
    exact = compose(["profile=exact"]).recipe.arithmetic
    train = default_train(
        "exact",
        TEXT,
        model=replace(compose(["model=gpt2-small"]).recipe.model, gradient_checkpointing=False),
        seed=1,
        trainer=Trainer(num_steps=1000, batch_size=96),
        arithmetic=exact,
        resources=Resources(devices=2, moves=((300, 3),)),
    )
    small = recipe(sanity(Graph.of("exact", [default_eval(train)])), "train/exact")
    assert small.trainer.batch_size == 96 and small.model.num_layers == 2
