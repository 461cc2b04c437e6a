"""The page of one run: what was run, on what, with which result, and whether anybody replayed it.

One self-contained HTML file without scripts, because MLflow shows artifacts in a frame that can load nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from marin.history.projection.fold import flatten
from marin.history.projection.record import RunRecord, StepRecord
from marin.reporting.markup import Child, Html, element, page

STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--ground:#fff;--card:#f6f8fa;
--good:#116329;--bad:#a40e26;--mid:#7d4e00}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--ground:#0d1117;--card:#151b23;
--good:#3fb950;--bad:#ff7b72;--mid:#d29922}}
*{box-sizing:border-box}body{margin:0 auto;padding:1.2rem;max-width:70rem;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .5rem}
p,dd{margin:.2rem 0}a{color:inherit}.soft{color:var(--soft)}.good{color:var(--good);font-weight:600}
.bad{color:var(--bad);font-weight:600}.mid{color:var(--mid);font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;min-width:100%}th,td{text-align:left;vertical-align:top;
padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:600}
code,pre{font:12.5px/1.45 ui-monospace,monospace;overflow-wrap:anywhere}pre{white-space:pre-wrap;background:var(--card);
padding:.7rem;border-radius:6px;margin:.4rem 0}img,svg{max-width:100%;height:auto}
details{margin:.4rem 0}summary{cursor:pointer}:focus-visible{outline:2px solid #0969da;outline-offset:2px}
"""

VERDICT_CLASSES = {"PASS": "good", "FAIL": "bad"}
STATE_CLASSES = {"completed": "good", "cached": "good", "failed": "bad", "running": "mid"}


def run_page(record: RunRecord, origin: str, curve: bytes | None) -> bytes:
    """The page of a run, as bytes that are the same for the same events."""
    return page(
        f"run {record.run}",
        STYLE,
        element(
            "main",
            element("h1", f"Run {record.run}"),
            element(
                "p",
                f"{record.pipeline} · ",
                _state(record.state),
                f" · begun {_moment(record.started)}",
                f", done {_moment(record.ended)}" if record.ended else None,
                f" · by {record.actor}",
            ),
            _verdict_line(record),
            _curve(curve),
            element("h2", "Steps"),
            _steps(record),
            element("h2", "Evaluation") if record.evaluation else None,
            table(("metric", "value"), [(name, f"{value:.6g}") for name, value in sorted(record.evaluation.items())]),
            element("h2", "Replays"),
            _replays(record),
            element("h2", "What decides the bits"),
            table(
                ("", ""),
                [
                    ("recipe", code(record.recipe_digest)),
                    ("plan", code(record.plan)),
                    *(
                        (f"code {key}", code(value))
                        for key, value in sorted(flatten(record.code).items())
                        if len(value) <= 500
                    ),
                ],
            ),
            _folded("Recipe", record.recipe),
            _folded("Environment", record.environment),
            _segments(record),
            element(
                "p",
                f"Folded from events {record.index} to {record.last_index} of the ledger {origin}. ",
                f"This page is a view: `marin verify {record.run}` is the check.",
                class_="soft",
            ),
        ),
    )


def code(value: str) -> Html:
    """A digest or a value in a fixed-width face."""
    return element("code", value)


def verdict(word: str) -> Html:
    """PASS, FAIL and the others, in their colours (the word carries the meaning, the colour only helps)."""
    return element("span", word, class_=VERDICT_CLASSES.get(word, "mid"))


def _state(word: str) -> Html:
    return element("span", word, class_=STATE_CLASSES.get(word, "mid"))


def _moment(time: str | None) -> str:
    return "" if time is None else f"{time[:19].replace('T', ' ')} UTC"


def table(head: tuple[str, ...], rows: list[tuple[Child, ...]]) -> Html | None:
    """A table that scrolls sideways where it is wider than the screen; None without rows."""
    if not rows:
        return None
    titles = (
        element("thead", element("tr", (element("th", title, scope="col") for title in head))) if any(head) else None
    )
    body = element("tbody", (element("tr", (element("td", cell) for cell in row)) for row in rows))
    # Focusable, because what scrolls sideways has to be scrolled by keyboard too.
    return element(
        "div", element("table", titles, body), class_="wide", tabindex=0, role="group", aria_label=head[0] or "facts"
    )


def _verdict_line(record: RunRecord) -> Html:
    word, _, date = record.verified().partition(" ")
    if not date:
        return element("p", "Not replayed by anybody yet.", class_="soft")
    return element("p", "Verified: ", verdict(word), f" on {date}")


def _curve(curve: bytes | None) -> Html | None:
    if curve is None:
        return None
    return element(
        "p",
        element(
            "img",
            src=f"data:image/png;base64,{base64.b64encode(curve).decode()}",
            alt="loss by train step",
            width=800,
            height=450,
        ),
    )


def _steps(record: RunRecord) -> Html | None:
    return table(
        ("step", "state", "content", "bytes", "time", "metrics"), [_step(step) for step in record.ordered_steps()]
    )


def _step(step: StepRecord) -> tuple[Child, ...]:
    took = "" if step.seconds is None else f"{step.seconds:.1f} s"
    if step.completed_at is not None:
        took = f"taken over from event {step.completed_at}"
    metrics = ", ".join(f"{name} {value:.6g}" for name, value in sorted(step.metrics.items()))
    state: Child = _state(step.state)
    if step.error:
        state = element("span", _state(step.state), element("br"), step.error)
    return (
        step.name,
        state,
        code(step.output.digest) if step.output else "",
        step.output.size if step.output else "",
        took,
        metrics,
    )


def _replays(record: RunRecord) -> Html:
    if not record.replays:
        return element("p", "none recorded", class_="soft")
    parts: list[Child] = []
    for index, time, actor, replay in reversed(record.replays):
        parts.append(element("p", f"Event {index}, {_moment(time)}, by {actor}", class_="soft"))
        parts.append(
            table(
                ("claim", "verdict", "details"),
                [
                    (name, verdict(word), element("div", (element("p", line) for line in replay.details.get(name, []))))
                    for name, word in replay.verdicts.items()
                ],
            )
        )
        if replay.first_divergence is not None:
            parts.append(element("p", "First divergence"))
            parts.append(
                element("pre", "\n".join(f"{key}: {value}" for key, value in flatten(replay.first_divergence).items()))
            )
    return element("div", parts)


def _folded(title: str, values: Mapping[str, object]) -> Html | None:
    flat = flatten(values)
    if not flat:
        return None
    return element(
        "details", element("summary", title), table(("", ""), [(key, code(value)) for key, value in flat.items()])
    )


def _segments(record: RunRecord) -> Html | None:
    if not record.segments:
        return None
    rows: list[tuple[Child, ...]] = [
        (f"{part.start} to {part.end - 1}", code(part.start_state), code(part.end_state)) for part in record.segments
    ]
    return element(
        "details",
        element("summary", f"Segments ({len(rows)})"),
        table(("train steps", "state before", "state after"), rows),
    )
