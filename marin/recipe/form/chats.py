"""Whose texts, token ids and masks conversations have, in a recipe that is composed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHAT_REFERENCE = "transformers"
"""Of new recipes."""


def with_chat_reference(data: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a new recipe: its conversations have the reference of today. (What is recorded says its own, or none.)"""

    def named(dataset: Any) -> Any:
        if not isinstance(dataset, Mapping):
            return dataset
        if isinstance(inner := dataset.get("parts"), Mapping):
            return {**dataset, "parts": {name: named(part) for name, part in inner.items()}}
        new = dataset.get("chat") and dataset.get("chat_reference") is None
        return {**dataset, "chat_reference": CHAT_REFERENCE} if new else dataset

    return {**data, "dataset": named(data["dataset"])} if "dataset" in data else dict(data)
