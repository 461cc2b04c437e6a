"""What not every model has, found by its plugin: experts, adapters, and optimizers that look across the numbers of a tensor.

Each is a module, whose functions say what they take and give. Without the plugin :class:`marin.errors.NotInstalled` is raised.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from marin.provenance.plugins import load_plugin
from marin.recipe.form.optimizer import ACROSS_TENSORS
from marin.recipe.model import EXPERTS, LORA
from marin.recipe.schema import Recipe


@cache
def experts() -> Any:
    """:mod:`marin.training.experts.models`."""
    return load_plugin(*EXPERTS, "model.architecture")


def adapters() -> Any:
    """:mod:`marin.training.adapters`."""
    return load_plugin(*LORA, "lora")


def across_tensors() -> Any:
    """:mod:`marin.training.optimizers.across`."""
    return load_plugin(*ACROSS_TENSORS, "optimizer.name")


def plain_model(recipe: Recipe, model: Any) -> Any:
    """``model`` without adapters: as it is, or with those of ``recipe`` merged."""
    return model if recipe.lora is None else adapters().merged(model)
