"""Some runs held against each other: what differs, each number's mean and spread over seeds, differences with intervals and
tests, and which key a number goes with. Pure: runs in, a :class:`Compared` out.

Runs that differ in nothing but the seed are one group. Of several runs of one group and seed the first with the number counts, as
in a registered experiment. A difference is exploratory, whatever its p-value, unless an experiment was registered
that asked for it and nothing deviates from it (:mod:`marin.plugins.lab.analysis`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from marin.errors import UsageError
from marin.history.run import Run
from marin.history.table.beside import BITS, COST, SECONDS
from marin.history.table.comparable import beside_all
from marin.history.table.machine import ENERGY, SPEED
from marin.history.table.rows import HELD_OUT, LAST, NUMBERS
from marin.history.table.varied import SEED, KeyDifferences, key_differences, short_titles, short_value
from marin.plugins.lab.comparing.decided import Deciding, differing
from marin.plugins.lab.comparing.importance import Importance, importances
from marin.plugins.lab.comparing.selection import Selection
from marin.plugins.lab.statistics import Comparison, Summary, compare, summary, with_holm

USUAL = (NUMBERS[HELD_OUT], BITS, NUMBERS[LAST], SPEED)
"""What is compared unless something else is asked for, as far as the runs have it."""
CALLED = {metric: word for word, metric in NUMBERS.items() if word != "train_loss"}
"""Numbers that people call by a word of its own, as every table does."""
OF_MACHINES = (SPEED, ENERGY, SECONDS, COST)
"""Numbers that are shown, and tested only where somebody asks for them."""
ALONE = "all alike"
NO_SEED = -(2**64)
"""From here downwards stand the runs without a seed, each for itself."""
Verdict = Literal["exploratory", "confirmatory", "incomplete"]


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed. ``summaries`` by number; ``beside``: why a number of these runs says nothing
    beside the baseline's."""

    name: str
    values: Mapping[str, str]
    runs: tuple[str, ...]
    numbers: Mapping[str, Mapping[int, float]]
    summaries: Mapping[str, Summary]
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """``varied`` is what differs among the runs; ``metrics`` the numbers that are compared, the first one in front;
    ``verdict`` says what the tests are worth, and ``because`` why."""

    title: str
    varied: KeyDifferences
    metrics: tuple[str, ...]
    groups: tuple[Group, ...]
    baseline: str
    differences: tuple[Comparison, ...]
    registered: frozenset[tuple[str, str]]
    """Number and group of each difference that a registered experiment asked for: its test is the registered one."""
    importance: Mapping[str, Sequence[Importance]]
    verdict: Verdict
    because: str
    notes: tuple[str, ...]
    seeds: Mapping[str, str]
    values: Mapping[str, Mapping[str, float]]
    """Run -> number -> value, of those that count."""
    losses: Mapping[str, Mapping[int, float]]
    """Run -> train step -> loss."""

    def group(self, name: str) -> Group:
        """The group of this name."""
        return next(one for one in self.groups if one.name == name)

    def is_exploratory(self, item: Comparison) -> bool:
        """Whether a difference confirms nothing: nobody registered it, or the runs deviate from what was registered."""
        return self.verdict != "confirmatory" or (item.metric, item.arm) not in self.registered


def compared(
    selection: Selection,
    metrics: Sequence[str],
    baseline: str,
    more: Mapping[str, Mapping[str, float]],
    decided: Mapping[str, Deciding],
) -> Compared:
    """The runs of a selection held against each other. ``metrics``: which numbers, by any name that lists take; ``baseline``: a
    run, or KEY=VALUE,… as far as they tell the group; ``more``: numbers beside those of a run's steps, by run, and what
    ``decided`` them.

    Raises:
        UsageError: no run has such a number, or no group is the baseline.
    """
    views = {run.run: run for run in selection.runs}
    found = key_differences({name: run.started.body.recipe for name, run in views.items()})
    told = tuple(key for key in found.keys if key not in found.repeated)  # as lists have them
    found = replace(found, keys=told, follows=(*found.follows, *(key for key in found.keys if key not in told)))
    numbers = {name: {**run.metrics, **more.get(name, {})} for name, run in views.items()}
    names = _metrics(metrics, numbers, selection)
    arms = dict(selection.arms)
    notes: list[str] = []
    if selection.waiting:
        notes.append(f"{selection.waiting} recipes of the sweep have no run yet")
    seeds = {name: str(run.started.body.recipe.get(SEED, "")) for name, run in views.items()}
    groups = _groups(found, views, numbers, names, arms, seeds, notes)
    findings = selection.findings
    against = "" if findings is None else findings.registration.body.baseline
    first = _baseline(groups, baseline or (against if any(group.name == against for group in groups) else ""), names[0])
    groups = sorted(groups, key=lambda group: group.name != first)
    at_hand = [views[name] for name in groups[0].runs]
    groups = [_with_beside(group, at_hand[0], views, names, decided) for group in groups]
    differences: list[Comparison] = []
    tests = () if findings is None or selection.is_part else (*findings.primary, *findings.secondary)
    registered = [item for item in tests if item.metric in names and first == against]
    weighed = names if metrics else tuple(name for name in names if name not in OF_MACHINES)
    for metric in weighed:
        if known := [item for item in registered if item.metric == metric]:
            differences += known
            continue
        base = groups[0].numbers[metric]
        family = [
            compare(metric, (groups[0].name, base), (group.name, group.numbers[metric]))
            for group in groups[1:]
            if base and group.numbers[metric]
        ]
        differences += with_holm(family)
    verdict, because = _verdict(selection, is_asked=not tests or bool(registered))
    finite = {
        metric: {
            run: value
            for group in groups
            for run in group.runs
            if (value := numbers[run].get(metric)) is not None and math.isfinite(value)
        }
        for metric in names
    }
    return Compared(
        title=selection.title,
        varied=found,
        metrics=names,
        groups=tuple(groups),
        baseline=groups[0].name,
        differences=tuple(differences),
        registered=frozenset((item.metric, item.arm) for item in registered),
        importance={metric: importances(found.keys, found.values, finite[metric]) for metric in weighed},
        verdict=verdict,
        because=because,
        notes=tuple(notes),
        seeds=seeds,
        values={run: {m: finite[m][run] for m in names if run in finite[m]} for group in groups for run in group.runs},
        losses={run: views[run].losses for group in groups for run in group.runs},
    )


def _metrics(asked: Sequence[str], numbers: Mapping[str, Mapping[str, float]], selection: Selection) -> tuple[str, ...]:
    known = list(dict.fromkeys(name for each in numbers.values() for name in each))
    if not asked:
        registered = selection.findings.metrics if selection.findings is not None else []
        usual = [name for name in dict.fromkeys([*registered, *USUAL]) if name in known]
        return tuple(usual or [name for name in known if name.endswith("loss_last")] or known[:1])
    found = []
    for name in asked:
        meant = NUMBERS.get(name, name)
        ends = [meant] if meant in known else [one for one in known if one.endswith(f".{meant}")]
        if len(ends) != 1:
            import difflib

            near = ends or difflib.get_close_matches(meant, known, n=3, cutoff=0.4)
            raise UsageError(
                "several numbers are called so" if ends else "no run has such a number",
                where=f"--metric {name}",
                expected="a number of a step, as STEP.NAME",
                found=name[:80],
                cure=f"did you mean {' or '.join(near[:8])}?" if near else f"they have {', '.join(known[:20])}",
            )
        found.append(ends[0])
    return tuple(dict.fromkeys(found))


def _groups(
    found: KeyDifferences,
    views: Mapping[str, Run],
    numbers: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    arms: Mapping[str, str],
    seeds: Mapping[str, str],
    notes: list[str],
) -> list[Group]:
    """Runs by what they differ in, the seed aside; in the order of the values."""
    parted: dict[tuple[str, ...], list[str]] = {}
    for run in views:
        key = (arms[run],) if run in arms else tuple(found.values[run][key] for key in found.without_seed)
        parted.setdefault(key, []).append(run)
    order = sorted(parted, key=lambda key: tuple(map(rank, key)))
    titles = short_titles(found.keys)
    groups: list[Group] = []
    for key in order:
        values = {name: found.values[parted[key][0]][name] for name in found.without_seed}
        called = " ".join(f"{titles[name]}={short_value(value) or 'none'}" for name, value in values.items())
        name = key[0] if arms else called or ALONE
        if any(group.name == name for group in groups):
            name = f"{name} ({len(groups) + 1})"  # values that are the same where they are cut
        by_seed, kept = _by_seed(parted[key], views, numbers, names, seeds, notes)
        groups.append(
            Group(name, values, kept, by_seed, {one: summary(list(of.values())) for one, of in by_seed.items() if of})
        )
    return groups


def _by_seed(
    runs: Iterable[str],
    views: Mapping[str, Run],
    numbers: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    seeds: Mapping[str, str],
    notes: list[str],
) -> tuple[dict[str, dict[int, float]], tuple[str, ...]]:
    """The numbers of a group by seed, and the runs that count."""
    by_seed: dict[str, dict[int, float]] = {name: {} for name in names}
    kept: dict[int, str] = {}
    places = {run: place for place, run in enumerate(views)}
    for run in runs:
        seed = _seed(seeds[run], places[run])
        if names[0] not in numbers[run]:
            is_over = views[run].status == "completed"
            notes.append(f"run {run} is {views[run].status}: no {called(names[0])}{'' if is_over else ' yet'}")
        if seed in kept and names[0] in numbers[kept[seed]]:
            first, second = numbers[kept[seed]], numbers[run]
            same = all(first.get(name) == second.get(name) for name in names if name != SPEED)
            notes.append(
                f"run {run} is run {kept[seed]} again, "
                f"{'with the same numbers' if same else 'with other numbers'}: the first counts"
            )
            continue
        kept[seed] = run
        for name in names:
            value = numbers[run].get(name)
            if value is not None and not math.isfinite(value):
                notes.append(f"{called(name)} of run {run} is {value}: left out")
            elif value is not None:
                by_seed[name][seed] = value
    return by_seed, tuple(kept.values())


def _seed(written: str, place: int) -> int:
    """The seed of a run. Without one it shares none with any other run: every such run is its own, in every group."""
    try:
        return int(written)
    except ValueError:
        return NO_SEED - place


def _baseline(groups: Sequence[Group], asked: str, metric: str) -> str:
    if not asked:
        return next((group.name for group in groups if metric in group.summaries), groups[0].name)
    wanted = [part.partition("=") for part in asked.split(",")]

    def fits(group: Group) -> bool:
        if asked == group.name or any(run.startswith(asked) for run in group.runs):
            return True
        titles = short_titles(list(group.values))
        return all(
            equals
            and any(name in (key, titles[key]) and _equal_values(value, found) for key, found in group.values.items())
            for name, equals, value in wanted
        )

    found = [group.name for group in groups if fits(group)]
    if len(found) != 1:
        raise UsageError(
            "which runs are the baseline?",
            where=f"--baseline {asked}",
            expected="a run, or KEY=VALUE,… that one group has",
            found=f"{len(found)} groups" if found else "no group",
            cure=f"name one of: {'; '.join(group.name for group in groups[:8])}",
        )
    return found[0]


def _equal_values(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def rank(value: str) -> tuple[int, float, str]:
    """Its place among the values of a key: numbers by size, before words."""
    try:
        return 0, float(value), ""
    except ValueError:
        return 1, 0.0, value


def _with_beside(
    group: Group, first: Run, views: Mapping[str, Run], names: Sequence[str], decided: Mapping[str, Deciding]
) -> Group:
    runs = [views[run] for run in group.runs]
    words = {
        name: dict.fromkeys(
            (
                *beside_all(runs, first, name),
                *(word for run in runs for word in differing(decided[run.run], decided[first.run], name)),
            )
        )
        for name in names
    }
    return replace(group, beside={name: tuple(said) for name, said in words.items() if said})


def _verdict(selection: Selection, is_asked: bool) -> tuple[Verdict, str]:
    """What the registered tests are worth, if they are among what is asked, and why."""
    findings = selection.findings
    if findings is None:
        return "exploratory", "nothing of this was registered before the runs"
    if selection.is_part:
        return "exploratory", "a filter leaves some of the registered runs out"
    if not is_asked:
        against = findings.registration.body.baseline
        return "exploratory", f"what was registered is {', '.join(findings.metrics)} against {against}"
    if findings.deviations:
        more = f", and {len(findings.deviations) - 1} more" if len(findings.deviations) > 1 else ""
        return findings.verdict, f"{findings.deviations[0]}{more}"
    return findings.verdict, f"registered at event {findings.registration.index}, before the runs"


def called(metric: str) -> str:
    """A number as people call it: ``loss`` for held-out text, ``train loss`` for the last minibatch."""
    return CALLED.get(metric, metric)
