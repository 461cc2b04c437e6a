"""Whom this user trusts, changed: the files of :mod:`marin.record.trust.trusted`, each written whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ledger import Refused, VerifierKey, WitnessPolicy
from marin.process.files import write_whole
from marin.record.trust.trusted import Trust, read_trusted


def add_keys(trust: Trust, keys: Sequence[VerifierKey]) -> None:
    """Trust these keys; one that is there already stays."""
    _write_lines(trust.keys_file, list(dict.fromkeys([*map(str, trust.all_keys()), *map(str, keys)])))


def remove_key(trust: Trust, name: str) -> list[VerifierKey]:
    """Trust no more the keys of this origin, or the one with this text; the keys that were removed.

    Raises:
        Refused: no such key is trusted.
    """
    keys = trust.all_keys()
    gone = [key for key in keys if name in (key.name, str(key))]
    if not gone:
        raise Refused(
            "no such key is trusted",
            where=str(trust.keys_file),
            found=name,
            expected="an origin or a verifier key of the list",
            cure="see `marin trust ls`",
        )
    _write_lines(trust.keys_file, [str(key) for key in keys if key not in gone])
    return gone


def add_authorities(trust: Trust, certificates: bytes) -> None:
    """Trust these too: PEM, as :func:`ledger.pem_bytes` writes what was read as certificates."""
    before = read_trusted(trust.authorities_file) if trust.authorities_file.exists() else b""
    if certificates not in before:
        write_whole(trust.authorities_file, before + certificates)


def add_repository(trust: Trust, folder: Path) -> None:
    """Count the anchors in this Git repository."""
    _write_lines(trust.repositories_file, list(dict.fromkeys([*map(str, trust.repositories()), str(folder.resolve())])))


def set_own_policy(trust: Trust, source: Path) -> WitnessPolicy:
    """Take this file as the policy of witnesses that count for this user."""
    data = read_trusted(source)
    policy = WitnessPolicy.parse(data)
    write_whole(trust.policy_file, data)
    return policy


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())
