"""From a root to what was compared: the door for the command, the library and the site."""

from __future__ import annotations

from collections.abc import Sequence

from marin.history.table.beside import numbers_beside
from marin.plugins.lab.comparing.compared import Compared, compared
from marin.plugins.lab.comparing.decided import deciding
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
    more = {run.run: numbers_beside(history, run) for run in chosen.runs}
    decided = {run.run: deciding(history, run) for run in chosen.runs}
    return compared(chosen, metrics, baseline, more, decided)
