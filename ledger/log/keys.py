"""The signing key: a file outside the root and outside Git, for its owner's eyes only.

The file holds a line ``origin: <name>``, a line ``vkey: <verifier key>`` for each half, then the Ed25519 key as PKCS #8
PEM (RFC 7468 allows text before it), encrypted where a passphrase was given. The name is the log's origin, under
which the key signs. A file that others can read is refused: anyone who holds the key can fork the log without leaving a
trace in it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from ledger.errors import Malformed, Refused, Unavailable
from ledger.format.cosigner import Cosigner
from ledger.format.note import Signer, VerifierKey, check_key_name

PASSPHRASE_VARIABLE = "MARIN_KEY_PASSPHRASE"  # noqa: S105 - the name of a variable

_ORIGIN = re.compile(rb"\Aorigin: ([^\n]+)\n")
_VKEY = re.compile(rb"^vkey: ([^\n]+)\n", re.MULTILINE)
_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----\n.*?\n-----END [A-Z ]+-----\n?", re.DOTALL)


def default_key_path(origin: str) -> Path:
    """Where the key of this log lies unless told otherwise: the user's configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "marin" / f"{quote(origin, safe='')}.key"


def public_keys(path: Path) -> tuple[VerifierKey, ...]:
    """The verifier keys of the signing key at ``path``: those that the file shows, or derived where it is an older one,
    which may need the passphrase."""
    shown = [VerifierKey.parse(text.decode("utf-8", "replace")) for text in _VKEY.findall(read_private(path))]
    return tuple(shown) or load_signer(path).verifiers


def load_signer(path: Path, *, passphrase: str | None = None) -> Signer:
    """The signer whose key lies at ``path``.

    Raises:
        Unavailable: there is no file, it cannot be read, or it is encrypted and no passphrase was given.
        Refused: it is not a key file.
        Refused: others can read it, the passphrase is wrong, or the key is damaged.
    """
    data = read_private(path)
    origin = _ORIGIN.match(data)
    assert origin is not None, "looked at when it was read"
    secret = secret_of(passphrase)
    encrypted = b"ENCRYPTED" in data
    if encrypted and not secret:
        raise Unavailable(
            "the key is encrypted", where=str(path), expected="its passphrase", cure=f"set {PASSPHRASE_VARIABLE}"
        )
    try:
        keys = [
            serialization.load_pem_private_key(block, secret if encrypted else None) for block in _PEM.findall(data)
        ]
        name = origin[1].decode()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Refused(
            "the key could not be read",
            where=str(path),
            found="wrong passphrase or damaged file" if encrypted else str(error)[:120],
            cure="give the right passphrase, or restore the file from its copy",
        ) from error
    return signer_of(check_key_name(name), keys, path)


def signer_of(name: str, keys: Sequence[object], path: Path) -> Signer:
    """What signs for ``name`` with the keys of a file; :class:`Malformed` where these are not keys of a log."""
    match keys:
        case [Ed25519PrivateKey() as key]:
            return Signer(name, key)
        case [Ed25519PrivateKey() as key, MLDSA44PrivateKey() as other]:
            return Signer(name, key, (Cosigner(name, other),))
    found = ", ".join(type(key).__name__ for key in keys) or "none"
    raise Malformed("not a key of this log", where=str(path), expected="Ed25519, perhaps with ML-DSA-44", found=found)


def read_private(path: Path) -> bytes:
    """The content of a key file, which nobody else can read.

    Raises:
        Unavailable: there is no file, or it cannot be read.
        Refused: others can read it, or it is not a key file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO is not waited for
    except FileNotFoundError:
        raise Unavailable(
            "there is no signing key", where=str(path), cure="create one, or name the file that holds it"
        ) from None
    except OSError as error:
        raise Unavailable(
            "the signing key cannot be read",
            where=str(path),
            found=str(error.strerror),
            cure="check its owner and mode",
        ) from error
    try:
        stream = os.fdopen(descriptor, "rb")
    except OSError:  # a folder, which may be opened and not read
        os.close(descriptor)
        raise _no_key(path, "a folder") from None
    with stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        data = stream.read(1 << 20)
        if _ORIGIN.match(data) is None:  # said first: nobody should change the mode of a file that is something else
            raise _no_key(path, "something else")
        if mode & 0o077:
            raise Refused(
                "others can read the signing key",
                where=str(path),
                expected="mode 0600",
                found=f"{mode:04o}",
                cure=f"run `chmod 600 {path}`, and make a new key if somebody may have copied it",
            )
        return data


def _no_key(path: Path, found: str) -> Refused:
    return Refused(
        "not a key file",
        where=str(path),
        expected="a first line 'origin: <name>'",
        found=found,
        cure="name the file that holds the private key",
    )


def secret_of(given: str | None) -> bytes | None:
    """The passphrase that was given, or else the environment's."""
    text = given if given is not None else os.environ.get(PASSPHRASE_VARIABLE)
    return text.encode() if text else None
