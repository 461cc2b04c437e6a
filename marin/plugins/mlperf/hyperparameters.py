"""Hyperparameters as a contract: one table says what each is called, where it stands, and which values it may have.

The benchmark's README section, the rules file of MLPerf's compliance checker and the lines of a log are all printed from
this table, so they can not say different things.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from marin.errors import UsageError
from marin.recipe.schema import GrammarDataset, Recipe

BEGIN, END = "<!-- table -->\n", "<!-- /table -->\n"
"""Between these lines a page has the table."""
Value = int | float | str | bool
Values = Mapping[str, Value]
"""Hyperparameters by the name under which MLPerf logs them."""


class Constraint(Protocol):
    """Which values a hyperparameter may have."""

    def holds(self, value: Value, others: Values) -> bool:
        """Whether ``value`` is allowed beside ``others``."""

    @property
    def words(self) -> str:
        """For people: in tables and in errors."""

    @property
    def rule(self) -> str:
        """The expression that the compliance checker evaluates: ``v['value']``, and ``s`` with the names above."""


@dataclass(frozen=True)
class Fixed:
    """One value, the reference's."""

    value: Value

    def holds(self, value: Value, others: Values) -> bool:
        return type(value) is type(self.value) and value == self.value

    @property
    def words(self) -> str:
        return _literal(self.value)

    @property
    def rule(self) -> str:
        return f"v['value'] == {self.value!r}"


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; integers only where both are."""

    low: int | float
    high: int | float

    @property
    def _whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Value, others: Values) -> bool:
        if isinstance(value, bool | str) or (self._whole and not isinstance(value, int)):
            return False
        return self.low <= value <= self.high

    @property
    def words(self) -> str:
        return f"{'an integer' if self._whole else 'a number'} from {self.low:g} to {self.high:g}"

    @property
    def rule(self) -> str:
        whole = "is_integer(v['value']) and " if self._whole else ""
        return f"{whole}{self.low!r} <= v['value'] <= {self.high!r}"


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    values: tuple[Value, ...]

    def holds(self, value: Value, others: Values) -> bool:
        return not isinstance(value, bool) and value in self.values

    @property
    def words(self) -> str:
        return "one of " + ", ".join(map(_literal, self.values))

    @property
    def rule(self) -> str:
        return f"v['value'] in {list(self.values)!r}"


@dataclass(frozen=True)
class Formula:
    """What follows from hyperparameters that stand above it. ``text`` is the formula in their names."""

    text: str
    of: Callable[[Values], Value]

    def holds(self, value: Value, others: Values) -> bool:
        return value == self.of(others)

    @property
    def names(self) -> frozenset[str]:
        """The hyperparameters that the formula is of."""
        return frozenset(re.findall(r"[a-z_][a-z0-9_]*", self.text))

    @property
    def words(self) -> str:
        return self.text

    @property
    def rule(self) -> str:
        return "v['value'] == " + re.sub(r"[a-z_][a-z0-9_]*", lambda found: f"s['{found[0]}']", self.text)


@dataclass(frozen=True)
class Hyperparameter:
    """One row. ``field`` is the path in the recipe that sets it; ``source`` says why the constraint is what it is.
    ``read``: where the logged value is not simply that of the field."""

    name: str
    field: str
    tunable: bool
    constraint: Constraint
    meaning: str
    source: str
    read: Callable[[Recipe], Value] | None = None

    def value(self, recipe: Recipe) -> Value:
        """The value in ``recipe``, as it is logged."""
        if self.read is not None:
            return self.read(recipe)
        found: object = recipe
        for part in self.field.split("."):
            found = getattr(found, part)
        assert isinstance(found, int | float | str | bool), self.field
        return found


@dataclass(frozen=True)
class Violation:
    """A value that the contract does not allow."""

    row: Hyperparameter
    value: Value

    def __str__(self) -> str:
        return f"{self.row.name}: expected {self.row.constraint.words}, found {_literal(self.value)}"


def values_of(table: Sequence[Hyperparameter], recipe: Recipe) -> dict[str, Value]:
    """Every hyperparameter of ``recipe`` by name, in the order of the table."""
    return {row.name: row.value(recipe) for row in table}


def violations(table: Sequence[Hyperparameter], recipe: Recipe) -> list[Violation]:
    """What ``recipe`` has that the contract does not allow, in the order of the table."""
    values = values_of(table, recipe)
    return [Violation(row, values[row.name]) for row in table if not row.constraint.holds(values[row.name], values)]


def check(table: Sequence[Hyperparameter], recipe: Recipe, *, where: str) -> None:
    """Hold ``recipe`` against the contract.

    Raises:
        UsageError: a value is not allowed; the message has parameter, field, constraint and value.
    """
    found = violations(table, recipe)
    if not found:
        return
    first = found[0]
    others = f"; and {', '.join(one.row.name for one in found[1:])}" if found[1:] else ""
    raise UsageError(
        "a hyperparameter breaks the benchmark's contract",
        where=f"{where}: {first.row.name} ({first.row.field})",
        expected=first.row.constraint.words,
        found=_literal(first.value) + others,
        cure="`marin mlperf table` prints the contract; another value belongs into the open division",
    )


def as_readme(table: Sequence[Hyperparameter], recipe: Recipe) -> str:
    """The section of a benchmark's README, in Markdown."""
    lines = ["| name | set by | here | tunable | constraint | meaning | source |", "| --- " * 7 + "|"]
    for row in table:
        cells = (
            f"`{row.name}`",
            f"`{row.field}`",
            _literal(row.value(recipe)),
            "yes" if row.tunable else "no",
            row.constraint.words,
            row.meaning,
            row.source,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def into_page(page: str, section: str, *, where: str) -> str:
    """``page`` with ``section`` between its two marks, in the place of what stood there.

    Raises:
        UsageError: it does not have both marks, in this order and once.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise UsageError(
            "the page has no place for the table",
            where=where,
            expected=f"a line {BEGIN.strip()} and below it a line {END.strip()}, once",
            found="none" if not begin and not end else "others",
            cure="write both lines where the table belongs",
        )
    return before + begin + section + end + after


def as_rows(table: Sequence[Hyperparameter], recipe: Recipe) -> list[dict[str, object]]:
    """The rows for a machine."""
    return [
        {
            "name": row.name,
            "field": row.field,
            "value": row.value(recipe),
            "tunable": row.tunable,
            "constraint": row.constraint.words,
            "meaning": row.meaning,
            "source": row.source,
        }
        for row in table
    ]


def as_rules(table: Sequence[Hyperparameter]) -> str:
    """The records of a rules file: each key exactly once, its constraint as a CHECK, its value kept for formulas."""
    return "\n".join(
        f"- KEY:\n    NAME:  {row.name}\n    REQ:   EXACTLY_ONE\n"
        f'    CHECK: " {row.constraint.rule} "\n'
        f"    POST:  \" s['{row.name}'] = v['value'] \"\n"
        for row in table
    )


def _literal(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def end_rate(recipe: Recipe) -> float:
    """The learning rate of the last train step of the schedule."""
    config = recipe.optimizer
    return config.learning_rate * (1.0 if config.schedule == "constant" else config.min_lr_ratio)


def corpus(recipe: Recipe) -> str:
    """The data set in one word: the embedded grammar with its sizes and the seed of its text, or any other by its
    name."""
    dataset = recipe.dataset
    if not isinstance(dataset, GrammarDataset):
        return f"{msgspec.structs.asdict(dataset).get('name')} (not the grammar)"
    return f"grammar-{dataset.seed}-{dataset.train_bytes}-{dataset.validation_bytes}"
