"""A Hugging Face folder as a recipe: which of our models it is, or why it is not one.

What ``marin export --hf`` writes is read back, and what other Llama and GPT-2 folders have in common with it. A setting that our
models do not have is refused by name, never left out: numbers of another model would be worse than none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from marin.data.borrowed.tensor_files import stored_width
from marin.data.tokenizer import token_ids
from marin.errors import UsageError
from marin.evaluation.configuration import DEFAULTS, Configuration, read_configuration
from marin.recipe.arithmetic import EXACT, Arithmetic
from marin.recipe.model import UNDER_EXACT
from marin.recipe.schema import Model, Recipe, Tokens

_log = logging.getLogger(__name__)

NAMES: Mapping[str, str] = {
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "seq_len": "max_position_embeddings",
    "layer_norm_epsilon": "rms_norm_eps",
    "tie_word_embeddings": "tie_word_embeddings",
}
GPT2: Mapping[str, str] = {
    "hidden_dim": "n_embd",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "num_kv_heads": "n_head",
    "seq_len": "n_positions",
    "layer_norm_epsilon": "layer_norm_epsilon",
}
"""Fields of our models by the names that transformers has for them."""
MIXED: Mapping[str, Mapping[str, str]] = {
    "mixtral": {**NAMES, "num_experts": "num_local_experts", "num_experts_per_tok": "num_experts_per_tok"},
    "qwen3_moe": {
        **NAMES,
        "intermediate_dim": "moe_intermediate_size",
        "num_experts": "num_experts",
        "num_experts_per_tok": "num_experts_per_tok",
    },
}
"""Of mixtures of experts."""
READ = ("rope_parameters", "head_dim", "layer_types", "n_inner", "bos_token_id", "eos_token_id", "vocab_size")
BESIDE: Mapping[str, frozenset[str]] = {
    "qwen3_moe": frozenset({"norm_topk_prob", "intermediate_size", "head_dim", "num_local_experts"})
}
"""What is read here too of one kind of model, or stands there and is of layers that it does not have."""
"""What is read here by itself."""
FREE = frozenset(
    {
        *(
            "transformers_version",
            "architectures",
            "output_hidden_states",
            "return_dict",
            "dtype",
            "id2label",
            "label2id",
        ),
        *("problem_type", "initializer_range", "use_cache", "pad_token_id", "pretraining_tp", "attention_dropout"),
        *("resid_pdrop", "embd_pdrop", "attn_pdrop", "use_sliding_window", "sliding_window", "max_window_layers"),
        *("output_router_logits", "router_aux_loss_coef", "router_jitter_noise"),
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
    }
)
"""Settings that decide no prediction: dropout is of a training, ``layer_types`` says what a window makes of the layers."""
CHANCE = ("attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "router_jitter_noise")
"""Those of them that draw in a training."""
ALIKE: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "mlp_only_layers": ([],),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"),
}
"""Names of one function: the second is GELU by the hyperbolic tangent."""
BEYOND: Mapping[str, tuple[Any, ...]] = {
    "is_causal": (True, None),
    "quantization_config": (None,),
    "transformers_weights": (None,),
    "sliding_window": (None,),
    "use_sliding_window": (False, None),
    "layer_types": (None,),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "head_dim": (None,),
    "partial_rotary_factor": (None, 1),
    "attention_chunk_size": (None,),
    "no_rope_layers": (None, []),
    "clip_qkv": (None,),
    "qk_layernorm": (False, None),
    "use_qk_norm": (False, None),
    "query_pre_attn_scalar": (None,),
    "final_logit_softcapping": (None,),
    "attn_logit_softcapping": (None,),
    **dict.fromkeys(("logit_scale", "logits_scaling", "embedding_multiplier"), (None, 1)),
    **dict.fromkeys(("residual_multiplier", "attention_multiplier"), (None, 1)),
    **dict.fromkeys(("num_experts", "num_local_experts"), (None,)),
}
"""Settings that a class does not have, and other classes or the library around them do, with the values that change nothing."""
NO_SETTINGS = ("model_type", "torch_dtype", "rope_theta", "rope_scaling", "n_ctx", "task_specific_params", "no_bias")
"""What stands in folders beside them, and says nothing more."""
DRAWN = frozenset(
    {
        *(
            "bos_token_id",
            "eos_token_id",
            "pad_token_id",
            "transformers_version",
            "do_sample",
            "use_cache",
            "max_length",
        ),
        *(
            "max_new_tokens",
            "output_attentions",
            "output_hidden_states",
            "return_dict_in_generate",
            "cache_implementation",
        ),
    }
)
"""What ``generation_config.json`` may say without another way of drawing."""
ADAPTERS = "adapter_config.json"
"""What PEFT writes into a folder of adapters, which has no ``config.json``, or beside a model."""
LLAMA3: Mapping[str, float] = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""What the scaling of rotary embeddings by Llama 3.1 is, beside its factor (8 there, 32 in Llama 3.2)."""


def is_folder(name: str) -> bool:
    """Whether ``name`` is a folder with a model, or with adapters to one, and not the name of a run."""
    return any((Path(name) / file).is_file() for file in ("config.json", ADAPTERS))


def folder_recipe(folder: Path) -> Recipe:
    """The recipe whose model and arithmetic the folder is evaluated by; the rest of it is the default. Defaults and precedences
    are those of transformers (:mod:`marin.evaluation.configuration`).

    Raises:
        UsageError: the folder has no such model.
    """
    if (folder / ADAPTERS).is_file():
        raise _other(
            folder, ADAPTERS, "a model without adapters: merge them first (merge_and_unload of PEFT)", "adapters"
        )
    said = _object(folder / "config.json")
    kind = str(said.get("model_type"))
    if kind not in DEFAULTS:
        raise _other(folder, "model_type", ", ".join(DEFAULTS), kind)
    try:
        config = read_configuration(said, kind)
    except ValueError as error:
        raise _other(folder, "config.json", "sizes of a model, as transformers takes them", error) from None
    _check_others(config, folder)
    values = config.values
    found = {ours: values[theirs] for ours, theirs in _names(kind).items()}
    found |= _inner(values, folder) if kind == "gpt2" else _rotary(values["rope_parameters"], folder)
    if kind == "qwen3_moe":  # its class has no such field, and its layers ask for one
        values = {**values, "head_dim": config.others.get("head_dim")}
    found |= _padded(values, folder) | _head(values) | _routers(values)
    try:
        model = msgspec.convert({"architecture": kind, **found}, Model)
    except msgspec.ValidationError as error:
        raise _other(folder, "config.json", "sizes of a model", error) from None
    if model.sparse and (model.num_experts_per_tok or 1) > (model.num_experts or 1):
        raise _other(folder, "num_experts_per_tok", f"at most {model.num_experts}", model.num_experts_per_tok)
    if kind == "mistral" and model.tie_word_embeddings:
        raise _other(folder, "tie_word_embeddings", "false: Levanter's Mistral has a head of its own", True)
    if kind in ("mixtral", "mistral") and model.head_dim is not None:
        raise _other(folder, "head_dim", "null, or hidden_size / num_attention_heads", model.head_dim)
    divided = model.head_dim is not None or model.hidden_dim % model.num_heads == 0
    if not divided or model.num_heads % model.num_kv_heads:
        sizes = f"{model.num_heads} heads, {model.num_kv_heads} of keys, of {model.hidden_dim}"
        raise _other(folder, "num_attention_heads, num_key_value_heads", "heads that divide what they are of", sizes)
    if kind != "gpt2" and model.head % 2:
        raise _other(folder, "head_dim", "an even number, as rotary embeddings need it", model.head)
    arithmetic = EXACT if model.architecture in UNDER_EXACT else Arithmetic()
    return Recipe(model=model, tokens=_ends(values, said, folder), arithmetic=arithmetic)


def _names(kind: str) -> Mapping[str, str]:
    return GPT2 if kind == "gpt2" else MIXED.get(kind, NAMES)


def _routers(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the loss for even loads weighs in a training that begins with the folder, where it has one."""
    weight = values.get("router_aux_loss_coef")
    return {"router_aux_loss_coef": weight} if weight else {}


def _check_others(config: Configuration, folder: Path) -> None:
    """That no setting is another than our models have it; what transformers leaves out is said."""
    beside = BESIDE.get(config.kind, frozenset())
    names = {*_names(config.kind).values(), *READ, *beside} - {"tie_word_embeddings" if config.kind == "gpt2" else ""}
    for name in sorted(config.values.keys() - names - FREE):
        value, default = config.values[name], config.defaults.get(name)
        if value != default and value not in ALIKE.get(name, ()):
            raise _other(folder, name, " or ".join(map(repr, ALIKE.get(name, (default,)))), value)
    if config.kind == "qwen3_moe" and config.others.get("head_dim", 0) is None:
        raise _other(folder, "head_dim", "a number, or nothing", None)
    for name, wanted in (("norm_topk_prob", True), ("sliding_window", None)) if config.kind in MIXED else ():
        if config.values.get(name, wanted) is not wanted:
            raise _other(folder, name, json.dumps(wanted), config.values[name])
    window, length = config.values.get("sliding_window"), config.values.get("max_position_embeddings")
    if (
        config.kind == "mistral"
        and window is not None
        and not (type(window) is type(length) is int and window >= length)
    ):
        raise _other(folder, "sliding_window", "null, or max_position_embeddings and more", window)
    kinds = config.values.get("layer_types") or config.others.get("layer_types") or []
    if not isinstance(kinds, list) or any(each != "full_attention" for each in kinds):
        raise _other(folder, "layer_types", "full_attention of every layer", kinds)
    for name in sorted(config.others.keys() & BEYOND.keys() - {"layer_types"} - beside):
        if config.others[name] not in BEYOND[name]:
            expected = " or ".join(repr(value) for value in BEYOND[name] if value is not None) or "none"
            raise _other(folder, name, expected, config.others[name])
    beyond = config.others.keys() - BEYOND.keys() - {*NO_SETTINGS} - beside
    if rest := sorted(name for name in beyond if not name.startswith("_") and config.others[name] not in (None, False)):
        _log.warning(
            "%s: a %s of transformers has no %s: left out", folder / "config.json", config.kind, ", ".join(rest)
        )


def _inner(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The inner width of a GPT-2. Where ``n_inner`` says nothing and the tensors have another one than four times the outer,
    it is theirs: transformers cannot read such a folder, and Marin wrote them once."""
    outer, inner = values["n_embd"], values["n_inner"]
    if type(outer) is not int or (inner is not None and type(inner) is not int):
        raise _other(folder, "n_embd, n_inner", "numbers", f"{outer}, {inner}")
    inner = stored_width(folder) or 4 * outer if inner is None else inner
    return {"intermediate_dim": inner} | ({"inner_width": inner} if inner != 4 * outer else {})


def _head(values: Mapping[str, Any]) -> dict[str, Any]:
    """The size of a head, where it is not that of the heads which divide the width."""
    head, width, heads = (values.get(name) for name in ("head_dim", "hidden_size", "num_attention_heads"))
    sizes = all(type(one) is int for one in (head, width, heads))
    return {} if head is None or (sizes and head * heads == width) else {"head_dim": head}


def _rotary(rope: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The fields of a model about rotary embeddings, where they are not the defaults."""
    kind, theta = rope.get("rope_type"), rope.get("rope_theta")
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"} | (
        set() if kind == "default" else {"factor", *LLAMA3}
    )
    other = kind not in ("default", "llama3") or not rope.keys() <= known
    if other or theta is None or rope.get("partial_rotary_factor", 1) != 1:
        raise _other(folder, "rope_parameters or rope_scaling", "rope_type default or llama3, and a rope_theta", rope)
    if kind == "default":
        return {} if theta == 10000 else {"rope_theta": theta}
    if {name: rope.get(name) for name in LLAMA3} != LLAMA3 or "factor" not in rope:
        raise _other(folder, "rope_parameters", f"rope_theta, factor, {LLAMA3}", rope)
    base = {} if theta == 500000 else {"rope_theta": theta}
    return {"rope": "llama3", **base} | ({} if rope["factor"] == 8 else {"rope_factor": rope["factor"]})


def embedding_rows(folder: Path) -> int:
    """Rows of the embedding of a folder that :func:`folder_recipe` has read: the model's own, whatever tokens there are."""
    said = _object(folder / "config.json")
    return int(read_configuration(said, str(said.get("model_type"))).values["vocab_size"])


def left_out_of_training(folder: Path) -> dict[str, float]:
    """What the configuration of a folder that :func:`folder_recipe` has read switches on in a training by transformers, and
    trainings here do not have: names and values, defaults too (a GPT-2 drops a tenth)."""
    said = _object(folder / "config.json")
    values = read_configuration(said, str(said.get("model_type"))).values
    return {name: values[name] for name in CHANCE if values.get(name)}


def _padded(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The rows of the embedding, where they are not one for each token of the folder's tokenizer."""
    rows, tokenizer = values["vocab_size"], folder / "tokenizer.json"
    if not tokenizer.is_file():
        return {}
    return {} if rows == len(token_ids(tokenizer.read_bytes(), where=str(tokenizer))) else {"embedding_rows": rows}


def _ends(values: Mapping[str, Any], said: Mapping[str, Any], folder: Path) -> Tokens:
    """The tokens that begin and end a text, where they are not what our own tokenizers have. A text that is generated ends as
    ``generate`` of transformers ends it: by every token of ``generation_config.json``, which alone counts where it is there (it
    may name none), and by those that ``config.json`` itself says where it is not."""
    path = folder / "generation_config.json"
    generation = _object(path) if path.is_file() else said
    if path.is_file():
        if other := sorted(name for name in generation.keys() - DRAWN if not name.startswith("_")):
            _log.warning("%s: not used here: %s", path, ", ".join(other))
        if generation.get("eos_token_id") is None:
            _log.warning("%s names no eos_token_id: no token ends a text, as in transformers", path)
    stops = _token_ids(generation, folder, "eos_token_id")
    ends = _token_ids(values, folder, "eos_token_id") or stops
    begins = _token_ids(values, folder, "bos_token_id")
    if not ends or len(begins) > 1:
        raise _other(folder, "bos_token_id, eos_token_id", "one begin at most, and an end of text", f"{begins}, {ends}")
    end = ends[0]
    begin = None if not begins or begins[0] == end else begins[0]
    return Tokens(begin_of_text=begin, end_of_text=end or None, stop_tokens=None if stops == (end,) else stops)


def _token_ids(said: Mapping[str, Any], folder: Path, name: str) -> tuple[int, ...]:
    value = said.get(name)
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(one) is not int or one < 0 for one in listed):
        raise _other(folder, name, "token ids", value)
    return tuple(dict.fromkeys(listed))


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _other(path.parent, path.name, "JSON", " ".join(str(error).split())) from None
    if not isinstance(found, dict):
        raise _other(path.parent, path.name, "a JSON object", type(found).__name__)
    return found


def _other(folder: Path, where: str, expected: str, found: object) -> UsageError:
    return UsageError(
        "not a model that can be evaluated here",
        where=f"{folder / 'config.json'}, {where}",
        expected=expected,
        found=str(found)[:240],
        cure="folders that `marin export --hf` writes can be read, and those of the same layout",
    )
