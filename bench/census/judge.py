"""What a cell says: equal to the training as it is, or where it begins to differ, and how far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.census.runs import Recorded, Step
from marin.record.root import Root


@dataclass(frozen=True)
class CellResult:
    """``kind``: equal, differs, fails or other (the tensors are others, or the batches are). ``there`` and ``last``: the distance
    at the first step that differs and at the last, relative: of the difference's norm to the reference's. ``evaluation`` is the
    largest relative difference of its values, 0 where these are equal."""

    kind: str
    step: int = -1
    tensor: str = ""
    differing: int = 0
    of: int = 0
    there: float = 0.0
    last: float = 0.0
    batch: bool = False
    loss: bool = False
    evaluation: float = 0.0
    reason: str = ""

    @property
    def equal(self) -> bool:
        return self.kind == "equal" and self.evaluation == 0

    def short(self) -> str:
        """The cell of the table."""
        match self.kind:
            case "fails":
                return "fails"
            case "other":
                return f"{self.step}: {self.reason}"
            case "equal" if self.evaluation:
                return f"evaluation {self.evaluation:.0e}"
            case "equal":
                return "equal"
        batch = " *" if self.batch else ""
        if not self.differing:
            return f"{self.step}: the loss alone{batch}"
        if math.isnan(self.there):
            return f"{self.step}: other"
        return f"{self.step}: {self.there:.0e} → {self.last:.0e}{batch}"

    def place(self) -> str:
        """The first tensor that differs, in the order of the state, and how many do; empty where none does."""
        return f"from `{self.tensor}` ({self.differing} of {self.of})" if self.differing else ""


def judge(root: Root, reference: Recorded, cell: Recorded) -> CellResult:
    """The two runs side by side, by what the ledger and the store have of them."""
    if cell.status != "completed":
        return CellResult("fails", reason=cell.failure)
    if [step.number for step in reference.steps] != [step.number for step in cell.steps]:
        return CellResult("other", step=len(cell.steps), reason="other steps")
    steps = list(zip(reference.steps, cell.steps, strict=True))
    states = [(ours, theirs) for ours, theirs in steps if ours.state != theirs.state]
    seen = [(ours, theirs) for ours, theirs in steps if (ours.loss, ours.batch) != (theirs.loss, theirs.batch)]
    for ours, theirs in (states or seen)[:1]:
        return _differs(root, reference, cell, ours, theirs)
    return CellResult("equal", evaluation=evaluation(root, reference, cell))


def _differs(root: Root, reference: Recorded, cell: Recorded, ours: Step, theirs: Step) -> CellResult:
    one, two = reference.digests(root, ours), cell.digests(root, theirs)
    if len(one) != len(two):
        return CellResult("other", step=ours.number, reason="other tensors")
    two = dict(zip(one, two.values(), strict=True))  # both in order: a library may rename what it loads
    unequal = [name for name in one if one[name] != two[name]]
    last = reference.steps[-1].number
    there = distance(reference.arrays(root, file(ours.number)), cell.arrays(root, file(ours.number)))
    return CellResult(
        "differs",
        step=ours.number,
        tensor=unequal[0].removeprefix("state.").removesuffix("[<flat index 0>]") if unequal else "",
        differing=len(unequal),
        of=len(one),
        there=there if unequal else 0.0,
        last=0.0 if not unequal else distance(reference.arrays(root, file(last)), cell.arrays(root, file(last))),
        batch=ours.batch != theirs.batch,
        loss=ours.loss != theirs.loss,
        evaluation=evaluation(root, reference, cell),
    )


def file(step: int) -> str:
    """Where the tensors after a step are in the stored folder."""
    return f"{step:03}.npz"


def distance(one: Mapping[str, Any] | None, two: Mapping[str, Any] | None) -> float:
    """The norm of the difference by the norm of the first, over all tensors; NaN where they are not comparable."""
    if one is None or two is None or any(values.dtype == np.uint8 for values in one.values()):
        return math.nan
    two = dict(zip(sorted(one), (two[name] for name in sorted(two)), strict=False))
    if {n: v.shape for n, v in one.items()} != {n: v.shape for n, v in two.items()}:
        return math.nan
    far = sum(float(np.sum((one[name].astype(np.float64) - two[name].astype(np.float64)) ** 2)) for name in one)
    size = sum(float(np.sum(values.astype(np.float64) ** 2)) for values in one.values())
    return math.sqrt(far / size) if size else math.nan


def evaluation(root: Root, reference: Recorded, cell: Recorded) -> float:
    """The distance of the evaluation's values, of the rows that both have."""
    one, two = reference.arrays(root, "evaluation.npz"), cell.arrays(root, "evaluation.npz")
    if one is None or two is None:
        return 0.0 if one is two else math.nan
    rows = min(len(one["values"]), len(two["values"]))
    left, right = one["values"][:rows], two["values"][:rows]
    return 0.0 if np.array_equal(left, right) else distance({"": left}, {"": right})
