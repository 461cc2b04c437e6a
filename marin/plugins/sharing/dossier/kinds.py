"""The type of event that a dossier writes."""

from __future__ import annotations

from marin.kinds.body import Body, Json
from marin.kinds.kind import Kind

CARD_STATED = "card.stated/v1"


class CardStated(Body, frozen=True):
    """What a provider states of the model of run ``about``, by name (:mod:`marin.plugins.sharing.dossier.stated`), in the stream
    ``card/<about>``. The newest counts."""

    about: str
    values: Json


KINDS = (Kind(CARD_STATED, CardStated),)
