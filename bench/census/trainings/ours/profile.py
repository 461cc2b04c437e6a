"""The product's own train step under a profile: what `make determinism` trains (tests/determinism/worker.py), in a process.

The profile is the argument: portable-cpu or exact. The state of a step is its fingerprint; of the last step its tensors' digests.
Stopped, it is killed in its third step; resumed, it goes on from its checkpoint of the second.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.census.journal import STEPS, Journal, setting

want = setting()
journal = Journal(want)
case = {
    "name": "census",
    "profile": sys.argv[1],
    "hidden": 32,
    "layers": 1 if sys.argv[1] == "exact" else 2,
    "steps": STEPS,
    "devices": want.devices,
}
worker = Path(__file__).parents[4] / "tests" / "determinism" / "worker.py"
kept = ["--kept", want.checkpoint] if want.steps < STEPS or want.resume else []
Path(want.checkpoint).mkdir(parents=True, exist_ok=True)
command = [sys.executable, str(worker), "--devices", str(want.devices), *kept, json.dumps(case)]
done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
if want.steps < STEPS:
    sys.exit(0 if done.returncode == -signal.SIGKILL else 1)
done.check_returncode()
found = json.loads(done.stdout.splitlines()[-1])
for step, (loss, norm, fingerprint) in enumerate(found["steps"]):
    state: dict[str, Any] = {"norm": bytes.fromhex(norm), "fingerprint": bytes.fromhex(fingerprint)}
    if step == STEPS - 1:
        state |= {name: digest.encode() for name, digest in found["tensors"].items()}
    journal.step(step, np.frombuffer(bytes.fromhex(loss), np.float32)[0], state)
