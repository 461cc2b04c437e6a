"""A run as a row, and a column of a table of runs by any name that a user has of it.

A name is one of the table's own columns (``loss``), a key of the recipe (``optimizer.learning_rate``), a number of a step
(``evaluate.pairs_won``), a tag (``tags.team``), or an end of a key or number that only one has (``learning_rate``).
MLflow's words before it are understood: ``params.``, ``metrics.``, ``tags.``, ``attributes.``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from marin.errors import UsageError
from marin.history.names import data_of, model_of, section
from marin.history.run import Run
from marin.history.table.beside import BITS, LAST_LOSS
from marin.history.table.machine import SPEED
from marin.history.table.varied import KeyDifferences, flat, key_differences, short_value

Value = int | float | str | None
"""A whole number has all its digits: a seed may have 19."""
HELD_OUT, LAST = "loss", "train loss"
"""One word means one number wherever runs are shown: the evaluation's loss on held-out text, and that of the last
minibatch of training."""
NUMBERS = {
    HELD_OUT: "evaluate.loss",
    "perplexity": "evaluate.perplexity",
    LAST: LAST_LOSS,
    "train_loss": LAST_LOSS,
    "tokens": "train.tokens",
    "tokens/s": SPEED,
    "bits per byte": BITS,
}
"""Numbers that tables know by a word of their own."""
_NEAR = 3


@dataclass(frozen=True)
class Row:
    """``recipe`` as it was recorded; ``numbers`` as ``step.name``; ``own``: what the table's own columns show, by name, and
    ``compared`` what a filter compares of them where that is another thing."""

    run: str
    recipe: Mapping[str, object]
    numbers: Mapping[str, float]
    tags: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    compared: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """``value`` is what a filter compares, None where the run has none; ``text`` what the table shows."""

    name: str
    title: str
    value: Callable[[Row], Value]
    text: Callable[[Row], str]


class Table:
    """Some runs, and what can be asked of them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self._flat = {row.run: flat(row.recipe) for row in rows}
        self._known: dict[str, None] | None = None

    def varied(self) -> KeyDifferences:
        """What differs among them."""
        return key_differences({row.run: row.recipe for row in self.rows})

    def names(self) -> list[str]:
        """Every name that a column can have."""
        if self._known is None:
            numbers = [name for row in self.rows for name in row.numbers]
            tags = [f"tags.{name}" for row in self.rows for name in row.tags]
            own = [name for row in self.rows[:1] for name in row.own]
            keys = [key for each in self._flat.values() for key in each]
            self._known = dict.fromkeys([*own, *NUMBERS, *keys, *numbers, *tags])
        return list(self._known)

    def column(self, name: str, *, where: str) -> Column:
        """The column that ``name`` means.

        Raises:
            UsageError: no run has such a key, number or tag, or several end so.
        """
        asked = name.replace("`", "").strip()
        word, _, rest = asked.partition(".")
        if word in ("tags", "tag") and rest:
            return Column(f"tags.{rest}", name, lambda row: row.tags.get(rest), lambda row: row.tags.get(rest, ""))
        plain = rest if word in _PREFIXES and rest else asked
        if plain in NUMBERS:
            return self._number(plain, NUMBERS[plain])
        if self.rows and plain in self.rows[0].own and word not in ("metrics", "params"):
            return self._own(plain)
        known = self.names()
        if plain in known:
            return self._any(plain, plain)
        ends = [one for one in known if one.endswith(f".{plain}") and not one.startswith("tags.")]
        if len(ends) == 1:
            return self._any(plain, ends[0])
        if not self.rows:
            return Column(name, name, lambda row: None, lambda row: "")
        if ends:
            raise UsageError(
                "several columns are called so",
                where=where,
                expected="a name that only one has",
                found=plain[:80],
                cure=f"write one of {', '.join(ends[:8])}",
            )
        near = difflib.get_close_matches(plain, known, n=_NEAR, cutoff=0.5)
        raise UsageError(
            "no such column",
            where=where,
            expected=f"one of {', '.join(self.rows[0].own)}; a key of the recipe, a number as STEP.NAME, or tags.NAME",
            found=plain[:80],
            cure=f"did you mean {' or '.join(near)}?" if near else "`marin show RUN --json` has every key and number",
        )

    def varied_columns(self, found: KeyDifferences, taken: Iterable[str] = ()) -> list[Column]:
        """A column for each key that differs; a title that another column has (``taken``) is written in full."""
        titles, others = found.titles, set(taken)
        return [self._short(titles[key] if titles[key] not in others else key, key) for key in found.keys]

    def _short(self, title: str, key: str) -> Column:
        return replace(self._key(title, key), text=lambda row: short_value(self._of(row, key)))

    def _any(self, title: str, name: str) -> Column:
        return self._number(title, name) if any(name in row.numbers for row in self.rows) else self._key(title, name)

    def _own(self, name: str) -> Column:
        def value(row: Row) -> Value:
            return row.compared[name] if name in row.compared else as_value(row.own.get(name, ""))

        return Column(name, name, value, lambda row: row.own.get(name, ""))

    def _key(self, title: str, key: str) -> Column:
        return Column(
            key, title, lambda row: as_value(self._of(row, key)), lambda row: visible_value(self._of(row, key))
        )

    def _of(self, row: Row, key: str) -> str:
        return self._flat[row.run].get(key, "")

    def _number(self, title: str, name: str) -> Column:
        def text(row: Row) -> str:
            return row.own[title] if title in row.own else number(row.numbers.get(name))

        return Column(name, title, lambda row: row.numbers.get(name), text)


def row_of(run: Run, numbers: Mapping[str, float] | None = None) -> Row:
    """A run as a row, with the columns that every list of runs has."""
    recipe = run.started.body.recipe
    own = {
        "run": run.run,
        "started": run.started.time,
        "dataset": data_of(recipe),
        "model": model_of(recipe),
        "steps": str(section(recipe, "trainer").get("num_steps", "")),
        "verified": run.verified,
        "state": run.status,
        "seed": str(recipe.get("seed", "")),
        "description": run.labels.description,
    }
    return Row(run.run, recipe, run.metrics if numbers is None else numbers, run.labels.tags, own)


_PREFIXES = ("params", "param", "parameters", "metrics", "metric", "attributes", "attribute", "recipe")


def as_value(text: str) -> Value:
    """A text as a filter compares it: a number where it is one, None where there is none."""
    if not text:
        return None
    with suppress(ValueError):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def number(value: float | None) -> str:
    """A number as lists show it: four decimals where that says enough; nothing where there is none."""
    if value is None:
        return ""
    if not math.isfinite(value) or (value == int(value) and abs(value) < 1e15):
        return f"{value:g}" if not math.isfinite(value) else f"{value:.0f}"
    return f"{value:.4f}" if 0.001 <= abs(value) < 1e6 else f"{value:.4g}"


def visible_value(value: str) -> str:
    """A value of a recipe where a table has it: whole, but for a list or a text that no column has room for."""
    return value if len(value) <= 71 else f"{re.sub(r'\\s+', ' ', value[:70])}…"
