"""Numbers of a recipe with which a training computes: in float32, which has the smallest as 0 and the largest as infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin.errors import UsageError

LEAST, MOST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127
"""The least number that processors do not take for 0, and the largest that is finite."""
SECTIONS = ("model", "objective", "lora", "optimizer", "trainer")


def check_float32(recipe: Mapping[str, Any], where: str) -> None:
    """Refuse a number that would be 0 or infinity in a training; of a new recipe.

    Raises:
        UsageError: which.
    """
    for section in SECTIONS:
        for name, value in (recipe.get(section) or {}).items():
            if isinstance(value, float) and value and not LEAST <= abs(value) <= MOST:
                raise UsageError(
                    "a number that float32 does not have",
                    where=f"{where}: {section}.{name}",
                    expected=f"0, or from {LEAST:.2g} to {MOST:.2g}",
                    found=f"{value!r}, with which a training computes as {'0' if abs(value) < 1 else 'infinity'}",
                    cure="write 0 where it is allowed, or a number that float32 has",
                )
