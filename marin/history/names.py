"""What people call a run: by its model, its seed and the data that it saw, read off the recorded recipe.

    llama-4x128-seed0 · juzu7wlh        4 layers of 128, seed 0; then the run's id

A recipe is what a user recorded, of any version: what is missing or has another shape is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from marin.record.events import LOOP


def model_of(recipe: Mapping[str, object]) -> str:
    """Such as ``llama-4x128``: architecture, layers and width, or what a loop of one's own is called; "" where the recipe does
    not say."""
    if isinstance(called := section(recipe, LOOP).get("name"), str):
        return called
    model = section(recipe, "model")
    layers, width = model.get("num_layers"), model.get("hidden_dim")
    kind = model.get("architecture")
    parts = [kind] if isinstance(kind, str) else []
    if isinstance(layers, int) and isinstance(width, int):
        parts.append(f"{layers}x{width}")
    return "-".join(parts)


def data_of(recipe: Mapping[str, object]) -> str:
    """The name of the data set; "" where the recipe does not say."""
    name = section(recipe, "dataset").get("name")
    return name if isinstance(name, str) else ""


def collections_of(recipe: Mapping[str, object]) -> tuple[str, ...]:
    """The digests of the collections of documents that the data set, or a part of it, is."""
    dataset = section(recipe, "dataset")
    parts = [dataset, *(part for part in section(dataset, "parts").values() if isinstance(part, Mapping))]
    found = [part.get("artifact") for part in parts if part.get("kind") == "documents"]
    return tuple(artifact for artifact in found if isinstance(artifact, str))


def name_of(run: str, recipe: Mapping[str, object]) -> str:
    """Such as ``llama-4x128-seed0 · juzu7wlh``; the id alone where the recipe says nothing."""
    seed = recipe.get("seed")
    parts = [part for part in (model_of(recipe), f"seed{seed}" if isinstance(seed, str | int) else "") if part]
    return f"{'-'.join(parts)} · {run}" if parts else run


def section(recipe: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A section of a recorded recipe; empty where it has none."""
    found = recipe.get(name)
    return found if isinstance(found, Mapping) else {}
