"""What all bodies of events are made of."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
HexFloat = Annotated[str, Meta(pattern=r"^-?(0x[01]\.[0-9a-f]{1,13}p[+-](\d{1,3}|10[01]\d|102[0-3])|inf|nan)$")]
Json = dict[str, Any]


class Body(Struct, frozen=True, kw_only=True):
    """Base of all bodies. Unknown fields are allowed: a reader keeps what a later minor writer adds."""


class Output(Body, frozen=True):
    """What a step made. ``digest`` names the content; ``artifact`` the stored bytes (equal where the bytes are
    canonical)."""

    kind: str
    digest: Digest
    size: int
    artifact: Digest
