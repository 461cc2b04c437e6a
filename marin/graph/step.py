"""The values that an experiment file is made of: steps, references to their outputs, and what they may use.

    corpus = Step("counts/alphabet", count, {"letters": 26})
    report = Step("report/alphabet", tell, {}, {"counts": corpus})

A step is a frozen value: a readable address, a function, the configuration that the function gets, and the outputs of
other steps that it reads. Nothing is executed when one is made. An output is named by reference (the step itself, or
``corpus.file("train.jsonl")`` for one file of it), never by path: paths are nobody's identity.

The function gets one :class:`Context` and returns a value that JSON can say, or a :class:`Result`, or nothing after it
has filled ``context.out``.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin.errors import UsageError
from marin.execution.step import ARTIFACT, PREVIOUS, StepDefinition
from marin.recipe.schema import Recipe, artifacts

ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*(/[A-Za-z0-9][A-Za-z0-9_.+-]*)*\Z")
LONGEST_ADDRESS = 160


@dataclass(frozen=True)
class Resources:
    """What one execution of a step takes. Never part of an identity.

    ``cpus`` are processor cores, ``memory`` bytes (0: not known), ``gpus`` devices. ``in_process``: the function takes
    less time than handing it to another process, so the executor calls it itself. ``retries``: how often a step that
    raised an error is tried again. ``devices``: how many devices a training uses (0: as many as the command
    line says); ``moves`` pauses it before train steps and moves it: ``((40, 1), (80, 2))`` is one device up to train
    step 40, two up to 80, then ``devices``. ``processes``: over how many a Ray spreads the devices of a training (0: as
    the command line says).
    """

    cpus: int = 1
    memory: int = 0
    gpus: int = 0
    in_process: bool = False
    retries: int = 0
    devices: int = 0
    moves: tuple[tuple[int, int], ...] = ()
    processes: int = 0


@dataclass(frozen=True)
class Unidentified:
    """A value that decides how a step is executed and not what it makes; :func:`unidentified` makes one."""

    value: Any


def unidentified(value: Any) -> Any:
    """Keep ``value`` out of the step's identity: the number of workers, a log level. The function gets it as it is."""
    return Unidentified(value)


@dataclass(frozen=True)
class Pinned:
    """An artifact that stands in place of a step's output: by its digest in the store, whatever made it."""

    digest: str
    kind: str = "artifact"


@dataclass(frozen=True)
class Adopted:
    """An artifact that was made elsewhere, brought in by digest. ``vouched_by`` is who says what it is, ``note`` what
    they say. Both are recorded, neither is believed: what counts is the digest."""

    digest: str
    kind: str
    vouched_by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ref:
    """The output of a step, or one file of it."""

    step: Step
    path: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A node of the graph.

    Args:
        name: a readable address such as ``tokens/grammar-bpe4k``; not part of the identity.
        fn: a function of one :class:`Context` in a module or an experiment file; or a step of the pipeline
            (:class:`marin.execution.step.StepDefinition`), whose ``config`` is a whole
            :class:`marin.recipe.schema.Recipe`.
        config: what the function gets: mappings, lists, texts, numbers, dataclasses, recipe sections.
        inputs: outputs of other steps, by the name that the function knows them by. A step of the pipeline in a phase
            (``config.phase`` without a state) also takes ``previous``: the training that it continues; one whose recipe
            names an artifact without its digest takes ``artifact``: the step that makes it.
        apart: a label for an execution of its own. Results that were made elsewhere are not a hit then, although they have
            the same identity: to see that two executions give the same bits.

    Raises:
        UsageError: an address that cannot be one, no such function, an input that is not a reference.
    """

    name: str
    fn: Callable[[Context], object] | StepDefinition | Adopted
    config: Any = field(default_factory=dict)
    inputs: Mapping[str, Step | Ref] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    override: Pinned | None = None
    apart: str = ""

    def __post_init__(self) -> None:
        if len(str(self.name)) > LONGEST_ADDRESS or not ADDRESS.match(str(self.name)):
            raise UsageError(
                "a step needs an address",
                where=f"Step({self.name!r})",
                found=repr(self.name),
                expected="letters, digits and _.+- between slashes, such as tokens/grammar-bpe4k",
                cure="rename the step",
            )
        if self.definition is None and not isinstance(self.fn, Adopted) and not callable(self.fn):
            raise UsageError(
                "a step needs a function",
                where=f"step {self.name}",
                expected="a function of one Context",
                found=type(self.fn).__name__,
                cure="name a function of a module",
            )
        if not hasattr(self.inputs, "items"):
            raise UsageError(
                "inputs have names",
                where=f"step {self.name}",
                expected="a mapping of names to steps",
                found=type(self.inputs).__name__,
                cure='write inputs={"tokens": tokens}',
            )
        if self.definition is not None:
            self._check_pipeline_step(self.definition)
        for name, value in self.inputs.items():
            if not isinstance(value, Step | Ref):
                raise UsageError(
                    "an input is not the output of a step",
                    where=f"step {self.name}: {name}",
                    expected="a Step, or step.file(...)",
                    found=f"{type(value).__name__} {str(value)[:80]!r}",
                    cure="outputs are named by reference; bring a file in with adopt(...)",
                )
        object.__setattr__(self, "inputs", dict(self.inputs))

    @property
    def definition(self) -> StepDefinition | None:
        """The step of the pipeline that this is; None for a function and for an adopted artifact."""
        return self.fn if isinstance(self.fn, StepDefinition) else None

    def file(self, path: str) -> Ref:
        """One file of this step's output, as an input of another."""
        return Ref(self, path)

    def _check_pipeline_step(self, definition: StepDefinition) -> None:
        if not isinstance(self.config, Recipe):
            raise UsageError(
                "a step of the pipeline needs a recipe",
                where=f"step {self.name}",
                expected="a Recipe",
                found=type(self.config).__name__,
                cure="use default_train and its like from experiments.defaults",
            )
        phase = self.config.phase
        artifact = artifacts(self.config).get(definition.name)
        wanted = {
            *definition.inputs,
            *([PREVIOUS] if phase is not None and phase.state is None else []),
            *([ARTIFACT] if artifact is not None and artifact.digest is None else []),
        }
        if set(self.inputs) != wanted:
            raise UsageError(
                "a step of the pipeline has other inputs",
                where=f"step {self.name}",
                expected=", ".join(sorted(wanted)) or "no inputs",
                found=", ".join(self.inputs) or "none",
                cure="use default_train and its like from experiments.defaults",
            )


@dataclass(frozen=True)
class Result:
    """What a function made, when it is more than a value. ``metrics`` are finite numbers by name."""

    value: Any = None
    kind: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Input:
    """An input as the function sees it: its content, its numbers, and its bytes in a folder or a file (read only).
    ``run`` is the run or the graph that made it; ``tables`` are small CSV texts, such as the ``loss`` of a training."""

    digest: str
    kind: str
    metrics: Mapping[str, float]
    read: Callable[[], bytes]
    checkout: Callable[[], Path]
    run: str = ""
    tables: Mapping[str, Callable[[], str]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the bytes lie for this execution; taken out of the store and hashed at the first call."""
        return self.checkout()

    @property
    def value(self) -> Any:
        """The value that a step returned."""
        return json.loads(self.read())


@dataclass(frozen=True)
class Context:
    """What a function is called with. ``out`` is an empty folder to fill, ``scratch`` one that survives an
    interruption."""

    address: str
    config: Any
    inputs: Mapping[str, Input]
    make_out: Callable[[], Path]
    make_scratch: Callable[[], Path]

    @property
    def out(self) -> Path:
        """The folder whose files are the output."""
        return self.make_out()

    @property
    def scratch(self) -> Path:
        """A folder for whatever is in the way: it outlives an interruption and is not an output."""
        return self.make_scratch()

    @property
    def seed(self) -> int:
        """``seed`` of the configuration, or 0."""
        seed = self.config.get("seed", 0) if isinstance(self.config, Mapping) else getattr(self.config, "seed", 0)
        return int(seed or 0)

    def random(self) -> random.Random:
        """A generator (MT19937) seeded by :attr:`seed`."""
        return random.Random(self.seed)  # noqa: S311 - for experiments, not for secrets


def override_output(step: Step, digest: str) -> Step:
    """``step`` with its output pinned to an artifact that exists: it is not executed, and what depends on it is
    identified by the pinned content. The pin is recorded with the run of the graph."""
    return Step(step.name, step.fn, step.config, step.inputs, step.resources, Pinned(digest, _kind(step)), step.apart)


def adopt(name: str, digest: str, *, kind: str, vouched_by: str, note: str = "") -> Step:
    """A step whose output was made elsewhere: an artifact that is in the store already, by digest, with the name of who
    vouches for it (`marin store put` brings bytes in). Recorded as ``artifact.adopted``.

    Raises:
        UsageError: nobody vouches for an adopted artifact.
    """
    if not vouched_by.strip():
        raise UsageError(
            "nobody vouches for an adopted artifact",
            where=f"adopt({name!r})",
            expected="a name",
            found="an empty text",
            cure="say who made it or who checked it: vouched_by=...",
        )
    return Step(name, Adopted(digest, kind, vouched_by, note))


def _kind(step: Step) -> str:
    return step.definition.name if step.definition is not None else "artifact"
