"""The loss of preferences: Levanter's own (``levanter.dpo``), of an adapted model against itself without its adapters."""

from __future__ import annotations

import haliax as hax
import jax
from haliax import Axis, NamedArray
from levanter.models.lm_model import LmExample, LmHeadModel

from marin.recipe.schema import Recipe
from marin.training.loss import token_losses
from marin.training.model import attention_mask


def preferred(recipe: Recipe, model: LmHeadModel, tokens: jax.Array, weights: jax.Array, beta: float) -> jax.Array:
    """The sum, float32, of the losses of pairs: -log sigmoid of ``beta`` times how much more than the reference the model
    prefers the chosen answer.

    ``tokens``: int32[sequences, seq_len], of which each chosen conversation is followed by the rejected one; ``weights``:
    float32 of the same shape, 1 where the token after a position is of an answer.
    """
    from levanter.adaptor.lora import unwrap_lora_modules  # seconds, for a training on preferences alone
    from levanter.dpo import dpo_loss_from_logps

    Pair, Pos = Axis("batch", tokens.shape[0] // 2), Axis("position", tokens.shape[1])

    def answers(first: int) -> LmExample:
        ids = hax.named(tokens[first::2], (Pair, Pos))
        counted = hax.named(weights[first::2], (Pair, Pos))
        return LmExample(tokens=ids, loss_weight=counted, attn_mask=attention_mask(recipe, ids))

    def margin(model: LmHeadModel) -> NamedArray:
        chosen, rejected = (-hax.sum(token_losses(model, answers(i)), axis=Pos) for i in range(2))
        return chosen - rejected

    reference = jax.lax.stop_gradient(margin(unwrap_lora_modules(model)))
    mean, _ = dpo_loss_from_logps(margin(model), reference, beta=beta)
    return mean * Pair.size
