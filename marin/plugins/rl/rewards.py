"""Shipped rewards: functions of a completion's text and of what its prompt's answer is. They only compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

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
    """1 where the completion has a match of the answer, a regular expression of a shipped set of prompts."""
    return 1.0 if re.search(answer, completion) else 0.0


REWARDS: Mapping[str, Reward] = {
    "exact_match": exact_match,
    "numeric_answer": numeric_answer,
    "regular_expression": regular_expression,
}


def _last_number(text: str) -> Decimal | None:
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None
