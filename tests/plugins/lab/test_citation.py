"""Runs cite the registration that they belong to, because the executor asks; others cite nothing."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from ledger import Draft
from marin.history import runs
from marin.kinds.families.experiment import EXPERIMENT_REGISTERED
from marin.preregistration.arms import arm_digest
from marin.preregistration.registration import Metric, Registration, checked, registered
from marin.recipe.composition import sweep
from marin.recipe.schema import Artifact, ArtifactDataset, Optimizer, Phase, Recipe, digest, recorded
from marin.record import events
from marin.record.root import Root, open_root

SOME = "sha256:" + "a" * 64
RATES = (Optimizer().learning_rate, 0.01)


def register(root: Root, hypothesis: str, seeds: tuple[int, ...] = (1, 2), rates: tuple[float, float] = RATES) -> str:
    registration = checked(
        Registration(
            name="exp9",
            question="q",
            hypothesis=hypothesis,
            primary=Metric(name="evaluate.loss"),
            baseline="a",
            seeds=seeds,
            arms={
                name: Recipe(optimizer=Optimizer(learning_rate=rate)) for name, rate in zip("ab", rates, strict=True)
            },
        ),
        where="test",
    )
    body = registered(registration, file="f", file_digest="sha256:" + "0" * 64)
    root.append([Draft(EXPERIMENT_REGISTERED, "experiment/exp9", events.write(body))])
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
    from marin.preregistration.arms import arm_digest

    some, other = (
        Recipe(seed=seed, phase=Phase(first_step=4, state="sha256:" + character * 64))
        for seed, character in ((1, "a"), (2, "b"))
    )
    assert arm_digest(some) == arm_digest(other) != arm_digest(Recipe())
    assert arm_digest(some) != arm_digest(Recipe(phase=Phase(first_step=5)))


def test_a_result_that_is_taken_over_is_as_old_as_its_first_record(project: Path, tiny: ModuleType) -> None:
    """Both arms have the same first step: what it measured was known before the registration, whichever run shows
    it."""
    from marin.plugins.lab.analysis import examine

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
    root.append([Draft(EXPERIMENT_REGISTERED, "experiment/exp9", events.write(body))])
    late = tiny.run("words", project, seed=1, optimizer={"learning_rate": 0.01})
    assert late.action == "cached" and late.run != old.run
    findings = examine(root, "exp9")
    assert findings.verdict == "exploratory" and len(findings.deviations) == 2
    assert all(f"event {old.result.completed_at} recorded the result, or began" in line for line in findings.deviations)
    assert {result.run: result.seconds for result in findings.results}[late.run] == 0.0, "it executed nothing"


def begin(root: Root, run: str, recipe: Recipe) -> None:
    """A run whose training has begun."""
    started = events.RunStarted(
        run=run,
        pipeline="default",
        plan=SOME,
        recipe_digest=digest(recipe),
        recipe=recorded(recipe),
        code={},
        environment={},
    )
    train = events.TrainStarted(
        run=run,
        first_step=0,
        num_steps=4,
        state=SOME,
        manifest=SOME,
        program={},
        seeds={},
        devices=1,
        attempt=1,
        device={},
    )
    for kind, body in ((events.RUN_STARTED, started), (events.TRAIN_STARTED, train)):
        root.append([Draft(kind, runs.stream_of(run), events.write(body))])


def measure(root: Root, run: str, loss: float) -> None:
    """Its training ends, and what came of it is measured."""
    for step, inputs, metrics in (("train", {}, {}), ("evaluate", {"train": SOME}, {"loss": loss.hex()})):
        output = events.Output(kind="x", digest=SOME, size=1, artifact=SOME)
        body = events.StepCompleted(
            run=run, step=step, identity=SOME, inputs=inputs, seconds=1.0, metrics=metrics, output=output
        )
        root.append([Draft(events.STEP_COMPLETED, runs.stream_of(run), events.write(body))])


def test_a_training_that_began_before_the_registration_was_looked_at(project: Path) -> None:
    from marin.plugins.lab.analysis import examine

    root = open_root(str(project / ".marin"))
    recipes = {"first": Recipe(seed=1), "second": Recipe(seed=1, optimizer=Optimizer(learning_rate=0.01))}
    begin(root, "first", recipes["first"])
    register(root, "h", seeds=(1,))
    begin(root, "second", recipes["second"])
    for run in recipes:
        measure(root, run, 3.0)
    findings = examine(root, "exp9")
    assert findings.verdict == "exploratory"
    (line,) = findings.deviations
    assert (
        "arm a, seed 1: event 1 recorded the result, or began its training, before the registration (event 2)" in line
    )


def test_arms_that_are_registered_no_more_were_tried_all_the_same(project: Path) -> None:
    from marin.plugins.lab.analysis import examine

    root = open_root(str(project / ".marin"))

    def tried(rate: float) -> None:
        register(root, "h", seeds=(1,), rates=(rate, 2 * rate))
        for arm in (1, 2):
            run = f"run{arm}at{round(rate * 1000)}"
            begin(root, run, Recipe(seed=1, optimizer=Optimizer(learning_rate=arm * rate)))
            measure(root, run, 3.0)

    tried(0.01)
    assert examine(root, "exp9").verdict == "confirmatory"
    tried(0.03)
    findings = examine(root, "exp9")
    assert findings.verdict == "exploratory" and len(findings.results) == 2
    assert "when 2 results of the registration at event 0 were known" in findings.deviations[0]


def test_two_arms_may_be_one_recipe_that_is_executed_in_two_ways() -> None:
    """As in experiments/exp003: straight through, and moved between machines."""
    from marin.errors import UsageError
    from marin.preregistration.arms import arm_of

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
    from marin.preregistration.arms import arm_digest

    some, other, adopted = (
        Recipe(
            dataset=ArtifactDataset(
                name="long", artifact=Artifact(address="corpus/long", digest="sha256:" + character * 64, maker=maker)
            )
        )
        for character, maker in (("a", "keep_long"), ("b", "keep_long"), ("a", None))
    )
    assert arm_digest(some) == arm_digest(other) != arm_digest(adopted)


def test_the_pages_command_trains_the_arms_that_its_file_registers() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "statistics.md").read_text("utf-8")
    (file,) = (block for block in re.findall(r"(?m)^((?:(?: {8}.*)?\n)+)", page) if "Registration(" in block)
    said: dict[str, Any] = {}
    exec(textwrap.dedent(file), said)
    (command,) = re.findall(r"`marin train -m ([^`]+)`", page)
    wanted = {
        (arm_digest(recipe), seed) for recipe in said["experiment"].arms.values() for seed in said["experiment"].seeds
    }
    trained = [one.recipe for one in sweep(shlex.split(command))]
    assert {(arm_digest(recipe), recipe.seed) for recipe in trained} == wanted and len(trained) == len(wanted)
