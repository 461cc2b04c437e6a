"""The quality classifier: a linear model that the collection trains itself, as a shard of its own, and then asks.

What is good is shown by texts, not said: ``good`` are files of texts as one wants them, ``bad`` of such as one does not, or else
a sample of what the collection itself has read, drawn by content, as large corpora do it (Brown et al. 2020, appendix A; Li et
al. 2024, DataComp-LM). The model is :mod:`marin.plugins.collections.comparing.linear`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from marin.plugins.collections.comparing.linear import Linear, features, logit
from marin.plugins.collections.document import Decision, Document, Judgement, Scalar, Step


class Quality(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Documents go whose probability of being ``good`` is below ``threshold``, a decimal that is taken exactly.

    Of each side at most ``examples`` are trained on, those whose digests come first; a tenth of them, by content, is held out and
    only counted. ``order``, ``bits``: n-grams up to so many words, into 2^bits buckets. Of a text the first ``most_characters``
    are looked at."""

    good: Annotated[tuple[str, ...], Meta(min_length=1)]
    bad: tuple[str, ...] = ()
    threshold: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.5
    examples: Annotated[int, Meta(ge=10, le=1_000_000)] = 10_000
    order: Annotated[int, Meta(ge=1, le=5)] = 2
    bits: Annotated[int, Meta(ge=8, le=24)] = 18
    epochs: Annotated[int, Meta(ge=1, le=100)] = 5
    most_characters: Annotated[int, Meta(ge=1, le=1 << 20)] = 16384

    def make(self) -> Step:
        """Not without its model: see :meth:`open`."""
        raise TypeError("a quality classifier is opened with its model")

    def open(self, model: Path) -> Step:
        """The step, with the model that was trained for it."""
        return Classify(self, Linear(np.load(model, allow_pickle=False)))


class Classify:
    """The :class:`marin.plugins.collections.document.Step` ``quality``."""

    def __init__(self, settings: Quality, model: Linear) -> None:
        self._settings, self._model = settings, model
        self._least = logit(Fraction(repr(settings.threshold)))

    def judge(self, document: Document) -> Judgement:
        """See :class:`marin.plugins.collections.document.Step`. A document goes when ``sum`` is less than ``threshold`` times
        ``features``, all whole numbers: weights and threshold are log-odds in units of 2^-16."""
        total, count = self._sums(document)
        if total >= self._least * count:
            return Judgement(document)
        evidence: dict[str, Scalar] = {"sum": total, "features": count, "threshold": self._least}
        return Judgement(None, (Decision(document.id, "quality", "remove", "quality", evidence),))

    def measured(self, document: Document) -> Mapping[str, Any]:
        total, count = self._sums(document)
        return {"sum": total, "features": count, "threshold": self._least}

    def _sums(self, document: Document) -> tuple[int, int]:
        text = document.text[: self._settings.most_characters]
        sums, counts = self._model.sums(features([text], self._settings.order, self._settings.bits))
        return int(sums[0]), int(counts[0])
