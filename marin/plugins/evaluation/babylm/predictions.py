"""What the pipeline writes of answers: predictions by subtask, and one file of everything for its leaderboard.

The file is that of ``evaluation_pipeline.collate_preds``: predictions of the last state in full, and of every checkpoint the
scores of the fast data sets. What is fine-tuned (GLUE) is not here: the pipeline trains it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from marin.plugins.evaluation.babylm.tasks import KINDS
from marin.plugins.evaluation.recorded.records import Sample

COLLATED: Mapping[str, str] = {
    "blimp_filtered": "blimp",
    "supplement_filtered": "blimp_supplement",
    "ewok_filtered": "ewok",
    "entity_tracking": "entity_tracking",
    "wug_adj_nominalization": "wug_adj",
    "wug_past_tense": "wug_past",
    "comps": "comps",
    "reading": "reading",
    "blimp_fast": "blimp",
    "supplement_fast": "blimp_supplement",
    "ewok_fast": "ewok",
    "entity_tracking_fast": "entity_tracking",
}
"""Data sets by the names that they have in that file."""


def place_of(name: str) -> str:
    """Where the pipeline writes the predictions of a data set, below ``zero_shot/BACKEND``."""
    kind = KINDS[name]
    return "reading/predictions.json" if kind == "reading" else f"{kind}/{name}/predictions.json"


def predictions(name: str, samples: Sequence[Sample]) -> Any:
    """The pipeline's JSON of one data set's answers."""
    kind, said = KINDS[name], defaultdict[str, list[dict[str, Any]]](list)
    for sample in samples:
        (outcome,) = sample.outcomes
        metrics = {key: float.fromhex(value) for key, value in outcome.metrics.items()}
        if kind == "aoa":
            number, context = outcome.filtered
            told = {"target_word": outcome.filter, "context_id": int(number), "context": context}
            said["results"].append({**told, "surprisal": metrics["surprisal"]})
        elif kind == "reading":
            pair = {key: metrics.get(key, math.nan) for key in ("pred", "prev_pred")}
            said["reading"].append({"id": sample.doc, **pair})
        else:
            before = said[outcome.filter]
            one = {"id": f"{outcome.filter}_{len(before)}", "pred": outcome.filtered}
            before.append(one | ({"prob": metrics["prob"]} if "prob" in metrics else {}))
    if kind == "aoa":
        return said["results"]
    return {uid: {"predictions": found} for uid, found in said.items()}


def shares(name: str, samples: Sequence[Sample], results: Mapping[str, float]) -> dict[str, float]:
    """The scores of one data set as the pipeline collates them: by subtask; of reading times spr and rt."""
    kind = KINDS[name]
    if kind == "reading" or kind.startswith("wug"):
        names = {"spr,none": "spr", "rt,none": "rt", "spearman,none": kind}
        return {names[key]: value for key, value in results.items() if key in names}
    right: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        right[sample.outcomes[0].filter].append(float.fromhex(sample.outcomes[0].metrics["acc"]) == 1.0)
    return {uid: sum(found) / len(found) for uid, found in right.items()}


def collate(
    full: Mapping[str, Any], surprisals: Any, fast: Sequence[Mapping[str, Mapping[str, float]]]
) -> dict[str, Any]:
    """Everything in one object. ``full``: predictions by data set; ``fast``: scores by data set, checkpoint after checkpoint."""
    told: dict[str, Any] = {COLLATED[name]: value for name, value in full.items()}
    if surprisals is not None:
        told["aoa"] = surprisals
    scores: dict[str, list[Any]] = defaultdict(list)
    for checkpoint in fast:
        for name, values in checkpoint.items():
            scores[COLLATED[name]].append(dict(values))
    return {**told, "fast_eval_results": dict(scores)}
