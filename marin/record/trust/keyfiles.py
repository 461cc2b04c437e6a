"""Where this user's private keys lie: the log's own, and beside it those of the same user for the same log."""

from __future__ import annotations

import os
from pathlib import Path

from ledger import default_key_path

KEY_VARIABLE = "MARIN_KEY"


def key_path(origin: str) -> Path:
    """Where the signing key of the log ``origin`` is looked for."""
    given = os.environ.get(KEY_VARIABLE)
    return Path(given) if given else default_key_path(origin)


def author_key_path(origin: str) -> Path:
    """This user's key as an author in that log."""
    return _for_the_same_log(origin, "author")


def service_key_path(origin: str) -> Path:
    """The key that the append service of that log shows to other machines. It signs nothing."""
    return _for_the_same_log(origin, "service")


def attestation_key_path(origin: str) -> Path:
    """The key for attestations of that log."""
    return _for_the_same_log(origin, "attestations")


def _for_the_same_log(origin: str, what: str) -> Path:
    path = key_path(origin)
    return path.with_name(f"{path.name}.{what}")
