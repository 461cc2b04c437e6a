"""What differs among some runs: the keys of their recipes whose values are not all the same.

Lists, names, legends and comparisons ask here, so that one set of runs is told apart by the same words everywhere. A key that
follows from the name of its section is left out: runs whose ``model.num_layers`` and ``model.hidden_dim`` part them
as their model's name does are told apart by ``model``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin.history.names import data_of, model_of, name_of
from marin.history.projection.text import flatten
from marin.record.events import LOOP

SEED = "seed"
NAMED = {"model": model_of, "dataset": data_of}
"""Sections with a name that people know them by."""
CALLED, TAGS = f"{LOOP}.name", f"{LOOP}.tags."
"""What a loop is called, and its tags, which are labels of the run (:mod:`marin.history.labels`) and nothing that it did."""
_NAMES_ITS_SECTION = ("name", "kind", "architecture", "profile", "run")
"""A key so called says what its section is; the others of it may follow from that."""
_SAYS_LITTLE = ("name", "kind", "run")
LONGEST = 24


@dataclass(frozen=True)
class KeyDifferences:
    """``keys`` in the order of the recipe, the seed last; ``values`` of each run by key, "" where its recipe has no such key.
    ``follows``: keys that differ too and are left out, because they follow from one of ``keys``."""

    keys: tuple[str, ...]
    values: Mapping[str, Mapping[str, str]]
    follows: tuple[str, ...] = ()

    @property
    def titles(self) -> dict[str, str]:
        """How each key is called where all of them are: ``learning_rate`` for ``optimizer.learning_rate``."""
        return short_titles(self.keys)

    @property
    def without_seed(self) -> tuple[str, ...]:
        """The keys that a user chose; a seed is not a choice."""
        return tuple(key for key in self.keys if key != SEED)

    @property
    def repeated(self) -> frozenset[str]:
        """Keys that have one value or none, where another key tells which: a column of them says nothing new."""
        told = {key for key in self.keys if len({each[key] for each in self.values.values()} - {""}) > 1}
        rest = [key for key in self.keys if key not in told]
        return frozenset(key for key in rest if any(_decides(one, key, self.values) for one in told))


def flat(recipe: Mapping[str, object]) -> dict[str, str]:
    """A recorded recipe as keys joined by dots and values as people write them, and the names of its sections."""
    named = {section: name for section, of in NAMED.items() if (name := of(recipe))}
    keys = {key: value for key, value in flatten(recipe).items() if not f"{key}.".startswith(TAGS)}
    return {**keys, **named}


def key_differences(recipes: Mapping[str, Mapping[str, object]]) -> KeyDifferences:
    """What differs among these recipes, each by its run."""
    flats = {run: flat(recipe) for run, recipe in recipes.items()}
    known = dict.fromkeys(key for each in flats.values() for key in each)
    differing = [key for key in known if len({each.get(key, "") for each in flats.values()}) > 1]
    differing.sort(key=lambda key: (key.partition(".")[0], "." in key, not _is_name(key), key))
    kept: list[str] = []
    follows: list[str] = []
    for key in differing:
        section = key.partition(".")[0]
        leading = [one for one in kept if one == section or (one.partition(".")[0] == section and _is_name(one))]
        leading += ["model"] * (key == CALLED)  # what a loop is called stands there
        (follows if any(_decides(one, key, flats) for one in leading) else kept).append(key)
    ordered = (*(key for key in kept if key != SEED), *(key for key in kept if key == SEED))
    values = {run: {key: each.get(key, "") for key in ordered} for run, each in flats.items()}
    return KeyDifferences(ordered, values, tuple(follows))


def _is_name(key: str) -> bool:
    return key.rpartition(".")[2] in _NAMES_ITS_SECTION


def _decides(one: str, other: str, flats: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether runs with an equal value of ``one`` have an equal value of ``other``."""
    seen: dict[str, str] = {}
    return all(
        seen.setdefault(each.get(one, ""), each.get(other, "")) == each.get(other, "") for each in flats.values()
    )


def short_titles(keys: Sequence[str]) -> dict[str, str]:
    """The shortest end of each key that no other one has, and that says of what it is: ``name`` alone does not."""
    return {
        key: next(end for end in _suffixes(key) if end == key or (end not in _SAYS_LITTLE and _is_of_one(end, keys)))
        for key in keys
    }


def _suffixes(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]


def _is_of_one(end: str, keys: Sequence[str]) -> bool:
    return sum(other == end or other.endswith(f".{end}") for other in keys) == 1


def short_value(value: str) -> str:
    """A value where there is little room: a digest by twelve of its digits, a whole number by all of its own, another number by
    six, another one cut."""
    if value.startswith("sha256:"):
        return value[:19]
    try:
        number = float(value)
    except ValueError:
        return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    return value if len(value) <= 8 or (value.isdecimal() and len(value) <= LONGEST) else f"{number:.6g}"


def name_among(run: str, recipe: Mapping[str, object], keys: Sequence[str]) -> str:
    """What a run is called among those from which ``keys`` set it apart: ``learning_rate=0.006 seed=1 · juzu7wlh``."""
    apart = distinguishing_name(keys, flat(recipe)) if keys else ""
    return f"{apart} · {run}" if apart else name_of(run, recipe)


def distinguishing_name(keys: Sequence[str], values: Mapping[str, str], most: int = 3) -> str:
    """What tells a run from those beside it, such as ``learning_rate=0.006 seed=1``: of ``keys`` as many as a name has
    room for, the seed always; "" where there are none."""
    titles = short_titles(keys)
    chosen = [key for key in keys if key != SEED][:most] + [key for key in keys if key == SEED]
    return " ".join(f"{titles[key]}={short_value(values[key])}" for key in chosen if values.get(key))
