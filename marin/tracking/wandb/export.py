"""A run of the ledger as an offline run of Weights & Biases: another projection, made from events alone.

It holds run id, recipe as config, metrics by train step and by token, the newest verdicts, and every output as an
artifact by reference (``marin://artifact/…``) with its digests; bytes stay in the store. Where the folder has offline
runs of this run already, written while it trained, only what they lack is added.
"""

from __future__ import annotations

from pathlib import Path

import wandb

from marin.errors import MarinError
from marin.history.projection.reading import run_record
from marin.history.projection.record import RunRecord
from marin.history.runs import stream_of
from marin.record import events
from marin.record.root import Root
from marin.tracking.wandb.file import STEP, told
from marin.tracking.wandb.run import checkpoint_of, measured_in, offline, opened, reference, rows_of, training_of, word


def export_wandb(root: Root, name: str, folder: Path) -> Path:
    """Write the run that ``name`` means below ``folder``; returns the folder of the offline run.

    Raises:
        MarinError: wandb did not write one.
    """
    record = run_record(root, name)
    known = told(folder, record.run, training_of(record))
    own = (
        event.body
        for _, event in root.history().events(stream=stream_of(record.run))
        if event.type == events.METRICS_RECORDED
    )
    rows = rows_of(record.recipe, record.segments, measured_in(own))
    with offline():
        run = opened(record, root, folder)
        try:
            for number, values in sorted(rows.items()):
                if number > known.step:
                    run.log({STEP: number, **values}, step=number)
            run.summary.update(_summary(record))
            for saved in record.checkpoints:
                if (f"{record.run}-checkpoint", saved.artifact) not in known.artifacts:
                    run.log_artifact(checkpoint_of(record.run, saved), aliases=[f"step-{saved.step}"])
            for step in record.ordered_steps():
                if (out := step.output) is not None and (
                    word(f"{record.run}-{step.name}"),
                    out.artifact,
                ) not in known.artifacts:
                    run.log_artifact(
                        reference(
                            f"{record.run}-{step.name}",
                            out.kind,
                            out.artifact,
                            out.digest,
                            out.size,
                            {"step": step.name},
                        )
                    )
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


def _summary(record: RunRecord) -> dict[str, object]:
    summary: dict[str, object] = {f"evaluate/{name}": value for name, value in record.evaluation.items()}
    summary |= {f"{step.name}/{name}": value for step in record.ordered_steps() for name, value in step.metrics.items()}
    if record.replays:
        summary |= {f"marin.verdict.{name}": word for name, word in record.verdicts().items()}
    return summary | {"marin.verified": record.verified(), "marin.state": record.state}
