"""What an execution of a step reserves while it runs: cores and memory by the step's own word, accelerators by the recipe's
profile and the command line. The same for every door (stage, train, run), so a step never computes on what another holds.
"""

from __future__ import annotations

import os
from pathlib import Path

from marin.execution.step import StepDefinition
from marin.provenance.environment import available_cores
from marin.recipe.schema import Execution, Recipe
from marin.runners.resources import Resources


def reservation(
    definition: StepDefinition, recipe: Recipe, execution: Execution, *, cpus: float = 1, memory: int = 0
) -> Resources:
    """What one execution of a step of the pipeline reserves.

    On a Ray it asks for accelerators of the type and topology that the command line names. On this machine it asks for
    what is here and leaves the rest to the arithmetic contract, whose refusal says more; a TPU's chips cannot be shared
    between processes, so there the step has the machine to itself.
    """
    count = {"none": 0, "one": 1, "all": execution.devices}[definition.devices]
    here = execution.runner == "local"
    match recipe.arithmetic.profile if count else "":
        case "gpu":
            gpus = min(count, available_gpus()) if here else count
            return Resources(cpus, gpus, memory, accelerator_type="" if here else execution.accelerator_type)
        case "tpu" if here:
            return Resources(available_cores(), memory=memory)
        case "tpu":
            topology = execution.topology if definition.devices == "all" else ""
            return Resources(cpus, 0, memory, count, execution.accelerator_type, topology)
        case _:
            return Resources(cpus, memory=memory)


def available_gpus() -> int:
    """How many NVIDIA GPUs this process may use: those that CUDA_VISIBLE_DEVICES names, or all that have a device file.
    Nothing is asked of a driver."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return len([item for item in named.split(",") if item.strip() and item.strip() != "-1"])
    return len([path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()])
