"""What the TPU's own compiler says of a train step when a dry run asks for it: memory by program, whether it fits, time.

Where it cannot be asked, the dry run keeps to the rule of conf/prices.yaml and says why.
"""

from __future__ import annotations

from dataclasses import replace

from ledger import LedgerError
from marin.errors import UsageError
from marin.execution.forecast import Forecast
from marin.plugins.scale import compiled
from marin.plugins.scale.chips import CHIPS, count_of
from marin.recipe.cost import START_SECONDS, Prices
from marin.recipe.schema import CPU_PROFILES, Recipe
from marin.recipe.units import HOUR, human_size

PREFIX = "tpu-"
"""How conf/prices.yaml begins the names of TPUs."""


def foreseen(
    steps: list[Forecast], recipe: Recipe, prices: Prices, device: str, devices: int, slices: int = 1
) -> tuple[list[Forecast], dict[str, object] | None, str]:
    """The steps of a dry run with what the compiler says of training; the same as JSON; and a line for people. Nothing but
    the steps as they are for a recipe of processors, or whose training is a hit."""
    at = next((i for i, item in enumerate(steps) if item.step == "train" and item.action == "run"), None)
    if at is None or recipe.arithmetic.profile in CPU_PROFILES:
        return steps, None, ""
    try:
        made = _compiled(recipe, device, devices, slices)
    except LedgerError as error:
        why = f"memory and time of training are by rule, not by the device's compiler: {error}"
        return steps, {"why_not": str(error)}, why
    programs = {one.name: made.hbm(one) for one in made.answer.programs}
    seconds = START_SECONDS.get("train", 1.0) + sum(made.seconds) * recipe.trainer.num_steps
    largest = made.largest.name
    estimate = replace(
        steps[at].estimate,
        memory_bytes=float(programs[largest]),
        seconds=seconds,
        price=seconds / HOUR * prices.device(device).hourly * devices,
        basis=f"compiled for {made.topology}",
        fits=made.fits,
    )
    found: dict[str, object] = {
        "topology": made.topology,
        "hbm_bytes": programs,
        "hbm_bytes_of_chip": made.chip.hbm,
        "fits": made.fits,
        "cures": [] if made.fits else made.cures(),
        "step_seconds": sum(made.seconds),
        "mfu": made.utilisation(made.seconds),
    }
    by_size = sorted(programs.items(), key=lambda item: -item[1])
    line = (
        f"compiled for {made.topology}, of {human_size(made.chip.hbm)} a chip: "
        + ", ".join(f"{name} {human_size(size)}" for name, size in by_size[:4])
        + (f" and {len(by_size) - 4} smaller programs" if by_size[4:] else "")
        + ("; it fits" if made.fits else "; it does not fit: " + "; ".join(made.cures()))
    )
    return [*steps[:at], replace(steps[at], estimate=estimate), *steps[at + 1 :]], found, line


def _compiled(recipe: Recipe, device: str, devices: int, slices: int) -> compiled.Forecast:
    kind = device.removeprefix(PREFIX)
    if recipe.arithmetic.profile != "tpu" or not device.startswith(PREFIX) or kind not in CHIPS:
        raise UsageError(
            "only the compiler of TPUs can be asked",
            where="profile and --device",
            expected="profile=tpu and one of " + ", ".join(PREFIX + name for name in CHIPS),
            found=f"profile={recipe.arithmetic.profile} and {device}",
            cure="name one of these by --device and the number of chips by --devices",
        )
    if slices > 1:
        raise UsageError(
            "a pod of several slices is not compiled for",
            where="--slices",
            expected="1",
            found=str(slices),
            cure="ask for one of them, with its part of the devices",
        )
    known = {count_of(f"{kind}:{shape}"): f"{kind}:{shape}" for shape in CHIPS[kind].slices}
    if devices not in known:
        raise UsageError(
            "there is no slice of so many chips",
            where="--devices",
            expected=f"one of {', '.join(map(str, sorted(known)))}",
            found=str(devices),
            cure=f"{device} comes in these",
        )
    if recipe.arithmetic.device_kind != CHIPS[kind].kind:
        raise UsageError(
            "the recipe is for another kind of device",
            where=f"--device {device}",
            expected=str(recipe.arithmetic.device_kind),
            found=CHIPS[kind].kind,
            cure="name that kind by --device, or set arithmetic.device_kind",
        )
    return compiled.forecast(recipe, known[devices], recipe.vocabulary)
