"""Signed notes (C2SP signed-note): text that keys have signed.

A note is text ending in a newline, an empty line, and one signature line or more:

    This is an example message.

    — example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=

which this verifier key opens:

    example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k

The base64 holds a 4-byte key id and the signature; the id is the beginning of SHA-256 over name, newline, the
algorithm's byte and the public key. Signatures of unknown keys are ignored, a bad signature of a known key
refuses the whole note, and without one good signature of a known key nothing of the note may be believed.

Algorithms: 0x01 Ed25519 (RFC 8032) over the text; 0x04 and 0x06 are cosignatures, whose messages
``cosignature.py`` knows.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ledger.errors import Malformed, Refused, Unverified
from ledger.format.cosignature import COSIGNATURE_ED25519, COSIGNATURE_MLDSA44, Subtree, verify_cosignature

ED25519 = 0x01
MAX_NOTE_BYTES = 1_000_000
MAX_SIGNATURES = 100

_PUBLIC_SIZES = {ED25519: 32, COSIGNATURE_ED25519: 32, COSIGNATURE_MLDSA44: 1312}
_KEPT = 4096
"""Characters of a text whose signatures are remembered: a checkpoint has some hundred."""
_MARK = "— "
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


@dataclass(frozen=True)
class VerifierKey:
    """A public key under a name. As text: ``name+<8 hexadecimal digits>+<base64>``.

    ``until`` is the size of the largest tree for which its signatures count, where the key was retired.
    """

    name: str
    algorithm: int
    public: bytes
    until: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_key_name(self.name)
        if len(self.public) != _PUBLIC_SIZES.get(self.algorithm):
            raise Malformed(
                "not a verifier key",
                where=self.name,
                expected="Ed25519 (0x01) or a cosignature key (0x04, 0x06) of the right length",
                found=f"algorithm {self.algorithm:#04x} with {len(self.public)} bytes",
            )

    @cached_property
    def key_id(self) -> int:
        material = b"\n".join((self.name.encode(), bytes([self.algorithm]) + self.public))
        return int.from_bytes(hashlib.sha256(material).digest()[:4])

    def __str__(self) -> str:
        encoded = base64.b64encode(bytes([self.algorithm]) + self.public).decode()
        return f"{self.name}+{self.key_id:08x}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """The key of its text; ``Malformed`` unless the id that it shows is its own."""
        # The base64 may hold '+' itself, so only the first two separate.
        parts = text.strip().split("+", 2)
        if len(parts) != 3 or not re.fullmatch(r"[0-9a-f]{8}", parts[1]):
            raise Malformed("not a verifier key", where=repr(text[:80]), expected="name+<8 hex digits>+<base64>")
        name, shown, encoded = parts
        material = decode_base64(encoded, "verifier key")
        if not material:
            raise Malformed("not a verifier key", where=name, expected="an algorithm byte and a key", found="nothing")
        key = cls(name, material[0], material[1:])
        if f"{key.key_id:08x}" != shown:
            raise Malformed(
                "a verifier key does not have the id it shows",
                where=name,
                expected=f"{key.key_id:08x}",
                found=shown,
                cure="copy the key again, whole",
            )
        return key

    def verify(self, text: str, signature: bytes) -> bool:
        """Whether ``signature`` (without the key id) is this key's over ``text``."""
        if self.algorithm != ED25519:
            return verify_cosignature(self.algorithm, self.name, self.public, text, signature)
        signed = _signed_before if len(text) <= _KEPT else _signed
        return signed(self.public, text, signature)

    def verify_subtree(self, subtree: Subtree, signature: bytes) -> bool:
        """Whether ``signature`` (without the key id) is this key's cosignature of a subtree."""
        return verify_cosignature(self.algorithm, self.name, self.public, subtree, signature)


def _signed(public: bytes, text: str, signature: bytes) -> bool:
    """Whether this is an Ed25519 signature over the text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


_signed_before = lru_cache(maxsize=32)(_signed)
"""The same: a log's checkpoint is read again and again before it grows."""


class NoteSigner(Protocol):
    """What signs a note: a key under a name. ``Signer`` and ``cosignature.Cosigner`` are such."""

    @property
    def verifier(self) -> VerifierKey:
        """The public half."""

    def sign(self, text: str) -> bytes:
        """The signature over ``text``, without the key id."""


@dataclass(frozen=True)
class Signer:
    """An Ed25519 key under a name. A hybrid key has companions, which sign beside it, each on a line of its own."""

    name: str
    key: Ed25519PrivateKey
    companions: tuple[NoteSigner, ...] = ()

    @cached_property
    def verifier(self) -> VerifierKey:
        return VerifierKey(self.name, ED25519, self.key.public_key().public_bytes_raw())

    @property
    def verifiers(self) -> tuple[VerifierKey, ...]:
        """The public halves of this key and of its companions."""
        return (self.verifier, *(companion.verifier for companion in self.companions))

    def sign(self, text: str) -> bytes:
        """The Ed25519 signature of a note's text."""
        return self.key.sign(text.encode())


@dataclass(frozen=True)
class NoteSignature:
    """One signature line."""

    name: str
    key_id: int
    signature: bytes

    def __str__(self) -> str:
        encoded = base64.b64encode(self.key_id.to_bytes(4) + self.signature).decode()
        return f"{_MARK}{self.name} {encoded}\n"

    @classmethod
    def parse(cls, line: str) -> NoteSignature:
        """One signature line, without its newline.

        Raises:
            Malformed: not a signature line.
        """
        name, separator, encoded = line.removeprefix(_MARK).partition(" ")
        if not line.startswith(_MARK) or not separator:
            raise Malformed("not a signature line", where=repr(line[:80]), expected="'— <key name> <base64>'")
        check_key_name(name)
        raw = decode_base64(encoded, "signature line")
        if len(raw) < 5:
            raise Malformed(
                "not a signature line", where=name, expected="a key id and a signature", found="too few bytes"
            )
        return cls(name, int.from_bytes(raw[:4]), raw[4:])


@dataclass(frozen=True)
class Note:
    """Text and signature lines, not yet believed."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(map(str, self.signatures))}"


def parse_note(data: bytes) -> Note:
    """The parts of a note. Nothing is verified.

    Raises:
        Malformed: not a signed note.
    """
    if len(data) > MAX_NOTE_BYTES:
        raise Malformed("not a signed note", expected=f"at most {MAX_NOTE_BYTES} bytes", found=f"{len(data)}")
    try:
        whole = data.decode()
    except UnicodeDecodeError as error:
        raise Malformed("not a signed note", expected="UTF-8", found=f"byte {error.start} is not") from None
    if control := _CONTROL.search(whole):
        raise Malformed("not a signed note", expected="no control characters", found=repr(control.group()))
    body, separator, tail = whole.rpartition("\n\n")
    if not separator or not tail.endswith("\n"):
        raise Malformed("not a signed note", expected="text, an empty line, and signature lines that end in newlines")
    lines = tail[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise Malformed("not a signed note", expected=f"at most {MAX_SIGNATURES} signatures", found=f"{len(lines)}")
    return Note(f"{body}\n", tuple(NoteSignature.parse(line) for line in lines))


def sign_note(text: str, signers: Sequence[NoteSigner], *, keep: Iterable[NoteSignature] = ()) -> str:
    """``text`` as a note with a signature of each signer, after the signatures to keep.

    Raises:
        Refused: the text cannot be a note.
    """
    if not text.endswith("\n") or _CONTROL.search(text):
        raise Refused("text that cannot be a note", expected="a final newline and no control characters")
    made = [NoteSignature(s.verifier.name, s.verifier.key_id, s.sign(text)) for s in signers]
    return str(Note(text, (*keep, *made)))


def add_signatures(data: bytes, lines: Iterable[NoteSignature]) -> bytes:
    """The note ``data`` with these signature lines behind its own, each key once. Nothing is verified."""
    note = parse_note(data)
    have = {(line.name, line.key_id) for line in note.signatures}
    fresh = [line for line in lines if (line.name, line.key_id) not in have]
    return str(Note(note.text, (*note.signatures, *fresh))).encode()


def open_note(data: bytes, keys: Sequence[VerifierKey]) -> tuple[Note, tuple[VerifierKey, ...]]:
    """The note and the known keys that signed it. ``Unverified`` unless at least one did and none of them wrongly."""
    note = parse_note(data)
    known: dict[tuple[str, int], VerifierKey] = {(key.name, key.key_id): key for key in keys}
    good: list[VerifierKey] = []
    for line in note.signatures:
        key = known.get((line.name, line.key_id))
        if key is None or key in good:
            continue
        if not key.verify(note.text, line.signature):
            raise Unverified(
                "a signature does not hold",
                where=f"{line.name}+{line.key_id:08x}",
                expected="the signature of this text",
                found="one of another text or key",
                cure="the note was changed, or the key is not the one that signed",
            )
        good.append(key)
    if not good:
        signed = ", ".join(f"{line.name}+{line.key_id:08x}" for line in note.signatures[:4])
        trusted = ", ".join(f"{key.name}+{key.key_id:08x}" for key in keys[:4]) or "no key at all"
        raise Unverified(
            "no trusted key signed", expected=trusted, found=signed, cure="give the verifier key of this log"
        )
    return note, tuple(good)


@lru_cache(maxsize=256)
def check_key_name(name: str) -> str:
    """Return ``name`` if it can name a key: not empty, no spaces, no plus, no control characters.

    Raises:
        Malformed: not a key name.
    """
    if not name or "+" in name or not name.isprintable() or any(c.isspace() for c in name):
        raise Malformed("not a key name", where=repr(name[:80]), expected="printable text without spaces or '+'")
    return name


def decode_base64(text: str, what: str) -> bytes:
    """Standard base64 (RFC 4648, section 4) in its one canonical form.

    Raises:
        Malformed: not base64 in its canonical form.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"not base64 in a {what}", found=repr(text[:80])) from None
    if base64.b64encode(raw).decode() != text:
        raise Malformed(f"base64 with stray bits in a {what}", found=repr(text[:80]))
    return raw
