"""Which keys may sign a log, and up to which size: rotation and retirement are events, and readers follow them.

    log.key-rotated/v1   {"vkeys": […], "by": […]}    from here on these keys sign as well
    log.key-retired/v1   {"vkeys": […], "by": […]}    signatures of these keys count for trees that end before this
    event

``by`` are the keys that signed the log at that moment.

Beside the log each such event has a link, ``keys/0``, ``keys/1``, …: a tlog-proof of it under a checkpoint that a key
valid at that moment signed. So anyone who trusts any one key of the log can find all later ones offline, from
files that anybody may serve, and an old key's signatures stay good for what they covered.

Only the writer makes these events (``rotate_key``, ``retire_key``): a client of the append service cannot.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from ledger.errors import AlreadyExists, Refused, StorageFailed
from ledger.format.event import KEY_RETIRED, KEY_ROTATED, Draft
from ledger.format.note import Signer, VerifierKey, check_key_name
from ledger.log.keys import secret_of, signer_of
from ledger.log.proving import make_proof
from ledger.log.reader import LogReader
from ledger.log.trust import link_path, read_links
from ledger.log.writer import Log
from ledger.storage.port import Storage

STREAM = "log/keys"
"""Of all events of keys."""


def rotate_key(storage: Storage, old: Signer, new: Signer) -> tuple[VerifierKey, ...]:
    """From now on ``new`` may sign this log too, and its checkpoint carries both signatures. Repeating it changes
    nothing.

    Raises:
        Refused: the new key has another name than the log.
    """
    if new.name != old.name:
        raise Refused("a key of another log", expected=old.name, found=new.name, cure="make a key for this origin")
    with Log.open(storage, old, verifiers=new.verifiers) as log:
        _record(log, storage, old, KEY_ROTATED, new.verifiers)
        log.add_signatures([new, *new.companions])
    return new.verifiers


def retire_key(storage: Storage, signer: Signer, retired: Sequence[VerifierKey]) -> int:
    """Signatures of ``retired`` count no more beyond the size that is returned. ``signer`` must be another key of this
    log.

    Raises:
        Refused: ``signer`` is one of those keys.
    """
    mine = {(key.name, key.key_id) for key in signer.verifiers}
    if any((key.name, key.key_id) in mine for key in retired):
        raise Refused(
            "the key signs this log now",
            where=str(retired[0]),
            expected="another key that took over",
            found="none",
            cure="rotate first: `ledger key rotate`",
        )
    with Log.open(storage, signer, verifiers=retired) as log:
        index = _record(log, storage, signer, KEY_RETIRED, retired)
        log.resign()
    return index


def _record(log: Log, storage: Storage, signer: Signer, kind: str, keys: Sequence[VerifierKey]) -> int:
    """The event of these keys, and its link; the index of the event."""
    body = {"vkeys": [str(key) for key in keys], "by": [str(key) for key in signer.verifiers]}
    draft = Draft(kind, STREAM, body, id=f"{kind.split('/')[0]}:{keys[0].key_id:08x}")
    index = log.append_key_event(draft).index
    log.publish()
    reader = LogReader(storage, list(signer.verifiers))
    if not any(proof.index == index for _, proof in read_links(storage)):
        number = sum(1 for _ in read_links(storage))
        storage.ensure(link_path(number), str(make_proof(reader, index)).encode())
    return index


def create_key(path: Path, origin: str, *, passphrase: str | None = None, hybrid: bool = False) -> Signer:
    """Draw a key for ``origin`` and write it to ``path`` with mode 0600.

    A ``hybrid`` key also signs with ML-DSA-44, against the day when Ed25519 no longer holds.

    Raises:
        AlreadyExists: a file is there; it is left alone.
        StorageFailed: the file could not be written.
        Refused: ``origin`` cannot be the name of a key.
    """
    check_key_name(origin)
    keys: list[Ed25519PrivateKey | MLDSA44PrivateKey] = [Ed25519PrivateKey.generate()]
    if hybrid:
        keys.append(MLDSA44PrivateKey.generate())
    secret = secret_of(passphrase)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if secret:
        encryption = serialization.BestAvailableEncryption(secret)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    pem = b"".join(key.private_bytes(encoding, form, encryption) for key in keys)
    signer = signer_of(origin, keys, path)
    shown = "".join(f"vkey: {key}\n" for key in signer.verifiers)
    write_private(path, f"origin: {origin}\n{shown}".encode() + pem)
    return signer


def write_private(path: Path, content: bytes) -> None:
    """Write a key file with mode 0600, durably.

    Raises:
        AlreadyExists: a file is there; it is left alone.
        StorageFailed: the file could not be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        raise AlreadyExists(
            "a key is there already", where=str(path), cure="use it, or name another path; nothing was overwritten"
        ) from None
    except OSError as error:
        raise StorageFailed("could not write a key", where=str(path), found=str(error.strerror)) from error
