"""What decides the numbers that were evaluated beside the steps of a run: two of one name say nothing beside each other where
that is not the same."""

from __future__ import annotations

from collections.abc import Mapping

from ledger import canonical_digest
from marin.history.run import Run
from marin.history.runs import History
from marin.history.table.beside import evaluated_numbers
from marin.history.table.comparable import PER_TOKEN
from marin.history.table.evaluations import recorded_evaluations
from marin.kinds.families.measured import EvaluationMeasured, EvaluationRecorded

Deciding = Mapping[str, Mapping[str, str]]
"""By number: what is said where the value of another run differs, and this run's value."""


def deciding(history: History, run: Run) -> Deciding:
    """Of each number that was evaluated of the newest state of a run."""
    newest: dict[str, tuple[int, Mapping[str, str]]] = {}
    for body in recorded_evaluations(history, run.run):
        for name in evaluated_numbers(body):
            if name not in newest or body.step >= newest[name][0]:
                newest[name] = (body.step, _decides(body, name))
    return {name: words for name, (_, words) in newest.items()}


def _decides(body: EvaluationMeasured | EvaluationRecorded, name: str) -> dict[str, str]:
    of = body.tasks if isinstance(body, EvaluationRecorded) else body.sets
    called = max((one for one in of if name.startswith(f"{one}.")), key=len, default="")
    found: dict[str, str] = {}
    if isinstance(body, EvaluationRecorded):
        found["measured otherwise"] = canonical_digest([body.settings, body.harness])
        # The mean of a group follows from all of them.
        asked = [body.tasks[called]] if called else [task for _, task in sorted(body.tasks.items())]
        found["other questions"] = canonical_digest([[task.config, task.data, task.documents] for task in asked])
    elif called in body.sets:
        found["other held-out text"] = body.sets[called].data
        if name.removeprefix(f"{called}.") in PER_TOKEN:
            found["other tokenizer"] = body.tokenizer
    return found | {"other code": f"{body.code} {body.lock}"}


def differing(one: Deciding, other: Deciding, name: str) -> tuple[str, ...]:
    """Why a number of ``one`` says nothing beside that of ``other``, as far as evaluations tell."""
    mine, theirs = one.get(name, {}), other.get(name, {})
    return tuple(word for word in mine if word in theirs and mine[word] != theirs[word])
