"""What a forger works with: a copy of an honest root, its events as things that can be changed, and the operator's key.

An operator changes anything and signs it; :meth:`Shop.follow` then makes everything agree that follows from other
events (identities, inputs, metrics, outputs), as a clever forger would. A publisher has no key and changes files alone.
Nothing here executes a step; what was trained or made anew with other data is in ``tests/adversary/faults``.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger import Artifact, Draft, Log, Store, VerifierKey, canonical_digest
from marin.execution.plan import identity_of
from marin.history.runs import stream_of
from marin.recipe.schema import digest, from_plain
from marin.record import events as kinds
from marin.record.root import Root, open_root

OTHER = "sha256:" + "5" * 64
"""A digest of nothing."""
COMMIT = "c" * 40


@dataclass(frozen=True)
class Base:
    """Honest runs in one root, made once. ``run``: the whole pipeline. ``second``: another one, which took results over
    from it; ``phase``: one that continues its training; "" where they were not made."""

    folder: Path
    location: Path
    key: Path
    run: str
    second: str = ""
    phase: str = ""

    @property
    def root(self) -> Root:
        """The honest root."""
        return open_root(str(self.location))


@dataclass
class Entry:
    """One event of the copy, which may be changed. ``place``: its index in the honest log, None for a new one."""

    type: str
    stream: str
    body: dict[str, Any]
    id: str | None = None
    actor: str | None = None
    time: str | None = None
    place: int | None = None
    repeats: Entry | None = field(default=None, repr=False)
    leaf: bytes = b""
    """These bytes in its place, which need be no event."""


class Leaf(Draft):
    """What an operator's own writer puts into the log, whatever a draft would become: bytes, which may be no event."""

    @classmethod
    def of(cls, entry: bytes) -> Leaf:
        """These bytes as an entry."""
        made = cls("forged.leaf/v1", "leaf", {})
        object.__setattr__(made, "leaf", entry)
        return made

    def entry(self, seq: int, time: str, actor: str) -> bytes:
        """The bytes."""
        found: bytes = vars(self)["leaf"]
        return found


class Forgery(Exception):
    """The forger's own mistake: what was to be changed is not there."""


class Shop:
    """A copy of the honest root, being forged."""

    def __init__(self, base: Base, run: str, folder: Path) -> None:
        self.base, self.run, self.folder = base, run, folder
        self.told: tuple[VerifierKey, ...] = ()
        """Keys that the stranger was told, where they are not the operator's own."""
        self.signed = False
        self.path = folder / "published" / ".marin"
        shutil.copytree(
            base.location, self.path, copy_function=os.link, ignore=shutil.ignore_patterns("projections", "work")
        )
        self.root = open_root(str(self.path))
        self.shown: Callable[[Root], Root] = lambda root: root
        """What of the published root a stranger gets to see."""
        self.events = [
            Entry(e.type, e.stream, copy.deepcopy(dict(e.body)), e.id, e.actor, e.time, index)
            for index, e in base.root.reader().events()
        ]

    # -- events

    def all(self, kind: str, step: str = "", *, run: str = "") -> list[Entry]:
        """The run's events of one type, of one step."""
        stream = stream_of(run or self.run)
        return [e for e in self.events if (e.type, e.stream) == (kind, stream) and step in ("", e.body.get("step"))]

    def one(self, kind: str, step: str = "", *, run: str = "") -> Entry:
        """The last of them."""
        found = self.all(kind, step, run=run)
        if not found:
            raise Forgery(f"no {kind} {step}")
        return found[-1]

    def add(self, kind: str, body: Mapping[str, Any], *, after: Entry | None = None, stream: str = "") -> Entry:
        """A new event in the run's stream (or another one): after an event, or at the end."""
        entry = Entry(kind, stream or stream_of(self.run), dict(body))
        if after is None:
            self.events.append(entry)
        else:
            entry.actor, entry.time = after.actor, after.time
            self.events.insert(self.place(after) + 1, entry)
        return entry

    def again(self, entry: Entry, *, before: bool = False, **changes: Any) -> Entry:
        """A second event like this one, changed, just after or before it."""
        other = Entry(entry.type, entry.stream, copy.deepcopy(entry.body) | changes, None, entry.actor, entry.time)
        self.events.insert(self.place(entry) + (0 if before else 1), other)
        return other

    def place(self, entry: Entry) -> int:
        """Where an event stands now."""
        return next(i for i, known in enumerate(self.events) if known is entry)

    def remove(self, *entries: Entry) -> None:
        """Leave events out."""
        gone = {id(entry) for entry in entries}
        self.events = [entry for entry in self.events if id(entry) not in gone]

    def drop(self, kind: str, step: str = "") -> None:
        """Leave out all events of a type (of a step)."""
        self.remove(*self.all(kind, step))

    def rerecord(self, kind: str, step: str = "", **changes: Any) -> Entry:
        """Change fields of the last such event."""
        entry = self.one(kind, step)
        entry.body |= changes
        return entry

    def output(self, step: str) -> dict[str, Any]:
        """What a step is recorded to have made; it may be changed."""
        found: dict[str, Any] = self.one(kinds.STEP_COMPLETED, step).body["output"]
        return found

    def follow(self) -> None:
        """Let everything agree that follows from other events, in all runs."""
        identities: dict[str, dict[str, str]] = {}
        made: dict[str, dict[str, dict[str, Any]]] = {}
        begun: dict[str, dict[str, Entry]] = {}
        plans: dict[str, dict[str, Any]] = {}
        for place, entry in enumerate(self.events):
            body, stream = entry.body, entry.stream
            done, known = made.setdefault(stream, {}), identities.setdefault(stream, {})
            if entry.type == kinds.RUN_STARTED:
                plans[stream] = body
                self._begins(body)
            elif entry.type == kinds.STEP_STARTED:
                old = body["identity"]
                body["inputs"] = _taken(body["inputs"], done)
                body["config_digest"] = canonical_digest(body["config"])
                lock = body.get("lock") or plans[stream]["environment"].get("lock", "")
                body["identity"] = identity_of(body["step"], body["config"], body["inputs"], body["code"], lock)
                known[old] = known[body["identity"]] = body["identity"]
                begun.setdefault(stream, {})[body["identity"]] = entry
            elif entry.type == kinds.STEP_COMPLETED:
                body["identity"] = known.get(body["identity"], body["identity"])
                start = begun.get(stream, {}).get(body["identity"])
                body["inputs"] = dict(start.body["inputs"]) if start else _taken(body["inputs"], done)
                done[body["step"]] = body
            elif entry.type == kinds.STEP_CACHED:
                told = body["completed_at"]
                first = entry.repeats or next((e for e in self.events[:place] if e.place == told), None)
                if first is not None:
                    body |= {key: first.body[key] for key in ("identity", "inputs", "output")}
                    done[body["step"]] = first.body
            elif entry.type in (kinds.EVAL_COMPLETED, kinds.MODEL_EXPORTED) and "train" not in done:
                continue
            elif entry.type == kinds.EVAL_COMPLETED:
                later = self._next(place, "evaluate")
                body |= {"model": done["train"]["output"]["digest"]} | ({"metrics": later["metrics"]} if later else {})
            elif entry.type == kinds.MODEL_EXPORTED:
                later = self._next(place, "export")
                body |= {"model": done["train"]["output"]["digest"]} | ({"output": later["output"]} if later else {})
            elif entry.type == kinds.RUN_COMPLETED:
                body["outputs"] = {name: item["output"] for name, item in done.items()}
                body["metrics"] = {f"{n}.{k}": v for n, item in done.items() for k, v in item["metrics"].items()}

    def _next(self, place: int, step: str) -> dict[str, Any] | None:
        stream = self.events[place].stream
        return next(
            (
                e.body
                for e in self.events[place:]
                if (e.type, e.stream, e.body.get("step")) == (kinds.STEP_COMPLETED, stream, step)
            ),
            None,
        )

    @staticmethod
    def _begins(body: dict[str, Any]) -> None:
        body["recipe_digest"] = digest(from_plain(body["recipe"], where="forgery"))
        parts = {"lock": body["environment"].get("lock"), "plan": body["pipeline"], "recipe": body["recipe_digest"]}
        body["plan"] = canonical_digest({"code": body["code"].get("steps", {}), **parts})

    def sign(self) -> None:
        """Publish the events as if they had always been so, signed by the operator's own key."""
        places = {e.place: index for index, e in enumerate(self.events) if e.place is not None}
        drafts: list[Draft | Leaf] = []
        for entry in self.events:
            body = entry.body
            if entry.type == kinds.STEP_CACHED and entry.repeats is not None:
                body = body | {"completed_at": self.place(entry.repeats)}
            elif entry.type == kinds.STEP_CACHED:
                body = body | {"completed_at": places.get(body["completed_at"], body["completed_at"])}
            if entry.leaf:
                drafts.append(Leaf.of(entry.leaf))
                continue
            drafts.append(Draft(entry.type, entry.stream, body, id=entry.id, actor=entry.actor, time=entry.time))
        with as_operator(self.base):
            signer = self.root.signer()
            shutil.rmtree(self.path / "log")
            Log.create(self.root.storage, signer)
            with Log.open(self.root.storage, signer) as log:
                log.append(drafts)
        self.signed = True

    # -- bytes

    @property
    def store(self) -> Store:
        """The copy's artifacts."""
        return self.root.store()

    def scratch(self, name: str) -> Path:
        """A folder that was never used: TensorStore remembers what lay under a path."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    def altered(self, artifact: str, change: Callable[[Path], object]) -> Artifact:
        """The stored tree with its files changed, stored again."""
        folder = self.scratch("tree") / "tree"
        self.store.checkout(artifact, folder, how="copy")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        change(folder)
        return self.store.put_tree(folder)

    def replace_file(self, name: str, data: bytes) -> None:
        """Another content for a file of the root, which is a link to the honest one."""
        path = self.path / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _taken(inputs: Mapping[str, str], done: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: done[name]["output"]["digest"] if name in done else found for name, found in inputs.items()}


@contextmanager
def as_operator(base: Base) -> Iterator[None]:
    """With the operator's signing key."""
    with variable("MARIN_KEY", str(base.key)):
        yield


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """An environment variable for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class Changes:
    """Attributes that are other ones for a while."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def setattr(self, owner: Any, name: str, value: Any) -> None:
        """Another value, until :meth:`undo`."""
        self._before.append((owner, name, vars(owner).get(name, self)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """All as it was."""
        for owner, name, value in reversed(self._before):
            if value is self:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self._before.clear()


@contextmanager
def changes() -> Iterator[Changes]:
    """For the time of a block."""
    made = Changes()
    try:
        yield made
    finally:
        made.undo()
