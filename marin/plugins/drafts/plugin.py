"""What this plugin adds: the proposals of :class:`marin.evaluation.scoring.Drafts`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from marin.recipe.schema import Recipe

if TYPE_CHECKING:
    from levanter.models.lm_model import LmHeadModel

    from marin.evaluation.scoring import Drafts


def drafts(model: LmHeadModel, recipe: Recipe, choose: Callable[..., Any] | None = None) -> Drafts | None:
    """See there; ``choose`` as :class:`marin.plugins.drafts.proposals.CachedDrafts` has it. None where a pass of the model could
    look ahead."""
    from marin.plugins.drafts.proposals import CachedDrafts, choose_tokens, looks_ahead

    return None if looks_ahead(model, recipe) else CachedDrafts(model, recipe, choose or choose_tokens)
