"""What every part of a recipe is made of: its base, and the ranges of its values."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Rate = Annotated[float, Meta(ge=0.0, le=1.0)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Weight = Annotated[float, Meta(ge=0.0, le=1e6)]
DocumentId = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Documents = Annotated[tuple[DocumentId, ...], Meta(min_length=1, max_length=500)]
"""Ids of documents as `marin data list RUN` shows them, each once, in order."""


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every part of a recipe: immutable, keyword-only, no unknown keys."""
