"""What a document passed: each configured step that neither removed nor changed it, with its rules, their thresholds, and the
values that the rules find when they are asked again."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger import LedgerError, Store
from marin.plugins.collections.comparing.contamination import REASON as CONTAMINATED
from marin.plugins.collections.comparing.contamination import STEP as CONTAMINATION
from marin.plugins.collections.comparing.linear import Linear
from marin.plugins.collections.document import Document, Step
from marin.plugins.collections.settings import divided, settings_of, step_settings
from marin.plugins.collections.steps.quality import Classify, Quality
from marin.recipe.schema import unplain

Row = Mapping[str, Any]
REASONS = ("language", "quality")
"""Kinds of steps whose reason is their own name; that of the others is ``rule:<name>``."""


def with_passed(
    store: Store, artifact: str, told: Row, document: Document | None, decided: Sequence[Row]
) -> Iterator[Row]:
    """The decisions of the steps of one document in the order of the steps, up to the first that removed it, with a ``keep`` of
    each that said nothing.

    Args:
        told: the description of the collection ``artifact``.
        document: as it was before it was judged; None where that is not in the store, and then a ``keep`` has the settings of its
            step and no values.
        decided: what the steps said, in order.
    """
    settings = settings_of(unplain(told["settings"]), where=artifact)
    first, rest = divided(settings.steps)
    waiting = list(decided)
    for step in first:
        yield from (said := _taken(waiting, step["kind"])) or [_keep(step["kind"], _settings(step))]
        if _went(said):
            return
    for place, step in enumerate(rest, start=len(first)):
        said = _taken(waiting, step["kind"])
        made = None if document is None else step_at(store, artifact, settings.steps, place)
        if said:
            yield from said
            if _went(said):
                return
        else:
            yield _keep(step["kind"], _settings(step) if made is None or document is None else made.measured(document))
        document = None if made is None or document is None else made.judge(document).document
    said = _taken(waiting, CONTAMINATION)
    if not said and told["evaluations"]:
        names = ", ".join(sorted(item["name"] for item in told["evaluations"]))
        asked = settings.contamination
        evidence = {"evaluations": names, "hits": 0, "words": asked.words, "shortest": asked.shortest}
        yield _keep_row(CONTAMINATION, CONTAMINATED, evidence)
    yield from said


def _taken(waiting: list[Row], kind: str) -> list[Row]:
    """The next decisions, those of this step."""
    count = next((number for number, one in enumerate(waiting) if one["step"] != kind), len(waiting))
    said = waiting[:count]
    del waiting[:count]
    return said


def _went(said: Sequence[Row]) -> bool:
    return any(one["action"] == "remove" for one in said)


def _keep(kind: str, evidence: Mapping[str, Any]) -> Row:
    return _keep_row(kind, kind if kind in REASONS else f"rule:{kind}", evidence)


def _keep_row(step: str, reason: str, evidence: Mapping[str, Any]) -> Row:
    return {"step": step, "action": "keep", "reason": reason, "evidence": dict(evidence)}


def _settings(step: Row) -> Row:
    return {key: value for key, value in step.items() if key != "kind"}


def step_at(store: Store, artifact: str, steps: Sequence[dict[str, Any]], place: int) -> Step | None:
    """The step at ``place`` of a collection's settings; None where its model is not in the store, or does not fit these settings:
    the bytes that :func:`numpy.save` makes of int64[2^bits + 1], and no header that says otherwise."""
    ((_, made),) = step_settings([steps[place]], where=artifact)
    if not isinstance(made, Quality):
        return made.make()
    plain = np.zeros((1 << made.bits) + 1, "<i8")
    size = len(saved := _saved(plain))
    try:
        with store.open_file(artifact, f"models/steps-{place}.npy") as file:
            data = file.read(size + 1)
    except (LedgerError, KeyError, ValueError):
        return None
    if len(data) != size or not data.startswith(saved[: size - plain.nbytes]):
        return None
    return Classify(made, Linear(np.frombuffer(data[size - plain.nbytes :], "<i8").astype(np.int64)))


def _saved(array: NDArray[np.int64]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()
