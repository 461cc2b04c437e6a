"""``seed: null``: one seed is drawn from the system, once, and recorded; from then on the recipe has it.

The drawing is an event (``seed.drawn/v1``) whose id is made of the recipe's digest with the seed left open, so that of
several processes that draw at once one wins and the others take its seed. Later stages, other commands and replays of
the same recipe in the same root find it there; what they record is a recipe with a seed like any other.
"""

from __future__ import annotations

import logging
import secrets

import msgspec

from ledger import Conflict, Draft
from marin.history.executions import facts
from marin.recipe.schema import Recipe, digest
from marin.record.events import SEED_DRAWN, SeedDrawn, write
from marin.record.root import Root

STREAM = "seeds"
log = logging.getLogger(__name__)


def with_seed(root: Root, recipe: Recipe) -> Recipe:
    """``recipe`` with a seed: its own, the one that was drawn for it in this root, or one that is drawn and recorded
    now."""
    if recipe.seed is not None:
        return recipe
    wanted = digest(recipe)
    seed = _recorded_seed(root, wanted)
    if seed is None:
        body = SeedDrawn(recipe=wanted, seed=str(secrets.randbits(63)))
        try:
            root.append([Draft(SEED_DRAWN, STREAM, write(body), id=f"seed-drawn-{wanted.removeprefix('sha256:')}")])
            seed = int(body.seed)
            log.info("seed %d drawn and recorded for a recipe without one", seed)
        except Conflict:  # another process was faster
            seed = _recorded_seed(root, wanted)
    return msgspec.structs.replace(recipe, seed=seed)


def _recorded_seed(root: Root, wanted: str) -> int | None:
    found = [int(fact.body.seed) for fact in facts(root.history(), SeedDrawn) if fact.body.recipe == wanted]
    return found[0] if found else None
