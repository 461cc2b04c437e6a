"""The verdicts of a verification as one self-contained HTML page: no network, no scripts, everything escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ledger import parse_time
from marin.history.runs import RunView
from marin.record.verdicts import NAMES
from marin.reporting.markup import Child, Html, element
from marin.reporting.markup import page as document
from marin.reporting.run import STYLE, code, verdict
from marin.verify.claims import grouped
from marin.verify.segments.screening import Finding
from marin.verify.verdict import Report

WIDTH, HEIGHT, MARGIN = 800, 240, 4
OWN_STYLE = """
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.recorded{stroke:var(--soft);stroke-width:3;opacity:.45}
.found{stroke:var(--good);stroke-width:1.3}.parted{stroke:var(--bad);stroke-dasharray:4 3}
.bar{fill:var(--line)}.bar.good{fill:var(--good)}.bar.bad{fill:var(--bad)}.bar.mid{fill:var(--mid)}
.step{fill:var(--card);stroke:var(--line)}.flow{stroke:var(--soft);fill:none}
"""


def page(report: Report, run: RunView) -> str:
    """The page of one report, for people; ``Report.as_json`` is the same for machines."""
    body = element(
        "main",
        element("h1", f"Verification of run {report.run}"),
        element("p", f"Log {report.origin}, {report.size} events, root ", code(report.root)),
        element("h2", "Verdicts"),
        _table(
            ("claim", "verdict", "what was looked at"),
            [
                (
                    name,
                    verdict(report.verdicts[name].outcome),
                    [element("p", line) for line in report.verdicts[name].lines],
                )
                for name in NAMES
            ],
        ),
        _claims(report),
        _divergence(report),
        _explanation(report),
        _remarks(report),
        element("h2", "From raw data to model"),
        _chain(report, run),
        _table(
            ("step", "content", "bytes", "event"),
            [(name, code(step.output.digest), step.output.size, step.completed_at) for name, step in run.steps.items()],
        ),
        element("h2", "Loss, recorded and replayed"),
        _curves(report, run),
        element("h2", "Segments"),
        _timeline(report, run),
        _segments(report, run),
        element(
            "p",
            f"Training was replayed {report.training.mode}: {report.training.segments_replayed} of "
            f"{report.training.segments_total} segments in {report.training.seconds:.1f} s by "
            f"{report.training.workers} worker(s), {report.training.segments_taken} taken from earlier "
            "verifications by the same reproducer.",
            class_="soft",
        ),
    )
    return document(f"verification of run {report.run}", STYLE + OWN_STYLE, body).decode()


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> Html:
    cells = (element("tr", (element("td", cell) for cell in row)) for row in rows)  # type: ignore[arg-type]
    titles = element("thead", element("tr", (element("th", title, scope="col") for title in head)))
    return element(
        "div",
        element("table", titles, element("tbody", cells)),
        class_="wide",
        tabindex=0,
        role="group",
        aria_label=head[0] or "facts",
    )


def _claims(report: Report) -> Child:
    """What may be believed, and what is only claimed."""
    if not report.claims:
        return None
    return element(
        "div",
        element("h2", "What this establishes"),
        [
            element("div", element("h3", heading), element("ul", (element("li", line) for line in lines)))
            for heading, lines in grouped(report.claims)
        ],
    )


def _divergence(report: Report) -> Child:
    found = report.divergence
    if found is None:
        return None
    rows: list[tuple[object, ...]] = [
        ("train step", "" if found.step is None else found.step),
        ("what", found.explanation),
        ("tensors", ", ".join(found.tensors)),
        ("expected", code(found.expected)),
        ("found", code(found.found)),
    ]
    details = element(
        "div",
        element("h2", f"Element by element, after train step {found.details_after}"),
        _table(
            ("tensor", "type", "differing", "largest distance (ulp)", "layers"),
            [
                (
                    d.path,
                    f"{d.dtype}{list(d.shape)}",
                    f"{d.differing} of {math.prod(d.shape)}",
                    "not a number" if d.largest_ulp < 0 else d.largest_ulp,
                    ", ".join(map(str, d.layers)),
                )
                for d in found.details
            ],
        ),
    )
    return element("div", element("h2", "First divergence"), _table(("", ""), rows), details if found.details else None)


def _explanation(report: Report) -> Child:
    found = report.explanation
    if found is None:
        return None
    return element(
        "div",
        element("h2", f"Train step {found.step} under two settings"),
        element("p", f"{found.settings[0]} against {found.settings[1]}"),
        element("ul", (element("li", line) for line in found.lines)),
    )


def _remarks(report: Report) -> Child:
    if not report.remarks:
        return None
    return element(
        "div",
        element("h2", "What differs here from where the run was made"),
        element("ul", (element("li", line) for line in report.remarks)),
    )


JUDGED_BY = {
    "corpus": "data",
    "tokenizer": "data",
    "tokens": "data",
    "train": "training",
    "evaluate": "model",
    "export": "model",
}


def _chain(report: Report, run: RunView) -> Child:
    """Each step as a box under the verdict that judges it, joined in the order in which they were made."""
    names = list(run.steps)
    if not names:
        return None
    width = min(150, WIDTH // len(names))
    parts: list[Html] = []
    for i, name in enumerate(names):
        outcome = report.verdicts[JUDGED_BY.get(name, "artifacts")].outcome
        x = i * width
        parts += [
            element("rect", x=x + 2, y=14, width=width - 26, height=44, rx=5, class_="step"),
            element("text", name, x=x + 8, y=32),
            element("text", outcome, x=x + 8, y=50),
        ]
    parts += [element("path", d=f"M{(i + 1) * width - 24} 36h22", class_="flow") for i in range(len(names) - 1)]
    label = "raw data to model: " + ", ".join(
        f"{n} {report.verdicts[JUDGED_BY.get(n, 'artifacts')].outcome}" for n in names
    )
    return _figure(parts, 72, label)


def _figure(parts: Sequence[Html], height: int, label: str) -> Html:
    return element(
        "figure",
        element("svg", parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label),
        element("figcaption", label, class_="soft"),
    )


def _curves(report: Report, run: RunView) -> Child:
    """The recorded losses, wide and pale, and over them what was found here; a gap where nothing was replayed."""
    recorded = {
        fact.body.start + i: float.fromhex(loss) for fact in run.segments for i, loss in enumerate(fact.body.losses)
    }
    values = [value for value in (*recorded.values(), *report.losses.values()) if math.isfinite(value)]
    if len(recorded) < 2 or not values:
        return element("p", "no train steps recorded", class_="soft")
    low, high, first, last = min(values), max(values), min(recorded), max(recorded)
    span = (high - low) or 1.0

    def place(step: int, loss: float) -> str:
        x = MARGIN + (step - first) * (WIDTH - 2 * MARGIN) / max(1, last - first)
        return f"{x:.1f},{MARGIN + (HEIGHT - 2 * MARGIN) * (high - loss) / span:.1f}"

    def lines(losses: Mapping[int, float], kind: str) -> list[Html]:
        steps = sorted(step for step, loss in losses.items() if math.isfinite(loss))
        pieces: list[list[int]] = [[steps[0]]] if steps else []
        for before, step in pairwise(steps):
            pieces[-1].append(step) if step == before + 1 else pieces.append([step])
        return [
            element("polyline", points=" ".join(place(step, losses[step]) for step in piece), fill="none", class_=kind)
            for piece in pieces
        ]

    drawn = lines(recorded, "recorded") + lines(report.losses, "found")
    divergence = report.divergence
    if divergence is not None and divergence.step is not None and first <= divergence.step <= last:
        x = place(divergence.step, low).partition(",")[0]
        drawn.append(element("line", x1=x, x2=x, y1=0, y2=HEIGHT, class_="parted"))
    equal = sum(recorded.get(step) == loss for step, loss in report.losses.items())
    label = (
        f"recorded loss from {recorded[first]:.3f} to {recorded[last]:.3f} over {len(recorded)} train steps; "
        f"{len(report.losses)} replayed here, {equal} with the same bits"
    )
    return _figure(drawn, HEIGHT, label)


def _states(report: Report, run: RunView) -> list[tuple[str, str]]:
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


def _timeline(report: Report, run: RunView) -> Child:
    """When each segment was recorded: from the event before it to its own, in the colour of what was found."""
    if not run.segments:
        return None
    times = [parse_time(fact.time).timestamp() for fact in run.segments]
    began = parse_time(run.training[0].time).timestamp() if run.training else times[0]
    whole = max(times[-1] - began, 1e-6)
    edges = [began, *times]
    scale = WIDTH / whole
    bars = [
        element(
            "rect",
            x=f"{(a - began) * scale:.1f}",
            y=4,
            width=f"{max(1.0, (b - a) * scale - 1):.1f}",
            height=22,
            class_=f"bar {kind}",
        )
        for (a, b), (kind, _) in zip(pairwise(edges), _states(report, run), strict=True)
    ]
    marks = [
        element("line", x1=x, x2=x, y1=0, y2=30, class_="parted")
        for fact in run.training[1:]
        if 0 <= (x := round((parse_time(fact.time).timestamp() - began) * WIDTH / whole, 1)) <= WIDTH
    ]
    label = f"{len(run.segments)} segments recorded in {whole:.1f} s, in {max(1, len(run.training))} attempt(s)"
    return _figure([*bars, *marks], 30, label)


def _segments(report: Report, run: RunView) -> Html:
    findings: dict[int, list[Finding]] = {}
    for finding in report.screening.findings if report.screening is not None else ():
        findings.setdefault(finding.position, []).append(finding)
    head = (
        "train steps",
        "state before",
        "state after",
        "here",
        *(["screening"] if report.screening is not None else []),
    )
    rows: list[tuple[object, ...]] = []
    for i, (fact, (_, word)) in enumerate(zip(run.segments, _states(report, run), strict=True)):
        row = (
            f"{fact.body.start} to {fact.body.end - 1}",
            code(fact.body.start_state),
            code(fact.body.end_state),
            word,
        )
        rows.append(
            (*row, [element("p", f.describe()) for f in findings.get(i, ())]) if report.screening is not None else row
        )
    return _table(head, rows)
