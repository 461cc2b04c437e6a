"""Compile the programs of a train step for a slice of TPUs, in a process of its own: libtpu reads its settings when it is loaded.

    python -m marin.scale.child QUESTION ANSWER

Both are files of JSON. Nothing is executed, and no array of the model's size is made.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from marin.recipe.schema import Recipe, from_plain
from marin.scale.chips import bounds_of
from marin.scale.compiled import Answer, Made, Moved, Question
from marin.scale.hlo import Program
from marin.training.state import DATA, state_like
from marin.training.step.shards import TrainStep

_NEEDED = re.compile(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class AheadStep(TrainStep):
    """The train step of a mesh of devices that are not here: its programs are compiled and read, never executed."""

    def _per_device(self, values: list[int]) -> Any:
        return None  # no array can lie on these devices

    def _compile(self, lowered: Any) -> Any:
        try:
            return lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            return error


def read(name: str, compiled: Any) -> Made:
    """What is asked of one program."""
    if isinstance(compiled, jax.errors.JaxRuntimeError):
        said = str(compiled)
        needed = _NEEDED.search(said)
        size = int(float(needed[1]) * _UNITS[needed[2]]) if needed else None
        return Made(name=name, error=said.strip().splitlines()[0][:500], hbm_bytes=size)
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
    program = Program.read(compiled.as_text())
    cycles, unknown = program.cycles
    return Made(
        name=name,
        identity=program.identity,
        hbm_bytes=memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        flops=float(costs.get("flops") or 0.0),
        cycles=cycles,
        without_estimate=unknown,
        collectives=[Moved(one.kind, one.dtype, one.bytes, one.times) for one in program.collectives],
    )


def answer(question: Question) -> Answer:
    """Every program of the train step."""
    recipe: Recipe = from_plain(question.recipe, where="recipe")
    bounds = bounds_of(question.topology)
    more = {} if bounds is None else {"chips_per_host_bounds": bounds}
    described: Any = topologies.get_topology_desc(platform="tpu", topology_name=question.topology, **more)
    devices = np.array(described.devices)
    step = AheadStep(recipe, Mesh(devices, (DATA,)), state_like(recipe, question.vocabulary))
    found = {name: getattr(step.programs, name) for name in step.programs.__dataclass_fields__}
    return Answer(
        kind=devices.flat[0].device_kind,
        chips=int(devices.size),
        local_shards=step.local_shards,
        programs=[read(name, one) for name, one in found.items() if one is not None],
    )


if __name__ == "__main__":
    given = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Question, strict=True)
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(answer(given)))
