"""Shipped rewards and prompts: what each gives for a text, and that every shipped answer can be had."""

from __future__ import annotations

import math

import pytest

from marin.plugins.rl.prompts import questions
from marin.plugins.rl.rewards import REWARDS, exact_match, numeric_answer, regular_expression


@pytest.mark.parametrize(
    ("completion", "answer", "match", "number"),
    [
        ("19", "19", 1.0, 1.0),
        (" 19\n", "19", 1.0, 1.0),
        ("it is 1,219.0.", "1219", 0.0, 1.0),
        ("19, or 20", "19", 0.0, 0.0),
        ("20, no: -19", "-19", 0.0, 1.0),
        ("", "19", 0.0, 0.0),
        ("nineteen", "19", 0.0, 0.0),
        ("1" * 5000, "1", 0.0, 0.0),
    ],
)
def test_a_number_is_compared_as_a_number_and_a_text_as_a_text(
    completion: str, answer: str, match: float, number: float
) -> None:
    assert (exact_match(completion, answer), numeric_answer(completion, answer)) == (match, number)


def test_every_shipped_question_has_rewards_that_are_numbers() -> None:
    for name in ("doubled", "sums"):
        found = questions(name)
        assert len(set(found)) == len(found) > 1
        for question in found:
            assert all(math.isfinite(reward(question.answer, question.answer)) for reward in REWARDS.values())
    assert regular_expression("a letter", questions("doubled")[0].answer) == 1.0
    assert regular_expression("a word", questions("doubled")[0].answer) == 0.0
    assert {numeric_answer(f"{one.prompt}{one.answer}", one.answer) for one in questions("sums")} == {1.0}
