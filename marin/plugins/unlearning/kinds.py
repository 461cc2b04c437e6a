"""The type of event that this plugin writes."""

from __future__ import annotations

from msgspec import Struct

from marin.kinds.body import Body, Digest, HexFloat
from marin.kinds.kind import Kind

ATTRIBUTION_MEASURED = "attribution.measured/v1"


class MeasuredLoss(Struct, frozen=True, kw_only=True):
    """One set of texts on one state: ``data`` is the stored JSON lines, ``loss`` the mean in nats a token, ``sums`` the stored
    float64 of every document's negative log-likelihood (little-endian, in the order of the lines)."""

    data: Digest
    sums: Digest
    loss: HexFloat


class AttributionMeasured(Body, frozen=True):
    """What the losses of run ``about`` are if its training leaves ``documents`` out (none: the run as it is), in the stream
    ``attribution/<about>``. ``first_use``: the first train step that read one of them; the training was executed again
    from ``step`` and its recorded ``state``, and ended with ``end_state``. ``same_tokenizer``: trained without the
    documents, the tokenizer is the run's own, so that this is the training without them; null where that was not asked.
    The tokens are the run's own in any case. ``code`` and ``lock`` are what measured it."""

    about: str
    documents: list[str]
    first_use: int | None
    step: int
    state: Digest
    end_state: Digest
    same_tokenizer: bool | None
    sets: dict[str, MeasuredLoss]
    code: Digest
    lock: Digest


KINDS = (Kind(ATTRIBUTION_MEASURED, AttributionMeasured),)
