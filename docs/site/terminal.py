"""The picture of a terminal in the README: README's own commands, executed now, and what they print.

    python docs/site/terminal.py        in a clone after `make repro`: verifies it, writes docs/images/terminal.svg

Each command runs under a pseudo terminal of 100 columns, as a person would see it, and is shown as README writes it. Lines
that are too long are cut, and of long outputs a part is left out, with a mark. `marin ui` is ended when it has said its
address. rich draws the SVG, which loads nothing.
"""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PROJECT = Path(__file__).resolve().parents[2]
PICTURE = PROJECT / "docs" / "images" / "terminal.svg"
COLUMNS = 100
SHOWN = {"make repro": ("run  ", 5), "marin verify": ("verdict", 14), "marin sample": ("", 3)}
"""How the first line that is shown of a command begins, and how many are, by the beginning of the command; of others all."""
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+/\?token=)\S+")
"""What `marin ui` prints when it answers; its token is nobody's business, even when it is over."""
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


def commands() -> list[str]:
    """Those of README's first block, without its comments."""
    block = re.search(r"(?:^    .*\n)+", (PROJECT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert block is not None, "README begins with commands"
    return [line.partition("  #")[0].strip() for line in block[0].splitlines()]


def seen(command: str) -> str:
    """What ``command`` prints on a terminal, without what it says on stderr."""
    master, slave = pty.openpty()
    path = f"{PROJECT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    with subprocess.Popen(
        ["bash", "-c", command],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=PROJECT,
    ) as process:
        os.close(slave)
        found, served = "", False
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            found += part.decode("utf-8", "replace")
            if not served and ADDRESS.search(found):
                served = True
                process.send_signal(signal.SIGINT)
    os.close(master)
    if process.returncode and not served:
        sys.exit(f"{command}: exit status {process.returncode}")
    return ADDRESS.sub(r"\1…", found.replace("\r\n", "\n"))


def drawn() -> str:
    """The SVG of all commands."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in commands():
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        lines = [Text.from_ansi(line) for line in seen(command).rstrip("\n").split("\n") if line]
        start, most = next((shown for begins, shown in SHOWN.items() if command.startswith(begins)), ("", len(lines)))
        first = next((n for n, line in enumerate(lines) if line.plain.startswith(start)), 0)
        if first:
            console.print(Text("…", style="dim"))
        for line in lines[first : first + most]:
            line.truncate(COLUMNS, overflow="ellipsis")
            console.print(line, no_wrap=True)
        if lines[first + most :]:
            console.print(Text("…", style="dim"))
        console.print()
    svg = console.export_svg(title="Marin", theme=THEME, unique_id="marin")
    return "\n".join(line.rstrip() for line in _FONT.sub("", svg).splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(PROJECT)}\n")
