"""The product's own train step under a profile: what `make determinism` trains (tests/determinism/worker.py), in a process.

The profile is the argument: portable-cpu or exact. The state of a step is its fingerprint; of the last step its tensors' digests.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.census.journal import HALF, STEPS, Journal, setting

want = setting()
journal = Journal(want)
case = {
    "name": "census",
    "profile": sys.argv[1],
    "hidden": 32,
    "layers": 1 if sys.argv[1] == "exact" else 2,
    "steps": STEPS,
    "devices": want.devices,
    "resume_at": [HALF] if want.resume else [],
}
worker = Path(__file__).parents[4] / "tests" / "determinism" / "worker.py"
command = [sys.executable, str(worker), "--devices", str(want.devices), json.dumps(case)]
done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
found = json.loads(done.stdout.splitlines()[-1])
for step, (loss, norm, fingerprint) in enumerate(found["steps"]):
    state: dict[str, Any] = {"norm": bytes.fromhex(norm), "fingerprint": bytes.fromhex(fingerprint)}
    if step == STEPS - 1:
        state |= {name: digest.encode() for name, digest in found["tensors"].items()}
    journal.step(step, np.frombuffer(bytes.fromhex(loss), np.float32)[0], state)
