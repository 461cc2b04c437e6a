"""Recorded states looked at without replay: what a run of train steps can not have done to them. Pure.

Three passes over the stored states, which cost a read and no training, plus the counters. They find forged states in
seconds and decide which segments a sample begins with. They prove nothing right: what passes here may still be forged.

Let a segment have S steps, rates r_1..r_S, and let u = 2^-24 be the unit of rounding of float32.

**Second moment.** Adam's v' = b2 v + (1-b2) g^2 with g^2 >= 0, so v' >= b2 v, and after S steps v_S >= b2^S v_0 element
by element. In float32, b2 is the float32 next to it (taken exactly here). A product of two floats is at least (1-u)
times its value unless it is subnormal, where it loses at most 2^-126 (processors may flush it to zero); the sum with a
number that is not negative, fused or not, is at least (1-u) times b2 v as rounded. So each step gives v' >= (1-u)^2 b2
v - 2^-126, and v_S >= (1-u)^{2S} b2^S v_0 - S 2^-126.

**Reach.** Adam's step is r (m^/(sqrt(v^)+eps) + d w), d being the decay. By Cauchy and Schwarz over the gradients,
|m_t| <= (1-b1)/sqrt(1-b2) * sqrt(sum_{j<t} (b1^2/b2)^j) * sqrt(v_t), so that with the corrections of bias
|m^/sqrt(v^)| <= B_t = (1-b1)/(1-b1^t) * sqrt((1-b2^t)/(1-b2) * sum_{j<t} (b1^2/b2)^j); for b1=0.9, b2=0.95 that tends
to 1.17. Hence w_S lies within R = sum r_t B_t of a point between w_0 and w_0 prod(1-r_t d), whether or not a tensor is
decayed. Lion's step has B = 1. Rounding: v is a sum of terms that are not negative, each term passes at most 3
roundings per step, weighted by b2^j: a relative error of at most 4u/(1-b2); m likewise within 4u/(1-b1) of the same
bound; a dozen roundings of the step itself. R is widened by 8u/(1-b1) + 8u/(1-b2) + 32u, and S additions to w by S u
(|w_0| + R), doubled.

**First moment** (beyond the three). Over one segment m_S - b1^S m_0 = (1-b1) sum b1^{S-i} g_i and
v_S - b2^S v_0 = (1-b2) sum b2^{S-i} g_i^2, so the first is bounded by the root of the second in the same way.

**Norms.** The logarithm of |w_S - w_0| / sum r_t of each tensor against the other segments' by the modified z-score
(median and MAD; Iglewicz and Hoaglin 1993, limit 3.5): a suspicion only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from marin.recipe.schema import Optimizer
from marin.verify.segments.screening import Check, Finding

if TYPE_CHECKING:
    import numpy as np

    State = Mapping[str, np.ndarray]

UNIT = 2.0**-24
TINY = 2.0**-126
Z_LIMIT = 3.5
LEAST_SEGMENTS = 5
"""Below this many segments a median says too little."""
LEAST_SPREAD = 0.1
"""A MAD of log norms below this counts as this: a tenth is not an anomaly, however regular the rest is."""


def update_bound(optimizer: Optimizer, number: int) -> float:
    """The largest |m^/sqrt(v^)| after ``number`` gradients (B_t above); 1 for Lion, whose update is a sign."""
    if optimizer.name != "adamw":
        return 1.0
    b1, b2 = optimizer.beta1, optimizer.beta2
    ratio = b1 * b1 / b2 if b2 else math.inf
    if b2 == 0.0:
        return 1.0 if b1 == 0.0 else math.inf
    terms = float(number) if ratio == 1.0 else (1.0 - ratio**number) / (1.0 - ratio)
    return (1.0 - b1) / (1.0 - b1**number) * math.sqrt((1.0 - b2**number) / (1.0 - b2) * terms)


def widening(optimizer: Optimizer) -> float:
    """By which share R grows for rounding."""
    return 8 * UNIT / (1 - optimizer.beta1) + 8 * UNIT / (1 - optimizer.beta2) + 32 * UNIT


def reach(optimizer: Optimizer, rates: Sequence[float], first: int) -> tuple[float, float]:
    """(R, the least factor by which decay may shrink a weight) over steps with these ``rates``, of which the first
    makes the optimizer's gradient number ``first``."""
    far = sum(rate * update_bound(optimizer, first + i) for i, rate in enumerate(rates))
    shrink = math.prod(max(0.0, 1.0 - rate * optimizer.weight_decay) for rate in rates)
    return far * (1 + widening(optimizer)), shrink * (1 - 4 * len(rates) * UNIT)


def beyond_reach(before: np.ndarray, after: np.ndarray, far: float, shrink: float, steps: int) -> tuple[int, float]:
    """(elements that travelled too far, the greatest excess as a multiple of R)."""
    import numpy as np

    w0, w1 = (x.astype(np.float64) for x in (before, after))
    allowance = far + 2 * steps * UNIT * (np.abs(w0) + far)
    low, high = np.minimum(w0, w0 * shrink) - allowance, np.maximum(w0, w0 * shrink) + allowance
    excess = np.maximum(np.maximum(low - w1, w1 - high), 0.0)
    outside = (excess > 0) | ~np.isfinite(w1)
    return int(outside.sum()), float(np.nanmax(excess) / far) if far and outside.any() else 0.0


def fallen_moment(before: np.ndarray, after: np.ndarray, beta2: float, steps: int) -> tuple[int, float]:
    """(elements of the second moment that fell faster than they can, the greatest shortfall relative to the least
    value)."""
    import numpy as np

    least = (1 - UNIT) ** (2 * steps) * float(np.float32(beta2)) ** steps * before.astype(np.float64) - steps * TINY
    short = least - after.astype(np.float64)
    below = (short > 0) | ~(after >= 0)
    return int(below.sum()), float(np.max(np.where(below, short / np.maximum(least, TINY), 0.0), initial=0.0))


def strayed_moment(
    optimizer: Optimizer, m: tuple[np.ndarray, np.ndarray], v: tuple[np.ndarray, np.ndarray], steps: int
) -> tuple[int, float]:
    """(elements of the first moment that moved more than the second one allows, the greatest excess as a multiple)."""
    import numpy as np

    b1, b2 = (float(np.float32(beta)) for beta in (optimizer.beta1, optimizer.beta2))
    if b2 <= 0.0:
        return 0, 0.0
    m0, m1, v0, v1 = (x.astype(np.float64) for x in (*m, *v))
    terms = sum((b1 * b1 / b2) ** j for j in range(steps))
    slack = 8 * (steps + 4) * UNIT
    gained = np.maximum(v1 - b2**steps * v0, 0.0) + slack * (v1 + b2**steps * v0) + steps * TINY
    bound = (1 - b1) * np.sqrt(terms / (1 - b2) * gained) * (1 + widening(optimizer))
    bound += slack * (np.abs(m0) + np.abs(m1)) + steps * TINY
    excess = np.abs(m1 - b1**steps * m0) - bound
    outside = (excess > 0) | ~np.isfinite(m1)
    return int(outside.sum()), float(np.max(np.where(outside, excess / bound, 0.0), initial=0.0))


def outliers(values: Sequence[float]) -> list[float]:
    """The modified z-score of each value among all; 0 for each where there are too few."""
    import numpy as np

    if len(values) < LEAST_SEGMENTS:
        return [0.0] * len(values)
    x = np.asarray(values, np.float64)
    middle = float(np.median(x))
    spread = max(float(np.median(np.abs(x - middle))), LEAST_SPREAD)
    return [float(z) for z in 0.6745 * (x - middle) / spread]


def look(
    optimizer: Optimizer,
    position: int,
    span: tuple[int, int],
    before: State,
    after: State,
    rates: Sequence[float],
    batch: int,
) -> list[Finding]:
    """All that one segment can not have done to its state; ``rates``: of its steps, ``batch``: sequences per step."""
    steps = span[1] - span[0]
    found = [
        Finding(position, *span, "counters", name, text, proof=True, score=math.inf)
        for name, text in _counters(before, after, steps, batch)
    ]
    first = int(next((value for path, value in before.items() if path == "moments/count"), before["step"])) + 1
    far, shrink = reach(optimizer, rates, first)

    def add(check: Check, path: str, result: tuple[int, float], size: int) -> None:
        if result[0]:
            found.append(
                Finding(
                    position,
                    *span,
                    check,
                    path,
                    f"{result[0]} of {size} elements, by {result[1]:.3g} of what is allowed at most",
                    proof=True,
                    score=result[1],
                )
            )

    for path, old in before.items():
        if path not in after or path.partition("/")[0] not in ("model", "moments") or old.dtype.kind != "f":
            continue
        new = after[path]
        if path.startswith("model/"):
            if not optimizer.elementwise:
                continue  # how far a number travels depends on its whole tensor
            add("reach", path, beyond_reach(old, new, far, shrink, steps), old.size)
        elif "/nu/" in path and optimizer.name == "adamw":
            add("second moment", path, fallen_moment(old, new, optimizer.beta2, steps), old.size)
            first_path = path.replace("/nu/", "/mu/")
            if first_path in before and first_path in after:
                add(
                    "first moment",
                    first_path,
                    strayed_moment(optimizer, (before[first_path], after[first_path]), (old, new), steps),
                    old.size,
                )
    return found


def _counters(before: State, after: State, steps: int, batch: int) -> list[tuple[str, str]]:
    wrong = []
    for path, old in before.items():
        new = after.get(path)
        if new is None or old.dtype.kind not in "iu":
            continue
        step = {"key": 0, "cursor": steps * batch}.get(path, steps)
        expected = [(value + step) % (1 << 8 * old.dtype.itemsize) for value in old.reshape(-1).tolist()]
        if expected != new.reshape(-1).tolist():
            wrong.append((path, f"expected {expected}, found {new.reshape(-1).tolist()}"))
    return wrong
