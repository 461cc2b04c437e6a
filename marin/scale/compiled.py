"""A recipe's train step compiled for slices of TPUs that are not here: whether it fits, and what it would cost.

What is counted, and what is assumed:

- the programs are those of `marin train` (:class:`marin.training.step.shards.TrainStep`), compiled by libtpu for the whole slice;
- memory of a chip while a program runs: the state's slices that lie there, and the program's own arguments, results and
  temporaries; where a device has several logical shards, the running sum of gradients too;
- time: libtpu's estimated cycles at the chip's clock, loops by their turns, each program as often as a train step executes
  it; after that the collectives' bytes over all links of a chip. Kernels without an estimate are counted, and cost nothing;
- FLOPs and utilisation: those of the model (forward and backward, without what is computed again), against the bfloat16
  peak.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from marin.errors import NotInstalled, StepFailed, Unsupported
from marin.recipe.cost import flops_per_token, parameters
from marin.recipe.schema import Recipe, recorded
from marin.scale.chips import Chip, chip_of

LIBTPU = "0.0.48.1"
"""The locked version (docker/requirements-tpu.lock): another one makes other programs."""
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "JAX_THREEFRY_PARTITIONABLE": "1",
    "JAX_DEFAULT_MATMUL_PRECISION": "highest",
    "JAX_DEFAULT_PRNG_IMPL": "threefry2x32",
    "JAX_NUMPY_DTYPE_PROMOTION": "standard",
}
"""Of the compiling process, beside where programs and packages lie."""
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "VIRTUAL_ENV", "PYTHONPATH")
CHANGES = ("LIBTPU_INIT_ARGS", "XLA_FLAGS", "TF_XLA_FLAGS")
COMPUTES = ("gradient", "blank", "add", "square", "update")
"""Programs that compute; the rest moves words and folds sums."""
STATE = 12
"""Bytes of a parameter's state: itself and two moments, float32."""


class Question(msgspec.Struct, frozen=True):
    """What the compiling process is asked."""

    recipe: dict[str, Any]
    topology: str
    vocabulary: int


class Moved(msgspec.Struct, frozen=True):
    """A collective: dtype and bytes of its result on a device, and how often it is executed."""

    kind: str
    dtype: str
    bytes: float
    times: int


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """One program. ``error``: the compiler's own first line where it made none."""

    name: str
    identity: str = ""
    hbm_bytes: int | None = None
    temporary_bytes: int = 0
    flops: float = 0.0
    cycles: int = 0
    without_estimate: int = 0
    collectives: list[Moved] = []
    error: str = ""


class Answer(msgspec.Struct, frozen=True):
    """All programs on one slice."""

    kind: str
    chips: int
    local_shards: int
    programs: list[Made]


@dataclass(frozen=True)
class Forecast:
    """What a train step is on a slice. ``hbm``: bytes of each program and the state beside it; ``seconds``: compute, movement."""

    topology: str
    chip: Chip
    answer: Answer
    state_bytes: int
    hbm: Mapping[str, int]
    flops: float
    seconds: tuple[float, float]

    @property
    def largest(self) -> str:
        """The program that needs the most memory."""
        return max(self.hbm, key=lambda name: self.hbm[name])

    @property
    def fits(self) -> bool:
        """Whether every program was made, and has room beside the state."""
        return all(not one.error for one in self.answer.programs) and self.hbm[self.largest] <= self.chip.hbm

    @property
    def utilisation(self) -> float:
        """Model FLOPs of a train step over what the slice's peak would do in its time."""
        total = sum(self.seconds)
        return self.flops / (total * self.answer.chips * self.chip.peak) if total else 0.0


def forecast(recipe: Recipe, topology: str, vocabulary: int) -> Forecast:
    """Compile ``recipe`` for ``topology``.

    Raises:
        UsageError: no such slice, or logical shards that do not divide over it.
        NotInstalled: no libtpu, or another than the locked one.
        Unsupported: a variable of the environment would change programs.
    """
    chip = chip_of(topology)
    answer = _asked(Question(recorded(recipe), topology, vocabulary))

    state = STATE * parameters(recipe.model, vocabulary) // answer.chips
    whole = STATE // 3 * parameters(recipe.model, vocabulary)
    beside = {"gradient": state + (whole if answer.local_shards > 1 else 0), "blank": state + whole}
    hbm = {one.name: beside.get(one.name, state) + (one.hbm_bytes or 0) for one in answer.programs}
    times = {"gradient": answer.local_shards, "select": answer.local_shards, "add": answer.local_shards - 1}
    times |= {"update": answer.local_shards, "square": answer.local_shards, "blank": 0}
    compute = sum(one.cycles * times.get(one.name, 1) for one in answer.programs) / chip.hertz
    moved = sum(item.bytes * item.times * times.get(one.name, 1) for one in answer.programs for item in one.collectives)
    tokens = recipe.trainer.batch_size * recipe.model.seq_len
    flops = 3 * flops_per_token(recipe.model, vocabulary) * tokens
    return Forecast(topology, chip, answer, state, hbm, flops, (compute, moved / chip.link))


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that change what libtpu makes.

    Raises:
        Unsupported: one of them is set.
    """
    for name in CHANGES:
        if environment.get(name):
            raise Unsupported(
                "a variable of the environment changes programs",
                where=name,
                expected="not set: the recipe decides them",
                found=environment[name][:120],
                cure=f"unset {name}; flags of the recipe are in arithmetic.xla_flags",
            )


def _check_libtpu() -> None:
    try:
        found = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        found = ""
    if found != LIBTPU:
        raise NotInstalled(
            "the TPU's compiler is not here" if not found else "the TPU's compiler is another version",
            where="libtpu",
            expected=LIBTPU,
            found=found or "nothing",
            cure=f"pip install --no-deps libtpu=={LIBTPU} (no TPU is needed; 221 MB)",
        )


def _asked(question: Question) -> Answer:
    check_environment(os.environ)
    _check_libtpu()
    kept = {
        name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR", "LANG", "VIRTUAL_ENV")
    }
    with tempfile.TemporaryDirectory(prefix="marin-compile-") as folder:
        asked, answered = Path(folder) / "question.json", Path(folder) / "answer.json"
        asked.write_bytes(msgspec.json.encode(question))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "marin.scale.child", str(asked), str(answered)],
            capture_output=True,
            env=kept | ENVIRONMENT,
            check=False,
        )
        if done.returncode == 0:
            return msgspec.json.decode(answered.read_bytes(), type=Answer)
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
    raise StepFailed(
        "the compiling process ended early",
        where=f"{question.topology}: exit status {done.returncode}",
        expected="programs",
        found=last[0][:500],
        cure="with status -9 memory ran out: choose a smaller model or slice",
    )


def differing(one: Answer, other: Answer, names: Sequence[str] = COMPUTES) -> list[str]:
    """Names of computing programs that are not the same in both."""
    theirs = {made.name: made.identity for made in other.programs}
    return [made.name for made in one.programs if made.name in names and made.identity != theirs.get(made.name)]
