"""How a collection of documents is made."""

from __future__ import annotations

from msgspec import field

from marin.kinds.body import Body, Digest, Json
from marin.kinds.kind import Kind

COLLECTION_STARTED = "collection.started/v1"
COLLECTION_SOURCE = "collection.source/v1"
COLLECTION_SHARD = "collection.shard/v1"
COLLECTION_COMPLETED = "collection.completed/v1"


class CollectionStarted(Body, frozen=True):
    """The making of a collection of documents begins, or goes on. ``identity`` digests settings, sources and evaluations by
    content, code and lock. ``globs`` are the sources as they were named, ``sources`` is the stored JSON list of name, size and
    digest of each file; the same of the evaluations it is decontaminated against. ``definition``: what reading and comparing mean
    (:data:`marin.plugins.collections.settings.DEFINITION`)."""

    identity: Digest
    settings: Json
    globs: list[str]
    sources: Digest
    evaluation_globs: list[str]
    evaluation_fields: list[str]
    evaluations: Digest
    code: Digest
    lock: str
    strict: bool = False
    definition: int = 1


class CollectionSource(Body, frozen=True):
    """A source of a collection is read. ``place``: the address that it came from, empty for a file of this machine; ``licence``:
    what its namer says of it. The rest is what its documents say of themselves: how many have each licence, how many each
    signal against being used (``robots: noai``), the least and the greatest of each kind of time (``added``, ``created``), and
    which of their fields are not metadata, of how many documents."""

    collection: Digest
    name: str
    digest: Digest
    size: int
    place: str
    licence: str
    documents: int
    licences: dict[str, int]
    signals: dict[str, int]
    times: dict[str, list[str]]
    left_out: dict[str, int] = field(default_factory=dict)


class CollectionShard(Body, frozen=True):
    """A piece of a collection is made: ``kind`` read (a slice of a source), train (a quality classifier), judge (the steps of one
    document), cut (paragraphs that stand in others), near (candidates that were compared) or write (a shard of documents).
    ``identity`` digests all that decides it, ``artifact`` is the stored tree, ``answer`` what was counted."""

    collection: Digest
    kind: str
    name: str
    identity: Digest
    artifact: Digest
    answer: Json


class CollectionCompleted(Body, frozen=True):
    """A collection is whole. ``read`` and ``kept`` count documents, ``removed`` them by reason, ``problems`` what gave no
    document."""

    identity: Digest
    artifact: Digest
    read: int
    kept: int
    removed: dict[str, int]
    problems: dict[str, int]


KINDS: tuple[Kind, ...] = (
    Kind(COLLECTION_STARTED, CollectionStarted, underway=True),
    Kind(COLLECTION_SOURCE, CollectionSource, underway=True),
    Kind(COLLECTION_SHARD, CollectionShard, underway=True),
    Kind(COLLECTION_COMPLETED, CollectionCompleted),
)
