"""Whom this user trusts: verifier keys, witnesses, time stamp authorities and Git repositories, from the user's own files alone.

They lie in the user's configuration folder, and `marin trust` writes them (:mod:`marin.record.trust.changes`):

    trust/keys             verifier keys of logs, one on a line
    trust/witness-policy   witnesses and how many of them must have cosigned (C2SP tlog-policy)
    trust/authorities.pem  certificates of time stamp authorities
    trust/repositories     Git repositories in which anchors of logs are looked for, one on a line

What a root brings of the kind is a claim of its operator, and supports nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ledger import LedgerError, Unavailable, VerifierKey

TRUST_VARIABLE = "MARIN_TRUST"
AUTHORITIES_VARIABLE = "MARIN_TSA_CA"

Source = Literal["given", "trusted", "own", "claimed"]
"""Whose word a key is: the command line's, this user's trusted keys, the own signing key, or the root's alone."""


CLAIMED = "claimed by this log:"
"""What stands before a sentence for which only the log itself speaks."""
WITNESSES = "witnesses"
"""The kind of what the verifier's own witnesses vouch for."""


def default_trust() -> Trust:
    """``MARIN_TRUST``, or ``marin/trust`` in the user's configuration folder (XDG base directory specification)."""
    chosen = os.environ.get(TRUST_VARIABLE)
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Trust(Path(chosen) if chosen else base / "marin" / "trust")


@dataclass(frozen=True)
class Keys:
    """The keys under which a log is read, and whose word they are."""

    verifiers: tuple[VerifierKey, ...]
    source: Source

    @property
    def mine(self) -> bool:
        """Whether the verifier named them, rather than the root."""
        return self.source != "claimed"


@dataclass(frozen=True)
class Trust:
    """The folder. What is not there is not trusted."""

    folder: Path

    @property
    def keys_file(self) -> Path:
        """Verifier keys, one on a line."""
        return self.folder / "keys"

    @property
    def policy_file(self) -> Path:
        """A C2SP tlog-policy."""
        return self.folder / "witness-policy"

    @property
    def authorities_file(self) -> Path:
        """PEM."""
        return self.folder / "authorities.pem"

    @property
    def repositories_file(self) -> Path:
        """Paths, one on a line."""
        return self.folder / "repositories"

    def all_keys(self) -> list[VerifierKey]:
        """The trusted verifier keys of all logs."""
        found = []
        for line in _read_lines(self.keys_file):
            try:
                found.append(VerifierKey.parse(line))
            except LedgerError as error:
                raise unusable(self.keys_file, "name+hash+base64 on each line", repr(line[:80])) from error
        return found

    def authorities(self) -> Path | None:
        """The file of certificates: what ``MARIN_TSA_CA`` names, or this folder's."""
        if named := os.environ.get(AUTHORITIES_VARIABLE):
            return Path(named)
        return self.authorities_file if self.authorities_file.exists() else None

    def repositories(self) -> list[Path]:
        """Git repositories whose anchors count."""
        return [Path(line) for line in _read_lines(self.repositories_file)]


def _read_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    lines = read_trusted(path).decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def read_trusted(path: Path) -> bytes:
    """The bytes of a file of trust.

    Raises:
        Unavailable: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unavailable(
            "a file of trust cannot be read",
            where=str(path),
            found=str(error.strerror),
            expected="a file of yours",
            cure="check its path, owner and mode",
        ) from error


def unusable(path: Path, expected: str, found: str) -> Unavailable:
    """The error of a file of trust that says something else than it may."""
    return Unavailable(
        "a file of trust cannot be read",
        where=str(path),
        expected=expected,
        found=found,
        cure="mend the file or remove it",
    )
