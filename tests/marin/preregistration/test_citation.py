"""Runs cite the registration that they belong to, because the executor asks; others cite nothing."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from ledger import Draft
from marin.history import runs
from marin.preregistration.registration import Metric, Registration, checked, registered
from marin.recipe.schema import Artifact, ArtifactDataset, Optimizer, Phase, Recipe
from marin.record import events
from marin.record.root import Root, open_root


def register(root: Root, hypothesis: str) -> str:
    registration = checked(
        Registration(
            name="exp9",
            question="q",
            hypothesis=hypothesis,
            primary=Metric(name="evaluate.loss"),
            baseline="a",
            seeds=(1, 2),
            arms={"a": Recipe(), "b": Recipe(optimizer=Optimizer(learning_rate=0.01))},
        ),
        where="test",
    )
    body = registered(registration, file="f", file_digest="sha256:" + "0" * 64)
    root.append([Draft(events.EXPERIMENT_REGISTERED, "experiment/exp9", events.write(body))])
    return body.registration


def cited(root: Root, run: str) -> str:
    return runs.load(root.history(), run).started.body.experiment


def test_arm_and_seed_decide_and_the_newest_registration_is_cited(project: Path, tiny: ModuleType) -> None:
    root = open_root(str(project / ".marin"))
    before = tiny.run("words", project, seed=2)
    first = register(root, "h")
    assert cited(root, tiny.run("words", project, seed=1).run) == first
    assert cited(root, tiny.run("words", project, seed=3).run) == "", "a seed that is not registered"
    assert cited(root, tiny.run("words", project, seed=1, trainer={"num_steps": 7}).run) == "", "no arm"
    second = register(root, "another")
    arm = tiny.run("words", project, seed=2, optimizer={"learning_rate": 0.01})
    assert cited(root, arm.run) == second != first
    assert cited(root, before.run) == "", "what began before the registration"


def test_the_state_of_a_phase_makes_no_arm() -> None:
    from marin.preregistration.registration import arm_digest

    some, other = (
        Recipe(seed=seed, phase=Phase(first_step=4, state="sha256:" + character * 64))
        for seed, character in ((1, "a"), (2, "b"))
    )
    assert arm_digest(some) == arm_digest(other) != arm_digest(Recipe())
    assert arm_digest(some) != arm_digest(Recipe(phase=Phase(first_step=5)))


def test_a_result_that_is_taken_over_is_as_old_as_its_first_record(project: Path, tiny: ModuleType) -> None:
    """Both arms have the same first step: what it measured was known before the registration, whichever run shows
    it."""
    from marin.preregistration.analysis import examine

    root = open_root(str(project / ".marin"))
    old = tiny.run("words", project, seed=1)
    registration = checked(
        Registration(
            name="exp9",
            question="q",
            hypothesis="h",
            primary=Metric(name="words.third"),
            baseline="a",
            seeds=(1,),
            arms={"a": Recipe(), "b": Recipe(optimizer=Optimizer(learning_rate=0.01))},
        ),
        where="test",
    )
    body = registered(registration, file="f", file_digest="sha256:" + "0" * 64)
    root.append([Draft(events.EXPERIMENT_REGISTERED, "experiment/exp9", events.write(body))])
    late = tiny.run("words", project, seed=1, optimizer={"learning_rate": 0.01})
    assert late.action == "cached" and late.run != old.run
    findings = examine(root.history(), "exp9")
    assert findings.verdict == "exploratory" and len(findings.deviations) == 2
    assert all(f"event {old.result.completed_at} recorded the result before" in line for line in findings.deviations)
    assert {result.run: result.seconds for result in findings.results}[late.run] == 0.0, "it executed nothing"


def test_two_arms_may_be_one_recipe_that_is_executed_in_two_ways() -> None:
    """As in experiments/exp003: straight through, and moved between machines."""
    from marin.errors import UsageError
    from marin.preregistration.registration import arm_of

    stated = Registration(
        name="exp9",
        question="q",
        hypothesis="h",
        primary=Metric(name="evaluate.loss"),
        baseline="straight",
        seeds=(1,),
        arms={"straight": Recipe(), "moved": Recipe()},
        apart={"moved": "elsewhere"},
    )
    with pytest.raises(UsageError, match="two arms are one recipe"):
        checked(msgspec.structs.replace(stated, apart={}), where="test")
    with pytest.raises(UsageError, match="a label for an arm that is not there"):
        checked(msgspec.structs.replace(stated, apart={"moved": "elsewhere", "other": "x"}), where="test")
    body = registered(checked(stated, where="test"), file="f", file_digest="sha256:" + "0" * 64)
    recipe = Recipe(seed=1)
    assert arm_of(body, recipe, "exp9.elsewhere") == "moved"
    assert arm_of(body, recipe, "exp9") == arm_of(body, recipe, "default") == "straight"
    assert arm_of(body, Recipe(seed=1, optimizer=Optimizer(learning_rate=0.01)), "exp9.elsewhere") is None


def test_what_a_step_of_the_experiment_makes_is_no_other_arm() -> None:
    from marin.preregistration.registration import arm_digest

    some, other, adopted = (
        Recipe(
            dataset=ArtifactDataset(
                name="long", artifact=Artifact(address="corpus/long", digest="sha256:" + character * 64, maker=maker)
            )
        )
        for character, maker in (("a", "keep_long"), ("b", "keep_long"), ("a", None))
    )
    assert arm_digest(some) == arm_digest(other) != arm_digest(adopted)
