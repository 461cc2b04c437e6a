"""`marin watch`: a run as it goes, in the terminal, without a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from marin.cli.output import print_json, say
from marin.history.run import Run
from marin.history.runs import load, resolve
from marin.history.table.underway import Underway, underway
from marin.provenance.plugins import points
from marin.record.root import Root, open_root

SECONDS, AGAIN = 1.0, 15.0
"""How often the log is asked whether it grew, and after how long a run that told nothing is looked at again."""


@click.command()
@click.argument("run", default="latest")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each change.")
@click.pass_context
def watch(ctx: click.Context, run: str, as_json: bool) -> None:
    """Follow RUN until it ends: train step, losses, speed, time left.

    A line for each change; a run that gave no sign for longer than its lease lasts is said to be silent, and is followed on, for
    another executor may take it over. Ctrl-C ends the watching, never the run. Nothing is written.

    Exit status: 0 the run completed, 1 it failed or was interrupted.

    \b
    Examples:
      marin watch
      marin watch 3f9c --json
    """
    root = open_root()
    name = resolve(root.history(), run)
    if not as_json:
        say(f"run {name}, from {root.location}; Ctrl-C ends the watching, not the run", err=True)
    view, shown, said = None, 0, ""
    for view, now, texts in changes(root, name):
        if as_json:
            late = [{"step": at, "prompt": prompt, "text": text} for at, prompt, text in texts[shown:]]
            new = {"samples": late} if late else {}
            print_json({"run": name, "status": view.status, **({} if now is None else now.as_json()), **new})
        else:
            line = status_line(view, now)
            below = [f"  before train step {at}: {prompt}|{text}" for at, prompt, text in texts[shown:]]
            say(*([line] if line != said else []), *below)
            said = line
        shown = len(texts)
    ctx.exit(0 if view is not None and view.status == "completed" else 1)


def sampled_texts(root: Root, run: str, read: dict[str, list[Any]] | None = None) -> list[Any]:
    """What states of the run said after prompts (``evaluation.samples``): train step, prompt and text, as its events have it.
    ``read``: records that were read before, by their digest."""
    return list(point.load()(root, run, read)) if (point := points("marin.pages").get("samples")) is not None else []


def changes(root: Root, run: str) -> Iterator[tuple[Run, Underway | None, list[Any]]]:
    """The run at each change of what is said of it, with what its states said; the last is its end."""
    reader, before, size, looked = root.reader(), ("", 0), -1, 0.0
    read: dict[str, list[Any]] = {}
    while True:
        newest = reader.refresh().size
        if newest != size or time.monotonic() - looked > AGAIN:
            size, looked = newest, time.monotonic()
            history = root.history()
            view = load(history, run)
            now = underway(history, view, datetime.now(UTC))
            texts = sampled_texts(root, run, read)
            told = (status_line(view, now), len(texts))
            if told != before:
                yield view, now, texts
            if now is None:
                return
            before = told
        time.sleep(SECONDS)


def status_line(view: Run, now: Underway | None) -> str:
    """What is said of a run at a moment, in a line."""
    if now is None:
        words = {"train.loss_last": "train loss", "loop.loss_last": "train loss", "evaluate.loss": "loss"}
        ends = {name: view.metrics[name] for name in words if name in view.metrics}
        return " · ".join([view.status, *(f"{words[name]} {value:.4f}" for name, value in ends.items())])
    parts = [now.line if now.step or now.silent else "between two steps"]
    if now.train_loss is not None:
        parts.append(f"train loss {now.train_loss:.4f}")
    if now.held_out is not None:
        parts.append(f"loss {now.held_out[1]:.4f}")
    if now.speed is not None and now.step == "train":
        parts.append(f"{now.speed:,.0f} tokens/s")
    return " · ".join(parts)
