"""Being a mirror (C2SP tlog-mirror): a cosigner that has a whole copy of the log, durably, and serves it.

For each log it keeps the newest checkpoint that continued what it had (as a witness does, without signing it), the entries that
came in under such a checkpoint, and its own copy as a tiled log at ``<origin hash>/``. Entries are proven, package by package,
to be in a checkpoint that was accepted before they are kept, so whatever a crowd of clients sends, the copy stays one history.
It signs a checkpoint when all of its entries are on the disk and the tree that it made of what lies there has that root.

    witness/<origin hash>             the newest checkpoint that was accepted, as ``Witness`` keeps it
    pending/<origin hash>/<size>      that one and some before it, up to which entries may still be coming in
    <origin hash>/checkpoint, tile/…  the copy: what is served, and all that a reader or a static server needs

``LogMirror`` is the decision without the network; ``ledger.witness.server.WitnessServer`` is the HTTP around it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from ledger.audit.inventory import parse_tile_path
from ledger.errors import Conflict, Malformed, NotFound, Refused, Tampered, Unverified
from ledger.format.bundle import pack_entries, unpack_entries
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.cosigner import Cosigner
from ledger.format.layout import checkpoint_path, entries_path, partial_prefix, tile_path
from ledger.format.note import Note, VerifierKey, parse_note
from ledger.format.tlog import EMPTY_ROOT, TILE_WIDTH, Tile, TileEdge, leaf_hash, partial_tiles, root_of, verify_subtree
from ledger.mirror.entries import MAX_PACKAGES, MIRROR_INFO, EntriesHead, MirrorInfo, Package, packages
from ledger.storage.port import Storage
from ledger.witness.client import WitnessAnswer, error_answer
from ledger.witness.monitoring import origin_hash
from ledger.witness.subtree import sign_subtree
from ledger.witness.upload import Upload
from ledger.witness.witness import Witness, WitnessRequest

_LOG = logging.getLogger(__name__)
_PAGE = re.compile(r"/([0-9a-f]{64})/(checkpoint|tile/[0-9a-z/.]{1,120})")
_MOST_PENDING = 8
_MOST_EXCESS = MAX_PACKAGES * TILE_WIDTH
"""Entries that a user may send again in one request."""
_LOCK_SECONDS = 10.0
_GROUP = 64


class LogMirror:
    """Copies of the logs whose keys it is given, and a cosignature under each whole one."""

    def __init__(
        self, storage: Storage, cosigners: Sequence[Cosigner], logs: Mapping[str, Sequence[VerifierKey]]
    ) -> None:
        """``cosigners`` say nothing else: a key that is a witness's as well would vouch for copies that are not there.

        Raises:
            Refused: there are none, or one has the name of a log.
        """
        if not cosigners or any(cosigner.name in logs for cosigner in cosigners):
            raise Refused(
                "not keys of a mirror",
                expected="a key under a name of its own",
                found=", ".join(cosigner.name for cosigner in cosigners) or "none",
                cure="make a key with another name than any of the logs",
            )
        self._storage = storage
        self._cosigners = tuple(cosigners)
        self._logs = {origin: tuple(keys) for origin, keys in logs.items()}
        self._hashes = {origin_hash(origin): origin for origin in logs}
        self._pending = Witness(storage, [], logs)
        self._mutex = threading.Lock()

    @property
    def posts(self) -> Mapping[str, Callable[[bytes], WitnessAnswer]]:
        """What is asked with a body that is read whole, by path."""
        return {"/add-checkpoint": self.add_checkpoint, "/sign-subtree": self.sign_subtree}

    @property
    def uploads(self) -> Mapping[str, Callable[[Upload], WitnessAnswer]]:
        """What is sent piece by piece, by path."""
        return {"/add-entries": self.add_entries}

    def page(self, path: str) -> WitnessAnswer | None:
        """The answer to ``GET path``: a file of a copy; None where there is no such page."""
        match = _PAGE.fullmatch(path)
        if match is None or match[1] not in self._hashes:
            return None
        try:
            if match[2] == "checkpoint":
                return WitnessAnswer(200, self._storage.read(f"{match[1]}/checkpoint"))
            parse_tile_path(match[2])
            return WitnessAnswer(200, self._storage.read(f"{match[1]}/{match[2]}"), "application/octet-stream")
        except (Malformed, NotFound) as error:
            return error_answer(404, error)

    def add_checkpoint(self, body: bytes) -> WitnessAnswer:
        """The answer to ``POST add-checkpoint``: the checkpoint is waited for, and not signed."""
        answer = self._pending.add_checkpoint(body)
        if answer.status == 200:
            origin = LogCheckpoint.parse(parse_note(WitnessRequest.parse(body).note).text).origin
            self._waited(self._copy(origin))
        return answer

    def sign_subtree(self, body: bytes) -> WitnessAnswer:
        """The answer to ``POST sign-subtree``."""
        return sign_subtree(body, self._cosigners, self._logs)

    def add_entries(self, body: Upload) -> WitnessAnswer:
        """The answer to ``POST add-entries``."""
        try:
            head = EntriesHead.read(body)
        except Malformed as error:
            return error_answer(400, error)
        if head.origin not in self._logs:
            return error_answer(404, NotFound("this mirror does not know the log", where=head.origin[:80]))
        copy = self._copy(head.origin)
        waited = self._waited(copy)
        if waited is None:
            return error_answer(422, NotFound("no checkpoint of this log came before its entries", where=head.origin))
        known = copy.known(waited)
        present = copy.next_entry(known)
        excess = min(head.end, present) - head.start
        if head.end not in known or head.end < copy.size() or head.start > present or excess > _MOST_EXCESS:
            return _info(409, head.end if head.end in known and head.end >= copy.size() else max(known), present)
        whole = head.start == head.end
        for number, (start, end) in enumerate(packages(head.start, head.end)):
            body.begin()
            try:
                package = Package.read(body, start, end)
            except Malformed as error:
                if not number:
                    return error_answer(400, error)
                break
            try:
                copy.keep(package, known[head.end], known)
            except (Unverified, Malformed) as error:
                _LOG.warning("refused entries %d to %d: %s", start, end, error)
                return error_answer(422, error)
            whole = end == head.end
        if not whole:
            return _info(202, head.end, copy.next_entry(known))
        return self._commit(copy, head.end, known)

    def _copy(self, origin: str) -> _Copy:
        return _Copy(self._storage, origin, self._logs[origin], [c.verifier for c in self._cosigners])

    def _waited(self, copy: _Copy) -> Note | None:
        """The newest checkpoint that was accepted; it is among those up to which entries may come in from here on."""
        answer = self._pending.checkpoint(copy.name)
        if answer.status != 200:
            return None
        checkpoint, note = copy.opened(answer.body)
        with self._mutex:
            copy.wait_for(checkpoint, note)
        return note

    def _commit(self, copy: _Copy, size: int, known: Mapping[int, tuple[LogCheckpoint, Note]]) -> WitnessAnswer:
        checkpoint, note = known[size]
        with self._mutex, self._storage.lock("mirror.lock", "mirroring", wait=_LOCK_SECONDS):
            if size < copy.size():
                return _info(409, max(known), copy.next_entry(known))
            copy.build(checkpoint, known)
            lines = [cosigner.line(note.text) for cosigner in self._cosigners]
            copy.publish(Note(note.text, (*note.signatures, *lines)), size)
        return WitnessAnswer(200, "".join(map(str, lines)).encode())


class _Copy:
    """What lies there of one log."""

    def __init__(self, storage: Storage, origin: str, keys: Sequence[VerifierKey], own: Sequence[VerifierKey]) -> None:
        self._storage = storage
        self._origin = origin
        self._keys = keys
        self._own = own
        self.name = origin_hash(origin)

    def opened(self, data: bytes) -> tuple[LogCheckpoint, Note]:
        """A checkpoint of this log as it lies there, with the signatures of its keys alone."""
        checkpoint, note = open_checkpoint(data, self._keys, origin=self._origin)
        known = {(key.name, key.key_id) for key in self._keys}
        return checkpoint, Note(note.text, tuple(one for one in note.signatures if (one.name, one.key_id) in known))

    def size(self) -> int:
        """Of the newest checkpoint that was signed here."""
        signed = self._signed()
        return signed[0].size if signed else 0

    def known(self, waited: Note) -> dict[int, tuple[LogCheckpoint, Note]]:
        """The checkpoints up to which entries may be sent, by size: the signed one, and those that are waited for."""
        found = {}
        for name in self._storage.list(f"pending/{self.name}/"):
            checkpoint, note = self.opened(self._storage.read(name))
            found[checkpoint.size] = (checkpoint, note)
        newest = LogCheckpoint.parse(waited.text)
        found[newest.size] = (newest, waited)
        if (signed := self._signed()) is not None:
            found[signed[0].size] = signed
        return found

    def wait_for(self, checkpoint: LogCheckpoint, note: Note) -> None:
        """Keep a checkpoint that was accepted; the oldest go where there are too many."""
        name = f"pending/{self.name}/{checkpoint.size:019d}"
        if not self._storage.exists(name):
            self._storage.replace(name, str(note).encode())
        names = list(self._storage.list(f"pending/{self.name}/"))
        self._storage.remove(*names[:-_MOST_PENDING])

    def next_entry(self, known: Mapping[int, object]) -> int:
        """The first entry that is not here. What came in before is whole bundles, or up to a checkpoint that is known."""
        size = self.size()
        index = size // TILE_WIDTH
        while self._storage.exists(self._bundle(index)):
            index += 1
        parts = [
            at
            for at in known
            if at // TILE_WIDTH == index and self._storage.exists(self._bundle(index, at % TILE_WIDTH))
        ]
        return max([size, index * TILE_WIDTH, *parts])

    def keep(self, package: Package, proven: tuple[LogCheckpoint, Note], known: Mapping[int, object]) -> None:
        """Write the entries of a package that is proven to be in the checkpoint.

        Raises:
            Unverified: it is not.
        """
        index = package.first // TILE_WIDTH
        before = self._entries(index, package.start - package.first, known)
        entries = [*before, *package.entries]
        root = root_of([leaf_hash(entry) for entry in entries])
        verify_subtree(package.first, package.end, proven[0].size, root, proven[0].root, package.proof)
        if not self._storage.exists(self._bundle(index)):
            self._storage.ensure(self._bundle(index, package.end % TILE_WIDTH), pack_entries(entries))

    def build(self, checkpoint: LogCheckpoint, known: Mapping[int, object]) -> None:
        """Write the tiles of this checkpoint over the entries that lie there.

        Raises:
            Tampered: they lead to another root. Nothing is signed then.
        """
        old = self.size()
        edge = TileEdge(old, [(tile, self._storage.read(tile_path(tile, self.name))) for tile in partial_tiles(old)])
        pending: list[tuple[str, bytes]] = []
        for leaf in self._leaves(old, checkpoint.size, known):
            pending += [(tile_path(tile, self.name), data) for tile, data in edge.append(leaf)]
            if len(pending) >= _GROUP:
                self._storage.ensure_many(pending)
                pending.clear()
        found = edge.frontier().root() if edge.size else EMPTY_ROOT
        if found != checkpoint.root:
            raise Tampered(
                "the entries of a copy do not lead to the checkpoint",
                where=f"{self._origin}, size {checkpoint.size}",
                expected=checkpoint.root.hex(),
                found=found.hex(),
                cure="a file of the mirror was changed: restore it, or begin the copy again",
            )
        self._storage.ensure_many([*pending, *((tile_path(tile, self.name), data) for tile, data in edge.partial())])

    def publish(self, note: Note, size: int) -> None:
        """The copy is that of this checkpoint now; what is behind it is no longer waited for."""
        old = self.size()
        self._storage.replace(checkpoint_path(self.name), str(note).encode())
        names = list(self._storage.list(f"pending/{self.name}/"))
        self._storage.remove(*(name for name in names if int(name.rpartition("/")[2]) <= size))
        for index in range(old // TILE_WIDTH, size // TILE_WIDTH):
            for prefix in partial_prefix(Tile(0, index), self.name):
                self._storage.remove(*self._storage.list(prefix))

    def _signed(self) -> tuple[LogCheckpoint, Note] | None:
        try:
            data = self._storage.read(checkpoint_path(self.name))
        except NotFound:
            return None
        # As a witness's record: what a user put there is not continued.
        open_checkpoint(data, self._own, origin=self._origin)
        return self.opened(data)

    def _leaves(self, start: int, end: int, known: Mapping[int, object]) -> Iterator[bytes]:
        for first, stop in packages(start, end):
            index = first // TILE_WIDTH
            entries = self._entries(index, stop - index * TILE_WIDTH, {**known, end: None})
            yield from (leaf_hash(entry) for entry in entries[first % TILE_WIDTH :])

    def _entries(self, index: int, count: int, known: Mapping[int, object]) -> list[bytes]:
        """The first entries of a bundle, from the whole one or from a part of it that is long enough."""
        if not count:
            return []
        widths = sorted(at % TILE_WIDTH for at in known if at // TILE_WIDTH == index and at % TILE_WIDTH >= count)
        for name in [self._bundle(index), *(self._bundle(index, width) for width in widths)]:
            try:
                entries = unpack_entries(self._storage.read(name))
            except NotFound:
                continue
            if len(entries) >= count:
                return entries[:count]
        raise Conflict("a bundle of a copy is missing", where=self._bundle(index), expected=f"{count} entries")

    def _bundle(self, index: int, width: int = 0) -> str:
        return entries_path(Tile(0, index, width or TILE_WIDTH), self.name)


def _info(status: int, size: int, next_entry: int) -> WitnessAnswer:
    return WitnessAnswer(status, MirrorInfo(size, next_entry).encode(), MIRROR_INFO)
