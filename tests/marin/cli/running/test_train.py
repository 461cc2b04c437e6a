"""`marin train` before anything runs: what it would do and cost, and every mistake with its exit status."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin.cli.running.train import within_epochs
from marin.cli.running.trained import Trained, print_trained
from marin.graph.graph import Graph
from marin.graph.recipes import pipeline_graph
from marin.recipe.composition import compose
from marin.recipe.schema import Execution, digest
from marin.record.root import open_root

Marin = Any


def test_a_verdict_that_no_judge_gives_is_refused(marin: Marin, root: Path) -> None:
    refused = marin("train", "+objective=grpo", "seed=1", "objective.verdict=so", "--dry-run")
    assert refused.status == 2
    assert "objective.verdict: expected null without objective.reward=judge" in refused.err


def test_a_dry_run_names_every_step_and_its_cost(marin: Marin, root: Path) -> None:
    shown = marin("train", "model=nano", "trainer=smoke", "seed=1", "--dry-run", "--device", "h100", "--json")
    assert shown.status == 0
    steps = {step["step"]: step for step in shown.json["steps"]}
    assert list(steps) == ["corpus", "tokenizer", "tokens", "train", "evaluate", "export"]
    assert all(step["action"] == "run" for step in steps.values())
    assert steps["train"]["flops"] > 0 and "peak of 6.7e+13" in steps["train"]["basis"]
    assert steps["tokens"]["why"] == "after corpus, tokenizer"
    assert shown.json["total"]["seconds"] == pytest.approx(sum(step["seconds"] for step in steps.values()))
    text = marin("train", "model=nano", "trainer=smoke", "--dry-run").out
    assert "total" in text and "0 of 6 steps are hits" in text
    assert marin("ls", "--json").json == [], "a dry run records nothing"


def test_a_dry_run_of_a_sweep_has_one_object_a_run(marin: Marin, root: Path) -> None:
    shown = marin("train", "-m", "model=nano,1m", "seed=1,2", "--dry-run", "--json")
    assert [line["overrides"] for line in shown.lines] == [
        ["model=nano", "seed=1"],
        ["model=nano", "seed=2"],
        ["model=1m", "seed=1"],
        ["model=1m", "seed=2"],
    ]
    assert len({line["recipe_digest"] for line in shown.lines}) == 4
    text = marin("train", "-m", "model=nano", "seed=1,2", "--dry-run").out
    assert "all 2 recipes: 9 of 9 different steps to run" in text, "corpus, tokenizer and tokens are theirs together"


EXACT = ("model=nano", "profile=exact")
ACROSS = [
    ([*EXACT, "optimizer=muonn"], "did you mean muon?"),
    ([*EXACT, "optimizer.name=muonn"], "optimizer.name: expected one of adafactor, adamh, adamw"),
    ([*EXACT, "optimizer=soap"], "SOAP takes eigenvectors and QR factors from LAPACK"),
    ([*EXACT, "optimizer=kron"], "Kron solves triangular systems by LAPACK"),
    (["model=nano", "optimizer=muonh"], "optimizer.name: expected adamw or lion: under profile portable-cpu"),
    ([*EXACT, "optimizer=muon", "lora.rank=4"], "optimizer.name: expected adamw or lion, where lora is trained"),
    ([*EXACT, "optimizer=muon", "+optimizer.weight_decay_modules=[attn]"], "optimizer.weight_decay_modules"),
    ([*EXACT, "optimizer=muon", "+optimizer.default_weight_decay_mask=true"], "optimizer.default_weight_decay_mask"),
    ([*EXACT, "optimizer=muon", "optimizer.coefficient_type=sextic"], "optimizer.coefficient_type"),
    ([*EXACT, "optimizer=muon", "optimizer.backend_steps=0"], "optimizer.backend_steps"),
    ([*EXACT, "optimizer=scion", "optimizer.beta2=0.9"], "optimizer.beta2: expected 0.95: scion does not read it"),
]
"""Masks that a recipe has no field for, optimizers without an exact form, and ones that are meant for other recipes."""
SPARSE = ("model=moe-nano", "profile=exact")
MIXTURES = [
    (["model=moe-nano"], "model.architecture: expected a dense one: under portable-cpu"),
    ([*SPARSE, "lora.rank=4"], "model.architecture: expected a dense one, where lora is trained"),
    (
        [*SPARSE, "model.num_experts_per_tok=5"],
        "model.num_experts_per_tok: expected at most model.num_experts (4), found 5",
    ),
    ([*SPARSE, "model.num_experts_per_tok=0"], "model.num_experts_per_tok"),
    ([*SPARSE, "model.num_experts=1"], "model.num_experts"),
    ([*SPARSE, "--devices", "8", "--expert-parallel", "8"], "--expert-parallel: expected a divisor of"),
    ([*SPARSE, "--devices", "4", "--expert-parallel", "3"], "--expert-parallel: expected a divisor of"),
    ([*EXACT, "--devices", "2", "--expert-parallel", "2"], "--expert-parallel: expected"),
    ([*SPARSE, "optimizer=muon", "arithmetic.gather=layer"], "arithmetic.gather: expected"),
    ([*EXACT, "arithmetic.gather=layer", "arithmetic.loss_block=16"], "arithmetic.loss_block: expected"),
    (
        [*EXACT, "arithmetic.gather=layer", "--devices", "2", "--tensor-parallel", "2"],
        "--tensor-parallel: expected 1 with arithmetic.gather=layer",
    ),
]


SEARCH = ("-m", "model=nano", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=12")


@pytest.mark.long
def test_a_dry_run_of_a_search_has_its_first_trial_and_as_many_times_its_cost(marin: Marin, root: Path) -> None:
    words = (*SEARCH, "optimizer.learning_rate=tag(log,interval(1e-4,1e-2))", "trainer.batch_size=choice(8,16)")
    shown = marin("train", *words, "--dry-run", "--device", "h100", "--json")
    assert shown.status == 0
    search, first = shown.json["search"], shown.json["overrides"]
    assert search["trials"] == 12 and search["sampler"] == "TPESampler, seed 0"
    assert search["flops"] == pytest.approx(12 * shown.json["total"]["flops"]) and search["flops"] > 0
    assert [word.partition("=")[0] for word in first] == ["optimizer.learning_rate", "trainer.batch_size", "model"]
    text = marin("train", *words, "--dry-run").out
    assert "A search of 12 trials" in text and first[0] in text and "The others are chosen by results." in text
    assert marin("experiment", "ls", "--json").json == [], "a dry run registers nothing"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=gpt2-smal"], "did you mean gpt2-small?"),
        (["optimizer.learnin_rate=1"], "command line: optimizer.learnin_rate"),
        (["--config-json", '{"optimizer": {"learnin_rate": 1}}'], "--config-json: optimizer.learnin_rate"),
        (["seed=1,2"], "add -m for a sweep"),
        (["--dry-run", "--device", "h10"], "did you mean h100?"),
        (["--continue", "latest"], "there are no runs"),
        (["model=nano", "--devices", "3"], "expected a divisor of arithmetic.logical_shards (8), found 3"),
        (["optimizer.name=muon"], "under profile portable-cpu nothing fixes the order of sums"),
        (["optimizer.learning_rate=interval(1e-4,1e-2)"], "nothing here draws from an interval"),
        (["-m", "optimizer.learning_rate=interval(1e-4,1e-2)"], "hydra/sweeper=optuna searches it"),
        (["-m", "optimizer.learning_rate=glob(*)"], "a pattern for what is no group"),
        ([*SEARCH, "trainer.batch_size=8,16", "--metric", "evaluate.los"], "did you mean evaluate.loss?"),
        ([*SEARCH, "trainer.batch_size=8,16", "--metric", "evaluate.los", "--dry-run"], "did you mean evaluate.loss?"),
        ([*SEARCH, "trainer.batch_size=8,16", "hydra.sweeper.n_jobs=0"], "a search without trials"),
        ([*SEARCH, "optimizer.learning_rate=interval(nan,1e-2)", "--dry-run"], "a space without bounds"),
        (["arithmetic.generator=rbg"], "threefry2x32-partitionable, found 'rbg'"),
        *ACROSS,
        *MIXTURES,
    ],
)
def test_wrong_usage_is_one_line_and_status_2(marin: Marin, root: Path, arguments: list[str], message: str) -> None:
    ended = marin("train", *arguments)
    assert ended.status == 2 and message in ended.err and ended.data == b""
    assert len(ended.err.strip().splitlines()) == 1


def test_missing_data_is_said_with_where_to_get_it(marin: Marin, root: Path) -> None:
    for more in ([], ["--dry-run"]):
        ended = marin("train", "+dataset=babylm_10M", *more)
        assert ended.status == 1 and "babylm_data/babylm_10M/*.train" in ended.err
        assert "; `marin data fetch babylm` brings it" in ended.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder, path: nowhere", "evaluation.sets.own.path: expected a folder of sets, found nowhere"),
        ("folder, path: empty", "a folder without sets: evaluation.sets.own.path: expected files of text"),
        ("files, globs: [nowhere/*.txt]", "no file matches: evaluation.sets.own: nowhere/*.txt"),
    ],
)
def test_a_held_out_set_that_is_not_there_is_refused_before_anything_is_made(
    marin: Marin,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    said: str,
    dry: tuple[str, ...],
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ("model=nano", "trainer=smoke", "evaluation.every=4", f"+evaluation.sets.own={{kind: {kind}}}")
    ended = marin("--root", str(root), "train", *words, *dry)
    assert ended.status == 1 and said in ended.err
    assert marin("--root", str(root), "ls", "--json").json == []


def test_without_a_root_it_says_how_to_make_one(marin: Marin) -> None:
    ended = marin("train", "model=nano")
    assert ended.status == 3 and "marin init" in ended.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--devices", "3"), "--devices: expected a divisor of arithmetic.logical_shards (8), found 3"),
        (("--devices", "4", "--slices", "3"), "--slices: expected a divisor of --devices (4), found 3"),
        (
            ("--devices", "4", "--tensor-parallel", "3"),
            "--tensor-parallel: expected a divisor of --devices (4), found 3",
        ),
        (("--devices", "2", "--tensor-parallel", "2"), "--tensor-parallel: expected profile=exact"),
        (
            ("--devices", "4", "--expert-parallel", "4", "--tensor-parallel", "2"),
            "--expert-parallel: expected a divisor of --devices (4) over --tensor-parallel (2), found 4",
        ),
        (
            ("--devices", "4", "--expert-parallel", "4", "profile=exact"),
            "--expert-parallel: expected a divisor of experts (1), found 4",
        ),
    ],
)
def test_devices_that_cannot_train_are_refused_before_anything_is_made(
    words: tuple[str, ...], said: str, dry: tuple[str, ...], marin: Marin, root: Path
) -> None:
    ended = marin("train", "model=nano", *words, *dry)
    assert ended.status == 2 and said in ended.err
    assert marin("ls", "--json").json == []


def test_recipes_of_a_sweep_share_what_they_have_in_common() -> None:
    recipes = [compose(["model=nano", f"seed={seed}"]).recipe for seed in (1, 2)]
    graph, addresses = pipeline_graph(recipes)
    assert len(graph.nodes) == 3 + 2 * 3, "one corpus, one tokenizer, one token cache"
    assert [addresses[0][name] == addresses[1][name] for name in addresses[0]] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert graph.nodes[addresses[0]["train"]].step.resources.devices == 0, "as many as the command line says"
    assert graph.nodes[addresses[1]["evaluate"]].inputs["train"][0] == addresses[1]["train"]
    assert {digest(graph.nodes[at["train"]].step.config) for at in addresses} == {digest(recipe) for recipe in recipes}


def test_the_same_recipe_twice_is_one() -> None:
    recipe = compose(["model=nano"]).recipe
    graph, addresses = pipeline_graph([recipe, recipe])
    assert len(graph.nodes) == 6 and addresses[0] == addresses[1]


@pytest.mark.parametrize(
    ("failed", "said"), [("", "every step is a hit, in runs of other recipes; see --json\n"), ("train/a", "")]
)
def test_what_failed_before_its_run_began_is_not_a_hit(
    failed: str, said: str, root: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    print_trained(open_root(str(root)), [Trained((), "", None, {}, {}, failed, "")], json=False, table=False)
    assert capsysbinary.readouterr().out.decode() == said


def test_a_run_that_fails_says_at_which_step_and_why(marin: Marin, root: Path) -> None:
    Path("bad.txt").write_bytes(b"caf\xe9\n")
    ended = marin("train", "model=nano", "dataset=files", "dataset.globs=[bad.txt]", "--json")
    assert ended.status == 1 and "text is not UTF-8" in ended.err
    assert ended.json["failed"].startswith("corpus/files-") and "0xe9" in ended.json["error"]
    (run,) = marin("ls", "--json").json
    assert run["status"] == "failed" and run["run"] == ended.json["run"]


@pytest.mark.parametrize(("asked", "tokens", "taken"), [(240, 8_000, 20), (20, 8_000, 20), (5, 8_000, 5), (9, 300, 9)])
def test_as_many_train_steps_as_the_counted_tokens_allow(
    monkeypatch: pytest.MonkeyPatch, asked: int, tokens: int, taken: int
) -> None:
    """Two epochs of 8,000 tokens are 20 train steps of 800. Where not one fits, the training says so."""
    composed = compose(
        ["trainer.most_epochs=2", f"trainer.num_steps={asked}", "model.seq_len=100", "trainer.batch_size=8"]
    )

    def counted(graph: Graph, root: object, **_: object) -> SimpleNamespace:
        assert os.environ["MARIN_TRACKER"] == "none" and list(graph.nodes)[-1].startswith("tokens/")
        return SimpleNamespace(results={graph.ends[0]: SimpleNamespace(metrics={"train_tokens": float(tokens)})})

    monkeypatch.setattr("marin.graph.execution.loop.execute_graph", counted)
    monkeypatch.setenv("MARIN_TRACKER", "wandb")
    root: Any = None
    found = within_epochs(root, composed, Execution())
    assert found.recipe.trainer.num_steps == taken
    assert os.environ["MARIN_TRACKER"] == "wandb"
    free = compose([])
    assert within_epochs(root, free, Execution()) is free
