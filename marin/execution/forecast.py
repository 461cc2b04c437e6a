"""What running a recipe would do, without doing it: for every step of the pipeline hit or run, and what it would cost.

A step is a hit when the ledger holds a result of its identity; a step whose inputs are not there yet has no identity,
and is run. Whether the stored bytes are still whole is looked at when the step is really asked for, and then decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ledger import Store
from marin.execution.plan import CodeIdentity, Plan, step_config, step_identity
from marin.history.changes import reason
from marin.history.executions import History, completions
from marin.provenance.code import code_folder, files_listing
from marin.recipe.cost import HERE, Estimate, Prices, Throughput, estimate, work_of
from marin.recipe.schema import Recipe


@dataclass(frozen=True)
class Forecast:
    """One step of one recipe. A hit costs nothing, and says which event and which run hold its result."""

    step: str
    action: Literal["hit", "run"]
    why: str
    estimate: Estimate

    def as_json(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return {"step": self.step, "action": self.action, "why": self.why, **self.estimate.as_json()}


def forecast(
    plan: Plan,
    recipe: Recipe,
    code: CodeIdentity,
    history: History,
    store: Store,
    prices: Prices,
    measured: Throughput,
    *,
    device: str = HERE,
    devices: int = 1,
    slices: int = 1,
    against: str = "",
) -> list[Forecast]:
    """Every step of ``plan`` for ``recipe``, in the plan's order. ``against``: the run that this one goes on from."""
    known: dict[str, str] = {}
    found: list[Forecast] = []
    for step in plan.steps:
        waiting = [name for name in step.inputs if name not in known]
        given = {name: known[name] for name in step.inputs if name in known}
        hit = None if waiting else _newest(history, step.name, step_identity(step, recipe, given, code))
        if hit is not None:
            index, run, known[step.name] = hit
            why = f"event {index} of run {run}"
            cost = Estimate(step.name, 0.0, 0.0, 0.0, 0.0, 0.0, prices.currency, device, why)
            found.append(Forecast(step.name, "hit", why, cost))
            continue
        told = reason(
            history,
            store,
            step.name,
            config=step_config(step, recipe),
            inputs=given,
            code=code.steps[step.name],
            lock=code.lock,
            listing=files_listing(code_folder(), step.code(recipe)),
            against=against,
            named=waiting,
        )
        why = "; ".join(filter(None, [f"after {', '.join(waiting)}" if waiting else "", told]))
        work = work_of(step.name, recipe, devices=devices, slices=slices)
        found.append(
            Forecast(step.name, "run", why, estimate(step.name, work, prices, device, measured, devices=devices))
        )
    return found


def _newest(history: History, step: str, identity: str) -> tuple[int, str, str] | None:
    found: tuple[int, str, str] | None = None
    for fact in completions(history, step=step, identity=identity):
        found = fact.index, fact.body.run, fact.body.output.digest
    return found
