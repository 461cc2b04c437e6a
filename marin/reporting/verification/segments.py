"""The segments of a run on the page of a verification: when each was recorded, and who executed it again.

One row for what was recorded, as wide as it took; below it one row for each reproducer, in a colour of its own, with the
segments that were found to be as recorded. Anyone who signs a log could write such an event under any name, so the rows are
those of this user's own log alone (:meth:`marin.record.root.Root.is_own`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ledger import parse_time
from marin.history.run import Run, record_digest
from marin.history.runs import facts
from marin.record.events import ReplayCompleted, ReplaySegment
from marin.record.root import Root
from marin.reporting.plot import WIDTH
from marin.verify.verdict import Report

NAMES = 168
"""Room for the name of a row, in the picture's units."""
ROW, BAR = 30, 22
COLOURS = 6
"""So many reproducers have a colour of their own; the next begins with the first again."""


@dataclass(frozen=True)
class Reproducer:
    """``name`` signed for it, ``machine`` says where, ``since`` when it was first found (as events write it, "" where nobody
    recorded it); ``starts`` are the first train steps of the segments that were found to be as recorded."""

    name: str
    machine: str
    starts: frozenset[int]
    since: str = ""


@dataclass(frozen=True)
class Bar:
    """A segment in a row: its place as text, and the class that gives its colour."""

    x: str
    width: str
    kind: str
    title: str


@dataclass(frozen=True)
class Lane:
    """A name and the bars beside it."""

    name: str
    about: str
    y: int
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Timeline:
    """What ``verification.html.j2`` draws."""

    rows: Sequence[Lane]
    marks: Sequence[str]
    """Where an attempt at training began anew."""
    label: str
    height: int
    width: int = WIDTH
    bar: int = BAR


def reproducers(log: Root, run: Run) -> list[Reproducer]:
    """Who executed segments of ``run`` again and found them as recorded, in the order of their first finding. A segment is
    its whole record: one of another run of the same name is another. In somebody else's ``log`` names, times and findings
    are what that signer wrote: nobody is shown by them."""
    every = {record_digest(fact.body): fact.body.start for fact in run.segments}
    found: dict[str, set[int]] = {}
    machines: dict[str, str] = {}
    times: dict[str, str] = {}
    for fact in facts(log.history(), ReplaySegment, run=run.run) if log.is_own() else ():
        if fact.body.segment in every:
            found.setdefault(fact.actor, set()).add(every[fact.body.segment])
            times.setdefault(fact.actor, fact.time)
    for verdict in run.verdicts:
        body = verdict.body
        if body.verdicts.get("training") == "PASS" and body.training.get("mode") == "full":
            found.setdefault(verdict.actor, set()).update(every.values())
            if body.training.get("segments_replayed"):
                times[verdict.actor] = min(times.get(verdict.actor, verdict.time), verdict.time)
        machines[verdict.actor] = machine_of(body)
    return [
        Reproducer(name, machines.get(name, ""), frozenset(starts), times.get(name, ""))
        for name, starts in found.items()
    ]


def machine_of(body: ReplayCompleted) -> str:
    """Such as ``AMD EPYC, 2 cores``; "" where the event does not say."""
    processor, cores = body.environment.get("processor"), body.environment.get("cores")
    kind = processor.get("model") or processor.get("architecture") if isinstance(processor, Mapping) else None
    count = cores.get("available") if isinstance(cores, Mapping) else None
    told = [str(kind)] if kind else []
    told += [f"{count} cores"] if isinstance(count, int) else []
    return ", ".join(told)


def timeline(report: Report, run: Run, known: Sequence[Reproducer]) -> Timeline | None:
    """When each segment was recorded, from the event before it to its own, and who executed it again."""
    if not run.segments:
        return None
    times = [parse_time(fact.time).timestamp() for fact in run.segments]
    began = parse_time(run.training[0].time).timestamp() if run.training else times[0]
    whole = max(times[-1] - began, 1e-6)
    scale = (WIDTH - NAMES) / whole
    places = [
        (f"{NAMES + (a - began) * scale:.1f}", f"{max(1.0, (b - a) * scale - 1):.1f}")
        for a, b in pairwise([began, *times])
    ]
    states = _states(report, run)
    here = frozenset(start for fact in run.segments if (start := fact.body.start) in report.losses)
    # What this verification executed is among what is known, once it is recorded.
    who = [*known, *([Reproducer("this verification", "", here)] if here and report.event is None else [])]
    recorded = [Bar(*at, "" if kind == "mid" else kind, word) for at, (kind, word) in zip(places, states, strict=True)]
    rows = [Lane("recorded", "", 4, recorded)]
    for number, one in enumerate(who):
        bars = [
            Bar(*at, f"who{number % COLOURS}", f"train steps {fact.body.start} to {fact.body.end - 1}, {one.name}")
            for at, fact in zip(places, run.segments, strict=True)
            if fact.body.start in one.starts
        ]
        rows.append(Lane(one.name, one.machine, 4 + (number + 1) * ROW, bars))
    marks = [
        f"{NAMES + x:.1f}"
        for fact in run.training[1:]
        if 0 <= (x := (parse_time(fact.time).timestamp() - began) * scale) <= WIDTH - NAMES
    ]
    label = f"{len(run.segments)} segments recorded in {whole:.1f} s, in {max(1, len(run.training))} attempt(s); " + (
        "executed again by " + ", ".join(f"{one.name} ({_counted(one)})" for one in who)
        if who
        else "executed again by nobody"
    )
    return Timeline(rows, marks, label, ROW * len(rows) + 4)


def _counted(one: Reproducer) -> str:
    return f"{len(one.starts)}, since {one.since[:10]}" if one.since else str(len(one.starts))


def replayed_losses(report: Report, run: Run) -> Mapping[int, float]:
    """Train step -> loss that was found, now or earlier: that all of training passes is to say that every loss was found to
    be the recorded one."""
    whole = report.verdict("training").outcome == "PASS" and report.training.mode == "full"
    return run.losses if whole else report.losses


def rows_of(report: Report, run: Run) -> list[dict[str, object]]:
    """Each segment with what this verification can say of it."""
    findings: dict[int, list[str]] = {}
    for finding in report.screening.findings if report.screening is not None else ():
        findings.setdefault(finding.position, []).append(finding.describe())
    return [
        {"body": fact.body, "word": word, "findings": findings.get(i, [])}
        for i, (fact, (_, word)) in enumerate(zip(run.segments, _states(report, run), strict=True))
    ]


def _states(report: Report, run: Run) -> list[tuple[str, str]]:
    """(class, word) of each segment: what this verification can say of it."""
    divergence, losses, found = report.divergence, replayed_losses(report, run), []
    for fact in run.segments:
        inside = (
            divergence is not None
            and divergence.step is not None
            and fact.body.start <= divergence.step < fact.body.end
        )
        replayed = fact.body.start in losses
        found.append(
            ("bad", "differs") if inside else ("good", "same bits") if replayed else ("mid", "not replayed here")
        )
    return found
