"""A number as a user quotes it, and the runs that gave it: ``eval/perplexity=12.3``.

A quoted number stands for everything that rounds to it: 12.3 is 12.25 to 12.35, 0.120 is 0.1195 to 0.1205, 1e-3 is half
of its last digit either way. Names are ``step.name`` as the ledger has them; ``/`` for the point, ``eval`` for
``evaluate`` and a name without its step are understood.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from marin.errors import UsageError
from marin.history.catalog import Catalog, Number

STEPS = {"eval": "evaluate", "training": "train", "validation": "evaluate"}
"""Names of steps as other tools say them."""
NEAREST = 5
LIMIT = 200


@dataclass(frozen=True)
class MetricQuery:
    """A name, and perhaps a number with half of its last digit; ``low`` to ``high`` is what rounds to it, ends
    included."""

    name: str
    value: float | None = None
    tolerance: float = 0.0
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class MetricAnswer:
    """What was found for one name: the numbers that round to the quoted one, or else the nearest; or the newest, where
    no number was query."""

    query: MetricQuery
    found: tuple[Number, ...]
    exact: bool


def parse(text: str) -> MetricQuery:
    """``NAME=VALUE`` or ``NAME``; :class:`UsageError` for a value that is not a number."""
    name, equals, written = text.partition("=")
    if not equals:
        return MetricQuery(name.strip())
    try:
        exact = Decimal(written.strip())
    except InvalidOperation:
        exact = Decimal("NaN")
    if not name.strip() or not exact.is_finite():
        raise UsageError(
            "not a number",
            where=text,
            expected="NAME=NUMBER, such as eval/perplexity=12.3",
            found=written or "nothing",
            cure="write the number as the report has it",
        )
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int), "a finite decimal"
    half = Decimal(5).scaleb(exponent - 1)
    # One step outwards: a double that is meant to be the end may lie just beyond it.
    return MetricQuery(
        name.strip(),
        float(exact),
        float(half),
        math.nextafter(float(exact - half), -math.inf),
        math.nextafter(float(exact + half), math.inf),
    )


def answer(catalog: Catalog, query: MetricQuery) -> list[MetricAnswer]:
    """For every metric that the name can mean: the runs that gave the number.

    Raises:
        UsageError: no run has a metric of such a name.
    """
    known = catalog.metric_names()
    names = _meant(query.name, known)
    if not names:
        near = difflib.get_close_matches(query.name.replace("/", "."), known, n=1, cutoff=0.4)
        raise UsageError(
            "unknown metric",
            where=query.name,
            expected=", ".join(known[:12]) or "a metric of a run",
            found=query.name,
            cure=f"did you mean {near[0]}?" if near else "see `marin show RUN`",
        )
    return [_answer(catalog, query, name) for name in names]


def _answer(catalog: Catalog, query: MetricQuery, name: str) -> MetricAnswer:
    named = replace(query, name=name)
    if query.value is None:
        return MetricAnswer(named, tuple(catalog.newest(name, LIMIT)), exact=True)
    found = catalog.between(name, query.low, query.high, LIMIT)
    if found:
        return MetricAnswer(named, tuple(found), exact=True)
    return MetricAnswer(named, tuple(catalog.nearest(name, query.value, NEAREST)), exact=False)


def _meant(name: str, known: Sequence[str]) -> list[str]:
    """The names of the ledger that ``name`` can mean: itself, or every step's metric of that name."""
    if name in known:
        return [name]
    step, point, rest = re.sub(r"[/:]", ".", name).partition(".")
    if not point:
        return [item for item in known if item.partition(".")[2] == step]
    exact = f"{STEPS.get(step, step)}.{rest}"
    return [exact] if exact in known else []
