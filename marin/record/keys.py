"""Changing the key that signs a root's log: the files of the keys, the root's verifier key, and the log's own
events."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ledger import (
    KEY_REVOKED,
    LogProof,
    Refused,
    Signer,
    Unverified,
    VerifierKey,
    check_not_revoked,
    create_attestation_key,
    create_key,
    load_attestation_key,
    load_signer,
    public_bytes,
    retire_key,
    revoke_vouched,
    rotate_key,
    vouch_for,
)
from marin.errors import UsageError
from marin.record.homes import VKEY
from marin.record.root import Root, key_path, vkey_lines


@dataclass(frozen=True)
class Rotated:
    """A change of keys: the key that signs from now on, and where the one before is kept."""

    old: VerifierKey
    new: VerifierKey
    key: Path
    kept: Path


def rotate(root: Root, *, hybrid: bool = False) -> Rotated:
    """Make a new key, let the log name it, and sign with it from now on. Interrupted, it is finished by the next
    call."""
    path = key_path(root.verifier.name)
    following = path.with_name(f"{path.name}.next")
    old = load_signer(path)
    if following.exists():
        new = load_signer(following)
    else:
        root.signer()  # says what is wrong with the present key, before there is another
        new = create_key(following, root.verifier.name, hybrid=hybrid)
    if root.verifier != new.verifier:
        rotate_key(root.storage, root.signer(), new)
        root.storage.replace(VKEY, vkey_lines(new))
    kept = kept_key(path, old)
    with suppress(FileExistsError):
        os.link(path, kept)
    following.replace(path)
    return Rotated(old.verifier, new.verifier, path, kept)


def retire(root: Root, name: str) -> tuple[VerifierKey, int]:
    """From now on signatures of this key (its text, or the eight digits of its id) count no more; up to which size they
    do."""
    retired = _keys_named(root, name)
    return retired[0], retire_key(root.storage, root.signer(), retired)


def attestation_key_path(origin: str) -> Path:
    """Where the key for attestations of this log lies: beside the log's own."""
    path = key_path(origin)
    return path.with_name(f"{path.name}.attestations")


def vouch(root: Root) -> tuple[Path, LogProof]:
    """Let the log vouch for the key for attestations that lies beside its own, which is made where there is none."""
    path = attestation_key_path(root.verifier.name)
    signer = root.signer()  # says what is wrong with the log's key, before there is another
    if path.exists() and (revoked := _revoked(root, path)):
        path.replace(path.with_name(f"{path.name}.{revoked}"))
    if not path.exists():
        create_attestation_key(path, root.verifier.name)
    return path, vouch_for(root.storage, signer, load_attestation_key(path))


def revoke(root: Root, index: int) -> int:
    """Let the log say that the key for attestations for which its event ``index`` vouches counts no more; the event of that."""
    return revoke_vouched(root.storage, root.signer(), index)


def _revoked(root: Root, path: Path) -> str:
    """The first digits of the digest of the key at ``path``, where the log has revoked it."""
    public = public_bytes(load_attestation_key(path))
    try:
        check_not_revoked(public, root.history().events(type=KEY_REVOKED))
    except Unverified:
        return hashlib.sha256(public).hexdigest()[:8]
    return ""


def kept_key(path: Path, signer: Signer) -> Path:
    """Where the file of a key is kept once another took its place."""
    return path.with_name(f"{path.name}.{signer.verifier.key_id:08x}")


def _keys_named(root: Root, name: str) -> list[VerifierKey]:
    if "+" in name:
        return [VerifierKey.parse(name)]
    if not re.fullmatch(r"[0-9a-f]{8}", name):
        raise UsageError(
            "not a key",
            where=name,
            expected="a verifier key, or the eight hexadecimal digits of its id",
            cure="`marin ledger key list` shows them",
        )
    if name == f"{root.verifier.key_id:08x}":
        return [root.verifier]
    path = key_path(root.verifier.name)
    kept = path.with_name(f"{path.name}.{name}")
    if not kept.exists():
        raise Refused(
            "no key of that id is kept here",
            where=str(kept),
            expected="the file of a key that was rotated",
            found="no file",
            cure="give the whole verifier key instead of its id",
        )
    return list(load_signer(kept).verifiers)
