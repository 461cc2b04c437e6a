"""What a step of the pipeline is: a name, the inputs it takes, the code it executes, and one function.

A step never touches the ledger or the store's layout: it gets folders to read, a folder to fill and a journal, and
returns what it made. Who calls it (``marin stage``, the executor, a replay) decides what is recorded. So a replay is
the same call with a journal that compares instead of one that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from ledger import Store, StoredFolder
from marin.provenance.plugins import own_file
from marin.recipe.schema import Execution, Recipe
from marin.record.events import Body, Output
from marin.work.code import code_of

if TYPE_CHECKING:
    from marin.record.root import Root

PREVIOUS = "previous"
"""The input under which a train step finds the state that it continues from: a folder with ``checkpoint/`` in it."""

ARTIFACT = "artifact"
"""The input by which a step of an experiment is given what stands in the recipe by its digest
(:class:`marin.recipe.schema.Artifact`): it has to be made first, and the step takes it from the store."""


class Journal(Protocol):
    """Where a running step reports facts; each call returns when the event is durable."""

    def record(self, kind: str, body: Body) -> int:
        """Append one event of type ``kind`` to the run's stream and return its index in the log."""

    def history(self, kind: str) -> Sequence[Body]:
        """What this run has already recorded of type ``kind``, in the order of the log."""


@dataclass(frozen=True)
class Task:
    """One execution of one step.

    ``inputs`` maps the names of input steps to folders that hold their outputs (read only, verified when they were
    checked out). ``out`` is an empty folder that the step fills. ``work`` is a scratch folder that belongs to the
    step's identity and survives an interruption: a resumed step finds there what it left. ``root`` is where the ledger
    and the store lie, and ``artifacts`` the stored trees of the inputs, for a step that works on other machines too; there
    ``stored`` has the inputs that are read where they lie, and ``inputs`` the others. ``check`` raises
    :class:`marin.errors.LeaseLost` when another executor has the step by now: for a step that waits for other processes.
    """

    run: str
    recipe: Recipe
    inputs: Mapping[str, Path]
    out: Path
    work: Path
    store: Store
    journal: Journal
    execution: Execution = field(default_factory=Execution)
    attempt: int = 1
    root: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, StoredFolder] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class StepResult:
    """What a step made. ``digest`` names the content of ``Task.out``: None where the folder's own tree digest does
    (its bytes are canonical), otherwise the digest of the tensors in it. ``size`` goes with ``digest``. ``tables``
    are small text files by name (CSV for plots); ``metrics`` finite floats by name. ``trees``: folders of the output that are
    in the store already, by name; they are not in ``Task.out``."""

    kind: str
    digest: str | None = None
    size: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)

    def output(self, digest: str, size: int) -> Output:
        """As it is recorded, with the files of ``Task.out`` as the tree ``digest`` of this size."""
        own = size if self.digest is None or self.size is None else self.size
        return Output(kind=self.kind, digest=self.digest or digest, size=own, artifact=digest)


class Companion(Protocol):
    """What goes along with the executions of a step, reads what they record, and decides none of their bits."""

    def asked(self, recipe: Recipe) -> object:
        """The part of the recipe that says what it does; None where it has nothing to do. No identity has it."""

    def check(self, root: Root, recipe: Recipe) -> None:
        """Before anything begins: refuse what could not be done.

        Raises:
            LedgerError: what the recipe asks for is not there, or a plugin is missing.
        """

    def lacks(self, root: Root, recipe: Recipe, identity: str) -> bool:
        """Whether the step has an output of this identity, and no run of this recipe has all that is asked of it."""

    def following(self, journal: Journal, root: Root, run: str) -> AbstractContextManager[Journal]:
        """A journal for one execution in ``run``, which looks at what became durable in ``journal``."""

    def completed(self, root: Root, run: str, journal: Journal) -> None:
        """The run has the step's output, by whatever way: do what is still lacking."""


@dataclass(frozen=True)
class StepDefinition:
    """A node that a plan can hold. ``config`` picks the part of the recipe that decides this step's bits (its digest is
    part of the step's identity); ``starts``: the files in which its execution begins, relative to the repository."""

    name: str
    inputs: tuple[str, ...]
    config: Callable[[Recipe], object]
    starts: tuple[str, ...]
    run: Callable[[Task], StepResult]
    continues: bool = False
    """In a phase, the step is also given the state that the phase begins with, as the input ``previous``."""
    beside: Companion | None = None
    """In no identity: its code is not the step's."""
    devices: Literal["none", "one", "all"] = "none"
    """What it computes with: no device, one whatever the command line says, or as many as the command line says."""

    plugins: Callable[[Recipe], tuple[tuple[str, str], ...]] = lambda recipe: ()
    """Groups and names of the plugins that it asks for under a recipe: their code is the step's."""

    def code(self, recipe: Recipe) -> tuple[str, ...]:
        """The project's files that it executes, in its identity and in dvc.yaml.

        Raises:
            NotInstalled: a plugin that the recipe names is not there.
        """
        asked = (own_file(group, name, f"step {self.name}") for group, name in self.plugins(recipe))
        return code_of((*self.starts, *asked))
