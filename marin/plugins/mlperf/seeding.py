"""Where every random number of a run came from, read from the record: one seed, and no other.

MLPerf's rules want seeds from the clock or the system, logged; the rest may be derived from them. Marin draws one integer
(``seed: null`` in the recipe, recorded as ``seed.drawn``) and derives the keys of initialisation, training and data order
from it by name. The record is held against that: the recipe of every phase, what every attempt of the training said it
started from, and every field called ``seed`` in what any step was configured with. That nothing outside of the record
entered is not a question of reading: ``marin verify`` executes all train steps again from that seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from marin.errors import MarinError
from marin.execution.phases import chain
from marin.history.run import Fact, Run
from marin.history.runs import History, facts, read_fact, stream_of
from marin.recipe.schema import Recipe, digest
from marin.recipe.seeds import seeds_of
from marin.record import events
from marin.record.events import SeedDrawn, TrainStarted


@dataclass(frozen=True)
class Place:
    """A seed in the record: the event's index, the step, the path in its configuration."""

    index: int
    step: str
    path: str
    seed: str


@dataclass(frozen=True)
class Seeding:
    """The one seed of a run, phases included. ``drawn_at``: index of the event that recorded its drawing, None where the
    recipe gave it. ``data``: seeds of a generated data set, which are part of the data. ``replayed``: by the newest answer
    that counts, every train step of every phase was found again, as a verification of the last one does, which executes
    those before it too."""

    seed: int
    drawn_at: int | None
    generator: str
    derived: tuple[str, ...]
    places: tuple[Place, ...]
    data: tuple[Place, ...]
    attempts: int
    replayed: bool

    @property
    def source(self) -> str:
        """``system`` or ``recipe``."""
        return "recipe" if self.drawn_at is None else "system"


def seeding(history: History, last: Run) -> Seeding:
    """All seeds of ``last`` and of the phases before it.

    Raises:
        MarinError: the record has another seed somewhere, or a drawing that does not fit.
    """
    runs = chain(history, last)
    first = runs[0].recipe
    if first.seed is None:
        raise _another(runs[0].started.index, "recipe.seed", "an integer", "null")
    seed = str(first.seed)
    attempts = 0
    for run in runs:
        recipe = run.recipe
        if str(recipe.seed) != seed:
            raise _another(run.started.index, f"seed of run {run.run}", seed, str(recipe.seed))
        expected = seeds_of(recipe)
        for fact in _attempts(history, run):
            attempts += 1
            if fact.body.seeds != expected:
                raise _another(fact.index, f"seeds of a training of run {run.run}", expected, fact.body.seeds)
    places, data = _placed(history, runs, seed)
    return Seeding(
        seed=int(seed),
        drawn_at=_drawing(history, runs[0]),
        generator=first.arithmetic.generator,
        derived=tuple(dict.fromkeys(name for run in runs for name in seeds_of(run.recipe)["derived"])),
        places=tuple(places),
        data=tuple(data),
        attempts=attempts,
        replayed=last.verdict.get("training") == "PASS",
    )


def _attempts(history: History, run: Run) -> list[Fact[TrainStarted]]:
    """Every training that the run's stream tells of, also one that was given up, and the one that was taken over."""
    own = history.events(stream=stream_of(run.run), type=events.TRAIN_STARTED)
    found = {fact.index: fact for fact in (*run.training, *(read_fact(TrainStarted, item) for item in own))}
    return [found[index] for index in sorted(found)]


def _drawing(history: History, first: Run) -> int | None:
    """The event that drew the seed of ``first``: for its recipe with the seed left open, before it started."""
    wanted = digest(msgspec.structs.replace(first.recipe, seed=None))
    drawn = [fact for fact in facts(history, SeedDrawn) if fact.body.recipe == wanted]
    if not drawn or drawn[0].body.seed != str(first.recipe.seed):
        return None
    if len(drawn) > 1:
        raise _another(drawn[1].index, "a recipe's seed is drawn once", "one seed.drawn", f"{len(drawn)}")
    if drawn[0].index > first.started.index:
        raise _another(drawn[0].index, "a seed is drawn first", f"before event {first.started.index}", "after it")
    return drawn[0].index


def _placed(history: History, runs: Sequence[Run], seed: str) -> tuple[list[Place], list[Place]]:
    """Every field called ``seed`` in the configuration of a step, no matter who executed it: the run's, and the data's."""
    places, data, known = [], [], set[int]()
    for run in runs:
        for name, view in run.steps.items():
            for index, event in history.events(type=events.STEP_STARTED, identity=view.identity):
                if index in known:
                    continue
                known.add(index)
                for path, value in _seeds(event.body.get("config"), ""):
                    place = Place(index, name, path, str(value))
                    if path == "seed" and place.seed == seed:
                        places.append(place)
                    elif place.seed == _data_seed(run.recipe, path):
                        data.append(place)
                    else:
                        raise _another(index, f"{path} of step {name}", seed, place.seed)
    return places, data


def _seeds(config: object, path: str, *, named: bool = False) -> Iterator[tuple[str, object]]:
    """Values below ``path``, if it is ``named`` a seed or the list of several; those of fields with such a name in any case."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from _seeds(value, f"{path}.{key}" if path else str(key), named="seed" in str(key).lower())
    elif isinstance(config, list):
        for number, value in enumerate(config):
            yield from _seeds(value, f"{path}.{number}", named=named)
    elif named:
        yield path, config


def _data_seed(recipe: Recipe, path: str) -> str | None:
    """The seed that the recipe's data set has at ``path``."""
    found: Any = {"dataset": msgspec.to_builtins(recipe.dataset)}
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None or not path.startswith("dataset.") else str(found)


def _another(index: int, where: str, expected: object, found: object) -> MarinError:
    return MarinError(
        "the record has another seed",
        where=f"event {index}: {where}",
        expected=str(expected),
        found=str(found),
        cure="do not submit this run; `marin log` shows the event",
    )
