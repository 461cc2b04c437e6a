"""What a type of event is: one value in which all that Marin knows of it stands together.

A :class:`Kind` answers every question that a user has about its events: what appends, folds, compares, lists or shows
them looks here, and has no table of types of its own. What it does not answer counts as no: the stream of a run may not
hold it, and a verdict on such a run is not PASS.

The functions of a kind are pure, and get what they need: the fact, and what a run says elsewhere (:class:`RunContext`). So a
family of types imports nothing that reads, executes or draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ledger import Event
from marin.kinds.body import Body, Output
from marin.kinds.claim import Claim, Contradiction

if TYPE_CHECKING:
    from marin.recipe.schema import Recipe

Bodies = type[Body]
Pair = tuple[str, Any, Any]
"""A field, what it must be (None: nothing says), and what it is."""


@dataclass(frozen=True, slots=True)
class Fact[T]:
    """Something an event says, where in the log, when, and who recorded it."""

    index: int
    time: str
    body: T
    actor: str = ""


@dataclass(frozen=True)
class StepView:
    """The result of one step of a run. ``index`` is the event in this run; ``completed_at`` and ``origin`` say which
    event and which run first recorded the result (the same, unless ``cached``)."""

    step: str
    identity: str
    inputs: Mapping[str, str]
    output: Output
    metrics: Mapping[str, float]
    tables: Mapping[str, str]
    seconds: float
    index: int
    time: str
    completed_at: int
    origin: str
    cached: bool


@dataclass(frozen=True)
class Held[S]:
    """How the stream of a run holds events of a type.

    ``claimed``: the fields that are only claimed, wholly or in part; every other one is compared with something that was
    derived, hashed or executed. ``agrees``: what the event must be by what else the run says, which is ``S``.
    ``underived``: what of it nothing derives, in words; it keeps a verdict from PASS.
    """

    claimed: tuple[str, ...] = ()
    agrees: Callable[[Fact[Any], S], Iterable[Pair]] | None = None
    underived: Callable[[Fact[Any]], Iterable[str]] | None = None


@dataclass(frozen=True)
class Kind:
    """One type of event.

    Args:
        type: its name in the log, with the version. A released one never changes meaning.
        body: the structure that each body must fit.
        underway: of work that goes on: it waits in the journal for the end of the work, and is published with it.
        step: the step of the pipeline that records it, where the event does not name one.
        names_step: it tells of the execution of the step that its field ``step`` names.
        identifies: its ``identity`` is the one under which its step goes on from there.
        rests_on: the step without whose end it reports nothing.
        verdict: what a reproducer says of a run; it does not tell of its execution, and may stand elsewhere.
        judge: the verdict that looks at every word of it, from a stream of its own beside the run's.
        beside: for what names a run elsewhere and says nothing of what the run is: what it is, in words.
        run: how the stream of a run of a pipeline holds it; None: not at all.
        loop: the same of a run whose loop is its user's own.
        kept: a run keeps it (:class:`marin.history.fold.RunFold`), though nothing else becomes of it.
        fold: what a run becomes by it.
        reaches: the number after the last train step that it tells of.
        withdraws: the train step from which on what was recorded before stands no more.
        aside: why it does not stand, in words; "" where it does.
        twice: where several of them, which stand, say different things of one.
        refers: what it names in other streams of the log, read with the record of the run.
        says: what it amounts to, as verdicts establish it.
        claims: what it amounts to and no replay establishes.
        numbers: what it measured of the state before its ``step``, by what was measured and by name, for curves.
    """

    type: str
    body: Bodies
    underway: bool = False
    step: str = ""
    names_step: bool = False
    identifies: bool = False
    rests_on: str = ""
    verdict: bool = False
    judge: str = ""
    beside: Callable[[Event], str] | None = None
    run: Held[RunContext] | None = None
    loop: Held[LoopContext] | None = None
    kept: bool = False
    fold: Callable[[Folding, Fact[Any]], None] | None = None
    reaches: Callable[[Any], int] | None = None
    withdraws: Callable[[Any], int] | None = None
    aside: Callable[[Fact[Any], Standing], str] | None = None
    twice: Callable[[Sequence[Fact[Any]], Standing], Iterable[Contradiction]] | None = None
    refers: Callable[[Fact[Any], Any, InStream], Any] | None = None
    says: Callable[[Fact[Any], Around], Iterable[Claim]] | None = None
    claims: Callable[[Fact[Any], Around], Iterable[Claim]] | None = None
    numbers: Callable[[Any], Mapping[str, Mapping[str, str]]] | None = None

    @property
    def is_verdict_within(self) -> bool:
        """Whether it may stand among the events of a run, and is said of it by a reproducer."""
        return self.verdict and self.run is not None

    @property
    def is_folded(self) -> bool:
        """Whether it says something of a run, verdicts aside."""
        return self.kept or self.fold is not None


class Folding(Protocol):
    """A run as far as its events were read (:class:`marin.history.fold.RunFold`): what a kind may do to it."""

    started: Fact[Any] | None
    completed: Fact[Any] | None
    outcome: str

    def step_begun(self, fact: Fact[Any]) -> None:
        """An attempt at a step begins."""

    def step_completed(self, fact: Fact[Any]) -> None:
        """A step has its output."""

    def step_failed(self, fact: Fact[Any]) -> None:
        """A step stopped with an error."""

    def step_goes_on(self, step: str, fact: Fact[Any]) -> None:
        """A step is heard of: it is being executed, as far as nothing else was said of it."""


class FoldedRun(Protocol):
    """A run as its events say it (:class:`marin.history.run.Run`)."""

    @property
    def run(self) -> str: ...
    @property
    def steps(self) -> Mapping[str, StepView]: ...
    @property
    def planned(self) -> AbstractSet[str]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...
    @property
    def segments(self) -> Sequence[Fact[Any]]: ...


class Standing(Protocol):
    """What of a run stands. ``states``: the state before each train step, as the segments have it; ``segments`` and
    ``checkpoints``: first and last train step, and the index, of those that no later ones took the place of."""

    states: Mapping[int, str]
    segments: AbstractSet[tuple[int, int]]
    checkpoints: AbstractSet[int]

    @property
    def run(self) -> FoldedRun: ...


class InStream(Protocol):
    """A stream in which an event stands: the run that it is of, and how that began."""

    @property
    def run(self) -> str: ...
    @property
    def started(self) -> Fact[Any]: ...


class Around(Protocol):
    """What stands around an event: the beginning of the run in whose stream it is, and what events refer to, by index."""

    @property
    def started(self) -> Any: ...
    @property
    def referred(self) -> Mapping[int, Any]: ...


class RunContext(Standing, Around, Protocol):
    """What a run of a pipeline says elsewhere, for an event to be held to (:mod:`marin.verify.derivation.records`).
    ``stream``: the run in whose stream the event stands, beside ``events``; ``begun``: how each step was begun, by identity;
    ``recipe_plain``: the recipe in the one form that it is recorded in; ``seeds``: what it draws from its seed."""

    stream: str
    events: Sequence[tuple[int, Event]]
    begun: dict[str, Any]
    recipe: Recipe
    recipe_digest: str
    recipe_plain: Any
    seeds: Any

    def output(self, step: str) -> Output | None:
        """The output of a step, if it has one."""

    def is_current(self, step: str, identity: str) -> bool:
        """Whether the run's output of a step is of this identity, or there is none yet."""

    def inputs(self, body: Any) -> Mapping[str, str] | None:
        """The inputs that ``body`` names, with the outputs that these steps have; None where another result took its place."""

    def identity(self, body: Any) -> str:
        """The identity of a step by what it begins with."""

    def of_plan(self, body: Any) -> Iterable[Pair]:
        """What the beginning of a step must be by its plan."""

    def of_output(self, step: str, output: Output) -> Iterable[Pair]:
        """How an output must be stored."""


class LoopContext(Protocol):
    """What a run of a user's own loop says elsewhere (:mod:`marin.verify.derivation.loops`): how it began, the ``identity`` of
    its one step, its ``losses`` as a table, and what it ``measured`` last."""

    started: Any
    identity: str

    @property
    def run(self) -> FoldedRun: ...
    @property
    def losses(self) -> Output: ...
    def measured(self, recorded: Mapping[str, float]) -> Mapping[str, float]:
        """The numbers that follow from its series, in the form that was ``recorded``."""

    def times(self, output: str) -> int:
        """How often an output of this name was recorded up to here."""


def hex_metrics(metrics: Mapping[str, str]) -> dict[str, float]:
    """Numbers that an event has as hex, by name."""
    return {name: float.fromhex(value) for name, value in metrics.items()}
