"""The keys of a root's log: changing the one that signs it, and those of the people and machines that write in it. Files of
keys, the root's verifier key, and the log's own events."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import ledger
from marin.errors import UsageError
from marin.record.creation import vkey_lines
from marin.record.root import Root
from marin.record.trust.homes import VKEY
from marin.record.trust.keyfiles import attestation_key_path, author_key_path, key_path, service_key_path

_LOG = logging.getLogger(__name__)
SERVICE = "marin.service"
"""The name in the certificate of every service."""
_REQUEST = "marin-author:"
"""How the line begins by which a user asks to be enrolled."""


@dataclass(frozen=True)
class KeyRotation:
    """A change of keys: the key that signs from now on, and where the one before is kept."""

    old: ledger.VerifierKey
    new: ledger.VerifierKey
    key: Path
    kept: Path


def rotate(root: Root, *, hybrid: bool = False) -> KeyRotation:
    """Make a new key, let the log name it, and sign with it from now on. Interrupted, it is finished by the next
    call."""
    path = key_path(root.verifier.name)
    following = path.with_name(f"{path.name}.next")
    old = ledger.load_signer(path)
    if following.exists():
        new = ledger.load_signer(following)
    else:
        root.signer()  # says what is wrong with the present key, before there is another
        new = ledger.create_key(following, root.verifier.name, hybrid=hybrid)
    if root.verifier != new.verifier:
        ledger.rotate_key(root.storage, root.signer(), new)
        root.storage.replace(VKEY, vkey_lines(new))
    kept = retired_key_path(path, old)
    with suppress(FileExistsError):
        os.link(path, kept)
    following.replace(path)
    return KeyRotation(old.verifier, new.verifier, path, kept)


def retire(root: Root, name: str) -> tuple[ledger.VerifierKey, int]:
    """From now on signatures of this key (its text, or the eight digits of its id) count no more; up to which size they
    do."""
    retired = _keys_named(root, name)
    return retired[0], ledger.retire_key(root.storage, root.signer(), retired)


def vouch(root: Root) -> tuple[Path, ledger.LogProof]:
    """Let the log vouch for the key for attestations that lies beside its own, which is made where there is none."""
    path = attestation_key_path(root.verifier.name)
    signer = root.signer()  # says what is wrong with the log's key, before there is another
    if path.exists() and (revoked := _revoked(root, path)):
        path.replace(path.with_name(f"{path.name}.{revoked}"))
    if not path.exists():
        ledger.create_attestation_key(path, root.verifier.name)
    return path, ledger.vouch_for(root.storage, signer, ledger.load_attestation_key(path))


def revoke(root: Root, index: int) -> int:
    """Let the log say that the key for attestations for which its event ``index`` vouches counts no more; the event of that."""
    return ledger.revoke_vouched(root.storage, root.signer(), index)


def _revoked(root: Root, path: Path) -> str:
    """The first digits of the digest of the key at ``path``, where the log has revoked it."""
    public = ledger.public_bytes(ledger.load_attestation_key(path))
    try:
        ledger.check_not_revoked(public, root.history().events(type=ledger.KEY_REVOKED))
    except ledger.Unverified:
        return hashlib.sha256(public).hexdigest()[:8]
    return ""


@dataclass(frozen=True)
class AuthorKey:
    """An author's key, where it lies, and the line that asks for its enrolment."""

    vkey: ledger.VerifierKey
    path: Path
    request: str


def new_author_key(
    origin: str, name: str, authors: ledger.Authors | None = None, *, refused: Callable[[], bool] = lambda: False
) -> AuthorKey:
    """This user's key as an author in the log ``origin``: the one that is there, if it has this name, or another. One that the
    log revoked is kept aside; ``refused``, asked where the log is elsewhere: whether its service takes the key that is there not.

    Raises:
        ledger.Refused: there is a key of another name, which counts.
    """
    ledger.check_author_name(name)
    path = author_key_path(origin)
    if path.exists():
        there = ledger.load_signer(path)
        mine = None if authors is None else authors.named(there.name)
        revoked = mine is not None and mine.vkey == there.verifier and mine.until is not None
        if revoked or (there.name != name and refused()):
            path.replace(aside := path.with_name(f"{path.name}.{there.verifier.key_id:08x}"))
            _LOG.info("the key of %s, which this log does not take, is kept as %s", there.name, aside)
        elif there.name != name:
            raise ledger.Refused(
                "there is a key for this log already",
                where=str(path),
                expected=f"no key, or that of {name}",
                found=f"that of {there.name}",
                cure=f"use it, or let the log revoke it first: `marin ledger key revoke {there.name}`",
            )
    signer = ledger.load_signer(path) if path.exists() else ledger.create_key(path, name)
    return AuthorKey(signer.verifier, path, request_of(signer))


def request_of(signer: ledger.Signer) -> str:
    """The line by which the holder of this key asks to be enrolled."""
    return _REQUEST + base64.b64encode(ledger.make_certificate(signer)).decode()


def read_request(line: str) -> tuple[ledger.VerifierKey, bytes]:
    """The key that asks to be enrolled by this line, and its certificate.

    Raises:
        UsageError: it is not such a line.
    """
    text = line.strip()
    try:
        if not text.startswith(_REQUEST):
            raise ValueError("another beginning")
        certificate = base64.b64decode(text.removeprefix(_REQUEST), validate=True)
        return ledger.read_certificate(certificate), certificate
    except (ValueError, binascii.Error, ledger.Refused) as error:
        raise UsageError(
            "not a request to be enrolled",
            where=repr(text[:40]),
            expected=f"the line {_REQUEST}… that `marin ledger key new` printed",
            found=error.found if isinstance(error, ledger.Refused) else str(error),
            cure="copy the whole line",
        ) from None


def known_authors(root: Root) -> ledger.Authors:
    """Everybody whose key the log enrolled."""
    return root.history().written.authors


def enrol(root: Root, line: str, *, may_enrol: bool = False) -> tuple[ledger.VerifierKey, int]:
    """Let the log take events of the key that asks by this line; the event of that. Repeating it changes nothing.

    Raises:
        ledger.Refused: the name or the key is taken, or revoked, or nobody here may enrol.
    """
    vkey, certificate = read_request(line)
    enrolled = known_authors(root)
    for other in enrolled:
        if other.name == vkey.name and other.vkey == vkey and other.until is None and other.may_enrol == may_enrol:
            return vkey, other.index
        if other.name == vkey.name or other.vkey.public == vkey.public:
            raise ledger.Refused(
                "the name stands for a key already" if other.name == vkey.name else "the key is enrolled already",
                where=f"event {other.index}",
                expected="a name and a key that the log never enrolled",
                found=f"{other.name}{', revoked' if other.until is not None else ''}",
                cure="a name stands for one key, for ever: let them make one under another name, by `marin ledger key new`, or "
                "elsewhere by `marin ledger key join LINE --as NAME`",
            )
    draft = ledger.enrol_author(root.verifier.name, _enrolling(root, enrolled), vkey, certificate, may_enrol=may_enrol)
    return vkey, root.append([draft])[0].index


def revoke_enrolled(root: Root, author: ledger.Author) -> int:
    """From now on the log takes nothing more of this author; the event of that. Repeating it changes nothing."""
    if author.until is not None:
        return author.until
    signer = _enrolling(root, known_authors(root), also=author.vkey)
    return root.append([ledger.revoke_author(root.verifier.name, signer, author.vkey)])[0].index


def service_key(root: Root) -> ledger.Signer:
    """The key that the append service of this root shows to other machines, which is made where there is none."""
    path = service_key_path(root.verifier.name)
    return ledger.load_signer(path) if path.exists() else ledger.create_key(path, SERVICE)


def _enrolling(root: Root, enrolled: ledger.Authors, also: ledger.VerifierKey | None = None) -> ledger.Signer:
    """The key of this user's that may enrol in this log, or is ``also``: an author's, or else the log's own."""
    mine = root.author()
    if mine is not None:
        author = enrolled.named(mine.name)
        is_it = author is not None and author.vkey == mine.verifier and author.until is None
        if author is not None and is_it and (author.may_enrol or author.vkey == also):
            return mine
    return root.signer()


def retired_key_path(path: Path, signer: ledger.Signer) -> Path:
    """Where the file of a key is kept once another took its place."""
    return path.with_name(f"{path.name}.{signer.verifier.key_id:08x}")


def _keys_named(root: Root, name: str) -> list[ledger.VerifierKey]:
    if "+" in name:
        return [ledger.VerifierKey.parse(name)]
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
        raise ledger.Refused(
            "no key of that id is kept here",
            where=str(kept),
            expected="the file of a key that was rotated",
            found="no file",
            cure="give the whole verifier key instead of its id",
        )
    return list(ledger.load_signer(kept).verifiers)
