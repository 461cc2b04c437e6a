"""An offline run of W&B as Marin writes one: its settings, its config, its rows by train step, its artifacts by
reference.

``wandb`` itself writes the files, in offline mode unless ``wandb.mode=online`` was said: nothing is sent, and no key, address or
user's setting is looked at. What comes out is ``wandb/offline-run-…-<run>``, which ``wandb sync FOLDER`` uploads whenever
a user wants that. A run that was interrupted goes on in another such folder with the same id and only what is new;
``wandb sync`` joins them. Online the folder is ``wandb/run-…-<run>``, and what it holds was sent.

What follows a training lies in the user's cache (:meth:`marin.record.root.Root.views`): a root travels, and neither shall what
W&B wrote on this machine go with it, nor what came with a root say that W&B was told already.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import wandb

from marin.errors import MarinError
from marin.history.names import data_of, model_of
from marin.history.projection.text import LOSS, TOKENS, curve_key, flat_values, tokens_of_step
from marin.history.run import Run, StepView, plan_of
from marin.kinds.families.measured import EvaluationMeasured, EvaluationRecorded
from marin.kinds.known import numbers_of
from marin.plugins.wandb.choice import Choice
from marin.plugins.wandb.file import EVALUATED, STEP, TRAINING
from marin.recipe.composition import conf_folder
from marin.recipe.form.yaml import NotYaml, read_yaml
from marin.record import events
from marin.record.events import CheckpointSaved, LoopSegment, MetricsRecorded, TrainSegment
from marin.record.root import Root
from marin.record.verdicts import EVALUATION

OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_CONSOLE": "off",
    "DO_NOT_TRACK": "1",
}
ONLINE = {name: value for name, value in OFFLINE.items() if name != "WANDB_MODE"} | {"WANDB_MODE": "online"}
KEPT = ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_ENTITY")
"""Of the user's settings, where a run is sent."""
SECONDS = 30.0
"""How long a training waits for W&B before it goes on without."""
Rows = dict[int, dict[str, float]]


@contextlib.contextmanager
def reaching(mode: str) -> Iterator[None]:
    """Offline: no key, no address, no user's settings, nothing here reaches for the network. Online: these three count."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("WANDB_") and not (mode == "online" and name in KEPT)]:
        del os.environ[name]
    os.environ |= ONLINE if mode == "online" else OFFLINE
    logging.getLogger("wandb").setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ |= before


def open_run(ledger_run: Run, root: Root, folder: Path, asked: Choice) -> Any:
    """A ``wandb`` run with the id of this run, below ``folder``. To be called inside :func:`reaching`."""
    folder.mkdir(parents=True, exist_ok=True)
    group, name = group_and_name(ledger_run, asked)
    run = wandb.init(
        dir=str(folder),
        id=ledger_run.run,
        name=name,
        group=group,
        project=word(asked.project or plan_of(ledger_run.started.body.pipeline)),
        mode=asked.mode,
        resume="allow" if asked.mode == "online" else None,
        reinit="create_new",
        config=_config(ledger_run, root),
        tags=["marin", *([asked.tag] if asked.tag is not None else [])],
        notes=f"projected from the ledger {root.verifier.name}",
        settings=wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            init_timeout=SECONDS,
        ),
    )
    run.define_metric(STEP)
    run.define_metric("train/*", step_metric=STEP)
    run.define_metric("system/*", step_metric=STEP)
    run.define_metric(EVALUATED)
    run.define_metric(f"{EVALUATION}/*", step_metric=EVALUATED)
    return run


def group_and_name(run: Run, asked: Choice) -> tuple[str | None, str]:
    """Group and name of a run: as they were given, or of tag, model and data where there is a tag."""
    recipe = run.started.body.recipe
    group = asked.group
    if group is None and asked.tag is not None:
        group = word("-".join([asked.tag, model_member(run) or model_of(recipe), data_of(recipe)]))
    made = f"{group}-run-{recipe.get('seed')}" if group is not None else run.run
    return group, asked.name or made


def model_member(run: Run) -> str | None:
    """What conf/model calls the model of a run, where it has it."""
    if (recipe := run.readable_recipe) is None:
        return None
    wanted = msgspec.to_builtins(recipe.model)
    for file in sorted((conf_folder() / "model").glob("*.yaml")):
        with contextlib.suppress(NotYaml):
            if read_yaml(file.read_bytes()) == wanted:
                return file.stem
    return None


def _config(run: Run, root: Root) -> dict[str, object]:
    return {
        **flat_values(run.started.body.recipe),
        "marin.recipe": run.started.body.recipe_digest,
        "marin.plan": run.plan,
        "marin.event": run.started.index,
        "marin.root": root.verifier.name,
        "marin.verified": run.verified,
        TRAINING: training_of(run),
    }


def training_of(run: Run) -> str:
    """The identity of the run's training as it is done now, "" where it has none."""
    step = run.states.get("train")
    return step.identity if step is not None else ""


def rows_of(
    recipe: Mapping[str, Any], segments: Iterable[TrainSegment | LoopSegment], measured: Iterable[MetricsRecorded]
) -> Rows:
    """Everything that is known by train step: losses, tokens seen, measurements."""
    found: Rows = {
        part.start + place: {LOSS: float.fromhex(loss)} for part in segments for place, loss in enumerate(part.losses)
    }
    if each := tokens_of_step(recipe):
        for step, values in found.items():
            values[TOKENS] = float((step + 1) * each)
    for body in measured:
        for series in body.series:
            key = f"{events.LOOP}/{series.key}" if series.key in (STEP, EVALUATED) else series.key  # not the axis
            for step, value in zip(series.steps, series.values, strict=False):
                found.setdefault(step, {})[key] = float.fromhex(value)
    return found


def evaluations_of(body: EvaluationMeasured | EvaluationRecorded) -> dict[str, float]:
    """The numbers of one evaluation of a recorded state, as points of their curves; W&B has an axis of their own for them."""
    values = {
        curve_key(EVALUATION, name, key): float.fromhex(value)
        for name, numbers in numbers_of(body).items()
        for key, value in numbers.items()
    }
    return {EVALUATED: body.step, **values}


def measured_in(bodies: Iterable[object]) -> Iterator[MetricsRecorded]:
    """Those of these bodies that have the shape of measurements."""
    for body in bodies:
        with contextlib.suppress(MarinError):
            yield events.read(MetricsRecorded, body, where=events.METRICS_RECORDED)


def checkpoint_of(run: str, saved: CheckpointSaved) -> wandb.Artifact:
    """A training checkpoint by reference; W&B keeps the checkpoints of a run as versions of one artifact."""
    return reference(f"{run}-checkpoint", "checkpoint", saved.artifact, saved.state, saved.size, {STEP: saved.step})


def output_of(step: StepView) -> wandb.Artifact:
    """What a step made, under a name that follows from its content: two runs that made or used the same speak of one
    artifact, so W&B's lineage joins them."""
    out = step.output
    name = f"{step.step}-{out.digest.removeprefix('sha256:')[:16]}"
    return reference(name, out.kind, out.artifact, out.digest, out.size, {"step": step.step})


def reference(name: str, kind: str, stored: str, digest: str, size: int, more: Mapping[str, object]) -> wandb.Artifact:
    """What lies in the store as ``stored``, by its address and digests; the bytes stay there."""
    artifact = wandb.Artifact(
        word(name), type=word(kind), metadata={"marin.digest": digest, "marin.artifact": stored, "size": size, **more}
    )
    artifact.add_reference(f"marin://artifact/{stored.removeprefix('sha256:')}", name=word(kind), checksum=False)
    return artifact


def word(text: str) -> str:
    """A name that W&B takes."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)[:120] or "run"
