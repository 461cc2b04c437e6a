"""The section ``model`` of a recipe: which model is trained, by architecture and sizes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from marin.errors import UsageError
from marin.recipe.section import Positive, Section

MIXTURES = ("mixtral", "qwen3_moe")
"""Architectures whose layers are mixtures of experts."""
UNDER_EXACT = (*MIXTURES, "mistral", "olmo2")
"""Architectures that are trained and evaluated under profile ``exact`` alone."""
CAUSAL = ("llama", "qwen3")
"""Architectures that have a pass under ``exact`` in which no bit depends on later tokens."""
OF_MIXTURES = ("num_experts", "num_experts_per_tok", "router_aux_loss_coef", "router_z_loss_coef")
"""The fields that they have and others have not."""
IMPORTED, CHATS, WORDS, EXPERTS, LORA = (
    ("marin.models", name) for name in ("imported", "chats", "words", "experts", "lora")
)
"""Group and name of what reads a model made elsewhere, of what writes the template of its conversations, of what counts the
words and epochs that it has seen, of what has its experts, and its adapters."""

APART, BLANKS, EXCLUSION, LEARNED, LEARNING = (
    ("marin.tokens", name) for name in ("apart", "blank", "exclusion", "learned", "learning")
)
"""Group and name of what makes a sequence of each document, of blank tokens in a train step, of what excludes documents, and
of what knows which tokens of a conversation are learned, before the first train step too."""


class Model(Section, frozen=True):
    """A decoder-only language model of Levanter, by architecture and sizes; ``qwen3`` is a Llama whose queries and keys are
    normed (Yang et al., 2025, arXiv:2505.09388), ``mistral`` one without a window, ``olmo2`` one with norms behind its layers
    and over all heads of queries and of keys (arXiv:2501.00656). ``rope``: rotary embeddings of base 10,000, or
    those of Llama 3.1 (base 500,000, low frequencies scaled by 8 from a context of 8,192); ``rope_theta``: of another base;
    ``rope_factor``: scaled by another number. ``embedding_rows``: of embedding and head, where they are more than the
    tokenizer's tokens, as in padded vocabularies; rows without a token are in every softmax. ``inner_width``: of a GPT-2, where
    it is not four times the outer; without it, as in records of an older release, ``intermediate_dim`` is cut down. ``head_dim``:
    the size of a head, where it is another than ``hidden_dim / num_heads``, as in Qwen3 0.6B.

    ``mixtral`` and ``qwen3_moe`` (a Llama, and a Qwen3) have in each layer ``num_experts`` inner layers of
    ``intermediate_dim``, of which a token gets ``num_experts_per_tok``, the most probable ones. ``router_aux_loss_coef``: what
    the loss for even loads weighs beside that of the tokens, and ``router_z_loss_coef``, of a Mixtral, what the square of the
    log of the router's sum does; null: nothing. Both are means over a microbatch."""

    architecture: Literal["llama", "gpt2", "qwen3", "mistral", "olmo2", "mixtral", "qwen3_moe"] = "llama"
    hidden_dim: Positive = 128
    intermediate_dim: Positive = 352
    num_layers: Positive = 4
    num_heads: Positive = 4
    num_kv_heads: Positive = 4
    seq_len: Annotated[int, Meta(ge=8, le=1_048_576)] = 128
    initializer_range: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.02
    layer_norm_epsilon: Annotated[float, Meta(gt=0.0, le=1.0)] = 1e-5
    tie_word_embeddings: bool = False
    gradient_checkpointing: bool = False
    rope: Literal["llama3"] | None = None
    rope_theta: Annotated[float, Meta(gt=1.0, le=1e9)] | None = None
    rope_factor: Annotated[float, Meta(ge=1.0, le=1024.0)] | None = None
    embedding_rows: Positive | None = None
    inner_width: Positive | None = None
    head_dim: Positive | None = None
    num_experts: Annotated[int, Meta(ge=2, le=4096)] | None = None
    num_experts_per_tok: Positive | None = None
    router_aux_loss_coef: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    router_z_loss_coef: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None

    @property
    def sparse(self) -> bool:
        """Whether its layers are mixtures of experts."""
        return self.architecture in MIXTURES

    @property
    def head(self) -> int:
        """The size of a head."""
        return self.head_dim or self.hidden_dim // self.num_heads

    @property
    def inner(self) -> int:
        """The width of the inner layer."""
        if self.architecture != "gpt2":
            return self.intermediate_dim
        return self.inner_width or self.hidden_dim * (self.intermediate_dim // self.hidden_dim)


def model_plugins(recipe: Any) -> tuple[tuple[str, str], ...]:
    """Group and name of the plugins of which the recipe's model has something."""
    return (*((EXPERTS,) if recipe.model.sparse else ()), *((LORA,) if recipe.lora is not None else ()))


def check_experts(recipe: Any, where: str) -> None:
    """Refuse a number of experts that makes no mixture, and what a mixture of experts is not trained with yet.

    Raises:
        UsageError: which field, and what it would have to be.
    """
    model: Model = recipe.model
    kinds = " or ".join(f"architecture={name}" for name in MIXTURES)
    count, each, z_loss = model.num_experts, model.num_experts_per_tok, model.router_z_loss_coef
    profile, lora = recipe.arithmetic.profile, None if recipe.lora is None else "adapters"
    if not model.sparse:
        rules = [
            (name, getattr(model, name), f"null, or {kinds}", getattr(model, name) is None) for name in OF_MIXTURES
        ]
        other = model.architecture in UNDER_EXACT
        expected = f"another one: {profile} has no {model.architecture}, and profile=exact has"
        rules.append(("architecture", model.architecture, expected, profile == "exact" or not other))
        expected = "false of a Mistral, whose head is a tensor of its own"
        fits = model.architecture != "mistral" or not model.tie_word_embeddings
        rules.append(("tie_word_embeddings", "true", expected, fits))
    else:
        rules = [
            ("num_experts", count, "how many experts a layer has", count is not None),
            ("num_experts_per_tok", each, "how many experts a token gets", each is not None),
            ("num_experts_per_tok", each, f"at most model.num_experts ({count})", (each or 0) <= (count or 0)),
            (
                "router_z_loss_coef",
                z_loss,
                "null, or architecture=mixtral",
                model.architecture == "mixtral" or not z_loss,
            ),
            (
                "architecture",
                model.architecture,
                f"a dense one: under {profile} experts have no form",
                profile == "exact",
            ),
            ("architecture", model.architecture, "a dense one, where lora is trained", lora is None),
        ]
    for name, value, expected, fits in rules:
        if not fits:
            raise UsageError(
                "settings that do not go together",
                where=f"{where}: model.{name}",
                expected=expected,
                found="null" if value is None else str(value),
                cure=_cure(model, name),
            )


def _cure(model: Model, name: str) -> str:
    if model.sparse or name in OF_MIXTURES:
        return "compose the section from conf/model/moe-nano.yaml, with profile=exact"
    return "train with profile=exact" if name == "architecture" else f"leave model.{name} out"


def check_head(model: Model, where: str) -> None:
    """Refuse heads of a size that the architecture cannot have.

    Raises:
        UsageError: they have it.
    """
    if model.architecture in ("gpt2", "mixtral", "mistral", "olmo2") and model.head_dim is not None:
        raise UsageError(
            "heads of a size that the architecture does not have",
            where=f"{where}: model.head_dim",
            expected=f"null: of {model.architecture} it is hidden_dim / num_heads",
            found=str(model.head_dim),
            cure="leave it out, or take another model.architecture",
        )
    if model.architecture != "gpt2" and model.head % 2:
        raise UsageError(
            "odd head size",
            where=f"{where}: model.{'hidden_dim' if model.head_dim is None else 'head_dim'}",
            expected="head_dim, or hidden_dim / num_heads, to be even (rotary)",
            found=str(model.head),
            cure="change model.head_dim, model.hidden_dim or model.num_heads",
        )
