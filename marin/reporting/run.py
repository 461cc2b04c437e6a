"""The page of one run: what was run, on what, with which result, and whether anybody replayed it.

One self-contained HTML file without scripts (`templates/run.html.j2`), because MLflow shows artifacts in a frame that
can load nothing else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from msgspec import to_builtins

from marin.history.projection.text import flatten
from marin.history.run import Run
from marin.reporting.template import render

LONGEST_FACT = 500
"""Letters of a fact about the code; what is longer (a diff) is no fact for a table."""


def run_page(run: Run, origin: str, curve: bytes | None) -> bytes:
    """The page of a run, as bytes that are the same for the same events. ``curve`` is a PNG."""
    started = run.started.body
    word, _, date = run.verified.partition(" ")
    return render(
        "run.html.j2",
        run=run,
        origin=origin,
        curve=base64.b64encode(curve).decode() if curve is not None else None,
        verified=(word, date) if date else None,
        steps=run.ordered_states(),
        replays=list(_replays(run)),
        decides=[
            ("recipe", started.recipe_digest),
            ("plan", run.plan),
            *(
                (f"code {key}", value)
                for key, value in sorted(flatten(started.code).items())
                if len(value) <= LONGEST_FACT
            ),
        ],
        folded=[
            (title, list(flatten(values).items()))
            for title, values in (("Recipe", started.recipe), ("Environment", started.environment))
        ],
    )


def run_record(run: Run, origin: str) -> bytes:
    """Every digest and fact that a run has by now, as JSON: what it was begun with, what its steps made, its verdicts."""
    started = run.started.body
    told = {
        "run": run.run,
        "ledger": origin,
        "events": [run.started.index, run.last_index],
        "status": run.status,
        "verified": run.verified,
        "recipe_digest": started.recipe_digest,
        "plan": run.plan,
        "code": started.code,
        "environment": started.environment,
        "steps": {
            state.step: {
                "state": state.state,
                "identity": state.identity,
                "inputs": state.inputs,
                "output": to_builtins(state.output) if state.output is not None else None,
            }
            for state in run.ordered_states()
        },
        "checkpoints": [
            {"step": fact.body.step, "state": fact.body.state, "artifact": fact.body.artifact}
            for fact in run.checkpoints
        ],
        "replays": [
            {"event": fact.index, "by": fact.actor, "time": fact.time, "verdicts": fact.body.verdicts}
            for fact in run.verdicts
        ],
    }
    return json.dumps(told, indent=2, sort_keys=False, ensure_ascii=False).encode() + b"\n"


def _replays(run: Run) -> Iterator[dict[str, object]]:
    """The replays of the run, newest first."""
    for fact in reversed(run.verdicts):
        replay = fact.body
        yield {
            "index": fact.index,
            "time": fact.time,
            "actor": fact.actor,
            "verdicts": [(name, word, replay.details.get(name, [])) for name, word in replay.verdicts.items()],
            "divergence": flatten(replay.first_divergence) if replay.first_divergence is not None else {},
        }
