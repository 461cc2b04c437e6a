"""Compile the programs of a train step for a slice of TPUs, in a process of its own: libtpu reads its settings when it is loaded.

    python -m marin.plugins.scale.child QUESTION ANSWER

Both are files of JSON (:mod:`marin.plugins.scale.question`). Nothing is executed, and no array of the model's size is made. What
a program was found to be is kept, by its text and the slice, so no program is compiled twice.
"""

from __future__ import annotations

import hashlib
import re
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import msgspec
from jax.experimental import topologies

from ledger import StorageFailed
from marin.plugins.scale.chips import bounds_of
from marin.plugins.scale.hlo import Program
from marin.plugins.scale.layered import LayeredStep
from marin.plugins.scale.question import PRODUCTS, ProgramAnswer, Question, SlicePrograms
from marin.plugins.scale.stock import lowered
from marin.process.files import write_whole
from marin.recipe.schema import Recipe, from_plain
from marin.training.state import state_like
from marin.training.step.contract import Step, mesh_over
from marin.training.step.shards import TrainStep

_NEEDED = re.compile(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


READING = 3
"""Which reading of a program an answer that is kept is of."""


class AnswerCache:
    """What was found of programs, by what was compiled for which slice."""

    def __init__(self, question: Question) -> None:
        self._folder = Path(question.kept) if question.kept else None
        self._about = f"reading {READING} {question.topology} libtpu {version('libtpu')} jaxlib {version('jaxlib')}"

    def compiled(self, lowered: Any) -> ProgramAnswer:
        """What is asked of one program; compiled where nobody has done it yet."""
        text = hashlib.sha256(f"{self._about}\n{lowered.as_text()}".encode()).hexdigest()
        path = self._folder / f"{text}.json" if self._folder is not None else None
        if path is not None:
            with suppress(OSError, msgspec.MsgspecError):
                return msgspec.json.decode(path.read_bytes(), type=ProgramAnswer)
        try:
            made = read(lowered.compile())
        except jax.errors.JaxRuntimeError as error:
            made = failed_program(str(error))
        if path is not None:
            with suppress(StorageFailed):  # it is compiled again the next time
                write_whole(path, msgspec.json.encode(made))
        return made


class _Ahead:
    """A train step of devices that are not here: its programs are compiled and read, never executed."""

    kept: AnswerCache
    moves: bool

    def _compile(self, lowered: Any) -> Any:
        return self.kept.compiled(lowered)


class _AheadLayers(_Ahead, LayeredStep):
    def _together(self, *given: Any, **how: Any) -> Any:
        return super()._together(*given, **how) if self.moves else lambda: None

    def _compiling_devices(self) -> Any:
        return [self.mesh.devices.flat[-1]]

    def _spread(self, programs: Any, out: Any, donated: Any) -> Any:
        (one,) = programs.values()
        return one


class _AheadShards(_Ahead, TrainStep):
    def _per_device(self, values: list[int]) -> Any:
        return None  # no array can lie on these devices


def read(compiled: Any) -> ProgramAnswer:
    """What a compiled program is."""
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
    program = Program.read(compiled.as_text())
    cycles, unknown = program.cycles
    arguments, alias = memory.argument_size_in_bytes, memory.alias_size_in_bytes
    return ProgramAnswer(
        name="",
        identity=program.identity,
        transient=arguments + memory.output_size_in_bytes + memory.temp_size_in_bytes - alias,
        arguments=arguments,
        flops=float(costs.get("flops") or 0.0),
        cycles=cycles,
        kernels=program.kernel_flops,
        without_estimate=unknown,
        collectives=list(program.collectives),
    )


def failed_program(said: str) -> ProgramAnswer:
    """A program that the compiler did not make."""
    needed = _NEEDED.search(said)
    size = int(float(needed[1]) * _UNITS[needed[2]]) if needed else 0
    return ProgramAnswer(name="", error=said.strip().splitlines()[0][:500], needed=size)


def beside(one: ProgramAnswer, lying: int) -> ProgramAnswer:
    """A program without the bytes of it that lie on the chip anyway; they are in what it would need, too."""
    if one.error:
        return msgspec.structs.replace(one, needed=max(0, one.needed - lying))
    return msgspec.structs.replace(one, transient=one.transient - lying)


def step_ahead(question: Question, recipe: Recipe, devices: Any) -> Step:
    """The recipe's step, its programs compiled for these devices."""
    kind: Any = _AheadLayers if recipe.arithmetic.gather == "layer" else _AheadShards
    if recipe.arithmetic.profile == "exact":
        from marin.plugins.exact.step import ExactStep

        kind = type("_AheadExact", (_Ahead, ExactStep), {"products": PRODUCTS})
    kind.kept, kind.moves = AnswerCache(question), question.moves
    step: Step = kind(recipe, mesh_over(devices), state_like(recipe, question.vocabulary))
    return step


def answer(question: Question) -> SlicePrograms:
    """Every program of the train step."""
    recipe: Recipe = from_plain(question.recipe, where="recipe")
    bounds = bounds_of(question.topology)
    more = {} if bounds is None else {"chips_per_host_bounds": bounds}
    described: Any = topologies.get_topology_desc(platform="tpu", topology_name=question.topology, **more)
    devices = list(described.devices)
    step = step_ahead(question, recipe, devices)
    memory = step.memory
    programs = [
        msgspec.structs.replace(
            beside(one, memory.lying.get(name, 0)),
            name=name,
            computes=name in step.computing,
            executions=step.executions.get(name, 1),
        )
        for name, one in step.named.items()
        if one is not None
    ]
    return SlicePrograms(
        kind=devices[0].device_kind,
        chips=len(devices),
        state=memory.state,
        gradient=memory.gradient,
        between=memory.between,
        programs=programs,
        stock=stock(question, recipe, devices) if question.stock else None,
    )


def stock(question: Question, recipe: Recipe, devices: Any) -> ProgramAnswer:
    """The step as Levanter's own trainer would shard it."""
    made = AnswerCache(question).compiled(lowered(recipe, devices, question.vocabulary))
    return msgspec.structs.replace(made, name="stock", computes=True)


if __name__ == "__main__":
    given = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Question, strict=True)
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(answer(given)))
