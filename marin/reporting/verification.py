"""The verdicts of a verification as one self-contained HTML page: no network, no scripts, everything escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from ledger import parse_time
from marin.history.run import Run
from marin.record.verdicts import NAMES
from marin.reporting.template import render
from marin.verify.derivation.claims import grouped
from marin.verify.verdict import Report

WIDTH, HEIGHT, MARGIN = 800, 240, 4


def page(report: Report, run: Run | None) -> str:
    """The page of one report, for people; ``Report.as_json`` is the same for machines. ``run`` None: its log cannot be
    read, and the page says why."""
    return render(
        "verification.html.j2",
        report=report,
        width=WIDTH,
        verdicts=[(name, report.verdicts[name]) for name in NAMES],
        claims=grouped(report.claims) if report.claims else [],
        elements=_elements(report),
        chain=_chain(report, run) if run else None,
        steps=list(run.steps.items()) if run else [],
        curves=_curves(report, run) if run else None,
        timeline=_timeline(report, run) if run else None,
        segments=_segments(report, run) if run else [],
    ).decode()


def _elements(report: Report) -> list[tuple[object, ...]]:
    """Each tensor that was compared element by element."""
    if report.divergence is None:
        return []
    return [
        (
            d.path,
            f"{d.dtype}{list(d.shape)}",
            f"{d.differing} of {math.prod(d.shape)}",
            "not a number" if d.largest_ulp < 0 else d.largest_ulp,
            ", ".join(map(str, d.layers)),
        )
        for d in report.divergence.details
    ]


JUDGED_BY = {
    "corpus": "data",
    "tokenizer": "data",
    "tokens": "data",
    "train": "training",
    "evaluate": "model",
    "export": "model",
}


def _chain(report: Report, run: Run) -> dict[str, object] | None:
    """Each step as a box under the verdict that judges it, joined in the order in which they were made."""
    names = list(run.steps)
    if not names:
        return None
    width = min(150, WIDTH // len(names))
    boxes = [
        {"x": i * width, "name": name, "outcome": report.verdicts[JUDGED_BY.get(name, "artifacts")].outcome}
        for i, name in enumerate(names)
    ]
    label = "raw data to model: " + ", ".join(f"{box['name']} {box['outcome']}" for box in boxes)
    return {"width": width, "boxes": boxes, "label": label}


def _curves(report: Report, run: Run) -> dict[str, object] | None:
    """The recorded losses, wide and pale, and over them what was found here; a gap where nothing was replayed."""
    recorded = {
        fact.body.start + i: float.fromhex(loss) for fact in run.segments for i, loss in enumerate(fact.body.losses)
    }
    values = [value for value in (*recorded.values(), *report.losses.values()) if math.isfinite(value)]
    if len(recorded) < 2 or not values:
        return None
    low, high, first, last = min(values), max(values), min(recorded), max(recorded)
    span = (high - low) or 1.0

    def across(step: int) -> str:
        return f"{MARGIN + (step - first) * (WIDTH - 2 * MARGIN) / max(1, last - first):.1f}"

    def place(step: int, loss: float) -> str:
        return f"{across(step)},{MARGIN + (HEIGHT - 2 * MARGIN) * (high - loss) / span:.1f}"

    def lines(losses: Mapping[int, float], kind: str) -> list[tuple[str, str]]:
        steps = sorted(step for step, loss in losses.items() if math.isfinite(loss))
        pieces: list[list[int]] = [[steps[0]]] if steps else []
        for before, step in pairwise(steps):
            pieces[-1].append(step) if step == before + 1 else pieces.append([step])
        return [(kind, " ".join(place(step, losses[step]) for step in piece)) for piece in pieces]

    divergence = report.divergence
    parted = divergence.step if divergence is not None else None
    equal = sum(recorded.get(step) == loss for step, loss in report.losses.items())
    return {
        "lines": lines(recorded, "recorded") + lines(report.losses, "found"),
        "height": HEIGHT,
        "parted": across(parted) if parted is not None and first <= parted <= last else None,
        "label": f"recorded loss from {recorded[first]:.3f} to {recorded[last]:.3f} over {len(recorded)} train steps; "
        f"{len(report.losses)} replayed here, {equal} with the same bits",
    }


def _states(report: Report, run: Run) -> list[tuple[str, str]]:
    """(class, word) of each segment: what this verification can say of it."""
    divergence, found = report.divergence, []
    for fact in run.segments:
        inside = (
            divergence is not None
            and divergence.step is not None
            and fact.body.start <= divergence.step < fact.body.end
        )
        replayed = fact.body.start in report.losses
        found.append(
            ("bad", "differs") if inside else ("good", "same bits") if replayed else ("mid", "not replayed here")
        )
    return found


def _timeline(report: Report, run: Run) -> dict[str, object] | None:
    """When each segment was recorded: from the event before it to its own, in the colour of what was found."""
    if not run.segments:
        return None
    times = [parse_time(fact.time).timestamp() for fact in run.segments]
    began = parse_time(run.training[0].time).timestamp() if run.training else times[0]
    whole = max(times[-1] - began, 1e-6)
    scale = WIDTH / whole
    bars = [
        (kind, f"{(a - began) * scale:.1f}", f"{max(1.0, (b - a) * scale - 1):.1f}")
        for (a, b), (kind, _) in zip(pairwise([began, *times]), _states(report, run), strict=True)
    ]
    marks = [
        x
        for fact in run.training[1:]
        if 0 <= (x := round((parse_time(fact.time).timestamp() - began) * scale, 1)) <= WIDTH
    ]
    label = f"{len(run.segments)} segments recorded in {whole:.1f} s, in {max(1, len(run.training))} attempt(s)"
    return {"bars": bars, "marks": marks, "label": label}


def _segments(report: Report, run: Run) -> list[dict[str, object]]:
    findings: dict[int, list[str]] = {}
    for finding in report.screening.findings if report.screening is not None else ():
        findings.setdefault(finding.position, []).append(finding.describe())
    return [
        {"body": fact.body, "word": word, "findings": findings.get(i, [])}
        for i, (fact, (_, word)) in enumerate(zip(run.segments, _states(report, run), strict=True))
    ]
