"""The log checkpoint (C2SP tlog-checkpoint): which log, how many leaves, which root.

    example.com/behind-the-sofa
    20852163
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

Three lines, then extension lines that nobody audits: they are kept when read, and this log writes none.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.errors import Malformed, Unverified
from ledger.format.note import Note, NoteSigner, VerifierKey, decode_base64, open_note, sign_note
from ledger.format.tlog import HASH_SIZE

_SIZE = re.compile(r"(0|[1-9][0-9]{0,18})\Z")


@dataclass(frozen=True)
class LogCheckpoint:
    """What a log signs: its origin, size and root. ``str()`` is the text that is signed."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = (self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.extensions)
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> LogCheckpoint:
        """The log checkpoint of a signed text; ``Malformed`` if it is not one. No signature is looked at."""
        lines = text.split("\n")
        if len(lines) < 4 or lines[-1] or not all(lines[:-1]):
            raise Malformed("not a log checkpoint", expected="origin, size and root on three lines, none empty")
        origin, size, root, *extensions = lines[:-1]
        if not _SIZE.match(size) or int(size) >= 1 << 63:
            raise Malformed("not a log checkpoint", where=origin[:80], expected="a decimal size", found=repr(size[:40]))
        decoded = decode_base64(root, "log checkpoint")
        if len(decoded) != HASH_SIZE:
            raise Malformed("not a log checkpoint", where=origin[:80], expected="a root of 32 bytes")
        return cls(origin, int(size), decoded, tuple(extensions))

    def sign(self, signers: Sequence[NoteSigner]) -> str:
        """This checkpoint as a signed note."""
        return sign_note(str(self), signers)


def open_checkpoint(
    data: bytes, keys: Sequence[VerifierKey], *, origin: str | None = None, own_name: bool = False
) -> tuple[LogCheckpoint, Note]:
    """The checkpoint in a signed note, once a known key is seen to have signed it, and for ``origin`` if that is
    given. ``own_name``: only a key whose name is the origin counts, as in every log that this package writes.

    Raises:
        Unverified: no key that counts signed it, or it is another log's.
    """
    note, signed = open_note(data, keys)
    checkpoint = LogCheckpoint.parse(note.text)
    if own_name and not (named := tuple(key for key in signed if key.name == checkpoint.origin)):
        raise Unverified(
            "a key signed under another origin than its name",
            where=f"checkpoint of {checkpoint.origin}",
            expected=f"origin {signed[0].name}, which the key is named for",
            found=checkpoint.origin,
            cure="do not trust this log: a key signs the one log that it is named for",
        )
    signed = named if own_name else signed
    if all(key.until is not None and checkpoint.size > key.until for key in signed):
        raise Unverified(
            "only retired keys signed",
            where=f"{checkpoint.origin}, size {checkpoint.size}",
            expected=f"a size up to {max(key.until or 0 for key in signed)}, or a newer key",
            found=", ".join(f"{key.name}+{key.key_id:08x}" for key in signed),
            cure="do not trust this checkpoint: anyone who has the retired key may have signed it",
        )
    if origin is not None and checkpoint.origin != origin:
        raise Unverified(
            "a checkpoint of another log",
            expected=origin,
            found=checkpoint.origin,
            cure="name the right root, or trust that log's key",
        )
    return checkpoint, note
