"""`python -m bench.silence [COMMAND...]`: the longest time for which each command shows nothing on a terminal.

Executed in the current folder, a clone with its environment; without COMMAND those of a first day, from `dvc repro` on, with
a cache, a backup and a second store in a folder that is removed. A silence is the time between two outputs that a person
can see (letters, not only the cursor's movements), from the start to the end of a process. What was on the screen last is
printed with it.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

COMMANDS = (
    "marin init",
    "dvc repro",
    "dvc repro",
    "marin verify latest",
    "marin verify latest --workers 2",
    'marin sample latest "The farmer"',
    "marin ls",
    "marin show latest",
    "marin lineage latest",
    "marin store push {folder}/store",
    "marin backup {folder}/backup",
    "marin site {folder}/site",
    "marin ledger fsck",
    "marin ui --port 0",
)
"""What somebody types on the first day, in this order."""
SERVED = re.compile(rb"http://127\.0\.0\.1:\d+/")
"""`marin ui` is over when it said where it is."""
_UNSEEN = re.compile(rb"\x1b\][^\x07]*\x07|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][0-9A-B]|[\x00-\x20]")


@dataclass(frozen=True)
class Silence:
    """The longest silence of a command: seconds, after which second it began, and the last line before it."""

    seconds: float
    after: float
    line: str


@dataclass(frozen=True)
class Heard:
    """A command that ended: seconds, exit status (None where it was ended here), and its longest silence."""

    seconds: float
    status: int | None
    silence: Silence


def heard(command: str, folder: Path, environment: dict[str, str]) -> Heard:
    """Execute ``command`` under a pseudo terminal of 100 columns, and look when something is seen."""
    master, slave = pty.openpty()
    started = last = time.monotonic()
    shown, line, served = b"", "", False
    longest = Silence(0.0, 0.0, "")

    def sound(now: float) -> None:
        nonlocal longest, last
        if now - last > longest.seconds:
            longest = Silence(now - last, last - started, line)
        last = now

    with subprocess.Popen(
        ["bash", "-c", command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=environment | {"COLUMNS": "100", "TERM": "xterm-256color"},
        start_new_session=True,
    ) as process:
        os.close(slave)
        while True:
            try:
                part = os.read(master, 65536) if select.select([master], [], [], 1.0)[0] else None
            except OSError:  # nobody holds the other end any more
                break
            if part is None:
                if process.poll() is not None:
                    break
                continue
            shown += part
            if _UNSEEN.sub(b"", part):
                sound(time.monotonic())
            texts = [text for text in re.split(rb"[\r\n]+", shown[-4000:]) if _UNSEEN.sub(b"", text)]
            line = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", texts[-1].decode("utf-8", "replace")) if texts else ""
            if not served and command.startswith("marin ui") and SERVED.search(shown):
                served = True
                os.killpg(process.pid, signal.SIGINT)
        status = process.wait()
    os.close(master)
    if not served:
        sound(time.monotonic())
    return Heard(time.monotonic() - started, None if served else status, longest)


def main() -> None:
    """Print a line for each command, and those of the longest silence."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="marin-silence-") as folder:
        (Path(folder) / "store").mkdir()
        environment = os.environ | {
            "MARIN_CACHE": f"{folder}/cache",
            "PATH": f"{here / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        sys.stdout.write("silence  after  of  exit  command: the last line before it\n")
        for command in sys.argv[1:] or COMMANDS:
            told = heard(command.format(folder=folder), here, environment)
            silence = told.silence
            status = "-" if told.status is None else told.status
            figures = f"{silence.seconds:6.1f} s {silence.after:6.1f} {told.seconds:6.1f} {status:>3}"
            sys.stdout.write(f"{figures}  {command}: {silence.line.strip()[:90]}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
