"""docs/commands.md from the help texts: `python -m marin.cli.reference`, which `make docs` calls.

What a command says of itself is the documentation; a test compares this file's output with the committed page.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import click

from marin.cli.main import marin

HEAD = """# Commands

Look up each command with its options and examples. Made from the help texts by `make docs`; `marin COMMAND --help` says the same.

Data goes to stdout (`--json` for machines: one object, a list, or a line each, as its help says), progress and errors to
stderr. Every command takes `--root R`; without it `MARIN_ROOT`, then `.marin` in the working folder or the nearest folder
above it, is the root.

| exit status | meaning |
| --- | --- |
| 0 | done; everything that was checked holds |
| 1 | something is wrong: a check failed, bytes are damaged, a write was refused as a conflict |
| 2 | wrong usage: an option, a parameter, an input that cannot be accepted |
| 3 | something needed is missing (a permission, memory, space), or this machine cannot do it; no check failed |
| 4 | `marin verify`: nothing that was looked at is wrong, and not all of it was looked at |
| 70 | a defect in Marin (`MARIN_DEBUG=1` shows the traceback) |
| 130 | interrupted |
| 141 | the reader of the output went away |
"""


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command that does something, by its whole name, in the order of `marin --help`."""
    root = click.Context(marin, info_name="marin")
    for name in marin.list_commands(root):
        command = marin.get_command(root, name)
        assert command is not None
        yield from _below(command, click.Context(command, info_name=name, parent=root))


def _below(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from _below(member, click.Context(member, info_name=name, parent=context))


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(path, command, context) for path, command, context in commands())


def _section(path: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\f", "")
    prose, _, examples = text.partition("Examples:\n")
    lines = [f"\n## {path}\n\n    {usage}\n\n{prose.strip()}\n"]
    options = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    options = [(names, help) for names, help in options if help and names not in ("-h, --help", "--help", "--root R")]
    if options:
        lines.append("\n" + "".join(f"- `{names}`: {' '.join(help.split())}\n" for names, help in options))
    if examples:
        lines.append("\n" + "".join(f"    {line.strip()}\n" for line in examples.splitlines() if line.strip()))
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())
