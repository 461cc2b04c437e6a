"""A run of the ledger as an offline run of Weights & Biases: another projection, made from events alone.

``wandb`` itself writes it, in offline mode: nothing is sent. What comes out is a folder ``wandb/offline-run-…-<run>`` that
``wandb sync FOLDER`` uploads whenever somebody wants that. It holds run id, recipe as config, metrics by train step and by
token, the newest verdicts, and every output as an artifact by reference (``marin://artifact/…``) with its digests; bytes stay
in the store.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import wandb

from marin import events
from marin.errors import MarinError
from marin.events import MetricsRecorded
from marin.root import Root
from marin.runs import stream_of
from marin.tracking.fold import flatten
from marin.tracking.reading import run_record
from marin.tracking.record import RunRecord

OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_GIT": "true",
           "WANDB_DISABLE_CODE": "true", "WANDB_CONSOLE": "off", "DO_NOT_TRACK": "1"}


def export_wandb(root: Root, name: str, folder: Path) -> Path:
    """Write the run that ``name`` means below ``folder``; returns the folder of the offline run.

    Raises:
        MarinError: wandb did not write one.
    """
    record = run_record(root, name)
    folder.mkdir(parents=True, exist_ok=True)
    with _offline():
        run = wandb.init(
            dir=str(folder), id=record.run, name=record.run, project=_word(record.pipeline), mode="offline", reinit="create_new",
            config=_config(record, root), tags=["marin"], notes=f"projected from the ledger {root.verifier.name}",
            settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, x_disable_meta=True,
                                    x_disable_stats=True, x_disable_machine_info=True))
        try:
            run.define_metric("train_step")
            run.define_metric("train/*", step_metric="train_step")
            run.define_metric("system/*", step_metric="train_step")
            for number, values in sorted(_by_step(root, record).items()):
                run.log({"train_step": number, **values})
            run.summary.update(_summary(record))
            for step in record.ordered_steps():
                if step.output is not None:
                    run.log_artifact(_artifact(record.run, step.name, step.output.kind, step.output.artifact,
                                               step.output.digest, step.output.size))
            written = Path(run.settings.sync_dir)
        finally:
            run.finish()
            wandb.teardown()  # its service writes the file's end when it ends
    if not any(written.glob("*.wandb")):
        raise MarinError("wandb wrote no offline run", where=str(folder), expected="a file run-….wandb", found="none",
                         cure=f"see {written / 'logs'}")
    return written


def _config(record: RunRecord, root: Root) -> dict[str, object]:
    return {**flatten(record.recipe), "marin.recipe": record.recipe_digest, "marin.plan": record.plan,
            "marin.event": record.index, "marin.root": root.verifier.name, "marin.verified": record.verified()}


def _by_step(root: Root, record: RunRecord) -> dict[int, dict[str, float]]:
    """Everything that is known by train step: losses, tokens seen, measurements."""
    found: dict[int, dict[str, float]] = {step: {"train/loss": loss} for step, loss in record.losses.items()}
    trainer, model = record.recipe.get("trainer", {}), record.recipe.get("model", {})
    each = trainer.get("batch_size", 0) * model.get("seq_len", 0)
    for step, values in found.items():
        if each:
            values["train/tokens"] = float((step + 1) * each)
    for _, event in root.history().events(stream=stream_of(record.run)):
        if event.type == events.METRICS_RECORDED:
            body = _measured(event.body)
            for series in body.series if body is not None else ():
                for step, value in zip(series.steps, series.values, strict=False):
                    found.setdefault(step, {})[series.key] = float.fromhex(value)
    return found


def _measured(body: object) -> MetricsRecorded | None:
    try:
        return events.read(MetricsRecorded, body, where=events.METRICS_RECORDED)
    except MarinError:
        return None


def _summary(record: RunRecord) -> dict[str, object]:
    summary: dict[str, object] = {f"evaluate/{name}": value for name, value in record.evaluation.items()}
    summary |= {f"{step.name}/{name}": value for step in record.ordered_steps() for name, value in step.metrics.items()}
    if record.replays:
        summary |= {f"marin.verdict.{name}": word for name, word in record.replays[-1][3].verdicts.items()}
    return summary | {"marin.verified": record.verified(), "marin.state": record.state}


def _artifact(run: str, step: str, kind: str, stored: str, digest: str, size: int) -> wandb.Artifact:
    artifact = wandb.Artifact(f"{run}-{_word(step)}", type=_word(kind),
                              metadata={"marin.digest": digest, "marin.artifact": stored, "size": size})
    artifact.add_reference(f"marin://artifact/{stored.removeprefix('sha256:')}", name=_word(step), checksum=False)
    return artifact


def _word(text: str) -> str:
    """A name that W&B takes."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)[:120] or "run"


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """No key, no address, no user's settings: an export never reaches for the network."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        del os.environ[name]
    os.environ |= OFFLINE
    logging.getLogger("wandb").setLevel(logging.ERROR)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before
