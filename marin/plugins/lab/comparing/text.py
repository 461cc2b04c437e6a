"""What was compared as rows of text, for a terminal and for a page, and as plain values for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from marin.history.table.varied import SEED, short_value
from marin.plugins.lab.comparing.compared import Compared, Group, called
from marin.plugins.lab.comparing.importance import METHOD as METHOD
from marin.plugins.lab.report import number
from marin.plugins.lab.statistics import Comparison
from marin.process.text import several

BARS = "▁▂▃▄▅▆▇█"
SPARK = 12
SPREAD = "± is the sample standard deviation over seeds"


def heading(found: Compared) -> str:
    """How many runs, of what."""
    values = [f"{len({group.values[key] for group in found.groups})} of {key}" for key in found.varied.without_seed[:4]]
    seeds = len({seed for seed in found.seeds.values() if seed})
    counted = sum(len(group.runs) for group in found.groups)
    parts = [f"{counted} runs", *values, *([f"{seeds} seeds"] if seeds > 1 else [])]
    return f"{found.title}: {', '.join(parts)}"


def group_titles(found: Compared) -> list[str]:
    """Above :func:`group_rows`."""
    titles = found.varied.titles
    by_arm = found.groups and found.groups[0].name not in ("", _of_values(found, found.groups[0]))
    keys = [titles[key] for key in found.varied.without_seed]
    return [*(["arm"] if by_arm else []), *keys, "seeds", *map(called, found.metrics), "train loss by step"]


def group_rows(found: Compared) -> list[list[str]]:
    """A row for each group: what sets it apart, its seeds, mean and spread of each number, and its curve."""
    by_arm = group_titles(found)[0] == "arm"
    ends = _extremes(found)
    rows = []
    for group in found.groups:
        seeds = sorted((found.seeds[run] for run in group.runs), key=lambda seed: (len(seed), seed))
        rows.append(
            [
                *([group.name] if by_arm else []),
                *(short_value(value) or "–" for value in group.values.values()),
                _ranges(seeds),
                *(cell(group, metric) for metric in found.metrics),
                spark(mean_curve(found, group), ends),
            ]
        )
    return rows


def _of_values(found: Compared, group: Group) -> str:
    titles = found.varied.titles
    return (
        " ".join(f"{titles[key]}={short_value(value) or 'none'}" for key, value in group.values.items()) or group.name
    )


def cell(group: Group, metric: str) -> str:
    """Mean and spread of a number, and beside it why it cannot be compared."""
    told = group.summaries.get(metric)
    if told is None:
        return "–"
    shown = with_spread(told.mean, told.sd)
    words = group.beside.get(metric, ())
    return f"{shown} ({', '.join(words)})" if words else shown


def with_spread(mean: float, sd: float | None) -> str:
    """Mean and spread in plain decimals: the spread by two digits, the mean by one more, and of a great number its units."""
    if not sd or not 1e-4 <= sd < 1e7:
        return number(mean, 6 if abs(mean) < 1e4 else 5) + ("" if sd is None else f" ± {number(sd, 2)}")
    places = 1 - math.floor(math.log10(sd))
    return f"{mean:.{places + 1 if places > 0 else 0}f} ± {sd:.{max(places, 0)}f}"


def _ranges(seeds: Sequence[str]) -> str:
    """``1-6`` for six that follow each other."""
    numbers = [int(seed) for seed in seeds if seed.isdigit()]
    if len(numbers) == len(seeds) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(seeds) if len(seeds) <= 4 else f"{len(seeds)} seeds"


def ends(found: Compared) -> str:
    """Where the first number is least and where greatest, of what can be compared; "" where there is nothing to order."""
    metric = found.metrics[0]
    told = [one for one in found.groups if metric in one.summaries and not one.beside.get(metric)]
    means = sorted({one.summaries[metric].mean: one for one in told}.items())
    if len(means) < 2:
        return ""
    (_, least), *_, (_, greatest) = means
    lowest, highest = (f"{one.name}: {cell(one, metric)}" for one in (least, greatest))
    return f"{called(metric)} is least at {lowest}; greatest at {highest}"


FEW, NAMED = 8, 12
DIFFERENCES = ("number", "against the baseline", "difference", "95% interval", "p", "p (Holm)", "test")


def printable_differences(found: Compared) -> list[Comparison]:
    """The differences of which something can be said, of many groups those in the first number and those that were registered;
    without any such, all of them if they are few."""
    said = [item for item in found.differences if item.interval is not None or item.p is not None]
    if len(found.groups) > FEW:
        shown = {found.metrics[0], *(metric for metric, _ in found.registered)}
        said = [item for item in said if item.metric in shown]
    return said or (list(found.differences) if len(found.groups) <= FEW else [])


def difference_tables(found: Compared) -> list[tuple[str, list[list[str]]]]:
    """What each table of differences is of, and its rows: the tests that were registered, and those that were not."""
    told = printable_differences(found)
    asked = [item for item in told if (item.metric, item.arm) in found.registered]
    rest = [item for item in told if item not in asked]
    title, why = f"against {found.baseline}", f"{found.verdict}: {found.because}"
    tables = [(f"{title}, registered and {why}", asked), (f"{title}, exploratory: not registered", rest)]
    if not asked:
        tables = [(f"{title}, {why}", rest)]
    return [(of, [_difference_row(found, item) for item in items]) for of, items in tables if items]


def _difference_row(found: Compared, item: Comparison) -> list[str]:
    """How great a difference is, within which interval, and what the test says of it."""
    words = _words_beside(found, item)
    over = f"{item.pairs} pairs" if item.test.startswith("paired") else f"{item.of_arm.n} and {item.of_baseline.n} runs"
    sided = "" if item.alternative == "two-sided" else f" ({item.alternative})"
    return [
        called(item.metric),
        item.arm,
        f"{item.difference:+.4g}" + (f" ({', '.join(words)})" if words else ""),
        "–" if item.interval is None else f"{item.interval[0]:+.3g} to {item.interval[1]:+.3g}",
        number(item.p, 3),
        number(item.p_holm, 3),
        f"{item.test}{sided}, {over}" if item.p is not None else "none",
    ]


def _words_beside(found: Compared, item: Comparison) -> Sequence[str]:
    group = next((group for group in found.groups if group.name == item.arm), None)
    return group.beside.get(item.metric, ()) if group is not None else ()


IMPORTANCE = ("key", "share", "values")


def importance_rows(found: Compared, metric: str) -> list[list[str]]:
    """A row for each key, the one that a number goes with most first; keys that part the runs alike are one."""
    return [
        [", ".join((one.key, *one.with_others)), "–" if one.share is None else f"{one.share:.0%}", str(one.values)]
        for one in found.importance.get(metric, ())
    ]


def remarks(found: Compared) -> list[str]:
    """What is to be known of the numbers: the limits of so few seeds, what is left out, what differs too."""
    said = list(found.notes)
    least = {
        (item.pairs, item.smallest_p)
        for item in found.differences
        if item.smallest_p is not None and item.smallest_p > 0.05
    }
    said += [
        f"{pairs} pairs of seeds can give no p below {smallest:g}, however great the difference"
        for pairs, smallest in sorted(least, key=lambda one: one[0])
    ]
    if tests := dict.fromkeys(item.test for item in found.differences if item.p is not None):
        said.append(f"test: {'; '.join(tests)}; Holm's correction is for all groups of a number")
    left_out = len(found.differences) - len(printable_differences(found))
    if left_out:
        said.append(
            f"{several(left_out, 'differences')} of other numbers, or of single runs, are left out; --metric or --json has them"
        )
    arms: dict[str, list[str]] = {}
    for item in printable_differences(found):
        if item.note and item.arm not in arms.setdefault(item.note, []):
            arms[item.note].append(item.arm)
    said += [
        f"{note} ({'; '.join(of[:4])}{f' and {len(of) - 4} more' if len(of) > 4 else ''})" for note, of in arms.items()
    ]
    if found.varied.follows:
        more = f" and {len(found.varied.follows) - NAMED} more" if len(found.varied.follows) > NAMED else ""
        said.append(f"differ too, and follow from the above: {', '.join(found.varied.follows[:NAMED])}{more}")
    return said


def spark(curve: Mapping[int, float], ends: tuple[float, float]) -> str:
    """A curve in a dozen letters, from the highest to the lowest of all curves."""
    values = [value for _, value in sorted(curve.items()) if math.isfinite(value)]
    if not values:
        return ""
    size = min(SPARK, len(values))
    places = [round(i * (len(values) - 1) / max(1, size - 1)) for i in range(size)]
    low, high = ends
    width = high - low or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((values[place] - low) / width * len(BARS)))] for place in places)


def mean_curve(found: Compared, group: Group) -> dict[int, float]:
    """The mean loss over the runs of a group at each train step that all of them have."""
    curves = [found.losses[run] for run in group.runs if found.losses[run]]
    if not curves:
        return {}
    shared = set(curves[0]).intersection(*curves[1:])
    return {step: math.fsum(curve[step] for curve in curves) / len(curves) for step in sorted(shared)}


def _extremes(found: Compared) -> tuple[float, float]:
    values = [one for curve in found.losses.values() for one in curve.values() if math.isfinite(one)]
    return (min(values), max(values)) if values else (0.0, 1.0)


def as_json(found: Compared) -> dict[str, Any]:
    """All of it as one JSON object."""
    return {
        "title": found.title,
        "verdict": found.verdict,
        "because": found.because,
        "varied": list(found.varied.keys),
        "follows": list(found.varied.follows),
        "metrics": list(found.metrics),
        "baseline": found.baseline,
        "groups": [
            {
                "name": group.name,
                "values": dict(group.values),
                "runs": {run: found.seeds[run] for run in group.runs},
                "numbers": {
                    metric: msgspec.to_builtins(told) | {"not_comparable": list(group.beside.get(metric, ()))}
                    for metric, told in group.summaries.items()
                },
            }
            for group in found.groups
        ],
        "differences": [
            msgspec.to_builtins(item)
            | {
                "registered": (item.metric, item.arm) in found.registered,
                "exploratory": found.is_exploratory(item),
                "not_comparable": list(_words_beside(found, item)),
            }
            for item in found.differences
        ],
        "importance": {
            "method": METHOD,
            **{metric: [msgspec.to_builtins(one) for one in ones] for metric, ones in found.importance.items()},
        },
        "runs": runs_of(found),
        "notes": remarks(found),
    }


def runs_of(found: Compared) -> list[dict[str, Any]]:
    """One row a run that counts: its group, its seed, what differs, its numbers."""
    return [
        {"run": run, "group": group.name, SEED: found.seeds[run], **group.values, **found.values[run]}
        for group in found.groups
        for run in group.runs
    ]
