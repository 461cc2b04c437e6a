"""What `make repro` ends with: a run in a few lines, and what to try next."""

from __future__ import annotations

from ledger import LogCheckpoint
from marin.cli.output import say
from marin.cli.tables import print_fields
from marin.history.run import Run
from marin.history.runs import LATEST, History
from marin.history.table.machine import rewards
from marin.record.verdicts import passed_as

NEXT = (
    ("marin verify {run}", "replay data and training, compare every bit"),
    ("marin ui", "runs, loss curve and artifacts in MLflow"),
    ("marin log", "what was recorded, event by event"),
    ("marin store push ADDRESS", "send its bytes (`dvc push` has none to send: Git has the pointers)"),
)


def print_summary(view: Run, checkpoint: LogCheckpoint, twin: str, history: History, *, named: bool = False) -> None:
    """Print the headline of ``view`` and of the log that it is in. ``twin``: the verified run of equal bytes, or "";
    ``named``: what to try next says its id instead of latest."""
    print_fields([*headline(view, checkpoint, history), *([("verified", passed_as(twin))] if twin else [])])
    following = [(command.format(run=view.run if named else LATEST), what) for command, what in NEXT]
    width = max(len(command) for command, _ in following)
    say()
    say("Next (after `source .venv/bin/activate`):")
    for command, what in following:
        say(f"  {command.ljust(width)}  {what}")


def headline(view: Run, checkpoint: LogCheckpoint, history: History) -> list[tuple[str, str]]:
    """Name and value of each line; what the run does not have yet is left out."""
    lines = [("run", f"{view.run}  ({view.status})")]
    if view.segments:
        first, last = view.segments[0].body, view.segments[-1].body
        trained = f"{last.end - first.start} steps" + (f", from step {first.start} on" if first.start else "")
        name, one, other = "train loss", float.fromhex(first.losses[0]), float.fromhex(last.losses[-1])
        if view.started.body.recipe.get("objective") and (drawn := rewards(history, view.run)):
            name, one, other = "mean reward", drawn[0], drawn[-1]
        lines.append((name, f"{one:.4f} at the first train step, {other:.4f} at the last ({trained})"))
    evaluated = view.steps.get("evaluate")
    if evaluated is not None and "perplexity" in evaluated.metrics:
        lines.append(("perplexity", f"{evaluated.metrics['perplexity']:.2f} on held-out text"))
    model = view.steps.get("export")
    if model is not None:
        lines.append(("model", model.output.digest))
    lines.append(("log", f"{checkpoint.size} events, root {checkpoint.root.hex()}"))
    return lines
