"""How a recipe stands in a record: JSON-shaped builtins, in one canonical form, with one digest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ledger import canonical_digest
from marin.recipe.section import Section

RECIPE_VERSION = 1
DURING = ("every", "sets", "tasks", "samples")
FACTORS = ("factor_bits", "factor_rounding")
BY_LAYER = ("gather", "attention", "attention_block", "loss_block", "loss_vocabulary")
SCALE = ("rope", "decay", "rounding", "z_loss", "states_at_words", "most_epochs")
OPTIMIZERS = (
    "adam_lr",
    "momentum",
    "nesterov",
    "backend_steps",
    "coefficient_type",
    "muon_epsilon",
    "use_kimi_scaling",
    "adam_weight_decay",
    "scion_to_signum_lr",
    "scion_epsilon",
    "min_dim_size_to_factor",
    "decay_rate",
    "clipping_threshold",
    "multiply_by_parameter_scale",
    "factored_epsilon",
)
EXPERTS = ("num_experts", "num_experts_per_tok", "router_aux_loss_coef", "router_z_loss_coef")
ENDS = ("begin_of_text", "end_of_text", "stop_tokens")
FROM_FOLDERS = (
    "initial",
    *ENDS,
    "rope_theta",
    "rope_factor",
    "embedding_rows",
    "inner_width",
    "head_dim",
    "taken_from",
)
WHAT_IS_READ = (
    "chat",
    "chat_template",
    "chat_reference",
    "strict",
    "preferences",
    "artifact",
    "exclude",
    "metadata_fields",
    "order",
    "held_out",
)
ADDED_LATER = frozenset(
    {
        "mixture",
        "phase",
        "lora",
        "objective",
        "questions",
        "judge",
        "asks",
        "verdict",
        "updates_behind",
        "dpo_beta",
        "packing",
        "device_kind",
        "sample_fraction",
        "reading",
        *WHAT_IS_READ,
        *FACTORS,
        *BY_LAYER,
        *SCALE,
        *OPTIMIZERS,
        *EXPERTS,
        *DURING,
        *FROM_FOLDERS,
    }
)
"""Fields that version 1 did not have from the beginning; null means without them, and is not written."""


def plain(value: Any) -> Any:
    """``value`` as JSON-shaped builtins in the ledger's form: 64-bit integers as strings, floats as hex strings.

    A float as hex (``float.hex``) survives every JSON reader bit for bit; an integer field of a recipe whose name is
    ``seed`` is a string because RFC 8785 numbers are doubles.
    """
    return _encode(msgspec.to_builtins(value))


def recorded(recipe: Section) -> dict[str, Any]:
    """``recipe`` as ``run.started`` holds it: :func:`plain`, with the version of the form."""
    return {"recipe_version": RECIPE_VERSION, **plain(recipe)}


def _encode(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, Mapping):
        return {
            key: str(item) if key == "seed" and item is not None else _encode(item)
            for key, item in value.items()
            if item is not None or key not in ADDED_LATER
        }
    return [_encode(item) for item in value]


def digest(value: Section) -> str:
    """``sha256:<hex>`` of the canonical JSON of a recipe or a part of one."""
    return canonical_digest(
        {"recipe_version": RECIPE_VERSION, "type": type(value).__name__.lower(), "value": plain(value)}
    )


_HEX_FLOAT = re.compile(r"^-?0x[01]\.[0-9a-f]{1,13}p[+-](\d{1,3}|10[01]\d|102[0-3])$")


def unplain(value: Any) -> Any:
    """The builtins that :func:`plain` was given."""
    if isinstance(value, str):
        return float.fromhex(value) if _HEX_FLOAT.match(value) else value
    if isinstance(value, Mapping):
        return {
            key: int(item) if key == "seed" and isinstance(item, str) and item.isdigit() else unplain(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [unplain(item) for item in value]
    return value


def first_difference(one: Any, other: Any, path: str = "") -> tuple[str, Any] | None:
    """Where two values that were read from the same record differ, and what the first one has there; None where they do not."""
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        items = [(f"{path}.{key}".lstrip("."), one[key], other[key]) for key in one]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        items = [(path, *pair) for pair in zip(one, other, strict=True)]
    else:
        return None if type(one) is type(other) and one == other else (path, one)
    return next((found for name, left, right in items if (found := first_difference(left, right, name))), None)


def as_written(value: Any) -> Any:
    """``value`` (builtins) without what no record has: null in a field that was added later."""
    if isinstance(value, Mapping):
        return {key: as_written(item) for key, item in value.items() if item is not None or key not in ADDED_LATER}
    return [as_written(item) for item in value] if isinstance(value, list | tuple) else value
