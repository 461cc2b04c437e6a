"""One cell: the processes of a training under a change, and the run of the ledger that has their journal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import marin
from bench.census.changes import AS_IS, Change
from bench.census.environments import BUILD, interpreter, overlay, versions
from bench.census.journal import HALF
from bench.census.runs import Recorded, recorded
from bench.census.table import Training
from ledger import canonical_digest, digest_bytes
from marin.provenance.processor import processor
from marin.record.root import Root

PROJECT = Path(__file__).resolve().parents[2]
TRAININGS = Path(__file__).parent / "trainings"
LIMIT = 1200
CLEARED = ("XLA_", "JAX_", "OMP_", "MKL_", "KMP_", "PYTHON", "TOKENIZERS_", "RAYON_", "HF_", "KERAS_", "CENSUS")


def applied(training: Training, change: Change) -> Change:
    """A change as a training has it: with its own number of devices."""
    if "devices" not in change.setting:
        return change
    return replace(change, setting={**change.setting, "devices": training.devices})


def kind_of_processor() -> list[str]:
    """What libraries choose their kernels by: the model, and how wide its instructions are."""
    here = processor()
    wide = [name for name in here.features if name.startswith(("avx", "amx", "fma"))]
    return [here.architecture, *here.numbers, here.arm_model or "", *wide]


def key_of(training: Training, change: Change) -> str:
    """What decides a cell: the bytes of the training and of files beside it that it imports, its row, the change, and the
    processor, for a cell is compared with the training as it is, which another machine may have left in the root."""
    file = TRAININGS / training.file
    text = file.read_text()
    beside = [other for other in sorted(file.parent.glob("*.py")) if f".{other.stem} import" in text]
    digests = {each.name: digest_bytes(each.read_bytes()) for each in (file, *beside)}
    plain = {
        "change": asdict(applied(training, change)),
        "arguments": training.arguments,
        "variables": dict(training.variables),
        "processor": kind_of_processor(),
    }
    return canonical_digest({"files": digests, **json.loads(json.dumps(plain))}).removeprefix("sha256:")[:16]


def execute(training: Training, change: Change, root: Root, reference: Recorded | None) -> Recorded:
    """Run the processes of a cell and record what they did."""
    change = applied(training, change)
    with tempfile.TemporaryDirectory(prefix="census-") as base:
        key = key_of(training, change)  # of what is executed now: files may change meanwhile
        folder = Path(base, "elsewhere", "folder") if change.elsewhere else Path(base, "work")
        folder.mkdir(parents=True)
        failure, said = "", ""
        for part in ({"steps": HALF}, {"resume": True}) if change.halves else ({},):
            setting = {"folder": str(folder), "corpus": str(PROJECT / "LICENSE"), **change.setting, **part}
            done = subprocess.run(
                command(training, change),
                cwd=folder,
                env=variables(training, change, setting, base),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT,
                check=False,
            )
            said = done.stderr[-6000:]
            if done.returncode:
                failure = error_of(said) or f"exit {done.returncode}"
                break
        run = record(training, change, key, folder / "journal", root, reference, failure)
        if failure:
            log = BUILD / "failures" / f"{training.name}.{change.name}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(said)
        return run


def error_of(said: str) -> str:
    """The line of a traceback that has the error, or the last line."""
    lines = [line for line in said.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt): ", line)]
    return (named or lines or [""])[-1]


def command(training: Training, change: Change) -> list[str]:
    python = [*change.prefix, str(interpreter(training.environment))]
    if training.launched and change.setting.get("devices", 1) > 1:
        python += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(change.setting["devices"])]
    return [*python, str(TRAININGS / training.file), *training.arguments]


def variables(training: Training, change: Change, setting: Mapping[str, Any], base: str) -> dict[str, str]:
    """Of the present ones those that decide nothing, then the training's, then the change's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
    home = Path(base, "home2" if change.elsewhere else "home")
    home.mkdir(exist_ok=True)
    path = [str(PROJECT)]
    if change.earlier:
        path.insert(0, str(overlay(training.earlier)))
    made = {
        **kept,
        "HOME": str(home),
        "HF_HOME": str(home / "hub"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(path),
        "CENSUS": json.dumps(dict(setting)),
        "OMP_WAIT_POLICY": "PASSIVE",  # a machine that others use; decides no bits
        **training.variables,
        **change.variables,
    }
    if training.file.startswith("jax/") or training.variables.get("KERAS_BACKEND") == "jax":
        flags = f"--xla_force_host_platform_device_count={setting.get('devices', 1)} {made.get('XLA_FLAGS', '')}"
        made["XLA_FLAGS"] = flags.strip()
    return made


def journal(folder: Path) -> Iterator[tuple[int, float, Path]]:
    """The steps of a journal: number, loss, file of tensors."""
    if (folder / "losses").exists():
        for line in (folder / "losses").read_text().splitlines():
            step, loss = line.split()
            yield int(step), float.fromhex(loss), folder / f"{int(step):03}.npz"


def record(
    training: Training, change: Change, key: str, folder: Path, root: Root, reference: Recorded | None, failure: str
) -> Recorded:
    """A run with the losses, batches and states of a journal. Its tensors are stored where they are needed: all steps of the
    training as it is, of a change the first step that differs and the last."""
    states = {} if reference is None else {step.number: step.state for step in reference.steps}
    said = folder / "versions"
    loaded = json.loads(said.read_text()) if said.exists() else {}
    recipe = {
        "training": training.name,
        "change": change.name,
        "file": training.file,
        "arguments": list(training.arguments),
        "versions": {**versions(training.environment), **loaded},
    }
    tags = {"training": training.name, "change": change.name, "key": key}
    run = marin.start_run(f"{training.name} {change.name}", recipe=recipe, tags=tags, root=root.location)
    with tempfile.TemporaryDirectory(prefix="census-kept-") as kept:
        steps = list(journal(folder))
        differed = False
        for place, (number, loss, file) in enumerate(steps):
            batch = folder / f"batch-{number:03}.npz"
            run.log(number, loss, dict(np.load(batch)) if batch.exists() else None)
            digest = run.state(dict(np.load(file)))
            first = not differed and digest != states.get(number)
            differed = differed or first
            if change.name == AS_IS.name or first or (differed and place == len(steps) - 1):
                shutil.copy(file, kept)
        if (folder / "evaluation.npz").exists():
            shutil.copy(folder / "evaluation.npz", kept)
        if failure:
            run.fail(failure[:500])
        else:
            run.save("tensors", kept)
            run.finish()
    return recorded(root, run.id)
