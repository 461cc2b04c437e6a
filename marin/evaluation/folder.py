"""A Hugging Face folder as a recipe: which of our models it is, or why it is none.

What ``marin export --hf`` writes is read back, and what other Llama and GPT-2 folders have in common with it. A setting that our
models do not have is refused by name, never left out: numbers of another model would be worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from marin.data.tokenizer import token_ids
from marin.errors import UsageError
from marin.recipe.schema import Model, Recipe, Tokens

FIXED: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "llama": {
        "hidden_act": ("silu",),
        "attention_bias": (False, None),
        "mlp_bias": (False, None),
        "rope_scaling": (None,),
        "sliding_window": (None,),
    },
    "qwen3": {
        "hidden_act": ("silu",),
        "attention_bias": (False, None),
        "rope_scaling": (None,),
        "use_sliding_window": (False, None),
    },
    "gpt2": {
        "activation_function": ("gelu_new",),
        "scale_attn_by_inverse_layer_idx": (False, None),
        "scale_attn_weights": (True, None),
        "reorder_and_upcast_attn": (False, None),
        "add_cross_attention": (False, None),
    },
}
"""What a folder's ``config.json`` may say of settings that our models do not have; None: nothing."""
LLAMA3: Mapping[str, float] = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""What the scaling of rotary embeddings by Llama 3.1 is, beside its factor (8 there, 32 in Llama 3.2)."""


def is_folder(name: str) -> bool:
    """Whether ``name`` is a folder with a model, and not the name of a run."""
    return (Path(name) / "config.json").is_file()


def folder_recipe(folder: Path) -> Recipe:
    """The recipe whose model and arithmetic the folder is evaluated by; the rest of it is the default.

    Raises:
        UsageError: the folder has no such model.
    """
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        config = None
    kind = str(config.get("model_type")) if isinstance(config, dict) else ""
    if not isinstance(config, dict) or kind not in FIXED:
        raise _other(folder, "model_type", "llama, qwen3 or gpt2", kind)
    rotary = _rotary(config, folder) if kind != "gpt2" else {}
    for name, allowed in FIXED[kind].items():
        if config.get(name) not in allowed:
            expected = " or ".join(repr(value) for value in allowed if value is not None) or "none"
            raise _other(folder, name, expected, config.get(name))
    kinds = config.get("layer_types") or []
    if not isinstance(kinds, list) or any(each != "full_attention" for each in kinds):
        raise _other(folder, "layer_types", "full_attention of every layer", kinds)
    names = (
        {
            "hidden_dim": "hidden_size",
            "intermediate_dim": "intermediate_size",
            "num_layers": "num_hidden_layers",
            "num_heads": "num_attention_heads",
            "num_kv_heads": "num_key_value_heads",
            "seq_len": "max_position_embeddings",
            "layer_norm_epsilon": "rms_norm_eps",
            "tie_word_embeddings": "tie_word_embeddings",
        }
        if kind != "gpt2"
        else {
            "hidden_dim": "n_embd",
            "num_layers": "n_layer",
            "num_heads": "n_head",
            "seq_len": "n_positions",
            "layer_norm_epsilon": "layer_norm_epsilon",
        }
    )
    said = {ours: config[theirs] for ours, theirs in names.items() if config.get(theirs) is not None}
    if kind == "gpt2" and "n_embd" in config:
        said |= {
            "intermediate_dim": config.get("n_inner") or 4 * config["n_embd"],
            "num_kv_heads": config.get("n_head"),
        }
    elif "num_key_value_heads" not in config:
        said["num_kv_heads"] = config.get("num_attention_heads")
    if lacking := {"hidden_dim", "num_layers", "num_heads", "seq_len", "intermediate_dim"} - said.keys():
        raise _other(folder, "config.json", ", ".join(sorted(lacking)), None)
    said |= rotary | _padded(config, folder)
    try:
        model = msgspec.convert({"architecture": kind, **said}, Model)
    except msgspec.ValidationError as error:
        raise _other(folder, "config.json", "sizes of a model", error) from None
    if config.get("head_dim") not in (None, model.hidden_dim // model.num_heads):
        raise _other(folder, "head_dim", str(model.hidden_dim // model.num_heads), config["head_dim"])
    return Recipe(model=model, tokens=_ends(config, folder))


def _rotary(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The fields of a model about rotary embeddings, where they are not the defaults; they leave ``config``."""
    rope = config.pop("rope_parameters", None) or config.pop("rope_scaling", None) or {}
    if not isinstance(rope, dict):
        raise _other(folder, "rope_parameters", "names and values", rope)
    kind, theta = rope.get("rope_type", "default"), rope.get("rope_theta", config.pop("rope_theta", None))
    known = {"rope_type", "rope_theta"} if kind == "default" else {"rope_type", "rope_theta", "factor", *LLAMA3}
    if kind not in ("default", "llama3") or not rope.keys() <= known:
        raise _other(folder, "rope_parameters or rope_scaling", "rope_type default or llama3", rope)
    if kind == "default":
        return {} if theta in (None, 10000) else {"rope_theta": theta}
    if {name: rope.get(name) for name in LLAMA3} != LLAMA3 or "factor" not in rope or theta is None:
        raise _other(folder, "rope_parameters", f"rope_theta, factor, {LLAMA3}", rope)
    base = {} if theta == 500000 else {"rope_theta": theta}
    return {"rope": "llama3", **base} | ({} if rope["factor"] == 8 else {"rope_factor": rope["factor"]})


def _padded(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The rows of the embedding, where they are not one for each token of the folder's tokenizer."""
    rows, tokenizer = config.get("vocab_size"), folder / "tokenizer.json"
    if rows is None or not tokenizer.is_file():
        return {}
    return {} if rows == len(token_ids(tokenizer.read_bytes(), where=str(tokenizer))) else {"embedding_rows": rows}


def _ends(config: Mapping[str, Any], folder: Path) -> Tokens:
    """The tokens that begin and end a text, where they are not what our own tokenizers have."""
    begin, end = (_token(config, folder, name) for name in ("bos_token_id", "eos_token_id"))
    return Tokens(begin_of_text=None if begin == end else begin, end_of_text=end or None)


def _token(config: Mapping[str, Any], folder: Path, name: str) -> int:
    value = config.get(name)
    first = value[0] if isinstance(value, list) and value else value
    if type(first) is not int or first < 0:
        raise _other(folder, name, "a token id", value)
    return first


def _other(folder: Path, where: str, expected: str, found: object) -> UsageError:
    return UsageError(
        "not a model that can be evaluated here",
        where=f"{folder / 'config.json'}, {where}",
        expected=expected,
        found=str(found)[:120],
        cure="folders that `marin export --hf` writes can be read, and those of the same layout",
    )
