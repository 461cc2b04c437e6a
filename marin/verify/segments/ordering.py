"""The order in which a train step meets its tensors: what it reads first comes first. Pure.

Paths are those of :func:`marin.training.state.leaves`. The tree's own order is that of the fields of Levanter's classes
(the layers before the embeddings that feed them), so a place is given to each by name: counters and key, embeddings,
layers (attention with the norm before it, then the MLP with its own), the last norm, the head; and the optimizer's
moments after all parameters, in the same order. A name that is not known stays where the tree has it, between layers
and head.
"""

from __future__ import annotations

from collections.abc import Iterable

_PLACES = (
    ("embeddings", 10),
    ("input_layernorm", 20),
    ("ln_1", 20),
    ("q_proj", 21),
    ("k_proj", 22),
    ("v_proj", 23),
    ("c_attn", 21),
    ("o_proj", 24),
    ("attn/c_proj", 24),
    ("post_attention_layernorm", 30),
    ("ln_2", 30),
    ("gate_proj", 31),
    ("up_proj", 32),
    ("c_fc", 31),
    ("down_proj", 33),
    ("mlp/c_proj", 33),
    ("transformer/norm", 40),
    ("ln_f", 40),
    ("lm_head", 50),
)
_UNKNOWN = 35
_KINDS = {"step": 0, "cursor": 1, "key": 2, "model": 3, "moments": 4}


def place(path: str) -> tuple[int, int, int]:
    """Where ``path`` stands: by kind, by the moment it belongs to, by the part of the model."""
    kind, _, rest = path.partition("/")
    part = next((number for name, number in _PLACES if name in rest), _UNKNOWN if rest else 0)
    moment = next((number for number, name in enumerate(("count", "mu", "nu"), 1) if f"/{name}" in f"/{rest}"), 0)
    return _KINDS.get(kind, 5), moment if kind == "moments" else 0, part


def by_execution(paths: Iterable[str]) -> tuple[str, ...]:
    """``paths`` in the order of execution; those with one place keep their order."""
    return tuple(sorted(paths, key=place))
