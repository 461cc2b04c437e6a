"""``config.json`` of a model as transformers reads it: by its own class where it is installed, else by a table of its defaults.

The class wins, whatever its version; the table is that of :data:`VERSION`, and a test holds it to the classes. No code of a
folder is executed, and nothing is fetched: the class is chosen by ``model_type`` among those that are installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

VERSION = "5.12.1"
"""Of transformers, whose defaults :data:`DEFAULTS` are."""

_ANY: Mapping[str, Any] = {
    "transformers_version": None,
    "architectures": None,
    "output_hidden_states": False,
    "return_dict": True,
    "dtype": None,
    "chunk_size_feed_forward": 0,
    "is_encoder_decoder": False,
    "id2label": None,
    "label2id": None,
    "problem_type": None,
    "initializer_range": 0.02,
    "use_cache": True,
    "pad_token_id": None,
}
_ROTARY: Mapping[str, Any] = {
    **_ANY,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_parameters": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {
        **_ROTARY,
        "vocab_size": 32000,
        "intermediate_size": 11008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pretraining_tp": 1,
        "mlp_bias": False,
        "head_dim": None,
    },
    "qwen3": {
        **_ROTARY,
        "vocab_size": 151936,
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": 128,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "layer_types": None,
    },
    "mistral": {
        **{name: value for name, value in _ROTARY.items() if name != "attention_bias"},
        "vocab_size": 32000,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "head_dim": None,
        "max_position_embeddings": 131072,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "sliding_window": 4096,
    },
    "olmo2": {
        **_ROTARY,
        "vocab_size": 50304,
        "intermediate_size": 11008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 1,
        "bos_token_id": None,
        "eos_token_id": 50279,
    },
    "mixtral": {
        **{name: value for name, value in _ROTARY.items() if name != "attention_bias"},
        "vocab_size": 32000,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "head_dim": None,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "sliding_window": None,
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
    },
    "qwen3_moe": {
        **_ROTARY,
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
        "norm_topk_prob": False,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
        "mlp_only_layers": None,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    "gpt2": {
        **_ANY,
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "summary_activation": None,
        "summary_proj_to_labels": True,
        "summary_first_dropout": 0.1,
        "scale_attn_weights": True,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
}
"""What a setting is that a folder does not say, by kind of model."""
BASES: Mapping[str, float] = {"mixtral": 1000000.0}
"""Of rotary embeddings of which nothing is said, where it is not 10,000."""
OTHER_NAMES: Mapping[str, str] = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
"""Names that a GPT-2 takes for its own, and prefers to them."""


@dataclass(frozen=True)
class Configuration:
    """``values``: every setting that the class of ``kind`` has, as it is for this folder. ``defaults``: as it is where nothing is
    said. ``others``: what the folder says beyond them."""

    kind: str
    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    others: Mapping[str, Any]


def read_configuration(said: Mapping[str, Any], kind: str) -> Configuration:
    """What ``config.json`` says, under the defaults and precedences of transformers.

    Raises:
        ValueError: transformers refuses it too.
    """
    said = {name: value for name, value in said.items() if not name.startswith("__")}
    known = find_spec("transformers") is not None
    values, defaults = _by_class(said, kind) if known else (_by_table(said, kind), DEFAULTS[kind])
    names = {*values, *(OTHER_NAMES if kind == "gpt2" else ())}
    return Configuration(kind, values, defaults, {name: said[name] for name in said if name not in names})


def _by_class(said: Mapping[str, Any], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import copy
    import dataclasses

    from transformers import CONFIG_MAPPING  # without torch: four seconds, which building a model takes anyway

    made = CONFIG_MAPPING[kind]
    fields = dataclasses.fields(made)
    try:
        config = made.from_dict(copy.deepcopy(dict(said)))
        values = {field.name: getattr(config, field.name) for field in fields}
    except Exception as error:  # validators of its own, of any kind
        raise ValueError(" ".join(f"{error} ({type(error).__name__})".split())) from None
    return values, {field.name: field.default for field in fields}


def _by_table(said: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """As the classes do it (``__post_init__`` of configuration_llama.py, configuration_qwen3.py and configuration_utils.py, and
    modeling_rope_utils.py)."""
    values = {name: said.get(name, default) for name, default in DEFAULTS[kind].items()}
    if values["dtype"] is None:
        values["dtype"] = said.get("torch_dtype")
    if kind == "gpt2":
        return values | {ours: said[other] for other, ours in OTHER_NAMES.items() if other in said}
    try:
        if values["num_key_value_heads"] is None:
            values["num_key_value_heads"] = values["num_attention_heads"]
        if kind in ("llama", "mistral") and values["head_dim"] is None:
            values["head_dim"] = values["hidden_size"] // values["num_attention_heads"]
        if kind == "llama" and values["hidden_size"] % values["num_attention_heads"]:
            raise ValueError("hidden_size is no multiple of num_attention_heads, whatever head_dim says")
        if kind in ("llama", "qwen3") and type(values["head_dim"]) is not int:
            raise ValueError(f"head_dim: a number is expected, {values['head_dim']!r} found")
        if kind == "qwen3":
            values["sliding_window"] = values["sliding_window"] if values["use_sliding_window"] else None
            if values["layer_types"] is None:
                full = values["sliding_window"] is None
                values["layer_types"] = [
                    "full_attention" if full or layer < values["max_window_layers"] else "sliding_attention"
                    for layer in range(values["num_hidden_layers"])
                ]
        if kind == "qwen3_moe":
            values["num_experts"] = said.get("num_local_experts", values["num_experts"])
            values["sliding_window"] = values["sliding_window"] if values["use_sliding_window"] else None
            values["mlp_only_layers"] = values["mlp_only_layers"] or []
        values["rope_parameters"] = _rope(said, values, BASES.get(kind, 10000.0))
    except (TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return values


def _rope(said: Mapping[str, Any], values: Mapping[str, Any], base: float) -> dict[str, Any]:
    """``rope_scaling`` where it says something, else ``rope_parameters``; a base, a type and a first context that are not in it
    come from beside it."""
    rope = said.get("rope_scaling") or values["rope_parameters"] or {}
    if not isinstance(rope, dict):
        raise TypeError("rope_parameters: names and values are expected")
    beside = {"rope_theta": said.get("rope_theta", base)}
    if said.get("partial_rotary_factor") is not None:
        beside["partial_rotary_factor"] = said["partial_rotary_factor"]
    found = {**beside, **rope}
    found.setdefault("rope_type", found.get("type", "default"))
    if found["rope_type"] in ("llama3", "yarn", "longrope"):
        found.setdefault("original_max_position_embeddings", values["max_position_embeddings"])
    return found
