"""`marin log`: the events, in the order of the log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from ledger import Event, LogReader
from marin.cli.options import flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import columns_here, fitted
from marin.history.run import plan_of
from marin.record.root import Root, open_root

POLL_SECONDS = 0.5
WIDTH = 100
NARROW = 120
FIRST = ("step", "start", "end", "output", "verdicts", "error")
LEFT_OUT = frozenset(
    {
        "run",
        "identity",
        "config",
        "config_digest",
        "recipe",
        "environment",
        "code",
        "inputs",
        "tables",
        "details",
        "batches",
        "fingerprints",
        "seeds",
    }
)

Indexed = tuple[int, Event]


@dataclass(frozen=True)
class LogOptions:
    """What `marin log` takes."""

    stream: str | None = option("S", "Only this stream, such as run/2khr7ocq.")
    type_: str | None = option("T", "Only this type, such as train.segment/v1.", "--type")
    last: int | None = option("N", "Only the last N that match.", "-n", "--last", least=1)
    follow: bool = flag("Go on as events are appended, until interrupted.")
    as_json: bool = flag("One event a line, whole, with its index.", "--json")


@click.command()
@takes(LogOptions)
def log(options: LogOptions) -> None:
    """Print events in the order of the log.

    Every event that is printed was verified against the signed root of the log.

    \b
    Examples:
      marin log
      marin log --type step.completed/v1 -n 6
      marin log --stream run/2khr7ocq --json
      marin log --follow
    """
    root = open_root()
    reader = root.reader()
    size = reader.checkpoint().size
    for item in selected(root, reader, options.stream, options.type_, options.last):
        _print_event(item, as_json=options.as_json)
    if options.follow:
        sys.stdout.flush()
        for item in appended(reader, size):
            if options.stream in (None, item[1].stream) and options.type_ in (None, item[1].type):
                _print_event(item, as_json=options.as_json)
                sys.stdout.flush()


def selected(
    root: Root, reader: LogReader, stream: str | None, type_: str | None, last: int | None
) -> Iterator[Indexed]:
    """The events that match, each read through the verified reader; the projection only says where they are."""
    size = reader.checkpoint().size
    if stream is None and type_ is None:
        yield from reader.events(max(0, size - last) if last else 0, size, lenient=True)
        return
    history = root.history()
    places = history.places(stream=stream, type=type_, last=last)
    yield from history.at([index for index in places if index < size])


def appended(reader: LogReader, size: int) -> Iterator[Indexed]:
    """The events from index ``size`` on, as they come; ends never."""
    while True:
        newest = reader.refresh().size
        if newest > size:
            yield from reader.events(size, newest, lenient=True)
            size = newest
        time.sleep(POLL_SECONDS)


def _print_event(item: Indexed, *, as_json: bool) -> None:
    index, event = item
    if as_json:
        print_json(describe(index, event))
        return
    narrow = sys.stdout.isatty() and columns_here() < NARROW
    moment = event.time[5:19].replace("T", " ") if narrow else f"{event.time[:19]}Z"
    gap = " " if narrow else "  "
    say(
        fitted(gap.join((f"{index:>6}", moment, f"{event.stream:<13}", f"{event.type:<21}", gist(event.body))).rstrip())
    )


def describe(index: int, event: Event) -> dict[str, object]:
    """An event with its place, as JSON shows it."""
    return {
        "index": index,
        "id": event.id,
        "type": event.type,
        "stream": event.stream,
        "seq": event.seq,
        "time": event.time,
        "actor": event.actor,
        "body": dict(event.body),
    }


def gist(body: Mapping[str, object]) -> str:
    """What a body says, on one line: what people look for first, long values cut, containers by their number of
    items."""
    names = [name for name in FIRST if name in body]
    names += [name for name in body if name not in FIRST and name not in LEFT_OUT]
    if isinstance(pipeline := body.get("pipeline"), str):
        body = {**body, "pipeline": plan_of(pipeline)}
    text = " ".join(f"{name}={_brief(body[name])}" for name in names)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def _brief(value: object) -> str:
    if isinstance(value, Mapping):
        named = value.get("digest")
        if isinstance(named, str):
            return _brief(named)
        plain = 0 < len(value) <= 5 and all(isinstance(item, str) and len(item) < 20 for item in value.values())
        return ",".join(f"{name}:{item}" for name, item in value.items()) if plain else f"{{{len(value)}}}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    if text.startswith("sha256:"):
        return text[:15] + "…"
    return text if len(text) <= 40 else text[:39] + "…"
