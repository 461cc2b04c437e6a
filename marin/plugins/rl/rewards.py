"""Shipped rewards: functions of a completion's text and of what its prompt's answer is. They only compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from marin.errors import DataError

Reward = Callable[[str, str], float]
_NUMBER = re.compile(r"-?[0-9][0-9,]{0,30}(?:\.[0-9]{1,30})?")


def exact_match(completion: str, answer: str) -> float:
    """1 where the completion is the answer, white space around both aside."""
    return 1.0 if completion.strip() == answer.strip() else 0.0


def numeric_answer(completion: str, answer: str) -> float:
    """1 where the last number in the completion is the answer's last, as numbers; commas between digits are left out."""
    said, wanted = _last_number(completion), _last_number(answer)
    return 1.0 if said is not None and said == wanted else 0.0


def regular_expression(completion: str, answer: str) -> float:
    """1 where the completion has a match of the answer, a regular expression of RE2: how long that takes grows with the text
    alone, whatever the answer says.

    Raises:
        DataError: it is not such an expression.
    """
    return 1.0 if _matches(answer, completion) else 0.0


REWARDS: Mapping[str, Reward] = {
    "exact_match": exact_match,
    "numeric_answer": numeric_answer,
    "regular_expression": regular_expression,
}


def check_answer(reward: str, answer: str, *, where: str) -> None:
    """That a reward can be had of an answer.

    Raises:
        DataError: it has no number, or is not a regular expression.
    """
    if reward == "numeric_answer" and _last_number(answer) is None:
        raise DataError(
            "an answer without a number",
            where=where,
            expected="a number in 'answer': objective.reward is numeric_answer",
            found=repr(answer)[:80],
            cure="correct the line, or choose objective.reward=exact_match",
        )
    if reward == "regular_expression":
        try:
            _matches(answer, "")
        except DataError as error:
            raise DataError(
                error.what, where=where, expected=error.expected, found=error.found, cure=error.cure
            ) from None


def _matches(pattern: str, text: str) -> bool:
    import pyarrow
    import pyarrow.compute

    try:
        return bool(pyarrow.compute.match_substring_regex(pyarrow.array([text]), pattern)[0].as_py())
    except pyarrow.ArrowInvalid as error:
        raise DataError(
            "an answer that is no regular expression",
            where="objective.reward=regular_expression",
            expected="the syntax of RE2, which has no look-around and no back references",
            found=" ".join(str(error).split())[:160],
            cure="correct it, or choose objective.reward=exact_match",
        ) from None


def _last_number(text: str) -> Decimal | None:
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None
