"""The register of kinds: what is forged, by whom, and what a stranger must be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.adversary.forgeries.stranger import Asked
from tests.adversary.forgeries.workshop import Shop

OF_REWARDS = 17
"""The class whose lies are trainings of their own (tests/adversary/forgeries/rewards.py)."""
CLASSES = {
    0: "honest",
    1: "digest and artifact",
    2: "the run decides",
    3: "partial",
    4: "phases",
    5: "code executes",
    6: "dodging FAIL",
    7: "evidence of the accused",
    8: "pins and keys",
    9: "read models",
    10: "text",
    11: "reach",
    12: "services",
    13: "contradictions of one's own",
    14: "bytes beside the content",
    15: "a root that changes",
    16: "numbers of a harness",
    OF_REWARDS: "learned from rewards",
}
"""Honest controls, the twelve of docs/threat-model.md, and those that were found since."""

By = Literal["operator", "publisher"]
Of = Literal["run", "second", "phase"]
Forge = Callable[[Shop], None]
REFUSED = ("FAIL", "UNAVAILABLE", "UNSUPPORTED", "NOT_RUN", "PARTIAL")


@dataclass(frozen=True)
class Kind:
    """One way to forge.

    ``verdict``: the one that must notice, with an outcome among ``outcomes``, saying ``says``. Where ``claimed`` is
    given, the forged sentence may stand if the report calls it claimed; where ``harmless``, all may pass, for what was
    forged says nothing of the run: :attr:`proof` then looks whether it had any effect. ``honest``: nothing is wrong, and
    it must pass. ``unsaid``: what no verdict may say, but as claimed by this log.
    """

    number: int
    name: str
    forge: Forge
    by: By
    of: Of
    verdict: str
    outcomes: tuple[str, ...]
    says: str
    claimed: str = ""
    harmless: bool = False
    proof: Callable[[Shop], bool] | None = None
    asked: Asked = field(default_factory=Asked)
    honest: bool = False
    unsaid: str = ""


KINDS: dict[str, Kind] = {}


def kind(
    number: int,
    name: str,
    *,
    verdict: str = "ledger",
    outcomes: tuple[str, ...] = REFUSED,
    says: str = "",
    by: By = "operator",
    of: Of = "run",
    claimed: str = "",
    harmless: bool = False,
    proof: Callable[[Shop], bool] | None = None,
    asked: Asked | None = None,
    honest: bool = False,
    unsaid: str = "",
) -> Callable[[Forge], Forge]:
    """Enter a kind; the function changes the copy, and it is signed and published after it."""

    def enter(forge: Forge) -> Forge:
        assert name not in KINDS, f"two kinds {name}"
        KINDS[name] = Kind(
            number,
            name,
            forge,
            by,
            of,
            verdict,
            outcomes,
            says,
            claimed,
            harmless,
            proof,
            asked or Asked(),
            honest,
            unsaid,
        )
        return forge

    return enter
