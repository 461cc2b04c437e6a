"""Which runs are compared: those of a sweep, of a registered experiment, or the ones that are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from marin.errors import MissingEvidence, UsageError
from marin.history.run import Run
from marin.history.runs import archived, load, resolve, run_ids
from marin.history.table.query import matching_rows
from marin.history.table.rows import Table, row_of
from marin.history.table.sweeps import find_sweep
from marin.plugins.lab.analysis import Findings, examine
from marin.preregistration.registration import find
from marin.record.root import Root


@dataclass(frozen=True)
class Selection:
    """``arms`` of a registered experiment: the arm of each run that counts; ``is_part``: a filter left some of them out.
    ``waiting``: recipes that no run has yet."""

    title: str
    runs: tuple[Run, ...]
    findings: Findings | None = None
    arms: tuple[tuple[str, str], ...] = ()
    waiting: int = 0
    is_part: bool = False


def select(
    root: Root,
    names: Sequence[str] = (),
    *,
    sweep: str | None = None,
    experiment: str | None = None,
    filters: Sequence[str] = (),
) -> Selection:
    """The runs that one of these names; ``filters`` leave some of them out, and choose among all runs where nothing is
    named.

    Raises:
        UsageError: nothing or too much is named, or fewer than two runs are left.
        MissingEvidence: there is no such sweep or experiment.
    """
    if sum((bool(names), sweep is not None, experiment is not None)) > 1 or not (
        names or filters or sweep is not None or experiment is not None
    ):
        raise UsageError(
            "which runs are to be compared?",
            where="marin compare",
            expected="RUN RUN…, --sweep ID, --experiment NAME or --filter EXPRESSION",
            found="several of them" if names or filters or sweep or experiment else "none of them",
            cure="`marin ls` has the runs, `marin ls sweeps` the sweeps, `marin experiment ls` the experiments",
        )
    found = _selected(root, names, sweep, experiment)
    if filters:
        table = Table([row_of(run) for run in found.runs])
        kept = {row.run for row in matching_rows(table, filters)}
        runs = tuple(run for run in found.runs if run.run in kept)
        title, is_part = f"{found.title}, where {' and '.join(filters)}", len(runs) < len(found.runs)
        found = replace(found, title=title, runs=runs, waiting=0, is_part=is_part)
    if len(found.runs) < 2:
        raise UsageError(
            "there is nothing to compare",
            where=found.title,
            expected="two runs or more",
            found=", ".join(run.run for run in found.runs) or "none",
            cure="name more of them; `marin ls` has all",
        )
    return found


def _selected(root: Root, names: Sequence[str], sweep: str | None, experiment: str | None) -> Selection:
    history = root.history()
    if sweep is not None:
        known = find_sweep(history, sweep)
        if known is None:
            raise MissingEvidence(
                "the log has no sweep",
                where=f"--sweep {sweep}",
                expected="an execution of `marin train -m …`",
                found="none that says which recipes belonged together",
                cure="name the runs, or compare by --filter",
            )
        waiting = len(known.recipes) - len(known.runs)
        return Selection(f"sweep {known.id}", tuple(load(history, run) for run in known.runs), waiting=waiting)
    if experiment is not None:
        findings = examine(root, find(history, experiment.removesuffix(".py").rpartition("/")[2]))
        arms = tuple((result.run, result.arm) for result in findings.results)
        runs = tuple(load(history, run) for run, _ in arms)
        return Selection(f"experiment {findings.registration.body.experiment}", runs, findings, arms)
    hidden = set() if names else archived(history)
    ids = [resolve(history, name) for name in names] or [run for run in run_ids(history) if run not in hidden]
    unique = list(dict.fromkeys(ids))
    return Selection("compared" if names else "all runs", tuple(load(history, run) for run in unique))
