"""The picture of a terminal in the README: commands that are executed now, and what they print.

    python docs/site/terminal.py        in a clone after `make repro`: verifies it, writes docs/images/terminal.svg

Each command runs under a pseudo terminal of 100 columns, as a person would see it. Lines that are too long are cut, and of
long outputs the end is left out, with a mark. rich draws the SVG, which loads nothing.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PROJECT = Path(__file__).resolve().parents[2]
PICTURE = PROJECT / "docs" / "images" / "terminal.svg"
COLUMNS = 100
COMMANDS = (
    ("marin show artifacts/export.json --summary", 5),
    ("marin verify latest", 14),
    ("marin ls", 3),
    ('marin sample latest "The farmer"', 3),
)
"""What is executed, and how many lines of it are shown."""
THEME = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
)
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich names fonts of another site: the reader's own do."""


def seen(command: str) -> str:
    """What ``command`` prints on a terminal, without what it says on stderr."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        ["bash", "-c", command],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=PROJECT,
    ) as process:
        os.close(slave)
        found = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            found += part
    os.close(master)
    if process.returncode:
        sys.exit(f"{command}: exit status {process.returncode}")
    return found.decode("utf-8", "replace").replace("\r\n", "\n")


def drawn() -> str:
    """The SVG of all commands."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command, most in COMMANDS:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        lines = [Text.from_ansi(line) for line in seen(command).rstrip("\n").split("\n")]
        for line in lines[:most]:
            line.truncate(COLUMNS, overflow="ellipsis")
            console.print(line, no_wrap=True)
        if lines[most:]:
            console.print(Text("…", style="dim"))
        console.print()
    svg = console.export_svg(title="Marin", theme=THEME, unique_id="marin")
    return "\n".join(line.rstrip() for line in _FONT.sub("", svg).splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(PROJECT)}\n")
