"""How evenly the tokens of a train step went to experts, in three numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def measured(loads: np.ndarray) -> Mapping[str, float]:
    """Of the tokens of each expert, [layers, experts]: the entropy of their shares (1: even; the mean over layers), the largest
    share (1: that of an even one), and how many experts have none."""
    shares = loads.astype(np.float64) / np.maximum(loads.sum(axis=1, keepdims=True), 1)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return {
        "router/entropy": float(-(shares * logs).sum(axis=1).mean() / np.log(loads.shape[1])),
        "router/largest_share": float(shares.max() * loads.shape[1]),
        "router/idle_experts": float((loads == 0).sum()),
    }
