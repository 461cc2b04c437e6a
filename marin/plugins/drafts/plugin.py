"""What this plugin adds: the proposals of :class:`marin.evaluation.scoring.Drafts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marin.recipe.schema import Recipe

if TYPE_CHECKING:
    from levanter.models.lm_model import LmHeadModel

    from marin.evaluation.scoring import Drafts


def drafts(model: LmHeadModel, recipe: Recipe) -> Drafts:
    """See there."""
    from marin.plugins.drafts.proposals import CachedDrafts

    return CachedDrafts(model, recipe)
