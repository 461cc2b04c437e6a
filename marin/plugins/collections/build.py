"""`marin data build`: a collection is made in a root, each piece a result of the ledger, and the whole an artifact.

The identity of a collection digests its settings, the bytes of its sources and evaluations by name, the code and the lock.
Its events stand in the stream ``collection/<beginning of the identity>``: collection.started, a collection.shard for every
piece when its bytes are in the store, and collection.completed.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import batched
from pathlib import Path
from typing import Any

import msgspec

from ledger import Draft, LedgerError, canonical_digest, parse_digest
from marin.data.local import matched
from marin.errors import LeaseLost
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant
from marin.execution.leases.step import StepLease
from marin.execution.workspace import Workspace
from marin.history.runs import facts
from marin.kinds.families.collection import CollectionCompleted, CollectionShard, CollectionSource, CollectionStarted
from marin.plugins.collections.comparing.contamination import passed_over
from marin.plugins.collections.making.description import content
from marin.plugins.collections.making.execute import executing
from marin.plugins.collections.making.make import make
from marin.plugins.collections.making.shelf import CollectionFolder, Shard
from marin.plugins.collections.queries.documents import Collection
from marin.plugins.collections.settings import DEFINITION, CollectionSettings, step_settings
from marin.plugins.collections.sources.finding import LocatedSource, Source, find
from marin.plugins.collections.steps.quality import Quality
from marin.plugins.collections.tasks.task import Counted, Examples, Setup
from marin.provenance.code import code_folder, files_digest, lock_digest
from marin.recipe.schema import plain
from marin.record import events
from marin.record.root import Root
from marin.work.cached import ResultCache, results_of

log = logging.getLogger(__name__)
CODE = ("marin/plugins/collections", "marin/data", "marin/errors.py")
STEP = "collection"
"""Its name in leases, and of the folder in which it is made."""
MOST_EVENTS = 256
"""Of sources, that are appended together."""


class BuildRequest(msgspec.Struct, frozen=True):
    """What is to be built: globs of sources, settings, and evaluations (globs of JSON lines) with their fields."""

    sources: tuple[str, ...]
    settings: CollectionSettings = CollectionSettings()
    evaluations: tuple[str, ...] = ()
    evaluation_fields: tuple[str, ...] = ("question", "answer")
    strict: bool = False
    definition: int = DEFINITION


@dataclass(frozen=True)
class BuildResult:
    """A collection of the root. ``again``: it was recorded before, and nothing was made. ``not_compared``: documents that the
    bound ``most_compared`` kept from being compared with all that they share a band with."""

    artifact: str
    identity: str
    read: int
    kept: int
    removed: Mapping[str, int]
    problems: Mapping[str, int]
    sources: Sequence[Source]
    seconds: float
    again: bool = False
    not_compared: int = 0


@dataclass(frozen=True)
class Prepared:
    """What was asked, with the files that it leads to, and the identity that follows."""

    asked: BuildRequest
    found: list[LocatedSource]
    evaluations: list[tuple[Path, Source]]
    examples: list[Examples]
    code: str
    lock: str

    @property
    def identity(self) -> str:
        """The digest of all that decides the collection."""
        return canonical_digest(
            {
                "code": self.code,
                "evaluation_fields": list(self.asked.evaluation_fields) if self.evaluations else [],
                "evaluations": content([LocatedSource(source, "", ()) for _, source in self.evaluations]),
                "examples": self.examples_content(),
                "lock": self.lock,
                "settings": plain(self.asked.settings),
                "sources": content(self.found),
                "strict": self.asked.strict,
                **self.definition,
            }
        )

    @property
    def definition(self) -> dict[str, int]:
        """As it stands in identities: nothing for 1."""
        return {} if self.asked.definition == 1 else {"definition": self.asked.definition}

    def setup(self, folder: Path) -> Setup:
        """What workers are told."""
        return Setup(
            self.asked.settings,
            self.found,
            [(str(path.resolve()), source.name) for path, source in self.evaluations],
            list(self.asked.evaluation_fields) if self.evaluations else [],
            str(folder.resolve()),
            self.asked.strict,
            self.examples,
            self.asked.definition,
        )

    def examples_content(self) -> list[dict[str, str]]:
        """The files of examples, each with the place in the settings that names it."""
        return [
            item | {"role": f"steps.{examples.place}.{side}"}
            for examples in self.examples
            for side, found in (("good", examples.good), ("bad", examples.bad))
            for item in content(found)
        ]

    @property
    def shard_code(self) -> str:
        """What stands for code and packages in the identity of each shard."""
        return canonical_digest({"code": self.code, "lock": self.lock, **self.definition})


def prepare(asked: BuildRequest, *, missing: Mapping[str, str] | None = None) -> Prepared:
    """Find, fetch and hash the files; ``missing``: those that an earlier making could not have.

    Raises:
        DataError: a glob matches nothing, or a file cannot be read.
    """
    found = find(asked.sources, missing=missing, strict=asked.strict)
    files = matched(asked.evaluations, what="--evaluation", kinds=(".jsonl",)) if asked.evaluations else []
    evaluations = [(file.path, Source(file.name, file.path.stat().st_size, file.digest())) for file in files]
    named, rules = [(path, source.name) for path, source in evaluations], asked.settings.contamination
    for one in passed_over(named, asked.evaluation_fields, rules):
        log.warning("%s (--evaluation-fields, contamination.shortest: %d words)", one, rules.shortest)
    examples = [
        Examples(place, made, find(made.good, strict=True), find(made.bad, strict=True))
        for place, (_, made) in enumerate(step_settings(asked.settings.steps, where="settings"))
        if isinstance(made, Quality)
    ]
    folder = code_folder()
    return Prepared(asked, found, evaluations, examples, files_digest(folder, CODE), lock_digest(folder))


def build(root: Root, asked: BuildRequest, *, workers: int = 1, address: str | None = None) -> BuildResult:
    """The collection, recorded; at once where the ledger has it whole.

    Args:
        workers: processes; 1 works in this one.
        address: of a Ray cluster; None for processes of this machine.

    Raises:
        LedgerError: what went wrong, in one line. What was done is recorded, and the same call goes on from there.
    """
    begun = time.monotonic()
    root.check_writable()
    prepared = prepare(asked)
    identity = prepared.identity
    lease = StepLease(root, HeldLeases(root, Claimant.of_process()), identity, STEP)

    def bring(workspace: Workspace) -> CollectionCompleted | None:
        shelf, body = LedgerShelf(root, identity, lease), None
        still = partial(_is_missing, root, identity)
        with lease.taken([shelf.started(prepared)], still) as is_ours, suppress(LeaseLost):
            if is_ours:
                with executing(workers, address) as execute:
                    made = make(prepared.setup(workspace.folder), prepared.shard_code, execute, shelf)
                if body := shelf.complete(made):
                    workspace.clear()
        return body

    while (known := _complete(root, identity)) is None:
        if made := lease.bring(root.local, STEP, identity, bring):
            return _built(root, made, prepared, time.monotonic() - begun)
    return _built(root, known, prepared, time.monotonic() - begun, again=True)


def _complete(root: Root, identity: str) -> CollectionCompleted | None:
    cache = ResultCache(root.history(), root.store())
    return cache.newest(CollectionCompleted, identity, lambda body: body.artifact)


def _is_missing(root: Root, identity: str, changed: bool) -> bool:
    """Whether it is still to be made: asked again where another executor had its lease."""
    return not changed or _complete(root, identity) is None


def _built(
    root: Root, body: CollectionCompleted, prepared: Prepared, seconds: float, *, again: bool = False
) -> BuildResult:
    return BuildResult(
        body.artifact,
        body.identity,
        body.read,
        body.kept,
        dict(body.removed),
        dict(body.problems),
        [item.source for item in prepared.found],
        seconds,
        again,
        Collection(root.store(), body.artifact).not_compared(),
    )


def stream_of_collection(identity: str) -> str:
    """The stream of a collection's events."""
    return f"collection/{parse_digest(identity).hex()[:16]}"


class LedgerShelf:
    """:class:`marin.plugins.collections.making.shelf.Shelf` in a root: bytes in the store, results in the ledger."""

    def __init__(self, root: Root, identity: str, lease: StepLease) -> None:
        self._root, self._identity, self._stream = root, identity, stream_of_collection(identity)
        self._lease = lease
        self._store, self._history = root.store(), root.history()
        self._taken: dict[str, str] = {}

    def started(self, prepared: Prepared) -> Draft:
        """What is to be made."""
        asked = prepared.asked
        sources, evaluations = (
            self._store.put_bytes(json.dumps(items, sort_keys=True).encode()).digest
            for items in (
                [*content(prepared.found), *prepared.examples_content()],
                content([LocatedSource(item, "", ()) for _, item in prepared.evaluations]),
            )
        )
        settings = plain(asked.settings)
        assert isinstance(settings, dict)
        body = CollectionStarted(
            identity=self._identity,
            settings=settings,
            globs=list(asked.sources),
            sources=sources,
            evaluation_globs=list(asked.evaluations),
            evaluation_fields=list(asked.evaluation_fields),
            evaluations=evaluations,
            code=prepared.code,
            lock=prepared.lock,
            strict=asked.strict,
            definition=asked.definition,
        )
        return events.draft(body, self._stream)

    def expect(self, kind: str, shards: Sequence[Shard]) -> None:
        """Nothing: each shard is asked for by its identity."""

    def take(self, shard: Shard, folder: Path) -> Counted | None:
        """What the ledger has of a shard, every byte hashed on its way here."""
        fact = results_of(self._history, CollectionShard, lambda body: None, identity=shard.identity).get(None)
        if fact is None:
            return None
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._store.checkout(fact.body.artifact, folder)
            self._taken[shard.identity] = fact.body.artifact
            return msgspec.convert(fact.body.answer, Counted)
        except (LedgerError, msgspec.ValidationError) as error:
            log.warning("shard %s/%s is made again: %s", shard.task.kind, shard.task.name, error)
            return None

    def put(self, shard: Shard, folder: Path, answer: Counted) -> str:
        """Into the store, then into the ledger; once for each shard.

        Raises:
            LeaseLost: another executor makes the collection.
        """
        if shard.identity in self._taken:
            return self._taken[shard.identity]
        self._lease.check()
        artifact = self._store.put_tree(folder, link=True).digest
        body = CollectionShard(
            collection=self._identity,
            kind=shard.task.kind,
            name=shard.task.name,
            identity=shard.identity,
            artifact=artifact,
            answer=msgspec.to_builtins(answer),
        )
        self._root.append([events.draft(body, self._stream)])
        return artifact

    def read(self, origins: Sequence[tuple[LocatedSource, Mapping[str, Any]]]) -> None:
        """Record each source, once for each collection."""
        sources = (fact.body for fact in facts(self._history, CollectionSource))
        known = {body.name for body in sources if body.collection == self._identity}
        bodies = [source_of(self._identity, found, said) for found, said in origins if found.source.name not in known]
        for some in batched(bodies, MOST_EVENTS):
            drafts = [events.draft(body, self._stream) for body in some]
            self._root.append(drafts)

    def complete(self, made: CollectionFolder) -> CollectionCompleted | None:
        """Put the whole into the store and record it, with the end of the lease; None where that was lost."""
        body = CollectionCompleted(
            identity=self._identity,
            artifact=self._store.put_tree(made.folder, link=True).digest,
            read=made.read,
            kept=made.kept,
            removed=dict(made.removed),
            problems=dict(made.problems),
        )
        return body if self._lease.end(events.draft(body, self._stream)) else None


def source_of(identity: str, found: LocatedSource, said: Mapping[str, Any]) -> CollectionSource:
    """What is recorded of a source; ``said``: see :class:`marin.plugins.collections.sources.origin.Origin`."""
    source = found.source
    return CollectionSource(identity, source.name, source.digest, source.size, found.place, found.licence, **said)
