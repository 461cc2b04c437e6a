"""What the data of a recipe that is composed say where its author does not: whose texts, token ids and masks conversations have,
and of which parts of a mixture a text is held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHAT_REFERENCE, HELD_OUT = "transformers", "all"
"""Of new recipes."""


def with_data_rules(data: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a new recipe: its conversations have the reference of today, and what a part of a mixture holds out is held
    out of all. (What is recorded says its own, or none.)"""

    def named(dataset: Any) -> Any:
        if not isinstance(dataset, Mapping):
            return dataset
        if isinstance(inner := dataset.get("parts"), Mapping):
            parts = {name: named(part) for name, part in inner.items()}
            return {**dataset, "parts": parts, "held_out": dataset.get("held_out", HELD_OUT)}
        new = dataset.get("chat") and dataset.get("chat_reference") is None
        return {**dataset, "chat_reference": CHAT_REFERENCE} if new else dataset

    return {**data, "dataset": named(data["dataset"])} if "dataset" in data else dict(data)
