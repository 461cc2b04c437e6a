"""The page of one run: what was run, on what, with which result, and whether anybody replayed it.

One self-contained HTML file (``templates/runs/run.html.j2``), because MLflow shows artifacts in a frame that can load nothing
else; its one script copies digests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import to_builtins

from ledger import LedgerError, NotFound, Store
from marin.errors import UsageError
from marin.history.names import data_of, model_of, name_of
from marin.history.projection.text import flatten
from marin.history.run import MAIN, Run, plan_of, representative
from marin.history.table.beside import core_hours
from marin.recipe.cost import parameters
from marin.recipe.units import duration
from marin.record.events import LOOP
from marin.record.outputs import bytes_of
from marin.record.verdicts import NEVER, in_order, overall
from marin.reporting.plot import LossPlot, loss_plot
from marin.reporting.template import copying, render
from marin.reporting.verify_command import verify_command

SAMPLE, LONGEST_SAMPLE = "sample.txt", 200
"""The file of an evaluation's output (:mod:`marin.evaluation.evaluate`), and so many letters of it a page shows, of these
whole sentences: a taste, and not all that a small model says."""
_SENTENCES = re.compile(r".*[.!?][\"'”’]?(?=\s)", re.DOTALL)
LONGEST_FACT = 500
"""Letters of a fact about the code; what is longer (a diff) is not a fact for a table."""


@dataclass(frozen=True)
class Beside:
    """What the page shows beside the run's own events: ``sample`` is text that the evaluation drew from the model, or why
    there is none; ``twin`` the verified run of equal bytes (:func:`marin.record.verdicts.twins`); ``wrong`` where the
    events of the run contradict one another; ``followed`` how far this user's own followers are behind its training
    (:func:`marin.history.runs.followed`); ``name`` what the run is called in its newest sweep; ``underway`` how far an open
    run has come, by its newest event. Of a run that learned from rewards ``rewards`` are the means of its updates, and
    ``drawn`` completions of the first and of the last update: title, and prompt, completion and reward of each."""

    rewards: Sequence[float] = ()
    drawn: Sequence[tuple[str, Sequence[tuple[str, str, str]]]] = ()
    sample: str = ""
    sample_missing: str = ""
    twin: str = ""
    wrong: str = ""
    followed: str = ""
    name: str = ""
    underway: Sequence[tuple[str, str]] = ()


def run_page(run: Run, origin: str, beside: Beside = Beside()) -> bytes:
    """The page of a run, as bytes that are the same for the same events and artifacts."""
    started = run.started.body
    word, date = _verified(run)
    command = _command(run)
    return render(
        "runs/run.html.j2",
        scripts=[copying()],
        run=run,
        origin=origin,
        name=beside.name or name_of(run.run, started.recipe),
        plan="" if (plan := plan_of(started.pipeline)) == MAIN else plan,
        cards=[*beside.underway, *cards_of(run, beside.rewards)],
        curve=curve_of(run, beside.rewards),
        verified=(word, date) if date else None,
        command=command,
        again=verify_command(run, command),
        beside=beside,
        steps=run.ordered_states(),
        replays=list(_replays(run)),
        decides=[
            ("recipe", started.recipe_digest),
            ("plan", run.plan),
            *(
                (f"code {key}", value)
                for key, value in sorted(flatten(started.code).items())
                if 0 < len(value) <= LONGEST_FACT
            ),
        ],
        folded=[
            (title, list(flatten(values).items()))
            for title, values in (("Recipe", started.recipe), ("Environment", started.environment))
        ],
    )


def cards_of(run: Run, rewards: Sequence[float] = ()) -> Iterator[tuple[str, str]]:
    """Name and value of what somebody asks first; what the run does not have (yet) is left out."""
    recipe, losses = run.started.body.recipe, run.losses
    yield "verified", _verified(run)[0]
    for title, name in (("loss", "loss"), ("perplexity", "perplexity")):
        if name in run.measured:
            yield title, f"{run.measured[name]:.4g}"
    if (bits := run.bits_per_byte) is not None:
        yield "bits per byte", f"{bits:.4g}"
    if rewards:
        yield "mean reward", f"{rewards[0]:.3f} → {rewards[-1]:.3f}"
    elif losses:
        yield "train loss", f"{losses[min(losses)]:.3f} → {losses[max(losses)]:.3f}"
    if model := model_of(recipe):
        yield "model", model
    if count := _parameters(run):
        yield "parameters", f"{count / 1e6:.3g} M" if count >= 1e6 else f"{count:,}"
    if data := data_of(recipe):
        yield "data", data
    if "train.tokens" in run.metrics:
        yield "tokens trained on", f"{run.metrics['train.tokens']:,.0f}"
    if "seed" in recipe:
        yield "seed", str(recipe["seed"])
    # What a loop saved was not made apart from it: its outputs tell when, after its beginning.
    steps = [step for name, step in run.steps.items() if name == LOOP or not run.is_loop]
    if seconds := sum(step.seconds for step in steps):
        yield "time of all steps", duration(seconds)
        if (cost := core_hours(run, seconds)) is not None:
            yield "cost", f"{cost:.3g} core-h"


def _verified(run: Run) -> tuple[str, str]:
    """What the verdicts that the run can have say in one word, and since when; ``never`` and "" without any."""
    if not run.verdicts:
        return NEVER, ""
    return overall(run.verdict, run.answerable), representative(run.verdicts, run.answerable).time[:10]


def _command(run: Run) -> str:
    """What executed a loop of its user's own in its newest verification that did; "" where nothing did."""
    told = (fact.body.training.get("command") for fact in reversed(run.verdicts))
    return next((command for command in told if isinstance(command, str) and command), "")


def _parameters(run: Run) -> int | None:
    """By the recipe; None where this version cannot read it."""
    try:
        recipe = run.recipe
        return parameters(recipe.model, recipe.vocabulary)
    except (UsageError, AttributeError):
        return None


def curve_of(run: Run, rewards: Sequence[float] = ()) -> LossPlot | None:
    """The losses by train step as a picture in a page, or the mean rewards; None without any."""
    losses = run.losses
    if rewards and losses:
        told = f"mean reward from {rewards[0]:.4f} to {rewards[-1]:.4f} over {len(rewards)} train steps"
        return loss_plot(dict(enumerate(rewards, min(losses))), told, seams=[fact.body.end for fact in run.segments])
    if not losses:
        return None
    first, last = min(losses), max(losses)
    return loss_plot(
        losses,
        f"train loss from {losses[first]:.4f} to {losses[last]:.4f} over {len(losses)} train steps; dotted: the whole state "
        "was recorded",
        seams=[fact.body.end for fact in run.segments],
        validation=run.measured.get("loss", run.measured.get("validation_loss")),
    )


def read_sample(run: Run, store: Store) -> Beside:
    """The text that the run's evaluation drew from its model, from verified bytes."""
    evaluated = run.steps.get("evaluate")
    if evaluated is None:
        return Beside()
    try:
        with store.open_file(bytes_of(evaluated.output), SAMPLE) as stream:
            return Beside(sample=beginning(stream.read(4 * LONGEST_SAMPLE).decode("utf-8", "replace").strip()))
    except NotFound:
        return Beside()
    except LedgerError as error:
        return Beside(sample_missing=error.what)


def beginning(text: str) -> str:
    """Whole sentences of a text, as many as :data:`LONGEST_SAMPLE` letters hold; of one that is longer its beginning."""
    if len(text) <= LONGEST_SAMPLE:
        return text
    whole = _SENTENCES.match(text[: LONGEST_SAMPLE + 1])
    return whole[0] if whole is not None else text[:LONGEST_SAMPLE].rstrip() + "…"


def run_record(run: Run, origin: str) -> bytes:
    """Every digest and fact that a run has by now, as JSON: what it, its steps and its training were begun with, what
    they made, its verdicts."""
    started = run.started.body
    told = {
        "run": run.run,
        "ledger": origin,
        "events": [run.started.index, run.last_index],
        "completed_at": run.completed.index if run.completed is not None else None,
        "status": run.status,
        "verified": run.verified,
        "recipe_digest": started.recipe_digest,
        "plan": run.plan,
        "code": started.code,
        "environment": started.environment,
        "steps": {
            state.step: {
                "state": state.state,
                "event": state.index,
                "attempt": state.attempt,
                "identity": state.identity,
                "config": state.config,
                "code": state.code,
                "inputs": state.inputs,
                "completed_at": state.result.completed_at if state.result is not None else None,
                "output": to_builtins(state.output) if state.output is not None else None,
            }
            for state in run.ordered_states()
        },
        "training": [
            {
                "event": fact.index,
                "attempt": fact.body.attempt,
                "first_step": fact.body.first_step,
                "state": fact.body.state,
                "devices": fact.body.devices,
                "program": fact.body.program,
            }
            for fact in run.training
        ],
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
            "verdicts": [(name, word, replay.details.get(name, [])) for name, word in in_order(replay.verdicts)],
            "divergence": flatten(replay.first_divergence) if replay.first_divergence is not None else {},
        }
