"""How a machine executes a recipe, as options that several commands share. Nothing of it is part of an identity."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from marin.cli.choice import OneOf
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


recorded_state = click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    help="The recorded state before this train step; 0: the one that training began with.  [default: the last]",
)
devices = click.option(
    "--devices",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of devices (virtual on a CPU). It never changes a bit.  [default: 1]",
)
processes = click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    metavar="P",
    help="On Ray: number of processes that compute as one, each with N/P devices.  [default: 1]",
)
accelerator_type = click.option(
    "--accelerator-type",
    default="",
    metavar="TYPE",
    help="On Ray: only machines with this accelerator (H100, TPU-V6E).",
)
topology = click.option("--topology", default="", metavar="T", help="On Ray: topology of one TPU slice (4x4).")


def takes_execution[**P, R](command: Callable[P, R]) -> Callable[..., R]:
    """Give a command --devices, --runner and what goes with a runner; it gets them as one ``execution``."""

    @devices
    @click.option(
        "--runner",
        type=OneOf(["local", "ray"]),
        default="local",
        help="Run training in this process, or as a Ray Train job.  [default: local]",
    )
    @processes
    @click.option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster to use. Without it a Ray is started on this machine and stopped at the end.",
    )
    @accelerator_type
    @topology
    @click.option(
        "--slices",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Slices of a pod that train as one, each with an equal part of the devices and the whole state.  [default: 1]",
    )
    @click.option(
        "--tensor-parallel",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Under profile exact: devices, in groups of N, that share the matrices of each layer.  [default: 1]",
    )
    @click.option(
        "--expert-parallel",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Under profile exact: devices, in groups of N, that have a part of each layer's experts each.  [default: 1]",
    )
    @click.option(
        "--retries",
        type=click.IntRange(min=0),
        default=5,
        metavar="N",
        help="On Ray: give up after this many failures of each slice in a row without progress.  [default: 5]",
    )
    @click.option(
        "--pause-at",
        type=click.IntRange(min=1),
        metavar="STEP",
        help="Stop before this train step and record the state; the same command without it continues.",
    )
    @click.option(
        "--pack-checkpoints",
        is_flag=True,
        help="Store training checkpoints as differences: exact, smaller, slower to read.",
    )
    @click.option(
        "--keep-checkpoints",
        "keep",
        metavar="every=N,last=K",
        callback=_keep,
        help="Training checkpoints that `marin store gc` leaves: one every N train steps, and the last K.  [default: all]",
    )
    @click.option(
        "--self-check",
        metavar="every=N",
        callback=every_n,
        help="Execute every N-th train step twice; stop if the bits differ.",
    )
    @wraps(command)
    def called(
        *args: Any,
        devices: int,
        runner: str,
        processes: int,
        address: str | None,
        accelerator_type: str,
        topology: str,
        slices: int,
        tensor_parallel: int,
        expert_parallel: int,
        retries: int,
        pause_at: int | None,
        pack_checkpoints: bool,
        keep: Any,
        self_check: int,
        **options: Any,
    ) -> R:
        execution = execution_of(
            devices=devices,
            runner=runner,
            processes=processes,
            address=address,
            accelerator_type=accelerator_type,
            topology=topology,
            slices=slices,
            tensor_parallel=tensor_parallel,
            expert_parallel=expert_parallel,
            retries=retries,
            pause_at=pause_at,
            self_check_every=self_check,
            pack_checkpoints=pack_checkpoints,
            keep=keep,
        )
        return command(*args, **options, execution=execution)  # type: ignore[arg-type]

    return called


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
