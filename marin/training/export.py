"""The trained model as a Hugging Face folder: safetensors, config, tokenizer; transformers loads it as it is.

Tensors and names are Levanter's own conversion (``to_state_dict``, ``to_hf_config``); the folder is written here
instead of by Levanter's converter, which needs a reference repository on a hub and writes the tokenizer's files anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from haliax.state_dict import to_torch_compatible_state_dict
from levanter.models.lm_model import LmHeadModel
from msgspec import structs
from safetensors.numpy import save_file

from ledger import describe_tree
from marin.execution.step import StepResult, Task
from marin.process.waiting import waiting
from marin.provenance.plugins import load_plugin
from marin.recipe.model import CHATS
from marin.recipe.schema import Recipe, chats
from marin.record.events import MODEL_EXPORTED, ModelExported, Output
from marin.training.checkpoints.whole import restore
from marin.training.model import model_config, vocabulary_size
from marin.training.runtime.parts import adapters, experts, plain_model

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
ADAPTERS = "adapters"
"""Where an exported folder has them, in the form of PEFT."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def hugging_face_config(recipe: Recipe, vocab_size: int) -> dict[str, object]:
    """``config.json`` without what changes from version to version of transformers, keys sorted by the writer."""
    model = recipe.model
    if model.sparse:  # transformers has a number, and no null
        model = structs.replace(model, router_aux_loss_coef=model.router_aux_loss_coef or 0.0)
    config = model_config(model).to_hf_config(vocab_size).to_diff_dict()
    config.pop("transformers_version", None)
    others = [token for token in recipe.tokens.stops if token != recipe.tokens.end]
    if recipe.model.inner_width is not None and recipe.model.architecture == "gpt2":
        config["n_inner"] = recipe.model.inner_width  # Levanter leaves it out, and so do old records
    if model.head_dim is not None or model.architecture == "qwen3_moe":
        config["head_dim"] = model.head  # of a Llama, Levanter leaves it out; of a Qwen3-MoE transformers takes no null
    config |= {
        "architectures": [ARCHITECTURES[recipe.model.architecture]],
        "bos_token_id": recipe.tokens.begin,
        "eos_token_id": [recipe.tokens.end, *others] if others else recipe.tokens.end,
        "torch_dtype": recipe.export.dtype,
        "tie_word_embeddings": recipe.model.architecture == "gpt2" or recipe.model.tie_word_embeddings,
    }
    return config


def config_files(recipe: Recipe, vocab_size: int, closing: Sequence[int] = ()) -> dict[str, dict[str, object]]:
    """``config.json`` and ``generation_config.json``, by their names. ``closing``: tokens beside the ends of a text that end an
    answer."""
    stops = list(dict.fromkeys((*recipe.tokens.stops, *closing)))
    ends = stops[0] if len(stops) == 1 else stops or None
    generation: dict[str, object] = {"bos_token_id": recipe.tokens.begin, "eos_token_id": ends, "do_sample": True}
    return {"config.json": hugging_face_config(recipe, vocab_size), "generation_config.json": generation}


def write_model(folder: Path, model: LmHeadModel, recipe: Recipe, vocab_size: int, closing: Sequence[int] = ()) -> None:
    """``config.json``, ``generation_config.json`` and ``model.safetensors`` in ``folder``. ``closing``: as there."""
    tensors = {
        name: np.ascontiguousarray(np.asarray(value))
        for name, value in to_torch_compatible_state_dict(model).items()
        if value is not None
    }
    if recipe.model.architecture == "mixtral":
        tensors = experts().by_expert(tensors)
    if recipe.model.architecture == "gpt2" or recipe.model.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    save_file(dict(sorted(tensors.items())), folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in config_files(recipe, vocab_size, closing).items():
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def export(task: Task) -> StepResult:
    """Write the folder, and beside the merged model its adapters where it has some. Its own tree digest names it: the same
    state gives the same bytes."""
    with waiting("restoring the trained state"):
        model, state = restore(task)
    tokenizer = task.inputs["tokenizer"]
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            (task.out / name).write_bytes((tokenizer / name).read_bytes())
    closing: list[int] = (
        load_plugin(*CHATS, "conversations")(task.out, task.recipe) if chats(task.recipe.dataset) else []
    )
    write_model(
        task.out, plain_model(task.recipe, model), task.recipe, vocabulary_size(tokenizer, task.recipe.model), closing
    )
    if task.recipe.lora is not None:
        base = "" if task.recipe.initial is None else task.recipe.initial.name
        adapters().write_adapters(task.out / ADAPTERS, model, task.recipe.lora, base)
    tree = describe_tree(task.out)
    output = Output(kind="model", digest=tree.digest, size=tree.size, artifact=tree.digest)
    task.journal.record(
        MODEL_EXPORTED, ModelExported(run=task.run, format=task.recipe.export.format, model=state, output=output)
    )
    return StepResult(kind="model")
