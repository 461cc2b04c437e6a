"""What a recipe does not say and a slice of TPUs decides: its logical shards, its kind of device, the kernel that attends.

The number of logical shards is part of what a recipe is. So one slice, and another that is set beside it, are asked about the
same recipe: that with the shards of the larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args, get_type_hints

from marin.errors import UsageError
from marin.plugins.scale.chips import chip_of, count_of
from marin.process.arithmetic import check_devices
from marin.recipe.arithmetic import Arithmetic
from marin.recipe.composition import compose
from marin.recipe.schema import Execution, Recipe

PROFILES = ("tpu", "exact")
"""Those that are compiled for TPUs."""
LEAST_SHARDS = 8
"""Logical shards of a recipe that names none, on a slice of fewer chips: as many as conf/profile/tpu.yaml has."""
MOST_SHARDS = max(get_args(get_type_hints(Arithmetic)["logical_shards"]))
"""A larger slice has no recipe."""
BLOCK = 128
"""The splash kernel attends in whole blocks of a multiple of so many positions."""
WITHOUT_KERNEL = ("arithmetic.attention=null", "arithmetic.attention_block=null")


def recipe_for(overrides: Sequence[str], topologies: Sequence[str]) -> tuple[Recipe, list[str]]:
    """The recipe of ``overrides`` for slices of one kind, and the overrides that were added: one logical shard for each chip
    of the largest slice (at least :data:`LEAST_SHARDS`), one microbatch for each shard, profile tpu, the slice's kind of
    device, and no splash kernel where sequences have no whole blocks. Under profile exact: one sequence for each chip.

    Raises:
        UsageError: no such slice, slices of two kinds, another profile or kind of device, no such recipe, or logical
            shards that do not divide over a slice.
    """
    chip = chip_of(topologies[0])
    for other in topologies[1:]:
        if chip_of(other, "--against") is not chip:
            raise UsageError(
                "slices of two kinds",
                where="--against",
                expected=f"a slice of {topologies[0].partition(':')[0]}",
                found=other,
                cure="programs are compared within a kind: each kind has its own",
            )
    named = dict(text.lstrip("+").partition("=")[::2] for text in overrides)
    profile = named.get("profile", "tpu")
    if profile not in (PROFILES if len(topologies) == 1 else PROFILES[:1]):
        raise UsageError(
            "not a profile that is compiled for TPUs",
            where="profile",
            expected=" or ".join(PROFILES) if len(topologies) == 1 else "tpu with --against",
            found=profile,
            cure="say profile=tpu, or nothing",
        )
    if profile == "exact":
        return _exact(overrides, named, topologies[0])
    shards = _count(
        named.get("arithmetic.logical_shards"), min(MOST_SHARDS, max(LEAST_SHARDS, *map(count_of, topologies)))
    )
    each = _count(named.get("arithmetic.microbatch_size"), 1)
    assumed = {"profile": "tpu", "arithmetic.device_kind": f"'{chip.kind}'"}
    assumed |= {"arithmetic.logical_shards": str(shards), "trainer.batch_size": str(shards * each)}
    said = [f"{name}={value}" for name, value in assumed.items() if name not in named]
    plain = [text for text in WITHOUT_KERNEL if text.partition("=")[0] not in named]
    recipe = compose([*overrides, *said, *plain]).recipe
    _check_shards(recipe, topologies)
    if (recipe.arithmetic.profile, recipe.arithmetic.device_kind) != ("tpu", chip.kind):
        raise UsageError(
            "the recipe is for another kind of device",
            where=f"--topology {topologies[0]}",
            expected=f"profile {recipe.arithmetic.profile}, device kind {recipe.arithmetic.device_kind}",
            found=f"profile tpu, device kind {chip.kind}",
            cure="name a slice of that kind, or leave arithmetic.device_kind to the slice",
        )
    if recipe.model.seq_len % BLOCK:
        return recipe, [*said, *plain]
    return (compose([*overrides, *said]).recipe if plain else recipe), said


def _exact(overrides: Sequence[str], named: Mapping[str, str], topology: str) -> tuple[Recipe, list[str]]:
    """The same under profile exact, whose one microbatch has a sequence for each chip where nothing else is said."""
    chips = count_of(topology)
    batch = _count(named.get("trainer.batch_size"), chips)
    assumed = {"trainer.batch_size": str(chips), "arithmetic.microbatch_size": str(batch)}
    said = [f"{name}={value}" for name, value in assumed.items() if name not in named]
    recipe = compose([*overrides, *said]).recipe
    check_devices(recipe, Execution(devices=chips))
    return recipe, said


def _check_shards(recipe: Recipe, topologies: Sequence[str]) -> None:
    for topology, where in zip(topologies, ("--topology", *["--against"] * len(topologies)), strict=False):
        if recipe.arithmetic.logical_shards % count_of(topology):
            raise UsageError(
                "logical shards do not divide over the chips",
                where=where,
                expected=f"a number of chips that divides arithmetic.logical_shards ({recipe.arithmetic.logical_shards})",
                found=f"{count_of(topology)} in {topology}",
                cure=f"say no arithmetic.logical_shards, or as many as the larger slice has chips; {MOST_SHARDS} at most",
            )


def _count(text: str | None, assumed: int) -> int:
    """The number that an override names. One that is not there is ``assumed``, and so is text that is not a number: composing the
    recipe then refuses it by name."""
    return max(1, int(text)) if text is not None and text.isdecimal() and len(text) < 10 else assumed
