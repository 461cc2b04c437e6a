"""Which runs of a list, and in which order: ``loss < 3.2 and optimizer.learning_rate >= 0.01``.

The grammar is MLflow's for runs, as far as lists need it: comparisons joined by ``and``, with ``= != < <= > >=``, ``LIKE`` and
``ILIKE``; a value is a number, a word or a text in quotes. ``params.``, ``metrics.``, ``tags.`` and ``attributes.`` may
stand before a name, which may stand in backticks. Where MLflow compares a parameter as text, a list compares numbers as
numbers, in quotes or not. There is no ``or``, as there is none in MLflow.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marin.errors import UsageError
from marin.history.table.rows import Row, Table, Value, as_value

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<op><=|>=|!=|==|=|<|>)|(?P<name>(?:[^\s<>=!'\"`]|`[^`]*`)+))"
)
_COMPARED: dict[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}
_LIKE = ("LIKE", "ILIKE")
EXAMPLE = "optimizer.learning_rate >= 0.01 and loss < 3.2"


@dataclass(frozen=True)
class Condition:
    """One comparison. ``wanted`` is a number where it is written as one, without quotes."""

    name: str
    op: str
    wanted: Value

    def holds(self, found: Value) -> bool:
        """Whether a run with this value is meant; one without a value is meant by ``!=`` alone."""
        if found is None:
            return self.op == "!="
        if self.op in _LIKE:
            pattern = "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in str(self.wanted))
            return re.fullmatch(pattern, _written(found), re.DOTALL | (re.I if self.op == "ILIKE" else 0)) is not None
        wanted = as_value(self.wanted) if _is_number(found) and isinstance(self.wanted, str) else self.wanted
        known = as_value(found) if _is_number(wanted) and isinstance(found, str) else found
        if _is_number(wanted) is not _is_number(known):
            return self.op == "!="  # a word is neither more nor less than a number
        return _COMPARED[self.op](known, wanted)


def conditions(texts: Sequence[str]) -> list[Condition]:
    """What these texts ask for, all of which must hold.

    Raises:
        UsageError: one cannot be read.
    """
    return [condition for text in texts for condition in _conditions(text)]


def _conditions(text: str) -> list[Condition]:
    words = _tokens_of(text)
    found = []
    while words:
        if len(words) < 3 or words[0][0] != "name":
            raise _unreadable(text, " ".join(word for _, word in words) or "nothing")
        (_, name), (kind, op), (value_kind, value), *words = words
        op = op.upper() if kind == "name" else {"==": "="}.get(op, op)
        if op not in (*_COMPARED, *_LIKE) or value_kind == "op":
            raise _unreadable(text, f"{name} {op} {value}")
        found.append(Condition(name, op, _wanted(value) if value_kind == "name" and op not in _LIKE else _bare(value)))
        if words:
            (_, joint), *words = words
            if joint.lower() != "and" or not words:
                raise _unreadable(text, joint if joint.lower() != "and" else f"nothing after {joint!r}")
    if not found:
        raise _unreadable(text, "nothing")
    return found


def _tokens_of(text: str) -> list[tuple[str, str]]:
    words, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text, text[at:].strip())
        assert match.lastgroup is not None
        words.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return words


def _bare(value: str) -> str:
    return value[1:-1] if value[0] in "'\"" and value[-1] == value[0] else value


def _wanted(value: str) -> Value:
    found = as_value(value)
    return value if found is None else found


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float)


def _written(value: float | str) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _unreadable(text: str, found: str) -> UsageError:
    return UsageError(
        "a filter that cannot be read",
        where=f"--filter {text!r}"[:200],
        expected=f"NAME OP VALUE, joined by and; OP is one of {' '.join(_COMPARED)} LIKE ILIKE",
        found=found[:100],
        cure=f"write it as in '{EXAMPLE}'",
    )


def matching_rows(table: Table, texts: Sequence[str]) -> list[Row]:
    """The rows for which all of these texts hold, in their order.

    Raises:
        UsageError: one cannot be read, or names what no run has.
    """
    asked = [(table.column(one.name, where="--filter"), one) for one in conditions(texts)]
    return [row for row in table.rows if all(one.holds(column.value(row)) for column, one in asked)]


def in_order(table: Table, rows: Sequence[Row], text: str) -> list[Row]:
    """The rows by ``NAME``, ``NAME desc`` or ``-NAME``, several joined by commas; those without a value, or with NaN, last.

    Raises:
        UsageError: no run has what a name says.
    """
    found = list(rows)
    for part in reversed([one.strip() for one in text.split(",")]):
        name, _, way = part.removeprefix("-").partition(" ")
        if way.strip().lower() not in ("", "asc", "desc"):
            raise UsageError(
                "an order that cannot be read",
                where=f"--sort {text!r}"[:200],
                expected="NAME, or NAME desc",
                found=way.strip()[:100],
                cure="write it as in 'loss' or 'optimizer.learning_rate desc, loss'",
            )
        column, down = table.column(name, where="--sort"), part.startswith("-") or way.strip().lower() == "desc"
        having = [row for row in found if not _is_nothing(column.value(row))]
        having.sort(key=lambda row: _order(column.value(row)), reverse=down)
        found = having + [row for row in found if _is_nothing(column.value(row))]
    return found


def _is_nothing(value: Value) -> bool:
    """NaN is neither before nor after a number, and a sort that meets one leaves any order; MLflow has it last."""
    return value is None or value != value


def _order(value: Value) -> tuple[int, float, str]:
    return (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))
