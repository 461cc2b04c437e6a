"""The language of a text, by the naive Bayes model of langid (Lui and Baldwin 2012) that the wheel py3langid brings.

The library adds floats in an order that is its processor's. Here the same model decides by integers: each weight is rounded
to 2^-16 once, each count's ln(1+n) to 2^-16, and the products are summed exactly; of equal sums the first language counts.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from marin.plugins.collections.document import Decision, Document, Judgement, Scalar

SCALE = 1 << 16


class Language(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Only documents in one of ``keep`` (ISO 639-1) stay. Of a text the first ``most_characters`` are looked at."""

    keep: Annotated[tuple[str, ...], Meta(min_length=1)] = ("en",)
    most_characters: Annotated[int, Meta(ge=1, le=1 << 20)] = 16384

    def make(self) -> Identify:
        """The step."""
        return Identify(self)


class Identify:
    """The :class:`marin.plugins.collections.document.Step` ``language``."""

    def __init__(self, settings: Language) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._settings = settings
        self._model: Any = LanguageIdentifier.from_model_file(MODEL_FILE)
        self._rows = [row << 8 for row in self._model.tk_row]
        self._weights = np.rint(np.asarray(self._model.nb_ptc, np.float64) * SCALE).astype(np.int64)
        self._prior = np.rint(np.asarray(self._model.nb_pc, np.float64) * SCALE).astype(np.int64) * SCALE

    def judge(self, document: Document) -> Judgement:
        found = self.language(document.text[: self._settings.most_characters])
        if found in self._settings.keep:
            return Judgement(document)
        evidence = self._evidence(found)
        return Judgement(None, (Decision(document.id, "language", "remove", "language", evidence),))

    def measured(self, document: Document) -> Mapping[str, Any]:
        return self._evidence(self.language(document.text[: self._settings.most_characters]))

    def _evidence(self, found: str) -> dict[str, Scalar]:
        return {"language": found, "keep": ",".join(self._settings.keep)}

    def language(self, text: str) -> str:
        """The language of a text, ``und`` where the model has seen nothing of it."""
        from py3langid.langid import visit_counts

        model = self._model
        encoded = unicodedata.normalize("NFC", text.lower() if text.isupper() else text).encode()
        visits = visit_counts(model.tk_nextmove, self._rows, model.tk_output, encoded)
        if not visits:
            return "und"
        rows = np.fromiter(visits.keys(), np.intp, len(visits))
        counts = np.array([round(math.log1p(count) * SCALE) for count in visits.values()], np.int64)
        scores = (counts[:, None] * self._weights[rows]).sum(axis=0) + self._prior
        return str(model.nb_classes[int(scores.argmax())])
