"""All kinds of forgeries, by class. Importing a module of this package enters its kinds."""

from __future__ import annotations

from tests.adversary.forgeries.kinds import (
    adopting,
    binding,
    deciding,
    dodging,
    evaluating,
    evidence,
    further,
    handing,
    measuring,
    packs,
    phases,
    services,
    surface,
)
from tests.adversary.forgeries.registry import CLASSES, KINDS, Kind

__all__ = [
    "CLASSES",
    "KINDS",
    "Kind",
    "adopting",
    "binding",
    "deciding",
    "dodging",
    "evaluating",
    "evidence",
    "further",
    "handing",
    "measuring",
    "packs",
    "phases",
    "services",
    "surface",
]
