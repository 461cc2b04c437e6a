"""The experts of a Mixtral in a folder of Hugging Face: one by one, as folders have them, or together, as memory has.

    model.layers.0.block_sparse_moe.gate.weight                 [experts, width]
    model.layers.0.block_sparse_moe.experts.3.w1.weight         [inner, width], w3 likewise; w2 [width, inner]

    model.layers.0.mlp.gate.weight                              [experts, width]
    model.layers.0.mlp.experts.gate_up_proj                     [experts, 2 inner, width]: w1, then w3
    model.layers.0.mlp.experts.down_proj                        [experts, width, inner]: w2

Names of Qwen3-MoE are alike in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

ONE, ALL = "block_sparse_moe", "mlp"
_EXPERT = re.compile(r"(model\.layers\.[0-9]{1,6})\.block_sparse_moe\.experts\.([0-9]{1,6})\.w([123])\.weight")


def by_expert(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors with experts together, with experts one by one."""
    found = {}
    for name, value in tensors.items():
        layer, inside, kind = name.partition(f".{ALL}.")
        if kind == "experts.gate_up_proj":
            for number, pair in enumerate(value):
                gate, up = np.split(pair, 2)
                found[f"{layer}.{ONE}.experts.{number}.w1.weight"] = np.ascontiguousarray(gate)
                found[f"{layer}.{ONE}.experts.{number}.w3.weight"] = np.ascontiguousarray(up)
        elif kind == "experts.down_proj":
            for number, one in enumerate(value):
                found[f"{layer}.{ONE}.experts.{number}.w2.weight"] = np.ascontiguousarray(one)
        else:
            found[f"{layer}.{ONE}.{kind}" if inside else name] = value
    return found


def together(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors with experts one by one, or together already, with experts together.

    Raises:
        ValueError: an expert is missing, or has another shape than the others.
    """
    found: dict[str, np.ndarray] = {}
    experts: dict[str, dict[tuple[int, int], np.ndarray]] = {}
    for name, value in tensors.items():
        if one := _EXPERT.fullmatch(name):
            experts.setdefault(one[1], {})[int(one[2]), int(one[3])] = value
        else:
            found[name.replace(f".{ONE}.", f".{ALL}.")] = value
    for layer, parts in experts.items():
        count = 1 + max(number for number, _ in parts)
        if len(parts) != 3 * count:
            raise ValueError(f"{layer} has {len(parts)} matrices of experts; {count} experts have three each")
        pairs = [np.concatenate([parts[number, 1], parts[number, 3]]) for number in range(count)]
        found[f"{layer}.{ALL}.experts.gate_up_proj"] = np.stack(pairs)
        found[f"{layer}.{ALL}.experts.down_proj"] = np.stack([parts[number, 2] for number in range(count)])
    return found
