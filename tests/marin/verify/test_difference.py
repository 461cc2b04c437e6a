"""Two runs that differ in one thing and in everything that follows from it: the cause is named, not its
consequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from marin.history.run import Fact, Run, StepView
from marin.recipe.schema import Optimizer, Recipe, plain
from marin.record.events import Output, RunStarted, TrainSegment, TrainStarted
from marin.verify.segments.difference import QUESTIONS, Comparison, compare_runs

TENSORS = ("moments/inner_state/0/nu/embeddings/token_embeddings/weight", "model/embeddings/token_embeddings/weight")


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


def view(changed: str = "", since: int = 3) -> Run:
    """A run of four train steps in two segments. ``changed`` and all questions after it have other answers, the steps
    from ``since`` on."""
    at = QUESTIONS.index(changed) if changed else len(QUESTIONS)

    def other(question: str) -> int:
        return int(QUESTIONS.index(question) >= at)

    recipe: dict[str, Any] = {**plain(Recipe()), "seed": other("recipe")}
    code = {"steps": {"train": sha(10 + other("code"))}, "commit": f"{other('code'):040x}"}
    environment = {
        "lock": sha(20 + other("environment")),
        "versions": {"jax": "1"},
        "settings": {},
        "cores": {"count": 2},
    }
    started = RunStarted(
        run="r", pipeline="p", plan=sha(1), recipe_digest=sha(2), recipe=recipe, code=code, environment=environment
    )
    output = Output(kind="tokens", digest=sha(30 + other("data")), size=1, artifact=sha(4))
    tokens = StepView("tokens", sha(3), {}, output, {}, {}, 1.0, 1, "", 1, "r", False)
    training = TrainStarted(
        run="r",
        first_step=0,
        num_steps=4,
        state=sha(5),
        manifest=sha(6),
        devices=1,
        attempt=1,
        seeds={},
        program={"functions": {"gradient": sha(40 + other("program"))}},
    )
    segments = []
    for start in (0, 2):
        prints = [sha(50 + i + 10 * (other("step") and i >= since)) for i in (start, start + 1)]
        segments.append(
            TrainSegment(
                run="r",
                start=start,
                end=start + 2,
                losses=[(1.0).hex()] * 2,
                batches=[sha(7)] * 2,
                fingerprints=prints,
                start_state=sha(80 + start),
                end_state=sha(82 + start),
                trace=sha(90 + start + (5 if other("tensor") else 0)),
            )
        )
    facts = tuple(Fact(i, "", body) for i, body in enumerate(segments))
    return Run(
        "r",
        Fact(0, "", started),
        9,
        10,
        {"tokens": tokens},
        {},
        (),
        (Fact(1, "", training),),
        facts,
        (),
        None,
        None,
        None,
        verdicts=(),
    )


def blob(digest: str) -> bytes | None:
    """Traces of two steps and two tensors; those of a changed run differ in the embeddings' parameter and moment."""
    rows = [b"\x01" * 16, b"\x02" * 16] if int(digest[7:], 16) < 95 else [b"\x01" * 16, b"\x03" * 16]
    return b"".join(rows)


def compared(one: Run, other: Run) -> Comparison:
    return compare_runs(one, other, blob, lambda run: TENSORS)


@pytest.mark.parametrize("question", QUESTIONS[:-1])
def test_the_first_difference_is_the_cause(question: str) -> None:
    found = compared(view(), view(question))
    assert found.first is not None
    assert (found.first.question, found.exit_code()) == (question, 1)
    before = QUESTIONS.index(question)
    assert [answer.outcome for answer in found.answers] == ["equal"] * before + ["different"] * (
        len(QUESTIONS) - before
    )
    assert found.as_json()["first_difference"]["in"] == question
    assert found.as_json()["first_step"] == 3


def test_tensors_of_the_first_step_are_named_in_order_of_execution() -> None:
    answer = compared(view(), view("step")).answers[-1]
    assert [line.rpartition(" ")[2] for line in answer.lines] == [TENSORS[1], TENSORS[0]]


def test_tensors_that_a_cause_explains_are_counted_and_named_on_request() -> None:
    """Their names are found by jax, seconds that nobody needs who changed the learning rate."""
    asked: list[str] = []

    def names(run: Run) -> tuple[str, ...] | None:
        asked.append(run.run)
        return TENSORS

    found = compare_runs(view(), view("recipe"), blob, names)
    assert found.answers[-1].lines == ("after train step 3: 2 of 2 tensors (--all names them, which takes jax)",)
    assert asked == []
    assert len(compare_runs(view(), view("recipe"), blob, names, whole=True).answers[-1].lines) == 2
    assert compare_runs(view(), view("step"), blob, names).answers[-1].lines[0].endswith(TENSORS[1])
    unnamed = compare_runs(view(), view("step"), blob, lambda _: None)
    unnamed_too = compare_runs(view(), view("recipe"), blob, lambda _: None, whole=True)
    for one in (unnamed, unnamed_too):  # without jax they are counted too, and nothing is advised that would not help
        assert one.answers[-1].lines == (
            "after train step 3: 2 of 2 tensors (jax, which is not here, knows their names)",
        )


def test_numbers_of_recipes_are_written_as_people_write_them() -> None:
    one = view()

    def at(rate: float) -> Run:
        recipe = plain(msgspec.structs.replace(Recipe(), optimizer=Optimizer(learning_rate=rate)))
        return replace(one, started=replace(one.started, body=msgspec.structs.replace(one.started.body, recipe=recipe)))

    assert compared(at(0.003), at(0.0015)).answers[0].lines == ("optimizer.learning_rate: 0.003 against 0.0015",)


def test_runs_that_do_not_differ() -> None:
    found = compared(view(), view())
    assert (found.first, found.exit_code(), found.as_json()["equal"]) == (None, 0, True)


def test_what_changes_no_bit_is_a_note() -> None:
    one = view()
    body = one.started.body
    moved = replace(
        one,
        started=Fact(
            0,
            "",
            RunStarted(
                run="r",
                pipeline="p",
                plan=body.plan,
                recipe_digest=body.recipe_digest,
                recipe=body.recipe,
                code=body.code,
                environment={**body.environment, "cores": {"count": 64}},
            ),
        ),
    )
    found = compared(one, moved)
    assert (found.exit_code(), found.notes) == (0, ("cores.count: 2 against 64",))


def test_what_can_not_be_compared_is_no_equality() -> None:
    assert compared(view(), replace(view(), steps={})).exit_code() == 3
    found = compare_runs(view(), view("step"), lambda _: None, lambda run: TENSORS)
    assert (found.answers[-1].outcome, found.exit_code()) == ("unknown", 1)


def test_a_run_that_goes_on_longer_differs_where_the_other_ends() -> None:
    one = view()
    found = compared(one, replace(one, segments=one.segments[:1]))
    assert found.first is not None
    assert (found.first.question, found.first.step) == ("step", 2)
