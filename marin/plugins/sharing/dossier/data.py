"""What the events say of the data: data sets and their sizes; of a collection what was read, kept and removed, and by which
rules."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from marin.history.run import Run
from marin.plugins.sharing.dossier.evidence import collections_of
from marin.plugins.sharing.dossier.measured import Value, band
from marin.recipe.schema import parts
from marin.record.events import DATA_STEPS
from marin.verify.alone.proven import Proven

_TOKENS = ((1e9, "less than 1 billion tokens"), (1e13, "1 billion to 10 trillion tokens"))
"""The bands of the template of July 2025."""


def data_facts(run: Run, proven: Proven) -> Iterator[Value]:
    """Everything that the ledger knows of the data."""
    began, recipe = run.started.index, run.recipe
    kinds = sorted({str(type(part).__struct_config__.tag) for part in parts(recipe.dataset).values()})
    for name, value in (
        ("name", recipe.dataset.name),
        ("parts", sorted(parts(recipe.dataset))),
        ("kinds", kinds),
        ("excluded", list(recipe.exclude or ())),
    ):
        yield Value(f"data.{name}", value, (began,))
    for name in DATA_STEPS:
        if name in run.steps:
            step = run.steps[name]
            at = (step.completed_at,)
            yield Value(f"data.{name}", step.output.digest, at)
            for metric, number in sorted(step.metrics.items()):
                if math.isfinite(number):
                    yield Value(f"data.{name}.{metric}", int(number) if number == int(number) else number, at)
            if (tokens := step.metrics.get("train_tokens")) is not None:
                yield Value("data.size_band", band(tokens, _TOKENS, "more than 10 trillion tokens"), at)
    yield from _collected(run, proven)


def _collected(run: Run, proven: Proven) -> Iterator[Value]:
    """Sums over the collections that the data sets are, and the settings by which they were made."""
    found = list(collections_of(proven, run))
    if not found:
        return
    at = tuple(index for index, _, _, _ in found)
    made = [completed for _, completed, _, _ in found]
    yield Value("data.collections", [body.artifact for body in made], at)
    yield Value("data.read", sum(body.read for body in made), at)
    yield Value("data.kept", sum(body.kept for body in made), at)
    removed: dict[str, int] = {}
    for body in made:
        for reason, count in body.removed.items():
            removed[reason] = removed.get(reason, 0) + count
    yield Value("data.removed", [f"{reason}: {count}" for reason, count in sorted(removed.items())], at)
    begun = [(index, body) for _, _, index, body in found if body is not None and index is not None]
    if begun:
        steps = [line for _, body in begun for line in _setting_lines(body.settings)]
        places = tuple(index for index, _ in begun)
        yield Value("data.steps", steps, places)
        yield Value("data.sources", [glob for _, body in begun for glob in body.globs], places)


def _setting_lines(settings: Mapping[str, Any]) -> Iterator[str]:
    """Settings of a collection in lines: each step by its kind, with what is set of it, then what concerns all of them."""
    steps = settings.get("steps")
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, Mapping):
            yield _line(str(step.get("kind", "step")), {key: value for key, value in step.items() if key != "kind"})
    for name, value in settings.items():
        if name != "steps" and value:
            yield _line(name, value)


def _line(name: str, value: Any) -> str:
    return f"{name} {json.dumps(value, sort_keys=True)}" if value else name
