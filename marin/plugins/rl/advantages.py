"""What a completion and each of its tokens weigh in the loss.

Advantages are numbers of 64 bits, whose every sum is rounded once (``math.fsum``): no order, no library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from marin.recipe.objective import Objective

EPSILON = 1e-4
"""What is added to a standard deviation before it divides, as in TRL."""


def advantages(objective: Objective, rewards: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of each reward, in groups of one prompt's completions: how far it lies above its group's mean (GRPO, equation 3 of
    arXiv:2402.03300), over the standard deviation that ``scale_rewards`` names. REINFORCE has the reward itself, over it."""
    if objective.name == "reinforce":
        return [list(group) for group in rewards]
    of_all = deviation([reward for group in rewards for reward in group])
    found = []
    for group in rewards:
        center = mean(group)
        by = {"group": deviation(group) + EPSILON, "batch": of_all + EPSILON, "none": 1.0}[objective.scale_rewards]
        found.append([(reward - center) / by for reward in group])
    return found


def token_weight(objective: Objective, tokens: int) -> np.float32:
    """What a token of a completion of so many weighs, before the batch's divisor (:func:`marin.plugins.rl.loss.divisor`)."""
    return {
        "dapo": np.float32(1),
        "grpo": np.float32(1) / np.float32(tokens),
        "dr_grpo": np.float32(1) / np.float32(objective.max_completion_length),
    }[objective.loss_type]


def mean(values: Sequence[float]) -> float:
    """The sum, rounded once, over the number of values; of equal values that value, which a quotient may miss (3 times 0.1)."""
    return values[0] if min(values) == max(values) else math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample (n - 1); 0 of one value."""
    if len(values) < 2:
        return 0.0
    center = mean(values)
    return math.sqrt(math.fsum((value - center) * (value - center) for value in values) / (len(values) - 1))
