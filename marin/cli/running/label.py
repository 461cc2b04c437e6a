"""`marin run RUN archive|restore|describe|tag|untag`: how people find a run. Each is an event; none changes the run."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from marin.cli.output import print_json, say
from marin.errors import UsageError
from marin.history.labels import Labels, checked_tags, checked_text, label_stream
from marin.history.runs import load, resolve
from marin.record.events import RunLabelled, draft
from marin.record.root import open_root

ACTIONS = ("archive", "restore", "describe", "tag", "untag")


def label(name: str, action: str, given: Sequence[str], *, as_json: bool) -> None:
    """Record what is said of the run ``name``, unless it is so already, and print how it is labelled now.

    Raises:
        UsageError: no run has this name, ``given`` does not fit the action, or a tag to take off is not there.
    """
    root = open_root()
    history = root.history()
    run = resolve(history, name)
    before = load(history, run).labels
    body = _label_event(run, action, given)
    _refuse_unknown(run, body.untagged, before)
    after = before.after(body)
    if after != before:
        root.append([draft(body, label_stream(run))])
    if as_json:
        print_json({"run": run, "archived": after.archived, "description": after.description, "tags": after.tags})
    else:
        say(f"{run}: {_in_words(after)}")


def _label_event(run: str, action: str, given: Sequence[str]) -> RunLabelled:
    if action not in ACTIONS:
        near = difflib.get_close_matches(action, ACTIONS, n=1)
        raise UsageError(
            "what is to be done with the run?",
            where=f"marin run {run} {action}"[:120],
            expected=", ".join(ACTIONS),
            found=action[:40],
            cure=f"did you mean {near[0]}?" if near else "see `marin run --help`",
        )
    wants = {"describe": "TEXT", "tag": "NAME=VALUE…", "untag": "NAME…"}.get(action, "")
    if bool(wants) != bool(given) or (action == "describe" and len(given) != 1):
        raise UsageError(
            "what is to be said of the run?",
            where=f"marin run {run} {action}",
            expected=wants or "nothing after it",
            found=" ".join(given) or "nothing",
            cure="see `marin run --help`; a text of several words stands in quotes",
        )
    match action:
        case "describe":
            return RunLabelled(run=run, description=checked_text(given[0]))
        case "tag":
            return RunLabelled(run=run, tags=checked_tags(given))
        case "untag":
            return RunLabelled(run=run, untagged=list(given))
    return RunLabelled(run=run, archived=action == "archive")


def _refuse_unknown(run: str, names: Sequence[str], now: Labels) -> None:
    if absent := next((name for name in names if name not in now.tags), None):
        near = difflib.get_close_matches(absent, now.tags, n=1)
        raise UsageError(
            "the run has no such tag",
            where=f"marin run {run} untag",
            expected=", ".join(now.tags) or "a tag that it has: it has none",
            found=absent[:80],
            cure=f"did you mean {near[0]}?" if near else f"see `marin show {run}`",
        )


def _in_words(now: Labels) -> str:
    parts = ["archived: lists leave it out, the log and `marin show` have it"] if now.archived else []
    parts += [now.description] if now.description else []
    parts += [f"{name}={value}" if value else name for name, value in now.tags.items()]
    return "; ".join(parts) or "no labels"
