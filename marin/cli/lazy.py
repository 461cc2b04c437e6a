"""Groups whose members are imported when they are called: a command waits for what its own work needs, and a help text for
nothing; and --root, which `marin` and every command that does something take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import click

COMPLETING = "_MARIN_COMPLETE"
"""Is in the environment where a shell asks what could come next."""


@dataclass(frozen=True)
class Lazy:
    """A command that is not imported yet: ``module`` holds it under its own name, with ``_`` for each ``-``."""

    module: str
    help: str


COMPLETER = Lazy("marin.cli.completion", "What could come next; a shell asks for it, and nobody else.")


class LazyGroup(click.Group):
    """A group whose members are imported when they are called; its help never imports one. ``others``: the members that plugins
    add, looked for where a name is no own member's, and for a help text; ``lacking``: plugins that would add some, and are
    not there."""

    def __init__(
        self,
        *arguments: Any,
        members: Mapping[str, Lazy],
        others: Callable[[], Mapping[str, Lazy]] = dict,
        lacking: Callable[[], Sequence[str]] = tuple,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.members, self._others, self._lacking = members, others, lacking

    @cached_property
    def all_members(self) -> Mapping[str, Lazy]:
        """Own members, then those of plugins."""
        return {**self.members, **self._others()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.all_members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.members.get(cmd_name) or self.all_members.get(cmd_name)
        if entry is None:
            return None
        from marin.process.waiting import waiting  # here, so that a help text does not load the ledger

        with waiting(f"loading {ctx.command_path} {cmd_name}"):
            command = getattr(import_module(entry.module), cmd_name.replace("-", "_"), None)
        if not isinstance(command, click.Command):
            ctx.fail(f"{entry.module} has no command {cmd_name!r}: its plugin names it and does not define it")
        accept_root(command)
        if COMPLETING in os.environ:
            import_module(COMPLETER.module).offer(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; an unknown command names the nearest."""
        name = args[0] if args and not args[0].startswith("-") and not ctx.resilient_parsing else None
        if name is not None and name not in self.members and name not in self.all_members:
            import difflib  # here: only a mistake needs it

            near = difflib.get_close_matches(name, self.all_members, n=1)
            if below := self._groups_with(ctx, name):
                told = f"did you mean {ctx.command_path} {below[0]} {name}?"
            else:
                told = f"did you mean {near[0]}?" if near else f"see {ctx.command_path} --help"
            missing = "".join(f"; the plugin {plugin} is not installed" for plugin in self._lacking())
            ctx.fail(f"No such command {name!r}: {told}{missing}")
        return super().resolve_command(ctx, args)

    def _groups_with(self, ctx: click.Context, name: str) -> list[str]:
        """Names of the groups below that have a command of this name."""
        groups = [group for group, entry in self.members.items() if entry.module.endswith(".group")]
        commands = ((group, self.get_command(ctx, group)) for group in groups)
        return [group for group, one in commands if isinstance(one, click.Group) and name in one.list_commands(ctx)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.all_members.items()])


def use_root(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Put --root into the environment, so that stages, workers and a replay started from here see it too."""
    if value is None:
        return
    if not value:
        raise click.BadParameter("an empty root", ctx=ctx, param=param)
    os.environ["MARIN_ROOT"] = value


def root_option() -> click.Option:
    """--root, before the first word or after the last."""
    return click.Option(
        ["--root"],
        metavar="R",
        expose_value=False,
        is_eager=True,
        callback=use_root,
        help="The ledger and its store: a path or an address.  [env: MARIN_ROOT; default: .marin here or above]",
    )


def accept_root(command: click.Command) -> None:
    """Give ``command`` and what is below it the --root option, once."""
    if isinstance(command, click.Group):
        for member in command.commands.values():
            accept_root(member)
    elif not any("--root" in param.opts for param in command.params):
        command.params.append(root_option())
