"""Sets of prompts, each with the answer that a reward compares a completion with: shipped ones, and those of a user's file.

A line of such a file is a JSON object with ``prompt``, a text or the messages of a conversation, and ``answer``, as in the data
sets that TRL's trainers take. In the store it has these two fields of every line, and nothing else.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from ledger import LedgerError, Store, canonical_bytes
from marin.data.chat import checked
from marin.data.lines.packed import Damaged, reading, unpacked
from marin.data.lines.parsing import parsed
from marin.data.text import BYTE_ORDER_MARK
from marin.errors import DataError
from marin.plugins.rl.rewards import check_answer
from marin.recipe.objective import Objective, OwnReward

log = logging.getLogger(__name__)
MOST_BYTES = 1 << 28
"""Of a file of prompts, unpacked."""
Message = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A prompt, a text or the messages of a conversation, and its answer: a text, a number, or a regular expression, as the
    reward takes it. ``columns``: what a reward of one's own is called with."""

    prompt: str | list[Message]
    answer: str
    columns: Mapping[str, object] = field(default_factory=dict)


DOUBLED = "|".join(letter * 2 for letter in "bcdefglmnoprstz")
_BEGINNINGS = (
    "The farmer",
    "A child",
    "My sister",
    "The old teacher",
    "Some birds",
    "Every morning the baker",
    "We",
    "Nobody",
)


def questions(name: str) -> tuple[Question, ...]:
    """A shipped set by its name: ``doubled`` wants a word with a doubled letter, ``sums`` the sum of two numbers below 50,
    ``digits`` of two below 10."""
    if name == "doubled":
        return tuple(Question(beginning, DOUBLED) for beginning in _BEGINNINGS)
    below = {"sums": 50, "digits": 10}[name]
    return tuple(Question(f"{a}+{b}=", str(a + b)) for a in range(below) for b in range(below))


def questions_of(objective: Objective, store: Store | None) -> tuple[Question, ...]:
    """Those of a recipe: shipped, or in the store."""
    if objective.questions is None:
        return questions(objective.prompts)
    assert store is not None, "a user's prompts are in the store"
    return read_stored(store.read(objective.questions), objective.reward, where=f"prompts {objective.questions}")


def read_file(path: Path, reward: str | OwnReward) -> tuple[Question, ...]:
    """The questions of a user's file (.jsonl, .jsonl.gz, .jsonl.zst), in order. What no reward reads of a line is said once.

    Raises:
        DataError: a line has no prompt or no answer, or an answer that the reward cannot take; ``where`` names it.
    """
    found: list[Question] = []
    beside: set[str] = set()
    for where, line in _lines(path):
        value = _object(line, where)
        found.append(_question(value, reward, where))
        beside |= value.keys() - {"prompt", "answer"}
    if not found:
        raise _no_question(str(path), "at least one line", "none")
    if beside and isinstance(reward, str):
        log.warning("%s: left out, no reward reads them: %s", path, ", ".join(sorted(beside)))
    return tuple(found)


def encode_questions(found: Sequence[Question]) -> bytes:
    """Questions as they are stored."""
    lines = [{"prompt": one.prompt, **(one.columns or {"answer": one.answer})} for one in found]
    return b"".join(canonical_bytes(line) + b"\n" for line in lines)


def read_stored(data: bytes, reward: str | OwnReward, *, where: str) -> tuple[Question, ...]:
    """The questions of a stored file.

    Raises:
        DataError: it is not such a file.
    """
    found = []
    for number, line in enumerate(data.splitlines(), start=1):
        at = f"{where}, line {number}"
        found.append(_question(_object(line, at), reward, at))
    if not found:
        raise _no_question(where, "at least one line", "none")
    return tuple(found)


def _question(value: dict[str, Any], reward: str | OwnReward, where: str) -> Question:
    prompt = _prompt(value, where)
    if not isinstance(reward, str):
        found = Question(prompt, "", {name: item for name, item in value.items() if name != "prompt"})
    elif reward == "judge":
        found = Question(prompt, _text_of(value.get("answer", "")))
    else:
        found = Question(prompt, _answer_of(value, where))
        check_answer(reward, found.answer, where=where)
    try:
        encode_questions([found])  # half a character, a number that is not one, or beyond a double
    except LedgerError as error:
        raise _no_question(where, "values that a record can hold", str(error)[:160]) from None
    return found


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Place and bytes of every line that is not blank."""
    try:
        with path.open("rb") as raw, reading():
            content = unpacked(raw, path.name).read(MOST_BYTES + 1)
    except (OSError, Damaged) as error:
        raise _no_question(str(path), "a file that can be read", getattr(error, "strerror", "") or str(error)) from None
    if len(content) > MOST_BYTES:
        raise _no_question(str(path), f"at most {MOST_BYTES} bytes", "more")
    for number, line in enumerate(content.removeprefix(BYTE_ORDER_MARK).splitlines(), start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = parsed(line)
    except (ValueError, RecursionError) as error:
        raise _no_question(where, "JSON", str(error)[:120]) from None
    if not isinstance(value, dict):
        raise _no_question(where, "an object with 'prompt' and 'answer'", type(value).__name__)
    return value


def _prompt(value: dict[str, Any], where: str) -> str | list[Message]:
    prompt = value.get("prompt")
    if isinstance(prompt, list) and prompt:
        return checked(prompt, where)
    if not isinstance(prompt, str) or not prompt:
        raise _no_question(where, "'prompt', a text or the messages of a conversation", repr(prompt)[:80])
    return prompt


def _answer_of(value: dict[str, Any], where: str) -> str:
    answer = value.get("answer")
    endless = isinstance(answer, float) and not math.isfinite(answer)
    if isinstance(answer, bool) or endless or not isinstance(answer, str | int | float):
        raise _no_question(where, "'answer', a text or a number", repr(answer)[:80])
    return _text_of(answer)


def _text_of(answer: object) -> str:
    """A number without an exponent, whose digits a reward would take for a number of their own."""
    if isinstance(answer, float):
        return format(Decimal(repr(answer)), "f")
    return str(answer)


def _no_question(where: str, expected: str, found: str) -> DataError:
    return DataError(
        "a file of prompts that cannot be used",
        where=where,
        expected=expected,
        found=found,
        cure='lines like {"prompt": "12+7=", "answer": "19"}; docs/rl.md has their form',
    )
