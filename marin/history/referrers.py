"""What refers to an artifact: the events that name it, by themselves or through a tree, and the file that it is there.

Asked when something is damaged, so that a finding says which runs lose by it. All events and all manifests are read
once for however many digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from ledger import Event, LedgerError, Store, named_digests
from marin.record.events import CHECKPOINT_SAVED, TRAIN_STARTED, CheckpointSaved, TrainStarted
from marin.record.retention import let_go
from marin.record.root import Root


@dataclass(frozen=True)
class Referrer:
    """One event that names a digest: where it stands, its stream and type, and the file of a tree that is meant."""

    index: int
    stream: str
    type: str
    tree: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        who = self.stream.replace("run/", "run ", 1)
        file = f", as {self.path} of {self.tree}" if self.path is not None else ""
        return f"{who} ({self.type}, event {self.index}{file})"


def referrers_of(root: Root, digests: Iterable[str]) -> dict[str, list[Referrer]]:
    """What refers to each digest, in the order of the log; none for what no event names."""
    wanted = set(digests)
    if not wanted:
        return {}
    holders = _holders(root.store(), wanted)
    found: dict[str, list[Referrer]] = {digest: [] for digest in wanted}
    for index, event in root.reader().events():
        for named in dict.fromkeys(named_digests(dict(event.body))):
            if named in wanted:
                found[named].append(Referrer(index, event.stream, event.type))
            for digest, path in holders.get(named, ()):
                found[digest].append(Referrer(index, event.stream, event.type, named, path))
    return found


def _holders(store: Store, wanted: set[str]) -> Mapping[str, list[tuple[str, str]]]:
    """Tree -> (wanted digest, path of a file that needs it): the file's own bytes, or what they are made from."""
    inputs = _inputs_of(store, wanted)
    holders: dict[str, list[tuple[str, str]]] = {}
    for tree, kind in store.digests():
        if kind != "tree":
            continue
        try:
            entries = store.manifest(tree).entries
        except LedgerError:
            continue  # a damaged manifest is a finding of its own
        for entry in entries:
            needed = inputs.get(entry.digest, set()) | ({entry.digest} & wanted)
            holders.setdefault(tree, []).extend((digest, entry.path) for digest in sorted(needed))
    return holders


def _inputs_of(store: Store, wanted: set[str]) -> Mapping[str, set[str]]:
    """Packed blob -> the wanted digests that it is made from, directly or through others."""
    ingredients: dict[str, tuple[str, ...]] = {}
    for digest, kind in store.digests():
        if kind == "blob":
            try:
                packed = store.blobs.packed(digest)
            except LedgerError:
                continue
            if packed is not None:
                ingredients[digest] = packed.ingredients

    def reach(digest: str, depth: int = 0) -> set[str]:
        if depth > len(ingredients):
            return set()
        direct = ingredients.get(digest, ())
        return {one for one in direct if one in wanted}.union(*(reach(one, depth + 1) for one in direct))

    return {digest: reached for digest in ingredients if (reached := reach(digest))}


def retained_digests(events: Iterable[Event]) -> list[str]:
    """Every digest that the events of a ledger name and no policy lets go, in the order of the log."""
    started: dict[str, list[TrainStarted]] = {}
    saved: dict[str, list[tuple[int, CheckpointSaved]]] = {}
    named: list[list[str]] = []
    for event in events:
        body = dict(event.body)
        named.append(list(named_digests(body)))
        if event.type == TRAIN_STARTED and (begun := _readable_body(body, TrainStarted)) is not None:
            started.setdefault(event.stream, []).append(begun)
        if event.type == CHECKPOINT_SAVED and (made := _readable_body(body, CheckpointSaved)) is not None:
            saved.setdefault(event.stream, []).append((len(named) - 1, made))
    for stream, states in saved.items():
        gone = let_go(started.get(stream, ()), [state for _, state in states])
        for place, state in states:
            if state.artifact in gone:
                named[place] = [digest for digest in named[place] if digest != state.artifact]
    return list(dict.fromkeys(digest for digests in named for digest in digests))


def _readable_body[B: TrainStarted | CheckpointSaved](body: object, kind: type[B]) -> B | None:
    """None where the body is another release's: then nothing is let go by it."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError:
        return None
