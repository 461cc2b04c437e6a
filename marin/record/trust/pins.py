"""What a user has seen of logs before: for each origin its keys and its newest checkpoint, kept outside every root.

A key signs one origin, and an origin has one key and those that the log itself handed over to (a proof that the key
before signed). A log that was rolled back, or that shows another history to a user who has seen it, can not be
consistent with the pin. The first look at a log only remembers.

Each pin is a small JSON file beside the leaf hashes of the log as it was pinned. These tell an older copy of the log,
in another place, from a fork that is shorter. The file also says up to which size each place was seen: a place where
the log became shorter was rolled back.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ledger
from marin.process.files import write_whole
from marin.process.text import several

UNPINNED = "nothing was compared with it, and nothing is pinned"
MOST_LEAVES = 1 << 16
"""Of longer logs no leaf hashes are kept (32 bytes each): a shorter copy of one can not be told from a fork here."""
_HASH = 32
_ANYWHERE = ""
"""The place of a pin that does not say where the log was seen (Marin before pins had places)."""


def default_pins() -> Path:
    """``MARIN_PINS``, or ``marin/pins`` in the user's state folder (XDG base directory specification)."""
    if chosen := os.environ.get("MARIN_PINS"):
        return Path(chosen)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "marin" / "pins"


@dataclass(frozen=True)
class Pin:
    """What is remembered of one origin. ``signed``: the keys that signed the newest checkpoint; ``keys``: all that ever
    did. ``places``: location -> the largest size that was seen there."""

    checkpoint: ledger.LogCheckpoint
    keys: tuple[ledger.VerifierKey, ...] = ()
    signed: tuple[ledger.VerifierKey, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    named: bool = True
    """Whether the verifier named the key. One that only a root named gives way to one that the verifier did."""

    def as_json(self) -> dict[str, Any]:
        """As the file holds it."""
        return {
            "named": self.named,
            "keys": [str(key) for key in self.keys],
            "origin": self.checkpoint.origin,
            "places": dict(self.places),
            "root": self.checkpoint.root.hex(),
            "signed": [str(key) for key in self.signed],
            "size": self.checkpoint.size,
        }

    @classmethod
    def parse(cls, data: bytes) -> Pin:
        """The pin in a file; ``ValueError`` and its kin where it is not one."""
        value = json.loads(data)
        checkpoint = ledger.LogCheckpoint(str(value["origin"]), int(value["size"]), bytes.fromhex(value["root"]))
        if len(checkpoint.root) != _HASH or checkpoint.size < 0:
            raise ValueError("not a root of 32 bytes at a size")
        keys, signed = (
            tuple(ledger.VerifierKey.parse(text) for text in value.get(name, ())) for name in ("keys", "signed")
        )
        places = value.get("places", {_ANYWHERE: checkpoint.size})
        return cls(
            checkpoint,
            keys,
            signed,
            {str(place): int(size) for place, size in places.items()},
            bool(value.get("named", True)),
        )


@dataclass(frozen=True)
class PinCheck:
    """A log that agrees with what was seen of it before. ``line`` says how; ``pin`` is what to remember from now on."""

    line: str
    pin: Pin
    reader: ledger.LogReader | None
    """Whose leaf hashes are kept; None: those that are kept stay."""

    def text(self, *, pinned: bool) -> str:
        """``line`` for people; ``pinned``: ``pin`` is remembered."""
        return self.line.replace(UNPINNED, "its key and log checkpoint are pinned now") if pinned else self.line


@dataclass(frozen=True)
class Pins:
    """A folder with one pin per origin."""

    folder: Path

    def path(self, origin: str) -> Path:
        """The file of an origin."""
        return self.folder / (hashlib.sha256(origin.encode()).hexdigest()[:32] + ".json")

    def home(self, origin: str) -> str | None:
        """The place where this user's own log of that origin lives; None where there is none."""
        try:
            return self._home(origin).read_text("utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError):
            return None

    def settle(self, origin: str, place: str, *, moved: bool = False) -> None:
        """This user's own log lives there, unless there is one elsewhere and it has not ``moved``."""
        path = self._home(origin)
        if moved or not path.exists():
            with suppress(ledger.LedgerError, OSError):  # a state folder that cannot be written stops no run
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(path, f"{place}\n".encode())

    def _home(self, origin: str) -> Path:
        """Beside the pins, which a confined verification writes."""
        return self.folder.with_name("homes") / self.path(origin).stem

    def check(
        self, reader: ledger.LogReader, storage: ledger.Storage, place: str, *, move: bool = True, named: bool = True
    ) -> str:
        """Compare the log with its pin, and remember it; a line that says how it went. Without ``move`` nothing is
        written."""
        seen = self.compare(reader, storage, place, named=named)
        if move:
            self.keep(seen)
        return seen.text(pinned=move)

    def compare(self, reader: ledger.LogReader, storage: ledger.Storage, place: str, *, named: bool = True) -> PinCheck:
        """How the log that ``reader`` reads at ``place`` agrees with what was seen before. Nothing is written.

        ``named``: the verifier named the keys of ``reader``, rather than the root.

        Raises:
            ledger.Tampered: the key signs another origin, another key signs this origin, the log is shorter than it was at
                this place, or it shows another history.
            ledger.Unverified: half of the signatures of a hybrid key that signed before is missing.
            ledger.Unavailable: a pin cannot be read, or cannot be compared with a log that is shorter.
        """
        checkpoint, signers = reader.checkpoint(), reader.signers()
        self._check_other_origins(checkpoint.origin, signers)
        path = self.path(checkpoint.origin)
        pin = read_pin(path) if path.exists() else None
        if pin is None or (named and not pin.named and not set(pin.keys) & set(signers)):
            pin = Pin(checkpoint, signers, signers, {place: checkpoint.size}, named)
            return PinCheck(f"first time that this log is seen here: {UNPINNED}", pin, reader)
        self._check_key(path, pin, signers, storage)
        newest = pin.checkpoint
        places = {**pin.places, place: max(checkpoint.size, pin.places.get(place, 0))}
        keys = tuple(dict.fromkeys((*pin.keys, *signers)))
        if checkpoint.size < newest.size:
            line = self._older(path, pin, checkpoint, place)
            return PinCheck(line, Pin(newest, keys, pin.signed or signers, places, pin.named or named), None)
        reader.check_continues(newest)
        if set(_ed25519(signers)) <= set(pin.signed):
            reader.signers(also=pin.signed)
        line = f"consistent with the log checkpoint of size {newest.size} seen before"
        places.pop(_ANYWHERE, None)
        return PinCheck(line, Pin(checkpoint, keys, signers, places, pin.named or named), reader)

    def agrees(self, checkpoint: ledger.LogCheckpoint, signers: Sequence[ledger.VerifierKey]) -> str:
        """How a checkpoint that comes without its log agrees with what was seen of that log. Nothing is written.

        Raises:
            ledger.Tampered: the key signs another origin, or the log that was seen had another history.
            ledger.Unverified: half of the signatures of a hybrid key that signed before is missing, or its key was not named;
                or a key signed that the log had handed over from.
            ledger.Unavailable: a pin cannot be read, or another key signed the log when it was seen.
        """
        self._check_other_origins(checkpoint.origin, signers)
        path = self.path(checkpoint.origin)
        if not path.exists():
            return "this log was never seen here: nothing was compared with its checkpoint"
        pin = read_pin(path)
        if pin.named and pin.keys and not set(pin.keys) & set(signers):
            raise ledger.Unavailable(
                "another key signed this log when it was seen",
                where=str(path),
                expected=f"{pin.keys[0]}, or the proof that it handed over, which only the log brings",
                found=", ".join(map(str, signers)),
                cure="name the log as well: marin --root ADDRESS",
            )
        halves = [key for key in pin.signed if key.algorithm != 1]
        if halves and set(_ed25519(signers)) <= set(pin.signed) and not set(halves) & set(signers):
            raise ledger.Unverified(
                "one of the two signatures of a hybrid key is missing",
                where=str(path),
                expected=f"a signature of {halves[0]} as well, as when it was seen",
                found=", ".join(map(str, signers)),
                cure="name both halves of the key with --vkey, and get it as it was published",
            )
        newest = pin.checkpoint
        if checkpoint.size > newest.size:
            if pin.signed and not set(pin.signed) & set(signers):
                raise ledger.Unverified(
                    "a key that this log had given up signed it later",
                    where=str(path),
                    expected=f"a signature of {pin.signed[0]}, which signed the log when it was seen last",
                    found=", ".join(map(str, signers)),
                    cure="name the log as well: marin --root ADDRESS",
                )
            return f"newer than the log checkpoint of size {newest.size} seen before: only the log shows that it continues it"
        root = newest.root if checkpoint.size == newest.size else self._beginning(path, pin, checkpoint.size)
        if root is None:
            return f"older than the log checkpoint of size {newest.size} seen before, whose beginning is not kept here"
        if root != checkpoint.root:
            raise _another_history(str(path), checkpoint, root)
        return f"consistent with the log checkpoint of size {newest.size} seen before"

    def keep(self, seen: PinCheck) -> None:
        """Remember."""
        path = self.path(seen.pin.checkpoint.origin)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(self.folder, str(error)) from error
        if seen.reader is not None:
            count = seen.pin.checkpoint.size
            leaves = b"".join(map(seen.reader.leaf_hash, range(count))) if count <= MOST_LEAVES else b""
            write_whole(path.with_suffix(".leaves"), leaves)
        write_whole(path, (json.dumps(seen.pin.as_json(), sort_keys=True) + "\n").encode())

    def _check_other_origins(self, origin: str, signers: Sequence[ledger.VerifierKey]) -> None:
        public = {key.public for key in signers}
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else ():
            other = read_pin(path)
            if other.checkpoint.origin != origin and (same := [key for key in other.keys if key.public in public]):
                raise ledger.Tampered(
                    "the key signs another log",
                    where=str(path),
                    expected=f"origin {other.checkpoint.origin}, which {same[0]} signed before",
                    found=origin,
                    cure="a key signs one log: do not believe this one; if it is your own, make a key for each log",
                )

    def _check_key(self, path: Path, pin: Pin, signers: Sequence[ledger.VerifierKey], storage: ledger.Storage) -> None:
        if pin.keys and not set(ledger.follow_keys(storage, pin.keys)) & set(signers):
            raise ledger.Tampered(
                "another key signs this log than before",
                where=str(path),
                expected=f"{pin.keys[0]}, or a key that it handed over to, with the proof in keys/",
                found=", ".join(map(str, signers)),
                cure="ask the operator; a log whose key changes says so in itself, signed by the key before",
            )

    def _older(self, path: Path, pin: Pin, checkpoint: ledger.LogCheckpoint, place: str) -> str:
        """The line about a log that is shorter than what was pinned, once it is seen to be its beginning."""
        newest = pin.checkpoint
        before = max(pin.places.get(place, 0), pin.places.get(_ANYWHERE, 0))
        if checkpoint.size < before:
            raise ledger.Tampered(
                "the log was rolled back",
                where=place,
                expected=f"at least {before} entries, as seen here before",
                found=f"{checkpoint.size}",
                cure="restore the newest copy; keep both checkpoints: they are evidence",
            )
        root = self._beginning(path, pin, checkpoint.size)
        if root is None:
            raise ledger.Unavailable(
                "a shorter log cannot be compared with the one seen before",
                where=place,
                expected=f"{newest.size} leaf hashes under root {newest.root.hex()} in {path.with_suffix('.leaves')}",
                found="none, or others",
                cure="verify the copy with the most entries",
            )
        if root != checkpoint.root:
            raise _another_history(place, checkpoint, root)
        elsewhere = ", ".join(name for name, size in sorted(pin.places.items()) if size == newest.size)
        return f"older copy: {several(newest.size - checkpoint.size, 'events')} fewer than the {newest.size} seen in {elsewhere}"

    def _beginning(self, path: Path, pin: Pin, size: int) -> bytes | None:
        """The root of the first ``size`` entries of the log as it was pinned; None where its leaf hashes are not kept."""
        try:
            leaves = path.with_suffix(".leaves").read_bytes()
        except OSError:
            return None
        hashes = [leaves[at : at + _HASH] for at in range(0, len(leaves), _HASH)]
        whole = len(hashes) == pin.checkpoint.size and ledger.root_of(hashes) == pin.checkpoint.root
        return ledger.root_of(hashes[:size]) if whole else None


def _another_history(where: str, checkpoint: ledger.LogCheckpoint, root: bytes) -> ledger.Tampered:
    return ledger.Tampered(
        "the log has another history",
        where=where,
        expected=f"root {root.hex()} at size {checkpoint.size}",
        found=checkpoint.root.hex(),
        cure="keep both checkpoints: two signed roots that conflict are evidence",
    )


def read_pin(path: Path) -> Pin:
    """The pin in a file.

    Raises:
        ledger.Unavailable: it cannot be read, or is not a pin.
    """
    try:
        return Pin.parse(path.read_bytes())
    except OSError as error:
        raise _unusable(path, str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ledger.LedgerError) as error:
        raise _unusable(path, f"{type(error).__name__}: {error}"[:200]) from error


def _unusable(path: Path, found: str) -> ledger.Unavailable:
    return ledger.Unavailable(
        "what was seen of logs before cannot be read",
        where=str(path),
        expected="a pin: JSON with origin, size and root",
        found=found,
        cure="restore the file from a copy; if you remove it, this log is seen for the first time again",
    )


def _ed25519(keys: Sequence[ledger.VerifierKey]) -> list[ledger.VerifierKey]:
    return [key for key in keys if key.algorithm == 1]
