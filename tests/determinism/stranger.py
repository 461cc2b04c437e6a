"""`marin doctor`, the known answers, and `marin verify` of several roots, each as a stranger calls it: in a process of its own.

    stranger.py RUN STEPS VKEY ROOT...      a JSON line of what doctor says, one of the known answers that do not come out
                                            by each way of multiplying, and one for each root: exit status and report

Nothing is known of the makers of the roots but their public key. On an emulated processor every process is emulated.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any

MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
DEATHS = 4
KNOWN = """
import json
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution
from marin.verify.diagnosis import PROFILES
apply(PROFILES["exact"], Execution())  # before jax is imported
from marin.plugins.exact import known
print(json.dumps({way: known.differing(way) for way in ("float64", "int8", "bfloat16")}))
"""


def asked(program: str, *arguments: str) -> dict[str, Any]:
    """Exit status of a program in this interpreter, and what it says in JSON. An emulator that died (QEMU does, now and then)
    has judged nothing and is asked again."""
    for _ in range(DEATHS):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode >= 0:
            break
    return {"status": done.returncode, "said": json.loads(done.stdout or "null")}


def main(run: str, steps: str, vkey: str, *roots: str) -> None:
    """See the file's docstring."""
    say({"machine": platform.machine(), **asked(MARIN, "doctor", "--json")})
    say(asked(KNOWN)["said"])
    for root in roots:
        # Not confined: an emulator knows neither Landlock nor the filter of system calls.
        options = ["--only", "training", "--steps", steps, "--vkey", vkey, "--allow", "unconfined", "--no-record"]
        say({"root": root, **asked(MARIN, "-q", "--root", root, "verify", run, *options, "--json")})


def say(what: object) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
