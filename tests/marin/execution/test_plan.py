"""Plans and identities: what changes an identity, and what never does."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import UsageError
from marin.execution.plan import CodeIdentity, Plan, code_identity, plan_digest, step_identity
from marin.pipeline.stages import PIPELINE
from marin.provenance.code import code_folder
from marin.recipe.schema import Recipe, from_mapping

CODE = CodeIdentity(steps={step.name: "sha256:" + "1" * 64 for step in PIPELINE.steps}, lock="sha256:" + "2" * 64)
CORPUS, TRAIN = PIPELINE.step("corpus"), PIPELINE.step("train")
INPUTS = {"tokens": "sha256:" + "3" * 64, "tokenizer": "sha256:" + "4" * 64}


def test_the_pipeline_is_the_one_of_the_design() -> None:
    assert {step.name: step.inputs for step in PIPELINE.steps} == {
        "corpus": (),
        "tokenizer": ("corpus",),
        "tokens": ("corpus", "tokenizer"),
        "train": ("tokens", "tokenizer"),
        "evaluate": ("train", "tokens", "tokenizer", "corpus"),
        "export": ("train", "tokenizer"),
    }


def test_before_is_everything_that_a_step_hangs_on_in_order() -> None:
    assert [step.name for step in PIPELINE.before("export")] == ["corpus", "tokenizer", "tokens", "train"]
    assert PIPELINE.before("corpus") == ()


def test_a_misspelt_stage_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown stage: trian: .*did you mean train"):
        PIPELINE.step("trian")


def test_a_plan_refuses_steps_out_of_order_and_twice(tiny: ModuleType) -> None:
    with pytest.raises(UsageError, match="comes later or never"):
        Plan("wrong", (PIPELINE.step("tokenizer"), CORPUS))
    with pytest.raises(UsageError, match="twice"):
        Plan("wrong", (CORPUS, CORPUS))


def test_the_seed_is_in_the_training_and_not_in_the_corpus() -> None:
    other = from_mapping({"seed": 1}, where="test")
    assert step_identity(TRAIN, other, INPUTS, CODE) != step_identity(TRAIN, Recipe(), INPUTS, CODE)
    assert step_identity(CORPUS, other, {}, CODE) == step_identity(CORPUS, Recipe(), {}, CODE)
    assert plan_digest(PIPELINE, other, CODE) != plan_digest(PIPELINE, Recipe(), CODE)


@settings(max_examples=30)
@given(rate=st.floats(1e-6, 1.0), steps=st.integers(1, 10_000))
def test_equal_identities_mean_equal_parts(rate: float, steps: int) -> None:
    recipe = from_mapping({"optimizer": {"learning_rate": rate}, "trainer": {"num_steps": steps}}, where="test")
    same = (recipe.optimizer, recipe.trainer) == (Recipe().optimizer, Recipe().trainer)
    assert (step_identity(TRAIN, recipe, INPUTS, CODE) == step_identity(TRAIN, Recipe(), INPUTS, CODE)) == same


@pytest.mark.parametrize(
    "code",
    [
        CodeIdentity(steps={**CODE.steps, "train": "sha256:" + "9" * 64}, lock=CODE.lock),
        CodeIdentity(steps=CODE.steps, lock="sha256:" + "9" * 64),
    ],
)
def test_other_code_and_other_packages_are_another_step(code: CodeIdentity) -> None:
    assert step_identity(TRAIN, Recipe(), INPUTS, code) != step_identity(TRAIN, Recipe(), INPUTS, CODE)


def test_each_input_counts_by_its_name() -> None:
    swapped = {"tokens": INPUTS["tokenizer"], "tokenizer": INPUTS["tokens"]}
    assert step_identity(TRAIN, Recipe(), swapped, CODE) != step_identity(TRAIN, Recipe(), INPUTS, CODE)


def test_the_real_code_can_be_identified() -> None:
    code = code_identity(PIPELINE, code_folder(), Recipe())
    assert set(code.steps) == {step.name for step in PIPELINE.steps}
    assert code == code_identity(PIPELINE, code_folder(), Recipe())
