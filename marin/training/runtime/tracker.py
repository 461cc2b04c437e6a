"""Levanter's tracker of a W&B run: what a training is followed with when a user chose that.

Nothing that decides bits imports this; :mod:`marin.plugins.wandb.live` does, once the training has begun.
"""

from __future__ import annotations

from typing import Any

from levanter.tracker.background import BackgroundTracker
from levanter.tracker.tracker import Tracker
from levanter.tracker.wandb import WandbTracker

__all__ = ["Tracker", "wandb_tracker"]

FINISH_SECONDS = 60.0


def wandb_tracker(run: Any) -> Tracker:
    """The tracker of this ``wandb`` run, on a thread of its own: neither a slow nor a failing W&B reaches the
    training."""
    return BackgroundTracker(WandbTracker(run), finish_timeout=FINISH_SECONDS)
