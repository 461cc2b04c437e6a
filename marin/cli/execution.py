"""How a machine executes a recipe, as options that several commands share. Nothing of it is part of an identity."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from marin.recipe import Execution


def takes_execution[**P, R](command: Callable[P, R]) -> Callable[..., R]:
    """Give a command --devices, --runner and what goes with a runner; it gets them as one ``execution``."""

    @click.option("--devices", type=click.IntRange(min=1), default=1, metavar="N",
                  help="How many devices to use (on a CPU they are virtual); never part of a recipe.  [default: 1]")
    @click.option("--runner", type=click.Choice(["local", "ray"]), default="local",
                  help="Where training is executed: in this process, or in a Ray Train job.  [default: local]")
    @click.option("--processes", type=click.IntRange(min=1), default=1, metavar="P",
                  help="Processes that train as one with --runner ray, each with N/P devices.  [default: 1]")
    @click.option("--address", metavar="HOST:PORT", help="The Ray cluster to work on; without it a Ray of this machine, "
                  "started and ended by itself.")
    @click.option("--accelerator-type", default="", metavar="TYPE", help="Only machines with this accelerator (H100, TPU-V6E).")
    @click.option("--topology", default="", metavar="T", help="Topology of one TPU slice (4x4).")
    @click.option("--retries", type=click.IntRange(min=0), default=5, metavar="N",
                  help="How many deaths in a row, without progress between them, training on Ray survives.  [default: 5]")
    @wraps(command)
    def called(*args: Any, devices: int, runner: str, processes: int, address: str | None, accelerator_type: str,
               topology: str, retries: int, **options: Any) -> R:
        execution = _execution(devices=devices, runner=runner, processes=processes, address=address,
                               accelerator_type=accelerator_type, topology=topology, retries=retries)
        return command(*args, **options, execution=execution)  # type: ignore[arg-type]

    return called


def _execution(**values: Any) -> Execution:
    from marin.errors import UsageError
    from marin.recipe import Execution

    if values["devices"] % values["processes"]:
        raise UsageError("devices do not divide over the processes", where="--devices",
                         expected=f"a multiple of --processes ({values['processes']})", found=str(values["devices"]),
                         cure="--devices counts all of them: for two processes with four each write --processes 2 --devices 8")
    if values["runner"] == "local" and (values["processes"] > 1 or values["address"]):
        given = "--address" if values["address"] else "--processes"
        raise UsageError("only a Ray has more than one process", where=given, expected="--runner ray", found="--runner local",
                         cure="add --runner ray, or leave it out")
    return Execution(**values)
