"""A recipe's train step compiled for slices of TPUs that are not here: whether it fits, and what it would cost.

What is counted, and what is assumed:

- the programs are those of `marin train` (:mod:`marin.training.step`), compiled by libtpu for the whole slice;
- memory of a chip while a program runs: what lies there anyway (the state's slices, the gradient, what goes between the
  parts of the model, weights that are gathered ahead), and the program's own arguments, results and temporaries;
- time: libtpu's estimated cycles at the chip's clock, loops by their turns, each program as often as a train step executes
  it; kernels, for which it has no estimate, by the FLOPs that they state, at ``KERNELS`` of the bfloat16 peak;
- movement: bytes that a collective brings to a chip, over the links of the axes of the torus that it goes along. In an
  all-to-all a word passes as many chips as lie between two on average, a quarter of each side; in a sum that is gathered
  again it comes twice;
- under profile ``exact`` the way of multiplying is :data:`marin.plugins.scale.question.PRODUCTS`; numbers of 64 bits are what
  libtpu makes of them, two words of 32, and whether a TPU gives the known answers so nobody has tried;
- nothing overlaps: movement comes after computing, in ours and in the stock step beside it;
- FLOPs and utilisation: those of the model (forward and backward, without what is computed again), against the bfloat16
  peak.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec

from marin.errors import NotInstalled, StepFailed
from marin.plugins.scale.chips import Chip, chip_of, sides_of
from marin.plugins.scale.hlo import Collective
from marin.plugins.scale.question import ProgramAnswer, Question, SlicePrograms
from marin.process.arithmetic import check_variables
from marin.process.cache import compilation_cache
from marin.recipe.cost import flops_per_token
from marin.recipe.schema import Recipe, recorded
from marin.recipe.units import human_size

LIBTPU = "0.0.48.1"
"""The locked version (docker/requirements-tpu.lock): another one makes other programs."""
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "JAX_THREEFRY_PARTITIONABLE": "1",
    "JAX_DEFAULT_PRNG_IMPL": "threefry2x32",
    "JAX_NUMPY_DTYPE_PROMOTION": "standard",
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",
}
"""Of the compiling process, beside where programs and packages lie, and the recipe's precision of products."""
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "VIRTUAL_ENV")
KERNELS = 0.4
"""Of the bfloat16 peak: what kernels without an estimate are assumed to reach."""


@dataclass(frozen=True)
class Forecast:
    """What a train step is on a slice. ``flops``: of the model, in a train step. Memory is in bytes, time in seconds.
    ``by_layer``: whether layers are gathered one by one."""

    topology: str
    chip: Chip
    answer: SlicePrograms
    flops: float
    by_layer: bool

    def hbm(self, program: ProgramAnswer) -> int:
        """Bytes on a chip while a program runs."""
        answer = self.answer
        between = answer.between if program.name.removesuffix("_blank") not in AFTER else 0
        return answer.state + answer.gradient + between + (program.needed or program.transient)

    @property
    def largest(self) -> ProgramAnswer:
        """The program that needs the most memory."""
        return max(self.answer.programs, key=self.hbm)

    @property
    def fits(self) -> bool:
        """Whether every program was made, and has room beside what lies there."""
        return all(not one.error for one in self.answer.programs) and self.hbm(self.largest) <= self.chip.hbm

    @property
    def seconds(self) -> tuple[float, float]:
        """Of a train step: computing, moving."""
        return self._seconds(self.answer.programs)

    @property
    def stock_seconds(self) -> tuple[float, float] | None:
        """The same of the stock step; None where it was not asked for, or could not be made."""
        stock = self.answer.stock
        return None if stock is None or stock.error else self._seconds([stock])

    @property
    def moved(self) -> float:
        """Bytes that collectives bring to a chip in a train step."""
        return sum(
            one.executions * bytes_received(item) * item.times
            for one in self.answer.programs
            for item in one.collectives
        )

    @property
    def stock_moved(self) -> float | None:
        """The same of the stock step."""
        stock = self.answer.stock
        return None if stock is None else sum(bytes_received(item) * item.times for item in stock.collectives)

    def utilisation(self, seconds: tuple[float, float]) -> float:
        """Model FLOPs of a train step over what the slice's peak would do in that time."""
        return self.flops / (sum(seconds) * self.answer.chips * self.chip.peak) if sum(seconds) else 0.0

    def cures(self) -> list[str]:
        """Sentences: what is too large by how much, and what each cure would free."""
        over = self.hbm(self.largest) - self.chip.hbm
        answer = self.answer
        said = [f"{self.largest.name} needs {human_size(max(0, over))} more than a chip has"]
        failed = [one for one in answer.programs if one.error]
        said += [f"{one.name}: {one.error}" for one in failed[:1]]
        said.append(
            f"twice the chips: {human_size((answer.state + answer.gradient) // 2)} less a chip (state and gradient)"
        )
        if answer.between:
            said.append(f"half of arithmetic.microbatch_size: {human_size(answer.between // 2)} less between layers")
        if not self.by_layer:
            said.append("arithmetic.gather=layer: no chip then holds all parameters")
        return said

    def _seconds(self, programs: list[ProgramAnswer]) -> tuple[float, float]:
        computing = sum(
            one.executions * (one.cycles / self.chip.hertz + one.kernels / (KERNELS * self.chip.peak))
            for one in programs
        )
        moving = sum(
            one.executions * item.times * bytes_received(item) * self._delay(item) / self.chip.link
            for one in programs
            for item in one.collectives
        )
        return computing, moving

    def _delay(self, item: Collective) -> float:
        """How many times as long a collective takes as its bytes take over all of a chip's links: in an all-to-all a word passes
        several links; others use the links of some axes alone."""
        sides = [side for side in sides_of(self.topology) if side > 1]
        if item.kind == "all-to-all":
            return max(1.0, sum(side / 4 for side in sides))
        along = [n for n in range(1, len(sides)) for some in combinations(sides, n) if math.prod(some) == item.group]
        return len(sides) / min(along) if along and item.group < math.prod(sides) else 1.0


AFTER = ("update", "square", "total", "prints", "add")
"""Programs that run when nothing lies between the parts of a model any more."""


def bytes_received(item: Collective) -> float:
    """Bytes that a collective brings to a device: of its result, what the device had not (all, where its group is not known);
    of a sum that is gathered again twice that."""
    share = (item.group - 1) / item.group if item.group > 1 else float(item.group == 0)
    return item.bytes * share * (2 if item.kind == "all-reduce" else 1)


def forecast(recipe: Recipe, topology: str, vocabulary: int, *, stock: bool = False, moves: bool = True) -> Forecast:
    """Compile ``recipe`` for ``topology``; ``stock``: and the step as Levanter's own trainer would shard it; without ``moves``,
    of a step layer by layer what computes alone, for :func:`differing`. ``vocabulary``: tokens.

    Raises:
        UsageError: no such slice.
        NotInstalled: no libtpu, or another than the locked one.
        StepFailed: the compiling process ended early.
        Unsupported: a variable of the environment would change programs.
    """
    chip = chip_of(topology)
    check_variables(os.environ, "LIBTPU_INIT_ARGS", "XLA_FLAGS")
    check_libtpu()
    kept = str(compilation_cache() / "tpu")
    answer = _compiler_answer(
        Question(recorded(recipe), topology, vocabulary, stock, kept, moves), recipe.arithmetic.matmul_precision
    )
    tokens = recipe.trainer.batch_size * recipe.model.seq_len
    flops = 3 * flops_per_token(recipe.model, vocabulary) * tokens
    return Forecast(topology, chip, answer, flops, recipe.arithmetic.gather == "layer")


def check_libtpu() -> None:
    """That the TPU's compiler is here, in the version that answers are of.

    Raises:
        NotInstalled: none is, or another one.
    """
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


def _compiler_answer(question: Question, precision: str) -> SlicePrograms:
    kept = {name: value for name, value in os.environ.items() if name in KEPT}
    with tempfile.TemporaryDirectory(prefix="marin-compile-") as folder:
        asked, answered = Path(folder) / "question.json", Path(folder) / "answer.json"
        asked.write_bytes(msgspec.json.encode(question))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "marin.plugins.scale.child", str(asked), str(answered)],
            capture_output=True,
            env=kept | ENVIRONMENT | {"JAX_DEFAULT_MATMUL_PRECISION": precision},
            check=False,
        )
        if done.returncode == 0:
            return msgspec.json.decode(answered.read_bytes(), type=SlicePrograms)
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
    raise StepFailed(
        "the compiling process ended early",
        where=f"{question.topology}: exit status {done.returncode}",
        expected="programs",
        found=last[0][:500],
        cure="with status -9 memory ran out: choose a smaller model or slice",
    )


def differing(one: SlicePrograms, other: SlicePrograms) -> list[str]:
    """Names of computing programs that are not the same in both, or were not made."""
    theirs = identities(other)
    return [
        made.name
        for made in one.programs
        if made.computes and (not made.identity or made.identity != theirs.get(made.name))
    ]


def identities(answer: SlicePrograms) -> Mapping[str, str]:
    """The identity of each program, by name."""
    return {made.name: made.identity for made in answer.programs}
