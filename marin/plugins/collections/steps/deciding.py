"""How the steps of web pages say what they decided: one shape of evidence, and fractions compared as integers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from marin.plugins.collections.document import Decision, Document, Judgement, Scalar


def removed(document: Document, step: str, rule: str, **evidence: Scalar) -> Judgement:
    """A removal by ``rule``."""
    return Judgement(None, (Decision(document.id, step, "remove", f"rule:{rule}", evidence),))


def changed(document: Document, text: str, step: str, rule: str, **evidence: Scalar) -> Judgement:
    """A new text by ``rule``; no decision where it is the same."""
    if text == document.text:
        return Judgement(document)
    return Judgement(replace(document, text=text), (Decision(document.id, step, "change", f"rule:{rule}", evidence),))


def above(part: int, whole: int, threshold: Fraction) -> bool:
    """Whether part/whole is more than the threshold, exactly; False of nothing."""
    return part * threshold.denominator > threshold.numerator * whole


def below(part: int, whole: int, threshold: Fraction) -> bool:
    """Whether part/whole is less than the threshold, exactly; False of nothing."""
    return part * threshold.denominator < threshold.numerator * whole
