"""A run of the ledger as an offline run of Weights & Biases: another projection, made from events alone.

It holds run id, recipe as config, metrics by train step and by token, the newest verdicts, and every output as an
artifact by reference (``marin://artifact/…``) with its digests; bytes stay in the store. Where the folder has offline
runs of this run already, written while it trained, only what they lack is added.
"""

from __future__ import annotations

from pathlib import Path

import wandb

from marin.errors import MarinError
from marin.history.run import Run
from marin.history.runs import load_named, stream_of
from marin.history.table.evaluations import recorded_evaluations
from marin.plugins.wandb import run as runs
from marin.plugins.wandb.choice import Choice
from marin.plugins.wandb.file import EVALUATED, STEP, logged_points
from marin.record import events
from marin.record.events import LoopSegment, TrainSegment
from marin.record.root import Root

OFFLINE = Choice()


def export_wandb(root: Root, name: str, folder: Path, asked: Choice = OFFLINE) -> Path:
    """Write the run that ``name`` means below ``folder``, and send it if that was asked for; returns its own folder. Online,
    what the run took over from others is used by it, and what it made itself is logged by it.

    Raises:
        MarinError: wandb did not write one.
    """
    history = root.history()
    recorded = load_named(history, name)
    known = logged_points(folder, recorded.run, runs.training_of(recorded), asked.mode)
    own = (event.body for _, event in history.events(stream=stream_of(recorded.run), type=events.METRICS_RECORDED))
    segments: list[TrainSegment | LoopSegment] = [fact.body for fact in recorded.segments]
    segments += [fact.body for fact in recorded.loop]
    rows = runs.rows_of(recorded.started.body.recipe, segments, runs.measured_in(own))
    evaluated = sorted(recorded_evaluations(history, recorded.run), key=lambda body: body.step)
    with runs.reaching(asked.mode):
        run = runs.open_run(recorded, root, folder, asked)
        try:
            for number, values in sorted(rows.items()):
                if number > known.step:
                    run.log({STEP: number, **values}, step=number)
            for body in evaluated:
                points = runs.evaluations_of(body).items()
                if new := {key: value for key, value in points if (key, body.step) not in known.evaluated}:
                    run.log({EVALUATED: body.step, **new}, step=max(body.step, run.step))
            run.summary.update(_summary(recorded))
            for saved in recorded.checkpoints:
                if (f"{recorded.run}-checkpoint", saved.body.artifact) not in known.artifacts:
                    run.log_artifact(runs.checkpoint_of(recorded.run, saved.body), aliases=[f"step-{saved.body.step}"])
            for step in (state.result for state in recorded.ordered_states()):
                if step is None or ((made := runs.output_of(step)).name, step.output.artifact) in known.artifacts:
                    continue
                if step.cached and asked.mode == "online":
                    run.use_artifact(made)
                else:
                    run.log_artifact(made)
            written = Path(run.settings.sync_dir)
        finally:
            run.finish()
            wandb.teardown()  # its service writes the file's end when it ends
    if not any(written.glob("*.wandb")):
        raise MarinError(
            "wandb wrote no offline run",
            where=str(folder),
            expected="a file run-….wandb",
            found="none",
            cure=f"see {written / 'logs'}",
        )
    return written


def _summary(run: Run) -> dict[str, object]:
    summary: dict[str, object] = {f"evaluate/{name}": value for name, value in run.measured.items()}
    summary |= {f"{step.step}/{name}": value for step in run.ordered_states() for name, value in step.metrics.items()}
    for fact in run.verdicts[-1:]:
        summary |= {f"marin.verdict.{name}": word for name, word in fact.body.verdicts.items()}
    return summary | {"marin.verified": run.verified, "marin.state": run.status}
