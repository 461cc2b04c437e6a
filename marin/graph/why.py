"""What `marin run` would do, and why: for every step hit or run, and what changed since the nearest earlier result.

Nearest is the recorded beginning of a step of the same function that shares most with this one: its address before all,
then its code, its inputs, the fields of its configuration. What then differs is named: a field, a seed, an input, a
file of the code, the locked packages. Nothing is executed and nothing is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, Literal

from ledger import LedgerError
from marin.execution.step import ARTIFACT, PREVIOUS
from marin.graph.graph import Node
from marin.graph.identity import kind_of, step_name
from marin.graph.planning import Planner
from marin.graph.step import Adopted
from marin.history.changes import SHOWN, changes, leaves, listed, read_listing
from marin.history.run import Fact
from marin.history.runs import History, facts
from marin.history.table.nondeterminism import is_deterministic
from marin.recipe.cost import HERE, Estimate, Prices, Throughput, Work, estimate, work_of
from marin.record import events
from marin.record.events import StepCompleted, StepStarted

NEWEST = 50
"""How many earlier beginnings a step is compared with: those of its own address, or of its function."""
MEASURED = 5
"""How many earlier executions of a function say how long it takes."""


@dataclass(frozen=True)
class StepReason:
    """One step. ``why`` are reasons in words; ``changes`` what differs from the nearest earlier result, by kind:
    config, seed, input, code, lock."""

    address: str
    step: str
    action: Literal["hit", "run", "fail"]
    why: tuple[str, ...]
    changes: Mapping[str, tuple[str, ...]]
    identity: str
    event: int | None
    run: str
    deterministic: bool
    estimate: Estimate

    def as_json(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        cost = self.estimate.as_json()
        cost.pop("step")
        return {
            "address": self.address,
            "step": self.step,
            "action": self.action,
            "why": list(self.why),
            "changes": {kind: list(items) for kind, items in self.changes.items()},
            "identity": self.identity or None,
            "event": self.event,
            "run": self.run or None,
            "deterministic": self.deterministic,
            **cost,
        }


def explain(
    planner: Planner, prices: Prices, measured: Throughput, *, device: str = HERE, force: bool = False
) -> Iterator[StepReason]:
    """An answer for each step of the graph, inputs first."""
    earlier: _Earlier | None = None
    timings = _Timings(measured, planner.cache.history)
    undone: set[str] = set()
    for address, node in planner.graph.nodes.items():
        waiting = sorted({target for target, _ in node.inputs.values()} & undone)
        why: tuple[str, ...] = ()
        changes: Mapping[str, tuple[str, ...]] = {}
        digest, hit = "", None
        if not waiting:
            try:
                identity = planner.identity(node)
                digest = identity.digest
                given = node.step.override is not None or isinstance(node.step.fn, Adopted)
                hit = planner.hit(node, identity) if given or not force else None
            except LedgerError as error:
                undone.add(address)
                yield _reason_of(planner, node, "fail", (str(error),), {}, digest, None, timings, prices, device)
                continue
        if hit is not None:
            planner.found(hit)
            event = hit.completed_at if hit.completed_at >= 0 else None
            told = f"event {event} of {hit.origin}" if event is not None else f"{hit.action}: {hit.output.digest}"
            yield _reason_of(planner, node, "hit", (told,), {}, digest, event, timings, prices, device)
            continue
        undone.add(address)
        earlier = earlier or _Earlier.of(planner)
        if force and not waiting:
            why = ("forced",)
        elif failed := planner.cache.failure(digest):
            why = (f"it failed before (event {failed.index}), and waits for --force-failed: {failed.body.error}",)
        elif damaged := planner.cache.recorded(step_name(node.step), digest):
            why = (f"the result of event {damaged[0].completed_at} is not whole",)
        else:
            why, changes = earlier.explain(node, waiting)
        yield _reason_of(planner, node, "run", why, changes, digest, None, timings, prices, device)


def _reason_of(
    planner: Planner,
    node: Node,
    action: Literal["hit", "run", "fail"],
    why: tuple[str, ...],
    changes: Mapping[str, tuple[str, ...]],
    identity: str,
    event: int | None,
    timings: Throughput,
    prices: Prices,
    device: str,
) -> StepReason:
    step = node.step
    name = step_name(step)
    if action == "run":
        variant, work = planner.variants.get(node.address), Work.unknown()
        if variant is not None:
            work = work_of(name, variant.recipe, devices=max(1, step.resources.devices))
        cost = estimate(name, work, prices, device, timings, devices=max(1, step.resources.devices))
    else:
        cost = Estimate(name, 0.0, 0.0, 0.0, 0.0, 0.0, prices.currency, device, action)
    run = planner.results[node.address].origin if node.address in planner.results else ""
    steady = is_deterministic(planner.cache.history, identity)
    return StepReason(
        node.address,
        name,
        action,
        why if steady else (*why, "not deterministic: its results have differed"),
        changes,
        identity,
        event,
        run,
        steady,
        cost,
    )


@dataclass
class _Earlier:
    """Steps that began before, by function, oldest first, and what is needed to compare with them."""

    planner: Planner
    by_step: dict[str, list[Fact[StepStarted]]] = field(default_factory=dict)
    by_address: dict[tuple[str, str], list[Fact[StepStarted]]] = field(default_factory=dict)
    listings: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, planner: Planner) -> _Earlier:
        found = cls(planner)
        wanted = {step_name(node.step) for node in planner.graph.nodes.values()}
        for index, event in planner.root.history().events(type=events.STEP_STARTED):
            if event.body.get("step") in wanted:
                body = events.read(StepStarted, event.body, where=f"event {index}")
                fact = Fact(index, event.time, body)
                found.by_step.setdefault(body.step, []).append(fact)
                found.by_address.setdefault((body.step, body.address), []).append(fact)
        return found

    def explain(self, node: Node, waiting: list[str]) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
        """Why a step must be executed, in words and by kind."""
        after = (
            (f"after {', '.join(waiting[:SHOWN])}" + (f" and {len(waiting) - SHOWN} more" if waiting[SHOWN:] else ""),)
            if waiting
            else ()
        )
        nearest = self._nearest(node)
        if nearest is None:
            return ("never made here", *after), {}
        differs = self._changes(node, nearest.body)
        words = [f"{kind} {listed(items)}" for kind, items in differs.items()]
        if not words and not waiting:
            words = [f"began before (event {nearest.index}), and was not completed"]
        return (*words, *after), differs

    def _nearest(self, node: Node) -> Fact[StepStarted] | None:
        name = step_name(node.step)
        candidates = self.by_address.get((name, node.address)) or self.by_step.get(name, [])
        if not candidates:
            return None
        config, code, inputs = self._now(node)
        mine = leaves(config)

        def shared(fact: Fact[StepStarted]) -> tuple[int, int]:
            theirs = leaves(fact.body.config)
            equal = sum(theirs.get(path) == value for path, value in mine.items()) - len(theirs.keys() - mine.keys())
            same = sum(fact.body.inputs.get(name) == digest for name, digest in inputs.items())
            return (
                4 * (fact.body.address == node.address) + 2 * same + 2 * (fact.body.code == code) + equal,
                fact.index,
            )

        return max(candidates[-NEWEST:], key=shared)

    def _now(self, node: Node) -> tuple[Mapping[str, Any], str, dict[str, str]]:
        step = node.step
        inputs = {}
        for name, (target, _) in node.inputs.items():
            if target in self.planner.results and name not in (PREVIOUS, ARTIFACT):
                inputs[name] = self.planner.results[target].output.digest
        kind = kind_of(step)
        return kind.config(self.planner.recipe(node)), kind.code(self.planner.code_of(node)), inputs

    def _changes(self, node: Node, before: StepStarted) -> dict[str, tuple[str, ...]]:
        config, code, inputs = self._now(node)
        if before.code != code and before.code not in self.listings:
            self.listings[before.code] = read_listing(self.planner.store, before.code)
        return changes(
            before,
            config=config,
            inputs=inputs,
            code=code,
            lock=self.planner.code.lock,
            was=self.listings.get(before.code, {}),
            listing=kind_of(node.step).listing,
            named=list(node.inputs),
        )


@dataclass
class _Timings:
    """How long steps take: the pipeline's by their work, functions by what they took before."""

    measured: Throughput
    history: History

    def seconds(self, step: str, work: Work, assumed: Callable[[Work], float | None]) -> tuple[float, str] | None:
        """See :class:`marin.recipe.cost.Throughput`."""
        if work.known:
            return self.measured.seconds(step, work, assumed)
        took = self.by_step.get(step, ())
        return (median(took), f"measured {len(took)} times") if took else None

    @cached_property
    def by_step(self) -> Mapping[str, Sequence[float]]:
        """Seconds of the newest executions, by function."""
        found: dict[str, deque[float]] = {}
        for fact in facts(self.history, StepCompleted):
            found.setdefault(fact.body.step, deque(maxlen=MEASURED)).append(fact.body.seconds)
        return found
