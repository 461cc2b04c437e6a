"""From a root to what was compared: the door for the command, the library and the site."""

from __future__ import annotations

from collections.abc import Sequence

from marin.history.runs import History
from marin.history.table.evaluations import recorded_evaluations
from marin.history.table.machine import machine_numbers
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.lab.comparing.compared import Compared, compared
from marin.plugins.lab.comparing.selection import select
from marin.record.root import Root


def compare_runs(
    root: Root,
    *names: str,
    sweep: str | None = None,
    experiment: str | None = None,
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    baseline: str = "",
) -> Compared:
    """The runs of this root that one of these names, held against each other.

    Raises:
        UsageError: nothing is named, fewer than two runs are left, or no run has such a name.
        MissingEvidence: there is no such sweep or experiment.
    """
    history = root.history()
    chosen = select(root, names, sweep=sweep, experiment=experiment, filters=filters)
    more = {run.run: {**evaluated(history, run.run), **machine_numbers(history, run.run)} for run in chosen.runs}
    return compared(chosen, metrics, baseline, more)


def evaluated(history: History, run: str) -> dict[str, float]:
    """What was evaluated of the newest state of a run, beside its steps: ``TASK.METRIC`` and ``SET.loss``."""
    newest: dict[str, tuple[int, float]] = {}
    for body in recorded_evaluations(history, run):
        told = (
            {f"{task}.{name}": value for task, of in body.results.items() for name, value in of.items()}
            if isinstance(body, EvaluationRecorded)
            else {f"{name}.{one}": value for name, of in body.sets.items() for one, value in of.numbers.items()}
        )
        for name, value in told.items():
            if name not in newest or body.step >= newest[name][0]:
                newest[name] = (body.step, float.fromhex(value))
    return {name: value for name, (_, value) in newest.items()}
