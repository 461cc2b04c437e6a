"""From a recipe to Levanter's own model configurations.

Every field that decides bits is passed explicitly, so that a changed default of Levanter changes nothing here (the
locked version is part of a run's identity besides). Anyone who builds a model from here gets canonical matrix products.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import haliax as hax
import jax.numpy as jnp
from haliax import Axis
from levanter.layers.attention import AttentionBackend, AttentionMask
from levanter.layers.rotary import DefaultRotaryEmbeddingsConfig, Llama3RotaryEmbeddingsConfig, RotaryEmbeddingsConfig
from levanter.models.gpt2 import Gpt2Config
from levanter.models.llama import LlamaConfig
from levanter.models.mistral import MistralConfig
from levanter.models.olmo import Olmo2Config
from levanter.models.qwen import Qwen3Config
from levanter.utils.activation import ActivationFunctionEnum

from marin.data.tokenizer import token_ids
from marin.errors import UsageError
from marin.recipe.schema import Model, Recipe
from marin.training.runtime.parts import experts
from marin.training.runtime.products import canonical_products
from marin.training.runtime.shape_checks import per_thread

type LevanterModel = LlamaConfig | Gpt2Config | Olmo2Config


def rotary(model: Model) -> RotaryEmbeddingsConfig:
    """Rotary embeddings; without a word of base and factor those of Llama, or with ``rope=llama3`` those of Llama 3.1."""
    if model.rope == "llama3":
        return Llama3RotaryEmbeddingsConfig(theta=model.rope_theta or 500000, factor=model.rope_factor or 8.0)
    return DefaultRotaryEmbeddingsConfig(theta=model.rope_theta or 10000, factor=1.0)


@dataclass(frozen=True)
class _Gpt2Config(Gpt2Config):
    """One whose inner layer is not a multiple of the outer one."""

    inner_width: int = 0
    Mlp = property(lambda self: Axis("mlp", self.inner_width))


def model_config(model: Model, tokenizer: Path | None = None) -> LevanterModel:
    """Levanter's configuration of ``model``. ``tokenizer`` is a local folder, needed only to export."""
    canonical_products()
    per_thread()
    folder = str(tokenizer) if tokenizer is not None else None
    if model.architecture == "gpt2":
        made = partial(_Gpt2Config, inner_width=model.inner) if model.inner % model.hidden_dim else Gpt2Config
        return made(
            max_seq_len=model.seq_len,
            hidden_dim=model.hidden_dim,
            num_layers=model.num_layers,
            num_heads=model.num_heads,
            mlp_scale=model.inner // model.hidden_dim,
            initializer_range=model.initializer_range,
            layer_norm_epsilon=model.layer_norm_epsilon,
            embed_pdrop=0.0,
            resid_pdrop=0.0,
            attn_pdrop=0.0,
            activation_function=ActivationFunctionEnum.gelu_new,
            scale_attn_by_inverse_layer_idx=False,
            upcast_attn=False,
            use_bias=True,
            gradient_checkpointing=model.gradient_checkpointing,
            attn_backend=AttentionBackend.VANILLA,
            tokenizer=folder,
        )
    llama = LlamaConfig(
        max_seq_len=model.seq_len,
        hidden_dim=model.hidden_dim,
        intermediate_dim=model.intermediate_dim,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        head_dim=model.head_dim,
        num_kv_heads=model.num_kv_heads,
        activation_function=ActivationFunctionEnum.silu,
        initializer_range=model.initializer_range,
        layer_norm_epsilon=model.layer_norm_epsilon,
        rope=rotary(model),
        tie_word_embeddings=model.tie_word_embeddings,
        upcast_attn=False,
        use_bias=False,
        use_layer_norm_weight=True,
        scan_layers=True,
        gradient_checkpointing=model.gradient_checkpointing,
        attn_backend=AttentionBackend.VANILLA,
        tokenizer=folder,
    )
    # Levanter's other architectures have Llama's fields and some more. By default they name someone else's checkpoint.
    same = {field.name: getattr(llama, field.name) for field in dataclasses.fields(llama)} | {
        "reference_checkpoint": ""
    }
    match model.architecture:
        case "qwen3":
            return Qwen3Config(**same | {"use_sliding_window": False})
        case "mistral":
            return MistralConfig(**same | {"sliding_window": None})
        case "olmo2":
            own = {field.name for field in dataclasses.fields(Olmo2Config)}
            shared = {name: value for name, value in same.items() if name in own}
            return Olmo2Config(
                **shared | {"attention_bias": False, "attention_dropout": 0.0, "use_flash_attention": None}
            )
        case "mixtral" | "qwen3_moe":
            return experts().configured(model, same)
        case _:
            return llama


def vocabulary_size(tokenizer: Path, model: Model) -> int:
    """Rows of a model's embedding: one for each token of a saved tokenizer folder, or as many as the model says.

    Raises:
        UsageError: a token has no row. DataError: there is no tokenizer in the folder's file.
    """
    path = tokenizer / "tokenizer.json"
    tokens = token_ids(path.read_bytes(), where=str(path))
    rows = model.embedding_rows or len(tokens)
    if max(tokens, default=0) >= rows:
        raise UsageError(
            "a token without a row of the embedding",
            where="model.embedding_rows",
            expected=f"more than {max(tokens)}, the tokenizer's last token",
            found=str(rows),
            cure="set it to as many or more; of a folder from elsewhere, tokenizer.json has tokens that its model never had",
        )
    return rows


def attention_mask(recipe: Recipe, tokens: hax.NamedArray, *, blank: bool = False) -> AttentionMask:
    """Which positions each one sees: those before it, and with ``trainer.packing=isolated`` only those of its own
    document. With ``blank`` there may be blank positions (below 0), which see each other, and no other sees them.

    ``tokens``: int32, with an axis ``position``. The end-of-text token belongs to the document that it ends.
    """
    mask = AttentionMask.causal()
    segments = None
    if recipe.trainer.packing is not None:
        Pos = tokens.resolve_axis("position")
        after_end = (hax.roll(tokens, 1, Pos) == recipe.tokens.end).at[Pos, 0].set(False)
        segments = hax.cumsum(after_end.astype(jnp.int32), axis=Pos)
    if blank:
        segments = hax.where(tokens < 0, -1, 0 if segments is None else segments).astype(jnp.int32)
    return mask if segments is None else mask.with_segment_ids(segments)


def compute_dtype(recipe: Recipe) -> jnp.dtype:
    """The dtype in which forward and backward passes compute; master weights are always float32."""
    return jnp.dtype(recipe.arithmetic.compute_dtype)
