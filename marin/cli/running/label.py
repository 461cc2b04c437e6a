"""`marin run RUN archive|restore|describe|tag|untag`: how people find a run. Each is an event; none changes the run."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from marin.cli.output import print_json, say
from marin.errors import UsageError
from marin.history.labels import Labels, label_stream, marked_label
from marin.history.runs import load, resolve
from marin.record.events import RunLabelled, draft
from marin.record.root import open_root

_TAG = re.compile(r"[A-Za-z][\w./-]{0,63}", re.ASCII)
LONGEST = 4000
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
            return RunLabelled(run=run, description=_checked_text(given[0]))
        case "tag":
            return RunLabelled(run=run, tags=_checked_tags(given))
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


def _checked_tags(given: Iterable[str]) -> dict[str, str]:
    """Tags as somebody types them, ``name=value`` or ``name`` alone.

    Raises:
        UsageError: a name is not one, or is taken by what the ledger itself says.
    """
    tags = {}
    for one in given:
        name, _, value = one.partition("=")
        if not _TAG.fullmatch(name) or marked_label(name) != name:
            raise UsageError(
                "not the name of a tag",
                where=one[:80],
                expected="a letter, then letters, digits or _ . / -, 64 at most; not verified, marin.… or mlflow.…",
                found=name[:80],
                cure="write NAME=VALUE",
            )
        tags[name] = _checked_text(value)
    return tags


def _checked_text(text: str) -> str:
    """A description or the value of a tag.

    Raises:
        UsageError: it is too long to be one.
    """
    if len(text) > LONGEST:
        raise UsageError(
            "too long for a label",
            where=f"{text[:40]}…",
            expected=f"at most {LONGEST} letters",
            found=str(len(text)),
            cure="put the text into a file and name that",
        )
    return text
