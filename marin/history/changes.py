"""What differs between a step now and an earlier beginning of it: fields, seeds, inputs, files of its code, locked packages.

The list of code files is kept in the store under the digest that ``step.started`` names, so that a later execution can say
which file changed. One sentence of it stands beside every step that runs again (:func:`reason`); ``marin run --dry-run``
shows all of it (:mod:`marin.graph.why`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ledger import LedgerError, Store, canonical_bytes
from marin.history.executed import Fact
from marin.history.executions import History, facts, read_fact, stream_of
from marin.kinds.known import type_of
from marin.process.text import clipped, short
from marin.record.events import StepCompleted, StepStarted

SHOWN = 4
"""How many changes of one kind are named before the rest is counted."""
Listing = Sequence[tuple[str, str]]
"""Code files and digests of their bytes, as :func:`marin.provenance.code.files_listing` gives them."""


def keep_listing(store: Store, listing: Listing) -> None:
    """Keep the list of a step's code files. Its digest is the code's."""
    store.put_bytes(canonical_bytes([list(item) for item in listing]))


def read_listing(store: Store, code: str) -> dict[str, str]:
    """The list that was kept under this digest; empty where there is none: an older version kept none, or it is another thing."""
    try:
        return dict(msgspec.json.decode(store.read(code), type=list[tuple[str, str]]))
    except (LedgerError, ValueError, msgspec.DecodeError):
        return {}


def changes(
    before: StepStarted,
    *,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    code: str,
    lock: str,
    was: Mapping[str, str],
    listing: Listing,
    named: Sequence[str] = (),
) -> dict[str, tuple[str, ...]]:
    """What differs by kind: config, seed, input, code, lock. ``was`` is the earlier list of code files, empty where it is not
    known; ``named`` are inputs whose digests are not known yet."""
    found: dict[str, list[str]] = {}
    old, new = leaves(before.config), leaves(config)
    for path in sorted({*old, *new}):
        if old.get(path) != new.get(path):
            kind = "seed" if path.rpartition(".")[2] == "seed" else "config"
            found.setdefault(kind, []).append(f"{path} {_shown(old.get(path))} -> {_shown(new.get(path))}")
    for name, digest in inputs.items():
        if before.inputs.get(name) != digest and before.inputs.get(name) is not None:
            found.setdefault("input", []).append(f"{name} {short(before.inputs[name])} -> {short(digest)}")
        elif name not in before.inputs:
            found.setdefault("input", []).append(f"{name} is new")
    gone = [name for name in before.inputs if name not in inputs and name not in named]
    found.setdefault("input", []).extend(f"{name} is gone" for name in gone)
    if before.code != code:
        now = dict(listing)
        files = sorted(name for name in {*was, *now} if was.get(name) != now.get(name)) if was else []
        found["code"] = files or ["changed"]
    if before.lock and before.lock != lock:
        found["lock"] = [f"{short(before.lock)} -> {short(lock)}"]
    return {kind: tuple(items) for kind, items in found.items() if items}


def reason(
    history: History,
    store: Store,
    step: str,
    *,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    code: str,
    lock: str,
    listing: Listing,
    against: str = "",
    named: Sequence[str] = (),
) -> str:
    """Why a step of the pipeline is executed, in a sentence: what differs from the newest earlier beginning of it, in the run
    ``against`` where that has one. ``named``: inputs that are made before; "" where they are all that is known to differ."""
    begun = [item for item in history.events(type=type_of(StepStarted)) if item[1].body.get("step") == step]
    there = [item for item in begun if item[1].stream == stream_of(against)] if against else []
    newest = (there or begun)[-1:]
    last: Fact[StepStarted] | None = read_fact(StepStarted, newest[0]) if newest else None
    stream = newest[0][1].stream if newest else ""
    if last is None:
        return "" if named else "never made here"
    was = read_listing(store, last.body.code) if last.body.code != code else {}
    found = changes(
        last.body, config=config, inputs=inputs, code=code, lock=lock, was=was, listing=listing, named=named
    )
    if not found and named:
        return ""
    if not found:
        ends = facts(history, StepCompleted, stream=stream)
        completed = any(end.index > last.index and end.body.step == step for end in ends)
        return f"began before (event {last.index}), and " + (
            "its result is not whole here" if completed else "was not completed"
        )
    said = "; ".join(f"{kind} changed: {listed(items)}" for kind, items in found.items()).replace(": changed", "")
    return f"against run {against}, {said}" if there else said


def leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every value of a configuration by its path."""
    found: dict[str, Any] = {}
    for key, item in config.items():
        path = f"{prefix}{key}"
        if isinstance(item, Mapping) and item and set(item) not in ({"float"}, {"int"}):
            found.update(leaves(item, f"{path}."))
        else:
            found[path] = item
    return found


def listed(items: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    rest = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _shown(value: object) -> str:
    if isinstance(value, Mapping) and set(value) == {"float"}:
        return repr(float.fromhex(value["float"]))
    if isinstance(value, Mapping) and set(value) == {"int"}:
        return str(value["int"])
    if isinstance(value, str) and value.startswith(("0x", "-0x")) and "p" in value:
        return repr(float.fromhex(value))
    text = "nothing" if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return clipped(text, 40)
