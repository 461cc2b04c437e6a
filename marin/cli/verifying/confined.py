"""`marin` in a process that shuts itself in first: what the parent of a confined verification starts.

    MARIN_SEALED='{"read": [...], "write": [...], ...}' python -m marin.cli.verifying.confined verify RUN

Nothing else is imported before: a library that starts a thread would keep the process out of a network of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from marin.process.confinement import VARIABLE, Limits, confine, end_with


def main() -> None:
    """Confine this process as the environment says, then be `marin`."""
    told = json.loads(os.environ[VARIABLE])
    tempfile.tempdir = told["temporary"]
    confine(
        read=told["read"],
        write=told["write"],
        network=told["network"],
        limits=Limits(int(told["memory"]), int(told["seconds"]), int(told["file"])),
    )
    end_with(int(told["parent"]))
    from marin.cli.main import main as marin  # from here on anything may be imported

    marin(sys.argv[1:])


if __name__ == "__main__":
    main()
