"""The root: where the ledger and the store of a project lie, and the keys that open them.

``.marin/`` in the working folder or in the nearest folder above it, or what MARIN_ROOT names (the command line's --root
sets it): a path, or an address that can only be read. ``vkey`` in the root is the verifier key that its log must be
signed with; the signing key lies in the user's configuration folder, or where MARIN_KEY says.

Anyone who records opens the log for one batch and closes it again, so that a training that runs for days never keeps
the writer's lock from anybody else.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import ledger  # whose store is imported when it is asked for
from marin.kinds.kind import Fact
from marin.process.cache import own_folder
from marin.record.events import ReplayCompleted
from marin.record.schemas import MOST_NAMED, Schemas, as_it_fits
from marin.record.trust.authorship import Authorship
from marin.record.trust.homes import VKEY, check_home, named_keys
from marin.record.trust.keyfiles import KEY_VARIABLE, author_key_path, key_path
from marin.record.trust.pins import Pins, default_pins
from marin.record.trust.trusted import Keys, default_trust
from marin.record.writer import FAR, FarWriter, RootWriter, Writer, connect, connect_far

if TYPE_CHECKING:
    from ledger import LogClient

log = logging.getLogger(__name__)

DEFAULT_ROOT = ".marin"
ROOT_VARIABLE = "MARIN_ROOT"
CHECKPOINT = "log/checkpoint"
INDEXED = ("identity", "plan", "recipe_digest", "executor")
"""Fields of events by which a history finds them."""
_BLOCKS = 8
"""How many times :data:`_NEIGHBOURS` entries a history keeps."""
_NEIGHBOURS = 256
"""Events that are this near to each other are read in one go: the log keeps them in one file."""


@dataclass(frozen=True)
class Root:
    """An opened root. ``location`` is as the user named it; ``local`` is a folder for what can be rebuilt."""

    location: str
    local: Path
    storage: ledger.Storage
    verifier: ledger.VerifierKey
    companions: tuple[ledger.VerifierKey, ...] = ()
    """The other half of a hybrid key, as the root names it."""
    own: tuple[ledger.VerifierKey, ...] = ()
    """This user's keys of this log, where the process that asks cannot reach the file that has them."""

    @property
    def absolute(self) -> str:
        """The location as any process of this machine finds it, whatever its working folder is."""
        named = "://" in self.location or os.path.isabs(self.location)
        return absolute(self.location) if named else str(self.local)

    def store(self) -> ledger.Store:
        """The artifacts. What is known of files that were put before lies in the user's cache."""
        path = self.projection_path()
        return ledger.Store(self.storage, seen=None if path is None else path.with_name("store-stat.sqlite"))

    def store_to_read(self) -> ledger.Store:
        """The artifacts for reading alone: what is checked out is a file of its own, which nobody changes through the
        store."""
        writable = self.storage.writable
        return ledger.Store(ledger.open_storage(self.absolute, readonly=True) if writable else self.storage)

    def keys(self, trusted: Sequence[ledger.VerifierKey] = ()) -> Keys:
        """The keys under which this log is read, and whose word they are: those that were given, or this user's own or
        trusted ones for the origin, or what the root itself names."""
        if trusted:
            return Keys(tuple(trusted), "given")
        if self.is_own():
            return Keys(self.own_keys(), "own")
        if known := [key for key in default_trust().all_keys() if key.name == self.verifier.name]:
            return Keys(tuple(known), "trusted")
        return Keys((self.verifier, *self.companions), "claimed")

    def is_own(self, trusted: Sequence[ledger.VerifierKey] = ()) -> bool:
        """Whether the keys under which this log is read are this user's: then what stands in it is this user's word. The root
        names that key, and no other one was given. A root that names it, read under someone else's key, is theirs."""
        mine = self.own_keys()
        return self.verifier in mine and set(trusted) <= set(mine)

    def own_keys(self) -> tuple[ledger.VerifierKey, ...]:
        """This user's keys under the name of this log; none where there is no file of that name.

        Raises:
            ledger.Refused: the file named as the key (``MARIN_KEY``) is not a key.
        """
        if self.own:
            return self.own
        try:
            return ledger.public_keys(key_path(self.verifier.name))
        except ledger.LedgerError as error:
            if isinstance(error, ledger.Refused) and os.environ.get(KEY_VARIABLE):
                raise  # said to be this user's, who is not to be taken for a user without a key
            return ()

    def reader(self, trusted: Sequence[ledger.VerifierKey] = ()) -> ledger.LogReader:
        """Verified reads, under the root's own key unless the caller trusts another. A log of someone else's must also
        agree with what was seen of it before."""
        keys = self.keys(trusted)
        if keys.source == "own":
            return ledger.LogReader(self.storage, keys.verifiers)
        return _PinnedReader(self, keys)

    def signer(self) -> ledger.Signer:
        """The signing key of this root's log.

        Raises:
            ledger.Unavailable: there is no key file.
            ledger.Refused: the key is another log's, or others can read its file.
        """
        path = key_path(self.verifier.name)
        try:
            signer = ledger.load_signer(path)
        except ledger.Unavailable:
            if path.exists():
                raise
            raise ledger.Unavailable(
                "there is no signing key",
                where=str(path),
                expected=f"the key of {self.verifier}",
                found="no file",
                cure="it stays with the one who serves this root: let them run this command"
                if self.is_served
                else f"restore it from a copy, or name it with {KEY_VARIABLE}; a lost key cannot be made again, and then "
                "`marin --root NEW init` begins another log beside this one, which stays readable",
            ) from None
        if signer.verifier != self.verifier:
            raise ledger.Refused(
                "the key is not the one of this root",
                where=str(path),
                expected=str(self.verifier),
                found=str(signer.verifier),
                cure=f"name the right key with {KEY_VARIABLE}, or another root with --root",
            )
        return signer

    def author(self) -> ledger.Signer | None:
        """This user's key as an author in this log; None where there is none: then events are the log's own word."""
        path = author_key_path(self.verifier.name)
        return ledger.load_signer(path) if path.exists() else None

    def author_keys(self) -> tuple[ledger.VerifierKey, ...]:
        """The public half of that key; none where the file cannot be read, as in a confined process."""
        try:
            return ledger.public_keys(author_key_path(self.verifier.name))
        except ledger.LedgerError:
            return ()

    def check_writable(self) -> None:
        """Raises what :meth:`append` would, before the work whose result it appends: there is no key or another one, the root
        is for reading alone, or a copy of a log that lives elsewhere. Where another process appends for this one, never."""
        if _appender is not None:
            return
        if self.is_served:
            connect_far(self.location).close()
            return
        if (service := self.service()) is not None:
            service.close()
            return
        self.signer()
        check_home(self.verifier, self.storage, self.absolute)

    def append(self, drafts: Sequence[ledger.Draft]) -> list[ledger.Receipt]:
        """Append one atomic batch; when this returns, the events are durable and under a signed log checkpoint."""
        if _appender is not None:
            return _appender(self, drafts)
        with closing(self.writer()) as writer:
            return writer.append(drafts)

    @property
    def is_served(self) -> bool:
        """Whether the root lies on another machine, whose service appends for this user (``ledger://``)."""
        return self.location.startswith(FAR)

    def writer(self) -> Writer:
        """Appends through the service while one runs, else by opening the log. Close it."""
        if self.is_served:
            return FarWriter(self.location, self.verifier.name, self.author)
        # In a bucket the journal is one object, which each append replaces: there it stays short.
        return RootWriter(
            self.verifier.name, self.endpoint, partial(self.log, patient="://" not in self.location), self.author
        )

    def log(self, wait: float = 0.0, *, patient: bool = False) -> ledger.Log:
        """The open log, whose lock this process then holds. Close it, which publishes what it has, or leave it.

        Raises:
            ledger.Refused: this is a copy of a log of this user's, which lives elsewhere, or is served by another machine.
        """
        if self.is_served:
            raise ledger.Refused(
                "the log lies on another machine",
                where=self.location,
                expected="the machine where `marin ledger serve` runs",
                found="this one",
                cure="do it there",
            )
        check_home(self.verifier, self.storage, self.absolute)
        return ledger.Log.open(
            self.storage, self.signer(), types=Schemas(), wait=wait, index=self.index_path(), patient=patient
        )

    def index_path(self) -> Path | None:
        """Where the index of ids is kept."""
        path = self.projection_path()
        return None if path is None else path.with_name("index.sqlite")

    def service(self) -> LogClient | None:
        """The append service of this root, if one is running. Close it."""
        return connect(self.endpoint, self.verifier.name)

    @property
    def endpoint(self) -> Path:
        """Where a running append service (`marin ledger serve`) says its port and token."""
        remote = f"-{ledger.digest_bytes(self.location.encode())[7:39]}" if "://" in self.location else ""
        return self.local / f"service{remote}.json"

    def history(self, trusted: Sequence[ledger.VerifierKey] = (), *, fresh: bool = False) -> LedgerHistory:
        """The events so far. The read model finds them; each that is given out is verified in the log itself. ``fresh``,
        or with other keys than the root's own, the read model is folded from the log for this history alone.

        Raises:
            Unverified: the log's own events say that the keys which signed it count no more, or not alone.
        """
        reader = self.reader(trusted)
        path = None if fresh or (trusted and list(trusted) != [self.verifier]) else self.projection_path()
        return LedgerHistory(reader, path, own=self.is_own(trusted), mine=self.author_keys())

    def written(self) -> Authorship:
        """Who wrote which event, by now."""
        return self.history().written

    def history_as_read(self, reader: ledger.LogReader, trusted: Sequence[ledger.VerifierKey] = ()) -> LedgerHistory:
        """As a ``fresh`` :meth:`history`, of the very log that ``reader`` reads: a root may show another one to anyone who
        opens it again. The reader moves to the newest state, which continues the one that it had."""
        return LedgerHistory(reader, None, own=self.is_own(trusted), mine=self.author_keys())

    def views(self) -> Path:
        """Where what is folded from this log lies: in the user's cache, by the place and the origin of the log, and by whether
        it is this user's, which says whose the verdicts in it are. What a root brings of the kind (``projections/``) is never
        opened.

        Raises:
            ledger.Refused: someone else could have written what is there.
            OSError: the cache folder cannot be written.
        """
        whose = "" if self.is_own() else "\nclaimed"
        name = ledger.digest_bytes(f"{self.absolute}\n{self.verifier.name}{whose}".encode()).removeprefix("sha256:")
        return own_folder("views", name[:32])

    def projection_path(self) -> Path | None:
        """Where the read model of events is kept; None where the cache folder cannot be written."""
        try:
            return self.views() / "events.sqlite"
        except OSError:
            return None


class _PinnedReader(ledger.LogReader):
    """Reads the log of someone else: each state that it takes up is compared with what this user has seen before."""

    def __init__(self, root: Root, keys: Keys) -> None:
        super().__init__(root.storage, keys.verifiers)
        self._root, self._named = root, keys.mine

    def refresh(self) -> ledger.LogCheckpoint:
        """As of any reader.

        Raises:
            Tampered: the log contradicts what was pinned of it.
        """
        checkpoint = super().refresh()
        Pins(default_pins()).compare(self, self._root.storage, self._root.absolute, named=self._named)
        return checkpoint


def catch_up(projection: ledger.Projection, reader: ledger.LogReader) -> None:
    """Fold what is new, and hold the signatures of the log against the keys that its own events name.

    Raises:
        Unverified: by these events the keys that signed the log count no more, or not alone.
    """
    projection.catch_up()
    changes = [index for kind in sorted(ledger.KEY_TYPES) for index in projection.places(type=kind)]
    reader.signers([(index, reader.event(index)) for index in changes])


class LedgerHistory:
    """:class:`marin.history.runs.History` over the log of a root, as it was when this was made."""

    def __init__(
        self, reader: ledger.LogReader, path: Path | None, *, own: bool, mine: Sequence[ledger.VerifierKey] = ()
    ) -> None:
        """``path`` None: a read model of its own. ``own``: this user's key signs the log; ``mine``: this user's keys as an
        author in it."""
        self._reader, self._own = reader, own
        self.written = Authorship(reader, lambda kind: self.places(type=kind), own=own, mine=mine)
        self._projection = ledger.Projection(path, reader, indexed=INDEXED)
        weakref.finalize(self, self._projection.close)
        catch_up(self._projection, reader)
        self._size = reader.checkpoint().size
        for stray in self.strays("")[:MOST_NAMED]:
            log.warning("entry %d of %s is left out: %s", stray.index, reader.checkpoint().origin, stray)
        self._near: dict[int, Mapping[int, bytes]] = {}

    def catch_up(self) -> bool:
        """Take in what was appended since; whether there was something. The log has to continue what was read."""
        self._reader.refresh()
        if self._reader.checkpoint().size == self._size:
            return False
        catch_up(self._projection, self._reader)
        self._size = self._reader.checkpoint().size
        self._near.clear()  # the last of these ended where the log did
        return True

    @property
    def own(self) -> bool:
        """Whether this user's key signs the log."""
        return self._own

    def counts(self, verdict: Fact[ReplayCompleted]) -> bool:
        """Whether this user gave the verdict, on a run of this log."""
        return self.written.counts(verdict.index, verdict.body.log_checkpoint)

    def newest(self, stream: str) -> int:
        """The index of the newest event of a stream, -1 where it has none."""
        return max(self.places(stream=stream, last=1), default=-1)

    def event(self, index: int) -> ledger.Event | None:
        """The event at this index; None beyond the end."""
        return self._fitting(index, self._reader.event(index)) if 0 <= index < self._size else None

    def events(
        self, *, stream: str | None = None, type: str | None = None, **named: str | None
    ) -> Iterator[tuple[int, ledger.Event]]:
        """The events of one stream, of one type, whose bodies have these texts in the fields of these names, or all of it.
        By a field of :data:`INDEXED` it costs what is found, however long the log is. An event whose body does not fit its
        type does not count as one: in its stream it is one of type :data:`marin.record.schemas.MALFORMED`."""
        found = self.places(stream=stream, type=type, last=None, **named)
        is_near = any(named.get(field) is not None for field in INDEXED)
        for index, event in (
            ((i, self._fitting(i, ledger.Event.decode(self._entry(i)))) for i in found) if is_near else self.at(found)
        ):
            if type is None or event.type == type:
                yield index, event

    def places(
        self, *, stream: str | None = None, type: str | None = None, last: int | None = None, **named: str | None
    ) -> list[int]:
        """The indices of what :meth:`events` finds; the ``last`` of them."""
        return self._projection.places(stream=stream, type=type, last=last, size=self._size, **named)

    def at(self, places: Sequence[int]) -> Iterator[tuple[int, ledger.Event]]:
        """The events at these indices, which are in order."""
        for _, group in groupby(places, key=lambda index: index // _NEIGHBOURS):
            wanted = set(group)
            for index, entry in self._reader.entries(min(wanted), max(wanted) + 1):
                if index in wanted:
                    yield index, self._fitting(index, ledger.Event.decode(entry))

    def strays(self, naming: str) -> list[ledger.Stray]:
        """The entries that are not events of the log, and have this text in them."""
        return self._projection.strays(naming, size=self._size)

    def _fitting(self, index: int, event: ledger.Event) -> ledger.Event:
        return as_it_fits(index, self.written.shown(index, event), where=self._reader.checkpoint().origin)

    def _entry(self, index: int) -> bytes:
        """One entry. Those beside it are kept for a while: what one execution recorded, the next one asks for in the
        same order."""
        block = index // _NEIGHBOURS
        if block not in self._near:
            start = block * _NEIGHBOURS
            self._near[block] = dict(self._reader.entries(start, min(start + _NEIGHBOURS, self._size)))
            if len(self._near) > _BLOCKS:
                del self._near[next(iter(self._near))]
        return self._near[block][index]


Appender = Callable[[Root, Sequence[ledger.Draft]], list[ledger.Receipt]]
_appender: Appender | None = None


def append_through(appender: Appender | None) -> None:
    """From now on this process hands what it appends to ``appender``: it works where the signing key is not."""
    global _appender
    _appender = appender


def root_location(given: str | None = None) -> str:
    """The root that the command line or the environment names; else that of the working folder or of the nearest folder
    above it that has one, as Git finds its repository."""
    return given or os.environ.get(ROOT_VARIABLE) or _nearest()


def _nearest() -> str:
    here = Path.cwd()
    for folder in here.parents:
        if (here / DEFAULT_ROOT / VKEY).is_file():
            break
        if (folder / DEFAULT_ROOT / VKEY).is_file():
            return str(folder / DEFAULT_ROOT)
    return DEFAULT_ROOT


def absolute(location: str) -> str:
    """The location as any process of this machine finds it."""
    return location if "://" in location else str(Path(location).resolve())


def open_root(location: str | None = None) -> Root:
    """Open an existing root.

    Raises:
        ledger.Unavailable: there is none here, or it has no verifier key.
        ledger.Malformed: its verifier key is not one.
    """
    where = root_location(location)
    remote = "://" in where
    local = Path(DEFAULT_ROOT) if remote else Path(where)
    if not remote and not local.is_dir():
        raise _no_root(where)
    storage = ledger.open_storage(where)
    try:
        verifier, *companions = named_keys(storage)
    except ledger.NotFound:
        raise (no_vkey(where) if storage.exists(CHECKPOINT) else _no_root(where)) from None
    except ledger.Malformed as error:
        raise ledger.Malformed(
            "the root's verifier key cannot be read",
            where=f"{where}/{VKEY}",
            expected="name+hash+base64",
            found=error.found,
            cure="restore the file from the line that `marin init` printed",
        ) from error
    return Root(location=where, local=local.resolve(), storage=storage, verifier=verifier, companions=tuple(companions))


def no_vkey(where: str) -> ledger.Unavailable:
    """What to say of a root whose log is there, and its key not."""
    return ledger.Unavailable(
        "the root has a log and no verifier key",
        where=f"{where}/{VKEY}",
        expected="name+hash+base64",
        found="no file",
        cure="restore the file from the line that `marin init` printed",
    )


def _no_root(where: str) -> ledger.Unavailable:
    return ledger.Unavailable(
        "there is no root here",
        where=where,
        expected="a ledger and a store",
        found="nothing",
        cure=f"make one with `marin init`, or name another with --root or {ROOT_VARIABLE}",
    )
