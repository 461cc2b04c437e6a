"""`marin completion`: the script that completes `marin` in a shell, and the words that it offers.

Commands, options and choices are click's. What only this root or this checkout knows is offered here, by what an
argument is called in the help: runs with what they are, groups of recipes with their members, fields with their values,
metrics, devices. Nothing is offered where a root cannot be read: a completion never fails and never writes to the
screen.

bash breaks words at "=", so a recipe's ``model=na`` arrives in three words there and in one elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import click
from click.shell_completion import CompletionItem, get_completion_class

from marin.cli.output import say

type Offer = Callable[[click.Context, str], Iterable[tuple[str, str]]]
"""From the context and what stands there already to words, each with what it means."""

MOST = 200
"""So many runs are offered, the newest."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options, runs, recipes, metrics and devices in a shell.

    \b
    Examples:
      eval "$(marin completion bash)"
      marin completion zsh >> ~/.zshrc
      marin completion fish > ~/.config/fish/completions/marin.fish
    """
    found, whole = get_completion_class(shell), click.get_current_context().find_root().command
    assert found is not None
    say(*found(whole, {}, "marin", "_MARIN_COMPLETE").source().split("\n"))


def runs(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """The newest runs, and what each is."""
    from marin.history.catalog import open_catalog
    from marin.record.root import open_root
    from marin.record.verdicts import verdict_line

    with open_catalog(open_root()) as catalog:
        listed = [run for run in catalog.runs() if not run.labels.archived]
    if listed:
        yield "latest", f"the newest: {listed[-1].run}"
    for run in reversed(listed[-MOST:]):
        verdict = verdict_line(run.verdicts, run.claimed)
        parts = (run.model.strip(), run.dataset, run.status if run.status != "completed" else f"verified {verdict}")
        yield run.run, " · ".join(filter(None, (run.labels.description, *parts)))


def actions(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """What can be said of a run, where one was named."""
    if context.params.get("said"):
        return
    yield "archive", "lists leave it out"
    yield "restore", "lists show it again"
    yield "describe", "what it is about"
    yield "tag", "NAME=VALUE"
    yield "untag", "NAME"


def recipes(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Groups and their members, fields and their values; what was typed decides which."""
    from marin.recipe.composition import conf_folder, groups

    given = [str(word) for word in context.params.get("overrides") or ()]
    chosen = groups(conf_folder())
    fields = {name: words for name, words in _fields().items() if name not in chosen}
    known: Mapping[str, Sequence[str]] = {**chosen, **fields}  # groups come first: they are said most often
    named, apart, _ = incomplete.rpartition("=")
    if not apart and given[-1:] == ["="]:
        named = given[-2] if len(given) > 1 else ""
    elif not apart and given and given[-1].lstrip("+") in known and not incomplete:
        named = given[-1]
    if named:
        for word in known.get(named.lstrip("+"), ()):
            yield (f"{named}={word}" if apart else word), ""
        return
    for name, words in known.items():
        yield f"{name}=", f"one of {', '.join(words)}" if words else ""


def _fields() -> dict[str, tuple[str, ...]]:
    """The fields of a recipe by path, each with the words that it may be, where these are few."""
    import typing

    import msgspec

    from marin.recipe.schema import Recipe

    found: dict[str, tuple[str, ...]] = {}
    for field in msgspec.structs.fields(Recipe):
        section = field.type
        inner = (
            msgspec.structs.fields(section) if isinstance(section, type) and issubclass(section, msgspec.Struct) else ()
        )
        for path, kind in [(f"{field.name}.{one.encode_name}", one.type) for one in inner] or [(field.name, section)]:
            words = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
            found[path] = ("true", "false") if kind is bool else tuple(map(str, words))
    return found


def metrics(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """After `marin show metric`: the names of numbers that runs have."""
    from marin.history.catalog import open_catalog
    from marin.record.root import open_root

    if context.params.get("name") == "metric":
        with open_catalog(open_root()) as catalog:
            for name in catalog.metric_names():
                yield f"{name}=", ""


def things(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """What `marin show` takes."""
    yield from runs(context, incomplete)
    if context.info_name == "show":
        yield "metric", "the runs behind a number"


def columns(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Columns of `marin ls`, after those that are there."""
    from marin.cli.looking.ls import ALL

    there = incomplete.split(",")[:-1]
    for name in ALL:
        if name not in there:
            yield ",".join([*there, name]), ""


def devices(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """The devices of the price table."""
    from marin.recipe.composition import PRICES, conf_folder
    from marin.recipe.cost import load_prices

    for name, device in load_prices(conf_folder() / PRICES).devices.items():
        yield name, device.note


def types(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """The types of events."""
    from marin.kinds.known import own_kinds

    for name in (kind.type for kind in own_kinds()):
        yield name, ""


def verdicts(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Names of verdicts, after those that are there."""
    from marin.record.verdicts import SHOWN

    there = incomplete.split(",")[:-1]
    for name in SHOWN:
        if name not in there:
            yield ",".join([*there, name]), ""


OFFERS: Mapping[str, Offer] = {
    "RUN": runs,
    "RUN|FOLDER": runs,
    "FILE|RUN": runs,
    "RUN|ARTIFACT": runs,
    "ID": things,
    "[NAME=NUMBER]": metrics,
    "[GROUP=NAME | KEY=VALUE]...": recipes,
    "A,B,…": columns,
    "NAMES": verdicts,
}
"""By what an argument or an option is called in the help."""
BY_NAME: Mapping[str, Offer] = {"run": runs, "said": actions, "device": devices, "type_": types}
"""By the name of the parameter, where the help says nothing of its own."""
WITH_FILES = ("RUN|FOLDER", "FILE|RUN")


def offer(command: click.Command) -> None:
    """Give the parameters of a command the words that fit them."""
    for param in command.params:
        found = OFFERS.get(param.metavar or "") or BY_NAME.get(param.name or "")
        if found is not None:
            param._custom_shell_complete = _completer(found, files=param.metavar in WITH_FILES)
    if isinstance(command, click.Group):
        for member in command.commands.values():
            offer(member)


def _completer(found: Offer, *, files: bool) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        logging.disable(logging.CRITICAL)
        items = [CompletionItem(incomplete, type="file")] if files else []
        with contextlib.suppress(Exception):  # no root, no network, an old log: then there is nothing to offer
            items += [
                CompletionItem(word, help=about or None)
                for word, about in found(context, incomplete)
                if word.startswith(incomplete)
            ]
        return items

    return complete
