"""Whom this user trusts: verifier keys, witnesses, time stamp authorities and Git repositories, from the user's own files alone.

They lie in the user's configuration folder, and `marin trust` writes them:

    trust/keys             verifier keys of logs, one on a line
    trust/witness-policy   witnesses and how many of them must have cosigned (C2SP tlog-policy)
    trust/authorities.pem  certificates of time stamp authorities
    trust/repositories     Git repositories in which anchors of logs are looked for, one on a line

What a root brings of the kind is a claim of its operator, and supports nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ledger import LedgerError, Refused, Unavailable, VerifierKey
from marin.process.files import write_whole

if TYPE_CHECKING:
    pass

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

    def add_keys(self, keys: Sequence[VerifierKey]) -> None:
        """Trust these keys; one that is there already stays."""
        _write_lines(self.keys_file, list(dict.fromkeys([*map(str, self.all_keys()), *map(str, keys)])))

    def remove_key(self, name: str) -> list[VerifierKey]:
        """Trust no more the keys of this origin, or the one with this text; the keys that were removed.

        Raises:
            Refused: no such key is trusted.
        """
        keys = self.all_keys()
        gone = [key for key in keys if name in (key.name, str(key))]
        if not gone:
            raise Refused(
                "no such key is trusted",
                where=str(self.keys_file),
                found=name,
                expected="an origin or a verifier key of the list",
                cure="see `marin trust ls`",
            )
        _write_lines(self.keys_file, [str(key) for key in keys if key not in gone])
        return gone

    def add_authorities(self, certificates: bytes) -> None:
        """Trust these too: PEM, as :func:`ledger.pem_bytes` writes what was read as certificates."""
        before = read_trusted(self.authorities_file) if self.authorities_file.exists() else b""
        if certificates not in before:
            write_whole(self.authorities_file, before + certificates)

    def add_repository(self, folder: Path) -> None:
        """Count the anchors in this Git repository."""
        _write_lines(
            self.repositories_file, list(dict.fromkeys([*map(str, self.repositories()), str(folder.resolve())]))
        )


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


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())


def unusable(path: Path, expected: str, found: str) -> Unavailable:
    """The error of a file of trust that says something else than it may."""
    return Unavailable(
        "a file of trust cannot be read",
        where=str(path),
        expected=expected,
        found=found,
        cure="mend the file or remove it",
    )
