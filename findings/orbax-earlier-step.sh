#!/usr/bin/env bash
# After a roll-back, orbax's CheckpointManager saves nothing until the step at which the abandoned training stood: save() of a step that is not after the latest in the folder returns False,
# and raises and warns nothing. Restore step 500 of a training that diverged before 1000, go on, and what is lost in a crash is all until 1000; restart then, and latest_step() is
# the diverged state. It is meant so (google/orbax#527: save(..., force=True)); AI-Hypercomputer/maxtext#5260 lost checkpoints by it.
#
#   bash findings/orbax-earlier-step.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.12.8}
folder=$(mktemp -d "${TMPDIR:-/tmp}/orbax-earlier-step.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "orbax-checkpoint==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import logging
import os
import sys
import warnings
from importlib.metadata import version

import numpy as np
import orbax.checkpoint as ocp

print(f"orbax-checkpoint {version('orbax-checkpoint')}, Python {sys.version.split()[0]}")
said = []
handler = logging.Handler(logging.WARNING)
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger().addHandler(handler)
warnings.showwarning = lambda message, *others, **more: said.append(str(message))


def state(step):
    return ocp.args.StandardSave({"weights": np.full(3, float(step))})


folder = os.path.abspath("checkpoints")
with ocp.CheckpointManager(folder) as manager:
    for step in (500, 1000):
        assert manager.save(step, args=state(step))
with ocp.CheckpointManager(folder) as manager:  # the training that goes on from step 500
    restored = manager.restore(500, args=ocp.args.StandardRestore({"weights": np.zeros(3)}))
    assert restored["weights"][0] == 500
    said.clear()
    answers = {step: manager.save(step, args=state(step)) for step in (600, 700, 1000, 1100)}
    warned = list(said)
    manager.wait_until_finished()
    steps = sorted(manager.all_steps())
print(f"  what save answers after step 500 was restored: {answers}")
print(f"  in the folder then: {steps}; warnings of the four calls: {len(warned)}")
changed = []
if answers != {600: False, 700: False, 1000: False, 1100: True}:
    changed.append(f"answers: {answers}")
if steps != [500, 1000, 1100]:
    changed.append(f"steps: {steps}")
if any("600" in text or "700" in text for text in warned):
    changed.append(f"warned: {warned}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
