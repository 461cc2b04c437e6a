"""`marin verify` of several roots in one process: an emulated interpreter takes minutes to begin and to compile.

    stranger.py RUN STEPS VKEY ROOT...      for each root a JSON line with the exit status and the report

Nothing is known of whoever made the roots but their public key.
"""

from __future__ import annotations

import io
import json
import platform
import sys
from contextlib import redirect_stdout


def verify(*arguments: str) -> tuple[object, str]:
    """Exit status and output of `marin verify ARGUMENT...`."""
    from marin.cli.main import main

    sys.argv = ["marin", *arguments]
    said = io.StringIO()
    with redirect_stdout(said):
        try:
            main()
        except SystemExit as end:
            return end.code, said.getvalue()
    return 0, said.getvalue()


if __name__ == "__main__":
    run, steps, vkey, *roots = sys.argv[1:]
    for root in roots:
        # Not confined: an emulator knows neither Landlock nor the filter of system calls.
        options = [
            "--only",
            "training",
            "--steps",
            steps,
            "--vkey",
            vkey,
            "--allow",
            "unconfined",
            "--no-record",
            "--json",
        ]
        status, said = verify("-q", "--root", root, "verify", run, *options)
        told = {"machine": platform.machine(), "root": root, "status": status, "report": json.loads(said or "null")}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
