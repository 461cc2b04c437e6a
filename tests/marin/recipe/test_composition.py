"""`marin train`'s grammar: what wins, what a sweep is, and that every mistake is named with its place."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import UsageError
from marin.recipe.composition import compose, conf_folder, groups, sweep
from marin.recipe.schema import FilesDataset, Recipe, digest, from_mapping

PROJECT = Path(__file__).resolve().parents[3]
CONF = PROJECT / "conf"


def one(*arguments: str, config_json: str | None = None) -> Recipe:
    return compose(arguments, config_json=config_json, conf=CONF).recipe


def test_nothing_named_is_the_default_recipe() -> None:
    assert digest(one()) == digest(Recipe(order="swap-or-not"))  # a recipe that says nothing has the order of old ones


def test_groups_with_and_without_a_plus() -> None:
    plus = one("+model=gpt2-small", "+dataset=babylm_10M", "optimizer.learning_rate=1e-3", "seed=1")
    assert plus == one("model=gpt2-small", "dataset=babylm_10M", "optimizer.learning_rate=0.001", "seed=1")
    assert plus.model.hidden_dim == 768 and plus.dataset.name == "babylm_10M"
    assert plus.optimizer.learning_rate == 1e-3 and plus.seed == 1


def test_precedence_is_defaults_then_groups_then_json_then_the_command_line(tmp_path: Path) -> None:
    rates = {}
    text = json.dumps({"optimizer": {"learning_rate": 0.5}, "model": "nano", "seed": 7})
    rates["default"] = one().optimizer.learning_rate
    from_json = one(config_json=text)
    assert from_json.optimizer.learning_rate == 0.5 and from_json.model.hidden_dim == 32 and from_json.seed == 7
    assert from_json.optimizer.beta2 == 0.95, "a section in JSON changes the keys that it has, no other"
    over = one("optimizer.learning_rate=0.25", "model=25m", config_json=text)
    assert over.optimizer.learning_rate == 0.25 and over.model.hidden_dim == 512 and over.seed == 7
    assert one("model=25m", config_json='{"model": {"num_layers": 3}}').model.num_layers == 3
    path = tmp_path / "values.json"
    path.write_text(text)
    assert one(config_json=str(path)) == from_json


def test_an_objective_asks_for_a_verdict_or_nothing() -> None:
    asked = ["+objective=grpo", "seed=1", "objective.asks=Right?"]
    with pytest.raises(UsageError, match=r"objective.asks: expected null without objective.verdict"):
        one(*asked)
    objective = one(*asked, "objective.verdict=so").objective
    assert objective is not None and objective.verdict == "so", "the judge is named by --reward, after the settings"


@given(st.integers(0, 2**63 - 1), st.floats(1e-6, 10.0), st.sampled_from(sorted(groups(CONF)["model"])))
@settings(max_examples=10)
def test_what_is_written_is_what_is_composed(seed: int, rate: float, model: str) -> None:
    profile = ["profile=exact"] if model.startswith("moe-") or model.endswith("-a3b") else []
    recipe = one(f"seed={seed}", f"optimizer.learning_rate={rate!r}", f"model={model}", *profile)
    assert recipe.seed == seed and recipe.optimizer.learning_rate == rate


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["seed=1,2,3"], [("seed=1",), ("seed=2",), ("seed=3",)]),
        (
            ["seed=range(1,3)", "model=nano,1m"],
            [("seed=1", "model=nano"), ("seed=1", "model=1m"), ("seed=2", "model=nano"), ("seed=2", "model=1m")],
        ),
        (["model=glob(gpt2*)"], [("model=gpt2-1m",), ("model=gpt2-medium",), ("model=gpt2-small",)]),
        (["seed=4"], [()]),
    ],
)
def test_a_sweep_is_every_combination(arguments: list[str], expected: list[tuple[str, ...]]) -> None:
    found = list(sweep(arguments, conf=CONF))
    assert [item.overrides for item in found] == expected
    assert len({digest(item.recipe) for item in found}) == len(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=gpt2-smal"], r"command line: model.*found gpt2-smal; did you mean gpt2-small\?"),
        (["modle=nano"], r"unknown key: command line: modle.*did you mean model\?"),
        (["optimizer.learnin_rate=1"], r"command line: optimizer.learnin_rate.*did you mean learning_rate\?"),
        (["learning_rate=1e-3"], r"did you mean optimizer.learning_rate\?"),
        (["optimizer.lr=1e-3"], r"found lr; did you mean learning_rate\?"),
        (["lr=1e-3"], r"did you mean optimizer.learning_rate\?"),
        (["optimizer.wd=0"], r"did you mean weight_decay\?"),
        (["optimizer.b2=0.9"], r"did you mean beta2\?"),
        (["optimizer.eps=1"], r"did you mean epsilon\?"),
        (["optimizer.warmup=1"], r"did you mean warmup_steps\?"),
        (["trainer.bs=8"], r"did you mean batch_size\?"),
        (["bs=8"], r"did you mean trainer.batch_size\?"),
        (["optimizer.seq_len=64"], r"did you mean model.seq_len\?"),
        (["model.seqlen=64"], r"did you mean seq_len\?"),
        (["model.n_layers=2"], r"did you mean num_layers\?"),
        (["dataset.seeed=2"], r"did you mean seed\?"),
        (["optimizer.amsgrad=true"], r"valid keys here: name, learning_rate"),
        (
            ["optimizer.momentum=0.9"],
            r"optimizer.momentum: expected null: adamw has none, found 0.9; .*name=muon or muonh",
        ),
        (
            ["optimizer=muon", "profile=exact", "optimizer.adam_lr=null"],
            r"command line: optimizer.adam_lr: expected a value, such as 0.0006, found null; leave it out",
        ),
        (["optimizer=muon"], r"optimizer.name: expected adamw or lion: under profile portable-cpu .*profile=exact"),
        (["model=moe-nano"], r"model.architecture: expected a dense one: under portable-cpu"),
        (
            ["model=moe-nano", "profile=exact", "model.num_experts_per_tok=5"],
            r"at most model.num_experts \(4\), found 5",
        ),
        (["model.num_experts=4"], r"model.num_experts: expected null, or architecture=mixtral or .*qwen3_moe, found 4"),
        (["~optimizer.lr"], r"did you mean learning_rate\?"),
        (
            ["optimizer.learning_rate=abc"],
            r"command line: optimizer.learning_rate: expected a number > 0.0 and <= 10.0, found 'abc'",
        ),
        (["trainer.num_steps='4'"], r"trainer.num_steps: expected an integer"),
        (["dataset=files", "dataset.globs=a"], r"dataset.globs: expected a list"),
        (["trainer.batch_size=12"], r"trainer.batch_size.*multiple of"),
        (["seed.x=1"], r"seed is 0"),
        (["seed=1,2"], r"several values.*add -m"),
        (["model=glob(zzz*)"], r"nothing to choose from: command line: model"),
        (["seed=range(3,3)"], r"nothing to choose from: command line: seed|cannot be read"),
        (["foo"], r"command line: foo: expected GROUP=NAME or KEY=VALUE"),
        (["=1"], r"unknown key"),
        (["optimizer.learning_rate=[1"], r"cannot be read"),
        (["~model"], r"a recipe needs this group"),
        (["~evaluation.minimal_pair"], r"did you mean minimal_pairs\?"),
        (["model=../secret"], r"unknown model|cannot be read"),
        (["seed=1" + "0" * 5000], r"argument cannot be read: command line: seed=1000"),
        (
            ["optimizer.learning_rate=interval(1e-4,1e-2)"],
            r"an interval; marin train -m hydra/sweeper=optuna searches it",
        ),
    ],
)
def test_a_mistake_is_one_line_with_place_and_cure(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        one(*arguments)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value) and "http" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"optimizer": {"learnin_rate": 0.5}}',
            r"--config-json: optimizer.learnin_rate.*did you mean learning_rate\?",
        ),
        ('{"model": "gpt2-smal"}', r"--config-json: model.*did you mean gpt2-small\?"),
        ('{"seed": "x"}', r"--config-json: seed"),
        ('{"seed": ', r"--config-json.*JSON"),
        ("no-such.json", r"no such file"),
    ],
)
def test_a_mistake_in_json_is_said_of_the_json(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        one(config_json=text)


def test_a_seed_may_be_left_open() -> None:
    """It is drawn and recorded when the recipe is run."""
    assert one("seed=null").seed is None


def test_a_list_of_globs_and_a_deleted_value() -> None:
    recipe = one("dataset=files", "dataset.globs=[a/*.txt,'b c.txt']")
    assert isinstance(recipe.dataset, FilesDataset) and recipe.dataset.globs == ("a/*.txt", "b c.txt")
    assert one("~evaluation.max_sequences").evaluation.max_sequences == 256


def test_the_groups_that_the_documentation_names_are_there() -> None:
    found = groups(CONF)
    assert {"nano", "1m", "25m", "gpt2-small", "gpt2-medium", "llama-135m"} <= set(found["model"])
    assert {"grammar", "tinyshakespeare", "babylm_10M", "babylm_100M", "files"} <= set(found["dataset"])
    assert {"trainer", "profile"} <= set(found)


def test_a_project_may_have_groups_of_its_own(tmp_path: Path) -> None:
    assert conf_folder(tmp_path) == CONF
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("seed: 5\n")
    assert conf_folder(tmp_path) == (tmp_path / "conf").resolve()
    assert compose([], conf=tmp_path / "conf").recipe.seed == 5


@pytest.fixture
def own_conf(tmp_path: Path) -> Path:
    """The groups of this repository, a group of one's own, and a model that names a trainer's value too."""
    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf)
    (conf / "regime").mkdir()
    (conf / "regime" / "five.yaml").write_text("# @package _global_\ntrainer:\n  num_steps: 5\nseed: 5\n")
    (conf / "model" / "brief.yaml").write_text(
        "# @package _global_\nmodel:\n  num_layers: 2\ntrainer:\n  num_steps: 7\n"
    )
    return conf


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["model=gpt2-small", "trainer=smoke"],
        ["+regime=five"],
        ["model=nano", "+regime=five", "trainer.batch_size=16"],
        ["+regime=five", "trainer.num_steps=9", "seed=3"],
        ["dataset=babylm_10M", "profile=portable-cpu", "optimizer.learning_rate=0.5"],
    ],
)
def test_what_hydra_composes_is_what_we_compose(arguments: list[str], own_conf: Path) -> None:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(own_conf), version_base=None):
        theirs = OmegaConf.to_container(hydra_compose("config", overrides=arguments), resolve=True)
    assert isinstance(theirs, dict)
    ours = compose(arguments, conf=own_conf).recipe
    assert digest(ours) == digest(from_mapping({str(key): value for key, value in theirs.items()}, where="hydra"))


def test_a_group_of_ones_own_sets_what_it_names(own_conf: Path) -> None:
    assert compose(["+regime=five"], conf=own_conf).recipe.trainer.num_steps == 5
    swept = [one.recipe.trainer.num_steps for one in sweep(["+regime=five", "seed=1,2"], conf=own_conf)]
    assert swept == [5, 5]
    with pytest.raises(UsageError, match=r"unknown regime.*did you mean five"):
        compose(["+regime=fife"], conf=own_conf)


def test_a_file_that_changed_is_composed_anew(own_conf: Path) -> None:
    """Also by as many bytes, in the same tick of the clock."""
    file = own_conf / "regime" / "five.yaml"
    before, text = file.stat(), file.read_text()
    assert compose(["+regime=five"], conf=own_conf).recipe.trainer.num_steps == 5
    file.write_text(text.replace("num_steps: 5", "num_steps: 6"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert compose(["+regime=five"], conf=own_conf).recipe.trainer.num_steps == 6


def test_a_group_file_that_is_no_mapping_is_refused(own_conf: Path) -> None:
    for text in ("- a\n", "3\n"):
        (own_conf / "regime" / "list.yaml").write_text(text)
        with pytest.raises(UsageError):
            compose(["+regime=list"], conf=own_conf)


def test_a_default_that_must_be_chosen_may_be_chosen_where_a_run_is_continued(own_conf: Path) -> None:
    import msgspec

    config = own_conf / "config.yaml"
    config.write_text(config.read_text().replace("- model: 1m", "- model: ???"))
    base = msgspec.to_builtins(compose(["model=nano"], conf=own_conf).recipe)
    assert (
        compose(["model=1m"], conf=own_conf, base=base).recipe.model
        == compose(["model=1m"], conf=own_conf).recipe.model
    )


def test_a_value_of_a_group_is_never_dropped_without_a_word(own_conf: Path) -> None:
    with pytest.raises(UsageError, match=r"conf/model/brief.yaml: trainer.num_steps.*expected 7.*trainer.num_steps=7"):
        compose(["model=brief"], conf=own_conf)
    chosen = compose(["model=brief", "+regime=five"], conf=own_conf).recipe
    assert (chosen.model.num_layers, chosen.trainer.num_steps) == (2, 5), "another picked group says what counts"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["model=gpt2-medium"],
        ["dataset=babylm_10M", "tokenizer=bpe-16k", "seed=3"],
        ["trainer=smoke", "optimizer.learning_rate=0.001"],
        ["dataset=mixture", "mixture.weights.grammar=0.25"],
        ["profile=portable-cpu", "arithmetic.threads=4"],
    ],
)
def test_dvc_composes_what_marin_train_composes(overrides: list[str], tmp_path: Path) -> None:
    """`dvc exp run -S`, by the function of DVC that writes params.yaml."""
    from dvc.utils.hydra import compose_and_dump

    from marin.recipe.params import load_params

    written = tmp_path / "params.yaml"
    compose_and_dump(str(written), str(CONF), None, "config", str(tmp_path), overrides)
    assert digest(load_params(written)) == digest(one(*overrides))


def test_a_broken_file_of_groups_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("defaults: [")
    with pytest.raises(UsageError, match=r"groups cannot be read.*config.yaml"):
        compose([], conf=tmp_path)
    (tmp_path / "config.yaml").write_text("defaults:\n  - model: none\n")
    (tmp_path / "model").mkdir()
    with pytest.raises(UsageError, match="groups cannot be composed"):
        compose([], conf=tmp_path)


def test_a_run_takes_the_place_of_the_defaults() -> None:
    import msgspec

    base = msgspec.to_builtins(one("model=gpt2-1m", "optimizer.learning_rate=0.5", "seed=9"))
    recipe = compose(["trainer=smoke", "optimizer.beta1=0.5"], base=base, conf=CONF).recipe
    assert recipe.model == one("model=gpt2-1m").model and recipe.seed == 9
    assert (recipe.optimizer.learning_rate, recipe.optimizer.beta1) == (0.5, 0.5)
    assert recipe.trainer == one("trainer=smoke").trainer
    assert compose(["profile=portable-cpu"], base=base, conf=CONF).recipe.arithmetic == one().arithmetic


def test_a_mixture_is_a_group_and_its_weights_are_values() -> None:
    recipe = one("dataset=mixture", "mixture.weights={grammar: 0.2, shakespeare: 0.8}")
    assert recipe.mixture is not None and recipe.mixture.weights == {"grammar": 0.2, "shakespeare": 0.8}
    with pytest.raises(UsageError, match=r"mixture.weights.*found shakespear"):
        one("dataset=mixture", "mixture.weights={grammar: 0.2, shakespear: 0.8}")
    import msgspec

    base = msgspec.to_builtins(one("seed=4"))
    continued = compose(["dataset=mixture"], base=base, conf=CONF).recipe
    assert continued.mixture == one("dataset=mixture").mixture and continued.seed == 4


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("optimizer.learning_rate=interval(1e-4,1e-2)", r"nothing here draws from an interval.*hydra/sweeper=optuna"),
        ("trainer.batch_size=int(interval(8,16))", r"nothing here draws from an interval"),
        ("model=interval(1,2)", r"nothing here draws from an interval"),
        ("optimizer.learning_rate=glob(*)", r"a pattern for what is no group: .*model=glob"),
        ("seed=range(1,3,0)", r"values cannot be counted: command line: seed=range\(1,3,0\)"),
        ("seed=range(1.0,3,0)", r"values cannot be counted"),
        ("seed=range(1,nan)", r"values cannot be counted"),
        ("model=range(1,3,0)", r"values cannot be counted"),
        ("seed=range(0,1000000000000)", r"too many values: .*expected 10000 or fewer"),
        ("seed=choice(1,2,[3)", r"argument cannot be read"),
    ],
)
def test_what_cannot_be_counted_is_no_sweep(argument: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        list(sweep([argument], conf=CONF))
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("optimizer.epsilon=1e-50", "1e-50, with which a training computes as 0"),
        ("optimizer.learning_rate=1e-39", "1e-39, with which a training computes as 0"),
        ("optimizer.max_grad_norm=1e39", "1e\\+39, with which a training computes as infinity"),
        ("trainer.z_loss=1e-320", "computes as 0"),
    ],
)
def test_a_number_that_float32_does_not_have_is_refused_before_a_training(argument: str, found: str) -> None:
    with pytest.raises(UsageError, match=f"float32.*{found}") as caught:
        compose([argument])
    assert argument.partition("=")[0] in caught.value.where


def test_the_least_and_the_largest_number_of_float32_are_taken() -> None:
    recipe = compose(
        ["optimizer.epsilon=1.1754943508222875e-38", "optimizer.max_grad_norm=3.4028234663852886e38"]
    ).recipe
    assert np.float32(recipe.optimizer.epsilon) > 0 and np.isfinite(np.float32(recipe.optimizer.max_grad_norm))
