"""`marin completion`: the script that completes `marin` in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from marin.cli.output import say


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    Examples:
      eval "$(marin completion bash)"
      marin completion zsh >> ~/.zshrc
      marin completion fish > ~/.config/fish/completions/marin.fish
    """
    from marin.cli.main import marin  # here: the root command loads this file

    found = get_completion_class(shell)
    assert found is not None
    say(found(marin, {}, "marin", "_MARIN_COMPLETE").source())
