"""Folders of Hugging Face models beside transformers: the configuration as AutoConfig reads it, and logits on the CPU.

Weights are small and drawn here. Logits come from the interpreter of :mod:`references`, which has torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from haliax import Axis, named
from msgspec.structs import replace
from safetensors.flax import save_file as save_any
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from marin.errors import UsageError
from marin.evaluation import configuration
from marin.evaluation.folder import CHANCE, folder_recipe, is_folder, left_out_of_training
from marin.evaluation.folder_subject import open_folder
from marin.evaluation.scoring import Prompt, Row, Scorer
from marin.recipe.schema import Model, Recipe
from marin.training.experts.tensors import together
from marin.training.export import write_model
from marin.training.model import attention_mask, model_config
from tests.fidelity.references import asked

KIND = "model folders"
ROWS = 61
LENGTH = 24
Change = Callable[[Path], object]

LLAMA: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "vocab_size": ROWS,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MISTRAL: Mapping[str, Any] = {**LLAMA, "model_type": "mistral", "sliding_window": None}
OLMO2: Mapping[str, Any] = {**LLAMA, "model_type": "olmo2"}
QWEN3: Mapping[str, Any] = {**LLAMA, "model_type": "qwen3", "head_dim": 8}
MIXTRAL: Mapping[str, Any] = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
QWEN3_MOE: Mapping[str, Any] = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "head_dim": 8,
    "moe_intermediate_size": 24,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
GPT2: Mapping[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "vocab_size": ROWS,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
DROP = "left out"


@dataclass(frozen=True)
class Case:
    """A folder: a configuration with what is changed in it, and what is done to its files. ``refusal``: words of the page."""

    name: str
    base: Mapping[str, Any]
    said: Mapping[str, Any] = field(default_factory=dict)
    change: Change = lambda folder: None
    refusal: str | None = None


def in_parts(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    where = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}), "utf-8")


def with_old_parts(folder: Path) -> None:
    """An index and parts of an earlier state, beside the file that counts."""
    tensors = load_file(folder / "model.safetensors")
    in_parts(folder)
    save_file({name: value * 0.5 for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"})


def in_dtype(dtype: Any) -> Change:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        halved = {name: jnp.asarray(value.astype(dtype)) for name, value in tensors.items()}
        save_any(halved, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def tensors_of(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Change:
    def done(folder: Path) -> None:
        tensors = change(load_file(folder / "model.safetensors"))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return done


def _head_alone(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {("lm_head.weight" if "embed_tokens" in name else name): value for name, value in tensors.items()}


def _with_head(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    (table,) = (value for name, value in tensors.items() if name.endswith(("embed_tokens.weight", "wte.weight")))
    return tensors | {"lm_head.weight": table.copy()}


def _with_constants(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    mask = np.tril(np.ones((1, 1, 32, 32), np.float32))
    return tensors | {f"h.{n}.attn.{name}": mask for n in range(2) for name in ("bias",)}


def _without_head(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value for name, value in tensors.items() if name != "lm_head.weight"}


def with_adapters(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}", "utf-8")


def generation(said: Mapping[str, Any]) -> Change:
    return lambda folder: (folder / "generation_config.json").write_text(json.dumps(said), "utf-8")


TIED = {"tie_word_embeddings": True}
SAME = [
    Case("llama", LLAMA),
    Case("llama, sizes as numbers of attention alone", LLAMA, {"num_key_value_heads": DROP}),
    Case("llama, num_key_value_heads null", LLAMA, {"num_key_value_heads": None}),
    Case("llama, no rms_norm_eps", LLAMA, {"rms_norm_eps": DROP}),
    Case("llama, head_dim", LLAMA, {"head_dim": 8}),
    Case("llama, head_dim null", LLAMA, {"head_dim": None}),
    Case("llama, head_dim of its own", LLAMA, {"head_dim": 16}),
    Case("llama, tied", LLAMA, TIED),
    Case("llama, tied, head stored too", LLAMA, TIED, tensors_of(_with_head)),
    Case("llama, tied, head stored alone", LLAMA, TIED, tensors_of(_head_alone)),
    Case("llama, rope_theta", LLAMA, {"rope_theta": 500.0}),
    Case("llama, rope_scaling null", LLAMA, {"rope_theta": 500.0, "rope_scaling": None}),
    Case("llama, type default", LLAMA, {"rope_scaling": {"type": "default"}, "rope_theta": 300.0}),
    Case("llama, rope_parameters", LLAMA, {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}}),
    Case(
        "llama, rope_scaling before rope_parameters",
        LLAMA,
        {"rope_parameters": {"rope_theta": 700.0}, "rope_scaling": {"rope_type": "default"}},
    ),
    Case("llama 3", LLAMA, {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 5e5}),
    Case(
        "llama 3, two names of the type", LLAMA, {"rope_scaling": {"type": "llama3", "rope_type": "llama3", **LLAMA3}}
    ),
    Case("llama 3, rope_parameters", LLAMA, {"rope_parameters": {"rope_type": "llama3", **LLAMA3, "rope_theta": 2e5}}),
    Case("llama, swish", LLAMA, {"hidden_act": "swish"}),
    Case("llama, bfloat16", LLAMA, {"torch_dtype": "bfloat16"}, in_dtype(ml_dtypes.bfloat16)),
    Case("llama, float16", LLAMA, {"dtype": "float16"}, in_dtype(np.float16)),
    Case("llama, in parts", LLAMA, {}, in_parts),
    Case("llama, old parts beside", LLAMA, {}, with_old_parts),
    Case("llama, no begin of text", LLAMA, {"bos_token_id": None}),
    Case("llama, ends as a list", LLAMA, {"eos_token_id": [2, 5, 7]}),
    Case("llama, generation_config.json", LLAMA, {}, generation({"eos_token_id": [3, 4], "bos_token_id": 1})),
    Case("llama, generation_config.json without ends", LLAMA, {}, generation({"do_sample": True})),
    Case("llama, settings of training", LLAMA, {"attention_dropout": 0.1, "pretraining_tp": 2, "use_cache": False}),
    Case("llama, a negative pad token", LLAMA, {"pad_token_id": -1}),
    Case("llama, unknown names", LLAMA, {"unsloth_version": "2026", "auto_map": {"AutoModel": "x.Y"}}),
    Case("llama, is_causal true", LLAMA, {"is_causal": True}),
    Case("qwen3", QWEN3),
    Case("qwen3, head_dim of its own, as of Qwen3 0.6B", QWEN3, {"head_dim": 16}),
    Case("qwen3, head_dim less", QWEN3, {"head_dim": 4}),
    Case("qwen3, heads that do not divide the width", QWEN3, {"num_attention_heads": 6, "head_dim": 16}),
    Case("qwen3, head_dim left out", QWEN3, {"head_dim": DROP}),
    Case("qwen3, tied", QWEN3, {**TIED, "rope_theta": 1e6}),
    Case("qwen3, a window that no layer has", QWEN3, {"use_sliding_window": True, "sliding_window": 4}),
    Case(
        "qwen3, a window that is off", QWEN3, {"use_sliding_window": False, "sliding_window": 4, "max_window_layers": 0}
    ),
    Case("qwen3, layer_types", QWEN3, {"layer_types": ["full_attention"] * 2}),
    Case("mistral", MISTRAL),
    Case("mistral, a window as long as its sequences", MISTRAL, {"sliding_window": 32, "rope_theta": 1e6}),
    Case("mistral, no word of a window, which is 4,096", MISTRAL, {"sliding_window": DROP, "head_dim": 8}),
    Case("olmo2", OLMO2),
    Case("olmo2, tied", OLMO2, {**TIED, "rope_theta": 5e5}),
    Case("olmo2, as many heads of keys", OLMO2, {"num_key_value_heads": DROP, "rms_norm_eps": 1e-3}),
    Case("mixtral", MIXTRAL),
    Case("mixtral, one expert for each token, tied", MIXTRAL, {**TIED, "num_experts_per_tok": 1}),
    Case("mixtral, every expert for each token", MIXTRAL, {"num_experts_per_tok": 4, "rope_theta": 10000.0}),
    Case("mixtral, settings of training", MIXTRAL, {"router_aux_loss_coef": 0.02, "router_jitter_noise": 0.1}),
    Case("mixtral, experts together", MIXTRAL, {}, tensors_of(lambda found: dict(together(found)))),
    Case("qwen3_moe", QWEN3_MOE),
    Case("qwen3_moe, head_dim of its own", QWEN3_MOE, {"head_dim": 16, "rope_theta": 1e6}),
    Case("qwen3_moe, head_dim left out", QWEN3_MOE, {"head_dim": DROP, "num_experts": 8, "num_experts_per_tok": 3}),
    Case("qwen3_moe, num_local_experts", QWEN3_MOE, {"num_experts": DROP, "num_local_experts": 8}),
    Case("qwen3_moe, one expert for each token, tied", QWEN3_MOE, {**TIED, "num_experts_per_tok": 1}),
    Case(
        "qwen3_moe, no dense layer and a window that is off",
        QWEN3_MOE,
        {"mlp_only_layers": [], "use_sliding_window": False, "sliding_window": 4},
    ),
    Case("mixtral, head_dim as it follows", MIXTRAL, {"head_dim": 8}),
    Case("gpt2", GPT2),
    Case("gpt2, n_inner null", GPT2, {"n_inner": None}),
    Case("gpt2, n_inner three times", GPT2, {"n_inner": 96}),
    Case("gpt2, n_inner no multiple", GPT2, {"n_inner": 40}),
    Case("gpt2, n_inner less", GPT2, {"n_inner": 12}),
    Case("gpt2, other names", GPT2, {"n_embd": 999, "hidden_size": 32, "n_layer": 9, "num_hidden_layers": 2}),
    Case("gpt2, epsilon", GPT2, {"layer_norm_epsilon": 0.01}),
    Case("gpt2, gelu_pytorch_tanh", GPT2, {"activation_function": "gelu_pytorch_tanh"}),
    Case("gpt2, prefixed", GPT2, {}, tensors_of(lambda found: {f"transformer.{n}": v for n, v in found.items()})),
    Case("gpt2, masks and head stored", GPT2, {}, tensors_of(lambda found: _with_head(_with_constants(found)))),
]
OTHER_MODELS = "settings of config.json that our models do not have"
OTHER_TENSORS = "tensors that are missing, unknown or of another shape"
REFUSED = [
    Case("llama, is_causal false", LLAMA, {"is_causal": False}, refusal=OTHER_MODELS),
    Case("llama, rope linear", LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0}}, refusal=OTHER_MODELS),
    Case("llama, rope yarn", LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, refusal=OTHER_MODELS),
    Case(
        "llama, other llama 3",
        LLAMA,
        {"rope_scaling": {"type": "llama3", **LLAMA3, "low_freq_factor": 2.0}},
        refusal=OTHER_MODELS,
    ),
    Case("llama, attention_bias", LLAMA, {"attention_bias": True}, refusal=OTHER_MODELS),
    Case("llama, mlp_bias", LLAMA, {"mlp_bias": True}, refusal=OTHER_MODELS),
    Case("llama, gelu", LLAMA, {"hidden_act": "gelu"}, refusal=OTHER_MODELS),
    Case(
        "llama, heads that do not divide the width",
        LLAMA,
        {"num_attention_heads": 6, "head_dim": 4},
        refusal=OTHER_MODELS,
    ),
    Case("qwen3, head_dim null", QWEN3, {"head_dim": None}, refusal=OTHER_MODELS),
    Case("llama, an odd head_dim", LLAMA, {"head_dim": 5}, refusal=OTHER_MODELS),
    Case("llama, quantized", LLAMA, {"quantization_config": {"quant_method": "fp8"}}, refusal=OTHER_MODELS),
    Case("llama, sliding window", LLAMA, {"sliding_window": 8}, refusal=OTHER_MODELS),
    Case("qwen3, windows", QWEN3, {"use_sliding_window": True, "max_window_layers": 0}, refusal=OTHER_MODELS),
    Case("qwen3, attention_bias", QWEN3, {"attention_bias": True}, refusal=OTHER_MODELS),
    Case("mixtral, sliding window", MIXTRAL, {"sliding_window": 8}, refusal=OTHER_MODELS),
    Case("mixtral, more experts for a token than there are", MIXTRAL, {"num_experts_per_tok": 5}, refusal=OTHER_MODELS),
    Case("qwen3_moe, weights that are not normed", QWEN3_MOE, {"norm_topk_prob": False}, refusal=OTHER_MODELS),
    Case("qwen3_moe, norm_topk_prob left out", QWEN3_MOE, {"norm_topk_prob": DROP}, refusal=OTHER_MODELS),
    Case("qwen3_moe, windows", QWEN3_MOE, {"use_sliding_window": True, "sliding_window": 4}, refusal=OTHER_MODELS),
    Case("qwen3_moe, attention_bias", QWEN3_MOE, {"attention_bias": True}, refusal=OTHER_MODELS),
    Case("qwen3_moe, one expert", QWEN3_MOE, {"num_experts": 1, "num_experts_per_tok": 1}, refusal=OTHER_MODELS),
    Case("mixtral, head_dim of its own", MIXTRAL, {"head_dim": 16}, refusal=OTHER_MODELS),
    Case("qwen3_moe, a dense layer", QWEN3_MOE, {"mlp_only_layers": [0]}, refusal=OTHER_MODELS),
    Case("qwen3_moe, every second layer", QWEN3_MOE, {"decoder_sparse_step": 2}, refusal=OTHER_MODELS),
    Case(
        "mixtral, an expert less",
        MIXTRAL,
        {},
        tensors_of(lambda found: {name: value for name, value in found.items() if ".3.w2." not in name}),
        OTHER_TENSORS,
    ),
    Case("gpt2, scaled by layer", GPT2, {"scale_attn_by_inverse_layer_idx": True}, refusal=OTHER_MODELS),
    Case("gpt2, unscaled", GPT2, {"scale_attn_weights": False}, refusal=OTHER_MODELS),
    Case("gpt2, relu", GPT2, {"activation_function": "relu"}, refusal=OTHER_MODELS),
    Case("gpt2, untied", GPT2, {"tie_word_embeddings": False}, refusal=OTHER_MODELS),
    *(
        Case(kind, {**LLAMA, "model_type": kind}, refusal=OTHER_MODELS)
        for kind in ("olmo", "olmo3", "olmoe", "gemma", "gemma2", "gemma3_text", "qwen2_moe")
    ),
    Case("mistral, windows", MISTRAL, {"sliding_window": 8}, refusal=OTHER_MODELS),
    Case("mistral, tied", MISTRAL, TIED, refusal=OTHER_MODELS),
    Case("mistral, head_dim of its own", MISTRAL, {"head_dim": 16}, refusal=OTHER_MODELS),
    Case("olmo2, attention_bias", OLMO2, {"attention_bias": True}, refusal=OTHER_MODELS),
    Case("llama, no head", LLAMA, {}, tensors_of(_without_head), OTHER_TENSORS),
    Case(
        "llama, one tensor more",
        LLAMA,
        {},
        tensors_of(lambda found: found | {"x": np.ones(2, np.float32)}),
        OTHER_TENSORS,
    ),
    Case(
        "llama, tied, another head",
        LLAMA,
        TIED,
        tensors_of(lambda found: found | {"lm_head.weight": np.ones((ROWS, 32), np.float32)}),
        OTHER_TENSORS,
    ),
    Case(
        "llama, adapters",
        LLAMA,
        {},
        lambda folder: (folder / "adapter_config.json").write_text("{}"),
        "adapters beside a model",
    ),
]


def shapes(said: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of the tensors of a model, by the names that transformers writes."""
    if said["model_type"] == "gpt2":
        width = said.get("hidden_size") or said["n_embd"]
        inner = said.get("n_inner") or 4 * width
        found: dict[str, tuple[int, ...]] = {"wte.weight": (ROWS, width), "wpe.weight": (32, width)}
        matrices = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width)}
        matrices |= {"mlp.c_fc": (width, inner), "mlp.c_proj": (inner, width)}
        for layer in range(2):
            for name, shape in matrices.items():
                found |= {f"h.{layer}.{name}.weight": shape, f"h.{layer}.{name}.bias": shape[1:]}
            for norm in ("ln_1", "ln_2"):
                found |= dict.fromkeys((f"h.{layer}.{norm}.weight", f"h.{layer}.{norm}.bias"), (width,))
        return found | dict.fromkeys(("ln_f.weight", "ln_f.bias"), (width,))
    width, heads = 32, said["num_attention_heads"]
    head = said.get("head_dim") or (128 if said["model_type"] == "qwen3" else width // heads)
    keys = (said.get("num_key_value_heads") or heads) * head
    found = {"model.embed_tokens.weight": (ROWS, width), "model.norm.weight": (width,)}
    for layer in range(2):
        at = f"model.layers.{layer}"
        found |= {
            f"{at}.self_attn.{name}_proj.weight": (size, width)
            for name, size in (("q", heads * head), ("k", keys), ("v", keys))
        }
        found |= {f"{at}.self_attn.o_proj.weight": (width, heads * head)} | _inner(said, at)
        first = "post_feedforward" if said["model_type"] == "olmo2" else "input"
        found |= {f"{at}.{name}_layernorm.weight": (width,) for name in (first, "post_attention")}
        if said["model_type"] == "olmo2":
            found |= {f"{at}.self_attn.q_norm.weight": (heads * head,), f"{at}.self_attn.k_norm.weight": (keys,)}
        if said["model_type"].startswith("qwen3"):
            found |= {f"{at}.self_attn.{name}_norm.weight": (head,) for name in ("q", "k")}
    return found if said.get("tie_word_embeddings") else found | {"lm_head.weight": (ROWS, width)}


def _inner(said: Mapping[str, Any], at: str) -> dict[str, tuple[int, ...]]:
    """Of the inner layer of a Llama, or of the experts in its place."""
    width, inner = 32, said.get("moe_intermediate_size", 48)
    kinds = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    if said["model_type"] == "mixtral":
        at, kinds = f"{at}.block_sparse_moe", {"w1": (inner, width), "w3": (inner, width), "w2": (width, inner)}
    elif said["model_type"] == "qwen3_moe":
        at = f"{at}.mlp"
    else:
        return {f"{at}.mlp.{name}.weight": shape for name, shape in kinds.items()}
    count = said.get("num_local_experts") or said["num_experts"]
    experts = range(count)
    found: dict[str, tuple[int, ...]] = {f"{at}.gate.weight": (count, width)}
    return found | {f"{at}.experts.{n}.{name}.weight": shape for n in experts for name, shape in kinds.items()}


def write(folder: Path, case: Case, *, settings: str = '{"tokenizer_class": "PreTrainedTokenizerFast"}') -> Path:
    """``settings``: beside the tokenizer; these say that it is what its file says, and transformers is asked nothing of it."""
    said = {name: value for name, value in {**case.base, **case.said}.items() if value != DROP}
    draw = np.random.default_rng(7)
    tensors = {
        name: (
            draw.normal(1.0, 0.2, shape) if len(shape) == 1 and "bias" not in name else draw.normal(0, 0.3, shape)
        ).astype(np.float32)
        for name, shape in shapes(said).items()
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(said), "utf-8")
    Tokenizer(WordLevel({f"t{n}": n for n in range(ROWS)}, unk_token="t0")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(settings, "utf-8")
    case.change(folder)
    return folder


IDS = np.random.default_rng(3).integers(0, ROWS, LENGTH)
PROGRAM = """
import json, sys, torch
from transformers import AutoModelForCausalLM
asked = json.load(sys.stdin)
found = {}
for name, folder in asked["folders"].items():
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([asked["ids"]])).logits[0]
    ends = model.generation_config.eos_token_id
    found[name] = {"logits": logits.tolist(), "ends": ends if isinstance(ends, list) else [] if ends is None else [ends]}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("folders")
    return {case.name: write(base / str(number), case) for number, case in enumerate([*SAME, *REFUSED])}


@pytest.fixture(scope="module")
def theirs(folders: dict[str, Path]) -> dict[str, Any]:
    """Of every folder that is to be the same, in one process: torch takes its time to begin."""
    found: dict[str, Any] = asked(
        PROGRAM, {"ids": IDS.tolist(), "folders": {one.name: str(folders[one.name]) for one in SAME}}
    )
    return found


@pytest.fixture(autouse=True)
def no_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marin.training.runtime.canary.check", lambda arithmetic: None)  # this process has none


def logits(folder: Path) -> np.ndarray:
    recipe = folder_recipe(folder)
    ids = named(jnp.asarray(IDS[None], jnp.int32), (Axis("batch", 1), Axis("position", LENGTH)))
    return np.asarray(open_folder(folder, recipe).model(ids, attention_mask(recipe, ids)).array)[0]


def near(reference: list[list[float]]) -> Callable[[object], bool]:
    """Within float error, and the same likeliest token everywhere."""

    def hold(found: object) -> bool:
        ours, wanted = np.asarray(found), np.asarray(reference, np.float32)
        return bool(np.allclose(ours, wanted, rtol=2e-4, atol=2e-4) and (ours.argmax(-1) == wanted.argmax(-1)).all())

    return hold


@pytest.mark.table
@pytest.mark.parametrize("case", SAME, ids=lambda case: case.name)
def test_logits_are_those_of_transformers(
    compare: Callable[..., None], case: Case, folders: dict[str, Path], theirs: dict[str, Any]
) -> None:
    folder = folders[case.name]
    compare(KIND, f"{case.name}: logits", lambda: logits(folder), near(theirs[case.name]["logits"]))
    compare(KIND, f"{case.name}: ends", lambda: list(folder_recipe(folder).tokens.stops), theirs[case.name]["ends"])


def read(folder: Path) -> dict[str, Any]:
    recipe = folder_recipe(folder)
    model, tokens = recipe.model, recipe.tokens
    rope = [model.rope or "default", model.rope_theta or (5e5 if model.rope else 1e4)]
    return {
        "sizes": [model.hidden_dim, model.inner, model.num_layers, model.num_heads, model.num_kv_heads, model.seq_len],
        "head": model.head,
        "epsilon": model.layer_norm_epsilon,
        "tied": model.architecture == "gpt2" or model.tie_word_embeddings,
        "rope": [] if model.architecture == "gpt2" else rope,
        "begin, end": [tokens.begin, tokens.end],
        "of a training": left_out_of_training(folder),
    }


def by_reference(folder: Path) -> dict[str, Any]:
    """The same of AutoConfig, by the names that all classes share."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    gpt2 = config.model_type == "gpt2"
    inner = (config.n_inner or 4 * config.n_embd) if gpt2 else config.intermediate_size
    inner = getattr(config, "moe_intermediate_size", inner)
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    begin = ends[0] if config.bos_token_id is None else config.bos_token_id
    heads, rope = config.num_attention_heads, None if gpt2 else config.rope_parameters
    keys = heads if gpt2 else config.num_key_value_heads
    return {
        "sizes": [config.hidden_size, inner, config.num_hidden_layers, heads, keys, config.max_position_embeddings],
        "head": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "epsilon": config.layer_norm_epsilon if gpt2 else config.rms_norm_eps,
        "tied": config.tie_word_embeddings,
        "rope": [rope["rope_type"], rope["rope_theta"]] if rope else [],
        "begin, end": [begin, ends[0]],
        "of a training": {name: value for name in CHANCE if (value := getattr(config, name, None))},
    }


@pytest.mark.parametrize("installed", [True, False], ids=["class", "table"])
@pytest.mark.parametrize("case", SAME, ids=lambda case: case.name)
def test_configurations_are_those_of_auto_config(
    compare: Callable[..., None], case: Case, installed: bool, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(configuration, "find_spec", lambda name: None)
    folder = folders[case.name]
    compare(
        KIND, f"{case.name}: by {'its class' if installed else 'the table'}", lambda: read(folder), by_reference(folder)
    )


@pytest.mark.parametrize("installed", [True, False], ids=["class", "table"])
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_is_refused(
    compare: Callable[..., None], case: Case, installed: bool, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(configuration, "find_spec", lambda name: None)
    compare(KIND, case.name, lambda: logits(folders[case.name]), None, refusal=case.refusal)


@pytest.mark.parametrize("kind", configuration.DEFAULTS)
def test_the_table_is_the_classes_own(kind: str) -> None:
    import dataclasses

    from transformers import CONFIG_MAPPING, __version__

    assert __version__ == configuration.VERSION, "look through the classes again, and name their version"
    fields = {one.name: one.default for one in dataclasses.fields(CONFIG_MAPPING[kind])}
    assert fields == dict(configuration.DEFAULTS[kind])


SMALL = Model(hidden_dim=16, intermediate_dim=40, num_layers=1, num_heads=2, num_kv_heads=2, seq_len=32)
EXPORTED = [
    replace(SMALL, architecture="gpt2", intermediate_dim=inner, inner_width=width)
    for inner, width in ((64, None), (48, 48), (40, 40), (8, 8))
] + [
    replace(SMALL, architecture=kind, num_kv_heads=1, rope=rope, head_dim=head)
    for kind in ("llama", "qwen3")
    for rope, head in ((None, None), ("llama3", None), (None, 16))
]
EXPORTED += [replace(SMALL, architecture=kind, num_kv_heads=1) for kind in ("mistral", "olmo2")]
EXPORTED += [
    replace(SMALL, architecture=kind, num_kv_heads=1, num_experts=4, num_experts_per_tok=2, head_dim=head)
    for kind, head in (("mixtral", None), ("qwen3_moe", None), ("qwen3_moe", 16))
]


@pytest.mark.table
def test_what_is_exported_is_the_same_model_there(compare: Callable[..., None], tmp_path: Path) -> None:
    """Of every width of a GPT-2 too: it was written without ``n_inner`` once, and then neither side could read it."""
    import jax.random as jrandom

    for number, size in enumerate(EXPORTED):
        folder = tmp_path / str(number)
        folder.mkdir()
        model = model_config(size).build(Axis("vocab", ROWS), key=jrandom.PRNGKey(4))
        write_model(folder, model, Recipe(model=size), ROWS)
        Tokenizer(WordLevel({f"t{n}": n for n in range(ROWS)}, unk_token="t0")).save(str(folder / "tokenizer.json"))
    names = {str(number): str(tmp_path / str(number)) for number in range(len(EXPORTED))}
    found = asked(PROGRAM, {"ids": IDS.tolist(), "folders": names})
    for name, folder in names.items():
        compare(KIND, f"exported {name}", lambda folder=folder: logits(Path(folder)), near(found[name]["logits"]))


def test_a_token_of_the_class_alone_is_refused_as_torch_does(tmp_path: Path) -> None:
    """transformers 5.12.1 gives this tokenizer, which has none, GPT-2's end of text: one more token than the model has rows."""
    folder = write(tmp_path / "folder", Case("bare", GPT2), settings="{}")
    found = open_folder(folder, folder_recipe(folder))
    assert found.model.Vocab.size == ROWS
    (end,) = found.encode("<|endoftext|>")
    assert end == ROWS
    scorer = Scorer(found.model, found.recipe)
    assert scorer.score([Row((1, 2, 3), 2)])
    with pytest.raises(UsageError, match="a token that the model does not know"):
        scorer.score([Row((1, end, 3), 2)])
    with pytest.raises(UsageError, match="a token that the model does not know"):
        scorer.generate([Prompt((1, end), 2, lambda new: False)])


def test_our_own_earlier_folders_of_gpt2_are_read(tmp_path: Path) -> None:
    case = Case("earlier", GPT2, {"n_inner": 96})
    folder = write(tmp_path / "folder", case)
    wanted = logits(folder)
    said = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(said | {"n_inner": None}), "utf-8")
    assert np.array_equal(logits(folder), wanted)


def test_a_folder_of_adapters_is_no_model(compare: Callable[..., None], tmp_path: Path) -> None:
    """As PEFT saves one: without ``config.json``. It is a folder that is refused, and not the name of a run."""
    with_adapters(tmp_path)
    assert is_folder(str(tmp_path))
    compare(KIND, "adapters alone", lambda: folder_recipe(tmp_path), None, refusal="a folder of adapters alone")
