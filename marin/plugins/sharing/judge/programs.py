"""The programs of a run's train step under profile exact, as files that a browser executes (docs/record.md).

    programs/DIGEST.json            a program in its plain form, whose sha256 is the digest that the run recorded
    programs/constants/DIGEST       a constant, by the digest of its tensor: elements in C order, little-endian
    programs/RUN.json               which tensors the programs take, and which sequences each train step; hints, no evidence

Reading them from the recipe needs jax, in a process of its own (:mod:`marin.plugins.sharing.judge.reading`).
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from marin.history.run import Run
from marin.provenance.extras import absent
from marin.record import outputs
from marin.record.root import Root

logger = logging.getLogger(__name__)
FOLDER = "programs"


def program_files(root: Root, run: Run) -> Iterator[tuple[str, bytes]]:
    """What is published of them, by name. Nothing for a run of another profile, or with adapters or excluded documents, which the
    page does not execute; nor where what reads them is not installed, or reads other programs than the run recorded."""
    recipe = run.recipe
    recorded = run.training[-1].body.program.get("functions") if run.training else None
    executed = recipe.arithmetic.profile == "exact" and recipe.lora is None and recipe.exclude is None
    if not executed or not isinstance(recorded, Mapping):
        return
    if missing := absent("jax", "levanter"):
        logger.warning("the programs of a train step are not published: %s not installed", " and ".join(missing))
        return
    with TemporaryDirectory(prefix="marin-programs-") as base:
        folder = Path(base)
        for name in ("tokens", "tokenizer"):
            outputs.checkout(root.store_to_read(), run.output(name), folder / name, kind=name)
        asked = {"recipe": run.started.body.recipe, "recorded": dict(recorded), "run": run.run}
        command = [sys.executable, "-m", "marin.plugins.sharing.judge.reading", base]
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join(done.stderr.split())[-200:]
            logger.warning("the programs of a train step are not published: %s", said)
            return
        for path in sorted((folder / FOLDER).rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path.read_bytes()
