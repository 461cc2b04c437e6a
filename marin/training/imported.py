"""A model that was made elsewhere: the parameters of a Hugging Face folder, and the state with which a training of it begins.

Read are the safetensors of the folder and nothing else; a number of 16 bits becomes the float32 that it is. Tensors have to be
those of the recipe's model, by name and shape: one that is missing, of another shape or unknown is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from haliax.jax_utils import is_jax_array_like
from haliax.state_dict import flatten_modules_for_export, from_torch_compatible_state_dict, to_state_dict
from levanter.models.lm_model import LmHeadModel
from safetensors import SafetensorError, deserialize

from ledger import SlicedForm
from marin.data.borrowed.tensor_files import tensor_files
from marin.errors import UsageError
from marin.recipe.schema import Recipe
from marin.training.initial import initial_state
from marin.training.model import model_config
from marin.training.runtime.parts import adapters, experts
from marin.training.state import TrainState, vocabulary

DTYPES: Mapping[str, type] = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
HEAD = "lm_head.weight"
EMBEDDINGS = ("model.embed_tokens.weight", "wte.weight")
NO_PARAMETERS = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)")
"""Constants that older folders store among their tensors: frequencies, and the causal mask of GPT-2."""


def imported_state(recipe: Recipe, vocab_size: int, folder: Path, form: SlicedForm | None = None) -> TrainState:
    """The state before the first step, with the parameters of ``folder`` in place of drawn ones. ``form``: as for
    :func:`initial_state`.

    Raises:
        UsageError: the folder's tensors are not those of the recipe's model.
    """
    first, model = initial_state(recipe, vocab_size, form), read_model(recipe, vocab_size, folder)
    if recipe.lora is not None:
        model = eqx.combine(adapters().adapters_of(first.model), adapters().adapted(recipe.lora, model, first.key))
    return eqx.tree_at(lambda state: state.model, first, model)


def read_model(recipe: Recipe, vocab_size: int, folder: Path) -> LmHeadModel:
    """The model of a folder in float32, on one device.

    Raises:
        UsageError: its tensors cannot be read, or are not those of the recipe's model.
    """
    try:
        config = model_config(recipe.model)
        model = eqx.filter_eval_shape(lambda: config.build(vocabulary(vocab_size), key=jax.random.PRNGKey(0)))
        shapes = {
            name: value.shape for name, value in jax.eval_shape(lambda: _exported(model)).items() if value is not None
        }
        tied = recipe.model.architecture == "gpt2" or recipe.model.tie_word_embeddings
        found = _named(dict(_tensors(folder)), recipe.model.architecture)
        if tied:
            shapes.pop(HEAD, None)
            found = _without_head(found, recipe.model.architecture)
        if shapes != {name: value.shape for name, value in found.items()}:
            odd = set(shapes.items()) ^ {(name, value.shape) for name, value in found.items()}
            raise ValueError(f"tensors of other names or shapes: {sorted(name for name, _ in odd)[:4]}")
        # Arrays of numpy would be laid over a mesh where there are several devices; no mesh is in force here.
        here = {name: jnp.asarray(value) for name, value in found.items()}
        # Moved in one program: each move by itself would be compiled by itself.
        read: LmHeadModel = eqx.filter_jit(lambda given: from_torch_compatible_state_dict(model, given))(here)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise UsageError(
            "a folder whose model cannot be read",
            where=str(folder),
            expected="safetensors of the model that its config.json describes, and a tokenizer with a token for each row",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            cure="folders that `marin export --hf` writes can be read, and those of the same layout",
        ) from error
    return jax.device_put(read)


def _exported(shape: LmHeadModel) -> dict[str, Any]:
    """The tensors of a folder's model by name, of one that has shapes instead of values; to be traced."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x, shape)
    found: dict[str, Any] = to_state_dict(flatten_modules_for_export(eqx.filter(zeros, is_jax_array_like)))
    return found


def _tensors(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    for name in tensor_files(folder):
        stored: list[tuple[str, dict[str, Any]]] = deserialize((folder / name).read_bytes())  # type: ignore[no-untyped-call]
        for key, told in stored:
            if NO_PARAMETERS.fullmatch(key):
                continue
            if told["dtype"] not in DTYPES:
                raise ValueError(f"{key} is {told['dtype']}, not one of {', '.join(DTYPES)}")
            flat: np.ndarray = np.frombuffer(told["data"], dtype=DTYPES[told["dtype"]])
            yield key, flat.reshape(told["shape"]).astype(np.float32)


def _named(found: dict[str, np.ndarray], architecture: str) -> dict[str, np.ndarray]:
    """The tensors by the names of GPT-2's own folder, which other writers put under a prefix; of a Mixtral with its experts
    together, as transformers has them in memory."""
    if architecture == "mixtral":
        return experts().together(found)
    return (
        {name.removeprefix("transformer."): value for name, value in found.items()} if architecture == "gpt2" else found
    )


def _without_head(found: dict[str, np.ndarray], architecture: str) -> dict[str, np.ndarray]:
    """Tied embeddings may be stored a second time as the head, and then have to be equal, or as the head alone."""
    head = found.pop(HEAD, None)
    if head is not None:
        name = next((name for name in found if name.endswith(EMBEDDINGS)), None)
        if name is None:
            return found | {EMBEDDINGS[architecture == "gpt2"]: head}
        if head.shape != found[name].shape or head.tobytes() != found[name].tobytes():
            raise ValueError(f"{HEAD} is not {name}, though its embeddings are tied")
    return found
