"""When a run ends: each step of its plan has an output, and the run says so, once, no matter who sees it first.

Several processes may bring the last steps of one run at the same time. Each of them writes what it saw fenced by the
length of the run's stream (``expect_seq``): of two that overlap the log refuses the later one, which then reads what
the other wrote and decides anew. So the one that is last always sees all outputs.

A run that was left open all the same (an older version, a process that was killed) is completed by the next command
that meets its recipe: :func:`complete_open_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ledger import Draft, OutOfSequence, Receipt
from marin.errors import Interrupted
from marin.execution.plan import plan_digest
from marin.execution.run_results import RunResults
from marin.history.executed import ExecutedRun, StepView
from marin.history.executions import History, executed, started_runs, stream_of
from marin.recipe.schema import digest
from marin.record import events
from marin.record.root import Root
from marin.work.recorded import Attempt, cached


def rest(
    run: str, results: RunResults, settled: Mapping[str, StepView], *, take_over: bool = True
) -> tuple[list[Draft], list[str]]:
    """What follows once ``settled`` is recorded: steps that have their output already, and the end of the run when all
    of them do. The second value names the steps that lack it: of a run that is complete then, none.

    Args:
        take_over: False for a forced stage: anyone who forces one wants to see the others executed too.
    """
    if results.run is not None and results.run.completed is not None:
        return [], []
    known = results.rest(settled)
    if not take_over:
        known = {name: view for name, view in known.items() if results.is_held(view) or name in settled}
    drafts = [cached(run, view) for name, view in known.items() if not results.is_held(view) and name not in settled]
    if lacking := [step.name for step in results.plan.steps if step.name not in known]:
        return drafts, lacking
    return [*drafts, _ending(run, known)], []


def append_fenced(
    root: Root, run: str, results: RunResults, drafts: Callable[[RunResults], Sequence[Draft]]
) -> Sequence[Receipt]:
    """Append what ``drafts`` makes of a run as it is now: made anew when another writer wrote to it meanwhile."""
    while True:
        batch = list(drafts(results))
        if not batch:
            return ()
        batch[0] = replace(batch[0], expect_seq=results.run.length if results.run is not None else 0)
        try:
            return root.append(batch)
        except OutOfSequence:
            history = root.history()
            results = results.over(history, executed(history, run))


def complete_open_runs(root: Root, plans: Sequence[RunResults], *, take_over: bool = True) -> list[str]:
    """Complete every open run of these recipes that can be; the runs that ended.

    An open run of the very plan (recipe and code) takes over what is recorded elsewhere. One of the same recipe and
    other code, which an older version left, ends when its own steps have all their outputs.
    """
    wanted = {digest(results.recipe): results for results in plans}
    ended = []
    for run in _open_runs(root.history(), wanted):
        results = wanted[run.started.body.recipe_digest]
        joins = take_over and run.plan == plan_digest(results.plan, results.recipe, results.code)

        def drafts(now: RunResults, joins: bool = joins) -> list[Draft]:
            view = now.run
            assert view is not None, "it was found in the log"
            if joins:
                found, lacking = rest(view.run, now, {})
                return [] if lacking else found
            return [_ending(view.run, view.steps)] if view.completed is None and _is_whole(view) else []

        if append_fenced(root, run.run, results.over(root.history(), run), drafts):
            ended.append(run.run)
    return ended


def interrupted_between_steps(root: Root, plans: Sequence[RunResults], signal: str) -> None:
    """Say of the open runs of these very plans that a user stopped them (``signal`` is its name) where no step was
    executing: before the first that has no output and could be made. A step that was executing has said so itself, and one that
    another process executes goes on."""
    wanted = {digest(results.recipe): results for results in plans}
    for run in _open_runs(root.history(), wanted):
        results = wanted[run.started.body.recipe_digest]
        if run.plan == plan_digest(results.plan, results.recipe, results.code):
            append_fenced(root, run.run, results.over(root.history(), run), partial(_stopped, signal))


def _stopped(signal: str, results: RunResults) -> list[Draft]:
    run = results.run
    assert run is not None, "it was found in the log"
    made = run.steps
    waiting = (one for one in results.plan.steps if one.name not in made and all(name in made for name in one.inputs))
    step = next(waiting, None)
    running = [state.step for state in run.states.values() if state.state == "running"]
    if run.status != "open" or step is None or running:  # anyone who executes one goes on
        return []
    stopped = interrupted_at(f"before step {step.name}", signal)
    return [Attempt(run.run, step.name, results.identity(step, made)).failed(stopped)]


def interrupted_at(where: str, signal: str) -> Interrupted:
    """What is said where a user stopped a run: in a step, or before one."""
    return Interrupted(
        "interrupted", where=where, found=signal, cure="run the same command again: it goes on from here"
    )


def _open_runs(history: History, recipes: Mapping[str, RunResults]) -> Iterator[ExecutedRun]:
    for recipe in recipes:
        for fact in list(started_runs(history, recipe=recipe)):
            if not any(history.events(stream=stream_of(fact.body.run), type=events.RUN_COMPLETED)):
                yield executed(history, fact.body.run)


def _is_whole(run: ExecutedRun) -> bool:
    """Whether every step that the run began with has an output, each made of the outputs that the run has now."""
    wanted = run.started.body.code.get("steps", {})
    return bool(wanted) and all(
        name in run.steps
        and all(
            source in run.steps and run.steps[source].output.digest == content
            for source, content in run.steps[name].inputs.items()
        )
        for name in wanted
    )


def _ending(run: str, steps: Mapping[str, StepView]) -> Draft:
    body = events.RunCompleted(
        run=run,
        outputs={name: view.output for name, view in steps.items()},
        metrics={f"{name}.{key}": value.hex() for name, view in steps.items() for key, value in view.metrics.items()},
    )
    return Draft(events.RUN_COMPLETED, stream_of(run), events.write(body))
