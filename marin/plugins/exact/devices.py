"""Whether what several devices share under profile exact divides over them. Light: asked before jax starts."""

from __future__ import annotations

from collections.abc import Mapping

from marin.errors import UsageError
from marin.recipe.schema import Recipe


def check_shares(option: str, what: str, sizes: Mapping[str, int], parts: int) -> None:
    """Raises ``UsageError`` where an axis of these ``sizes`` does not divide over ``parts`` devices."""
    if odd := {name: size for name, size in sizes.items() if size % parts}:
        raise UsageError(
            f"{what} do not divide over the devices that share them",
            where=option,
            expected="a divisor of " + " and of ".join(f"{name} ({size})" for name, size in odd.items()),
            found=str(parts),
            cure="let fewer devices share a layer",
        )


def check_batch(recipe: Recipe, devices: int, shared: int) -> None:
    """Raises ``UsageError`` where under ``exact`` the batch does not divide over the groups of ``shared`` devices."""
    if recipe.parts % max(1, devices // shared):
        raise UsageError(
            "the batch does not divide over the devices",
            where="--devices",
            expected=f"a divisor of {f'{shared} times ' if shared > 1 else ''}trainer.batch_size ({recipe.parts})",
            found=str(devices),
            cure="use another number of devices",
        )
