"""How a machine executes a recipe, as options that several commands share. Nothing of it is part of an identity."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from marin.cli.choice import OneOf
from marin.cli.options import flag, option
from marin.provenance.code import NO_DIFF_VARIABLE

if TYPE_CHECKING:
    from marin.recipe.schema import Execution


def _keep_no_diff(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        os.environ[NO_DIFF_VARIABLE] = "1"


no_diff = click.option(
    "--no-diff",
    is_flag=True,
    expose_value=False,
    callback=_keep_no_diff,
    help="Do not store your uncommitted changes; that there were some is recorded.  [env: MARIN_NO_DIFF]",
)


recorded_state = partial(
    option,
    "N",
    "The recorded state before this train step; 0: the one that training began with.  [default: the last]",
    least=0,
)
on_devices = partial(
    option, "N", "Number of devices (virtual on a CPU). It never changes a bit.  [default: 1]", least=1, default=1
)
on_processes = partial(
    option,
    "P",
    "On Ray: number of processes that compute as one, each with N/P devices.  [default: 1]",
    least=1,
    default=1,
)
of_accelerator = partial(option, "TYPE", "On Ray: only machines with this accelerator (H100, TPU-V6E).", default="")
of_topology = partial(option, "T", "On Ray: topology of one TPU slice (4x4).", default="")


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """``every=N,last=K``, or one of both, as a :class:`marin.recipe.schema.Keep`."""
    from marin.recipe.schema import Keep

    if value is None:
        return None
    parts = [part.partition("=") for part in value.split(",")]
    given = {name: int(number) for name, _, number in parts if number.isdecimal() and int(number) >= 1}
    if len(given) != len(parts) or not given.keys() <= {"every", "last"}:
        raise click.BadParameter("expected every=N,last=K, or one of both, with N and K of at least 1")
    return Keep(**given)


def every_n(ctx: click.Context, param: click.Parameter, value: str | None) -> int:
    """``every=N`` (or N alone) as N; 0 where it was not given."""
    if value is None:
        return 0
    number = value.removeprefix("every=")
    if not number.isdecimal() or int(number) < 1:
        raise click.BadParameter("expected every=N with N of at least 1")
    return int(number)


@dataclass(frozen=True)
class Machine:
    """--devices, --runner and what goes with a runner."""

    devices: int = on_devices()
    runner: str = option(
        None,
        "Run training in this process, or as a Ray Train job.  [default: local]",
        type=OneOf(["local", "ray"]),
        default="local",
    )
    processes: int = on_processes()
    address: str | None = option(
        "HOST:PORT", "The Ray cluster to use. Without it a Ray is started on this machine and stopped at the end."
    )
    accelerator_type: str = of_accelerator()
    topology: str = of_topology()
    slices: int = option(
        "N",
        "Slices of a pod that train as one, each with an equal part of the devices and the whole state.  [default: 1]",
        least=1,
        default=1,
    )
    tensor_parallel: int = option(
        "N",
        "Under profile exact: devices, in groups of N, that share the matrices of each layer.  [default: 1]",
        least=1,
        default=1,
    )
    expert_parallel: int = option(
        "N",
        "Under profile exact: devices, in groups of N, that have a part of each layer's experts each.  [default: 1]",
        least=1,
        default=1,
    )
    retries: int = option(
        "N",
        "On Ray: give up after this many failures of each slice in a row without progress.  [default: 5]",
        least=0,
        default=5,
    )
    samplers: int = option(
        "N",
        "With an objective: processes that draw completions beside this one, on the runner's machines.  [default: 0]",
        least=0,
        default=0,
    )
    pause_at: int | None = option(
        "STEP", "Stop before this train step and record the state; the same command without it continues.", least=1
    )
    pack_checkpoints: bool = flag("Store training checkpoints as differences: exact, smaller, slower to read.")
    keep: Any = option(
        "every=N,last=K",
        "Training checkpoints that `marin store gc` leaves: one every N train steps, and the last K.  [default: all]",
        "--keep-checkpoints",
        callback=_keep,
    )
    self_check_every: int = option(
        "every=N", "Execute every N-th train step twice; stop if the bits differ.", "--self-check", callback=every_n
    )

    def execution(self) -> Execution:
        """As it is executed.

        Raises:
            UsageError: the values contradict each other.
        """
        return execution_of(**asdict(self))


def execution_of(**values: Any) -> Execution:
    """The checked :class:`marin.recipe.schema.Execution` of a command line.

    Raises:
        UsageError: the values contradict each other.
    """
    from marin.errors import UsageError
    from marin.recipe.schema import Execution

    if values["devices"] % values["processes"]:
        raise UsageError(
            "devices do not divide over the processes",
            where="--devices",
            expected=f"a multiple of --processes ({values['processes']})",
            found=str(values["devices"]),
            cure="--devices counts all of them: for two processes with four each write --processes 2 --devices 8",
        )
    shared = values.get("tensor_parallel", 1)
    each = {"slices": 1, "tensor_parallel": 1, "expert_parallel": shared}
    for name, times in each.items():
        if values["devices"] % (values.get(name, 1) * times):
            over = f" over --tensor-parallel ({times})" if times > 1 else ""
            raise UsageError(
                "devices do not divide over the slices" if name == "slices" else "devices do not divide into groups",
                where="--" + name.replace("_", "-"),
                expected=f"a divisor of --devices ({values['devices']}){over}",
                found=str(values[name]),
                cure="every one of them has as many devices",
            )
    of_ray = {
        "--address": values["address"],
        "--processes": values["processes"] > 1,
        "--accelerator-type": values["accelerator_type"],
        "--topology": values["topology"],
    }
    if values["runner"] == "local" and any(of_ray.values()):
        raise UsageError(
            "only a Ray has several machines and processes",
            where=next(name for name, given in of_ray.items() if given),
            expected="--runner ray",
            found="--runner local",
            cure="add --runner ray, or leave it out",
        )
    return Execution(**values)
