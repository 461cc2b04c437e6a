"""The verdicts of a verification as one self-contained HTML page: no network, no scripts, everything escaped."""

from __future__ import annotations

from marin.replay.verdict import NAMES, Report
from marin.runs import RunView
from marin.tracking.markup import Child, Html, element
from marin.tracking.markup import page as document
from marin.tracking.page import STYLE, code, verdict

WIDTH, HEIGHT = 800, 240


def page(report: Report, run: RunView) -> str:
    """The page of one report, for people; ``Report.as_json`` is the same for machines."""
    body = element(
        "main",
        element("h1", f"Verification of run {report.run}"),
        element("p", f"Log {report.origin}, {report.size} events, root ", code(report.root)),
        element("h2", "Verdicts"), _table(("claim", "verdict", "what was looked at"), [
            (name, verdict(report.verdicts[name].outcome), [element("p", line) for line in report.verdicts[name].lines])
            for name in NAMES]),
        _divergence(report),
        _remarks(report),
        element("h2", "From raw data to model"),
        _table(("step", "content", "bytes", "event"), [
            (name, code(step.output.digest), step.output.size, step.completed_at) for name, step in run.steps.items()]),
        element("h2", "Recorded loss"), _curve(run),
        element("h2", "Segments"),
        _table(("train steps", "state before", "state after"), [
            (f"{fact.body.start} to {fact.body.end - 1}", code(fact.body.start_state), code(fact.body.end_state))
            for fact in run.segments]),
        element("p", f"Training was replayed {report.training.mode}: {report.training.segments_replayed} of "
                     f"{report.training.segments_total} segments in {report.training.seconds:.1f} s.", class_="soft"),
    )
    return document(f"verification of run {report.run}", STYLE, body).decode()


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> Html:
    cells = (element("tr", (element("td", cell) for cell in row)) for row in rows)  # type: ignore[arg-type]
    titles = element("thead", element("tr", (element("th", title, scope="col") for title in head)))
    return element("div", element("table", titles, element("tbody", cells)), class_="wide")


def _divergence(report: Report) -> Child:
    found = report.divergence
    if found is None:
        return None
    rows: list[tuple[object, ...]] = [
        ("train step", "" if found.step is None else found.step), ("what", found.explanation),
        ("tensors", ", ".join(found.tensors)), ("expected", code(found.expected)), ("found", code(found.found))]
    return element("div", element("h2", "First divergence"), _table(("", ""), rows))


def _remarks(report: Report) -> Child:
    if not report.remarks:
        return None
    return element("div", element("h2", "What differs here from where the run was made"),
                   element("ul", (element("li", line) for line in report.remarks)))


def _curve(run: RunView) -> Child:
    losses = [float.fromhex(loss) for fact in run.segments for loss in fact.body.losses]
    if len(losses) < 2:
        return element("p", "no train steps recorded", class_="soft")
    low, high = min(losses), max(losses)
    span = (high - low) or 1.0
    points = " ".join(f"{i * WIDTH / (len(losses) - 1):.1f},{HEIGHT - (loss - low) * HEIGHT / span:.1f}"
                      for i, loss in enumerate(losses))
    line = element("polyline", points=points, fill="none", stroke="currentColor", stroke_width="1.5")
    label = f"loss from {losses[0]:.3f} to {losses[-1]:.3f} over {len(losses)} train steps"
    return element("figure", element("svg", line, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label),
                   element("figcaption", label, class_="soft"))
