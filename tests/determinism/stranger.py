"""`marin doctor`, and `marin verify` of several roots, in one process: an emulated interpreter takes minutes to begin and
to compile.

    stranger.py RUN STEPS VKEY ROOT...      a JSON line of what doctor says, one of the known answers that do not come out
                                            by each way of multiplying, and one for each root: exit status and report

Nothing is known of whoever made the roots but their public key.
"""

from __future__ import annotations

import io
import json
import platform
import sys
from contextlib import redirect_stdout


def marin(*arguments: str) -> dict[str, object]:
    """Exit status and JSON of `marin ARGUMENT...`."""
    from marin.cli.main import run

    said = io.StringIO()
    with redirect_stdout(said):
        status = run(arguments)
    return {"status": status, "said": json.loads(said.getvalue() or "null")}


def known_answers() -> dict[str, list[str]]:
    """Way of multiplying -> groups of operations whose known answer does not come out by it."""
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution
    from marin.verify.diagnosis import PROFILES

    apply(PROFILES["exact"], Execution())  # before jax is imported, which verify finds under the same settings
    from marin.exact import known

    return {way: known.differing(way) for way in ("float64", "int8", "bfloat16")}


def main(run: str, steps: str, vkey: str, *roots: str) -> None:
    """See the file's docstring."""
    say({"machine": platform.machine(), **marin("doctor", "--json")})
    say(dict(known_answers()))
    for root in roots:
        # Not confined: an emulator knows neither Landlock nor the filter of system calls.
        options = ["--only", "training", "--steps", steps, "--vkey", vkey, "--allow", "unconfined", "--no-record"]
        say({"root": root, **marin("-q", "--root", root, "verify", run, *options, "--json")})


def say(what: dict[str, object]) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
