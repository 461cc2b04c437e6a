"""From a plan to events: one stage at a time, as dvc.yaml calls them, in one process each, all in one run.

What happens for `marin stage NAME`:

1. The run. An open run of the same plan (recipe and code) is joined; otherwise a new one begins, and what earlier
   stages left is taken into it (:mod:`marin.work.cached` and, for one run, ``run_results`` say what counts).
2. The hit. A recorded result of equal identity whose bytes hash to what was recorded is taken over, not executed.
3. The execution. The lease on the step is taken in one batch with its step.started, durable before its first line; who
   finds it taken waits, and looks again. Inputs come out of the store, hashed; step.completed follows when the output
   is in the store, with the end of the lease; a failure or an interruption is a step.failed.
4. The files. Metrics, tables, pointer, then the receipt, each written whole. They can all be written again from the
   ledger, so a kill between any two of them costs nothing: the next call finds the result and writes them.

When every step of the plan has an output, the batch of events that says so also completes the run
(:mod:`marin.execution.completion`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ledger import Draft, LedgerError, Receipt, Refused
from marin.errors import Interrupted, LeaseLost, MissingEvidence, Paused, StoppedByFollower, UsageError
from marin.execution import continued, tracker
from marin.execution.completion import (
    append_fenced,
    complete_open_runs,
    interrupted_at,
    interrupted_between_steps,
    rest,
)
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant
from marin.execution.leases.step import Grant, StepLease, Unleased
from marin.execution.plan import CodeIdentity, Plan, code_identity, plan_digest, step_config
from marin.execution.pointer import encode_json, metrics_path, pointer_path, receipt_path, table_path
from marin.execution.recording.journal import REQUESTS, LedgerJournal, Requests
from marin.execution.run_results import RunResults, pointer_of
from marin.execution.seeds import with_seed
from marin.execution.step import PREVIOUS, Journal, StepDefinition, Task
from marin.execution.workspace import Workspace, execute
from marin.history.changes import keep_listing, reason
from marin.history.executed import ExecutedRun, StepView, new_id
from marin.history.executions import History, completions, executed, started_runs, stream_of
from marin.process.arithmetic import settings
from marin.process.files import write_whole
from marin.process.interruption import Interruption
from marin.process.running import running
from marin.provenance import environment
from marin.provenance.code import code_folder, files_listing, provenance
from marin.provenance.plugins import load_plugin, own_points
from marin.recipe.schema import Execution, Recipe, digest, recorded
from marin.record import events
from marin.record.root import LedgerHistory, Root
from marin.work.cached import ResultCache
from marin.work.recorded import Attempt, StoredResult, cached

log = logging.getLogger(__name__)

_ATTEMPT_EVENTS = (
    events.STEP_STARTED,
    events.STEP_COMPLETED,
    events.STEP_CACHED,
    events.STEP_FAILED,
    events.STEP_PAUSED,
)
"""What begins an attempt at a step, and what ends one with a word."""
Action = Literal["executed", "cached", "present"]


@dataclass(frozen=True)
class StageOutcome:
    """How a stage ended. ``executed``: the step ran. ``cached``: an equal result was reused. ``present``: the run
    had it already, and only the files were written. ``completed``: the run has all its outputs."""

    run: str
    action: Action
    result: StepView
    completed: bool


def run_stage(
    name: str,
    *,
    plan: Plan,
    recipe: Recipe,
    root: Root,
    project: Path | None,
    execution: Execution | None = None,
    force: bool = False,
    pinned: Mapping[str, StepView] | None = None,
    identity: str | None = None,
    grant: Grant | None = None,
) -> StageOutcome:
    """Bring the step ``name`` of ``plan`` to its output, by reusing a result or by executing it.

    Args:
        project: the folder whose artifacts/ hold the pointers; None for a step of an experiment file, whose inputs the
            ledger alone names and which leaves no files.
        force: execute even if there is an equal result.
        pinned: for inputs that an experiment file pins, the result that stands for them.
        identity: what was planned by the one that sent this here: the step is brought to that, or not begun.
        grant: the lease on the step, which the one that sent this here holds; None: this process takes it.

    Raises:
        LedgerError: what went wrong, in one line; a step that had begun has its step.failed.
        Interrupted: asked to stop; the run says so, also where its next step had not begun.
        Refused: the step is not what was planned.
        UsageError: ``project`` is a checkout with other code than what is installed.
        LeaseLost: ``grant`` holds no more.
    """
    step = plan.step(name)
    root.check_writable()  # a missing or wrong key is said before hours of work, not after
    with Interruption() as interruption:
        try:
            with interruption.shield():
                recipe = with_seed(root, recipe)
                code = code_identity(plan, code_folder(), recipe)
                if project is not None:
                    _refuse_other_code(project, plan, recipe, code)
                stage = _Stage(
                    step,
                    plan,
                    recipe,
                    root,
                    project,
                    execution or Execution(),
                    force,
                    code,
                    ResultCache(root.history(), root.store()),
                    Unleased(root),
                    pinned=pinned or {},
                )
            return _brought(stage, identity, grant)
        except KeyboardInterrupt as signal:  # between steps: a step that was executing has recorded it
            with interruption.shield():
                stopped = stopped_before(name, plan=plan, recipe=recipe, root=root, project=project, signal=str(signal))
            raise stopped from signal


def stopped_before(
    name: str, *, plan: Plan, recipe: Recipe, root: Root, project: Path | None, signal: str
) -> Interrupted:
    """Say of the open run of ``plan`` that ``signal`` stopped it before the step ``name`` began; what to raise then."""
    results = _at_rest(name, plan, recipe, root, project).results(root.history(), None)
    interrupted_between_steps(root, [results], signal)
    return interrupted_at(f"before step {name}", signal)


def _brought(stage: _Stage, identity: str | None, grant: Grant | None) -> StageOutcome:
    step, plan, root, name = stage.step, stage.plan, stage.root, stage.step.name
    outcome, held = None, HeldLeases(root, Claimant.of_process())
    while outcome is None:
        now = stage.read().identity
        if identity not in (None, now):
            raise Refused(
                "the step is not what was planned",
                where=f"step {name}",
                expected=identity,
                found=now,
                cure="its code or its inputs have changed meanwhile: run the same command again",
            )
        lease = StepLease(root, held, now, name) if grant is None else grant.lease(root)
        outcome = lease.bring(root.local, name, now, partial(replace(stage, lease=lease).bring, now))
    ended = [outcome.run] if outcome.completed and outcome.action != "present" else []
    if step.beside is not None and outcome.action != "executed":
        step.beside.completed(root, outcome.run, LedgerJournal(root, outcome.run, name))
    for run in [*ended, *complete_open_runs(root, [stage.results(root.history(), None)], take_over=not stage.force)]:
        for one in plan.steps:
            if one.beside is not None:
                one.beside.completed(root, run, LedgerJournal(root, run, one.name))
        tracker.completed(root, run)
    return outcome


def plan_step(
    name: str, *, plan: Plan, recipe: Recipe, root: Root, project: Path | None
) -> tuple[str, StepView | None]:
    """The identity that the step ``name`` has now, and the recorded result that :func:`run_stage` would take over; nothing
    is recorded.

    Raises:
        LedgerError: an input is missing, or is not what was recorded.
    """
    stage = _at_rest(name, plan, recipe, root, project)
    situation = stage.read()
    return situation.identity, situation.results.hit(stage.step, situation.identity)


def _at_rest(name: str, plan: Plan, recipe: Recipe, root: Root, project: Path | None) -> _Stage:
    """The stage ``name``, to be asked and not to be executed."""
    recipe = with_seed(root, recipe)
    code, cache = code_identity(plan, code_folder(), recipe), ResultCache(root.history(), root.store())
    return _Stage(plan.step(name), plan, recipe, root, project, Execution(), False, code, cache, Unleased(root))


@dataclass(frozen=True)
class _Situation:
    """What a stage finds: the run to record in (``run`` is None for one that begins now), its inputs, and the identity
    that follows from them."""

    results: RunResults
    run_id: str
    inputs: Mapping[str, StepView]
    identity: str

    @property
    def run(self) -> ExecutedRun | None:
        return self.results.run

    def digests(self, step: StepDefinition) -> dict[str, str]:
        """The content of the inputs of ``step``, by name."""
        return {name: self.inputs[name].output.digest for name in step.inputs}

    def attempt(self, step: StepDefinition) -> Attempt:
        """An attempt at ``step``, as its events name it."""
        return Attempt(self.run_id, step.name, self.identity, self.digests(step))


@dataclass(frozen=True)
class _Stage:
    step: StepDefinition
    plan: Plan
    recipe: Recipe
    root: Root
    project: Path | None
    execution: Execution
    force: bool
    code: CodeIdentity
    cache: ResultCache
    lease: Unleased
    pinned: Mapping[str, StepView] = field(default_factory=dict)

    def read(self) -> _Situation:
        """The situation as the ledger has it now: in the open run of this plan, or in a run that does not exist yet."""
        history = self.root.history()
        return self._situation(history, self._run(history, completed=False))

    def bring(self, identity: str, workspace: Workspace) -> StageOutcome | None:
        """Find or make the output, in ``workspace``, record it, and write the files; None where another executor is at work on
        it, or where the step is another one than ``identity`` by now."""
        if not self.force and (present := self._present_in_completed()) is not None:
            return present
        situation = self.read()
        if situation.identity != identity:
            return None
        hit = None if self.force else situation.results.hit(self.step, identity)
        outcome = self._take(situation, hit) if hit is not None else self._execute(situation, workspace)
        if outcome is not None:
            workspace.clear()
        return outcome

    # Where we are

    def _run(self, history: LedgerHistory, *, completed: bool) -> ExecutedRun | None:
        """The newest open run of this plan; or, for ``completed``, the newest run of all if it is of this plan and
        done.

        A forced step never joins a run that has its output: it would find there what it is to make anew.
        """
        wanted = plan_digest(self.plan, self.recipe, self.code)
        newest = history.places(type=events.RUN_STARTED, last=1)
        for fact in reversed(list(started_runs(history, plan=wanted))):
            if completed and fact.index not in newest:
                return None
            view = executed(history, fact.body.run)
            if (view.completed is not None) == completed and not (self.force and self.step.name in view.steps):
                return view
        return None

    def results(self, history: History, run: ExecutedRun | None) -> RunResults:
        """Which steps of the plan have their output, for ``run`` or for one that does not exist yet."""
        cache = replace(self.cache, history=history)
        return RunResults(self.plan, self.recipe, self.code, cache, self.project, run, self.pinned)

    def _situation(self, history: History, run: ExecutedRun | None) -> _Situation:
        results = self.results(history, run)
        inputs = results.upstream(self.step.name)
        run_id = run.run if run is not None else new_id()
        return _Situation(results, run_id, inputs, results.identity(self.step, inputs))

    def _present_in_completed(self) -> StageOutcome | None:
        """Nothing to record: the newest run is of this very plan, complete, and its result is whole."""
        history = self.root.history()
        run = self._run(history, completed=True)
        own = run.steps.get(self.step.name) if run is not None else None
        if run is None or own is None:
            return None
        situation = self._situation(history, run)
        if own.identity != situation.identity or self.cache.damage(own):
            return None
        self._write_files(own)
        return StageOutcome(run.run, "present", own, completed=True)

    # Taking over

    def _reason(self, situation: _Situation, config: Mapping[str, Any]) -> str:
        """Why the step is executed, in a sentence; the list of its code files is kept for the next time."""
        listing = files_listing(code_folder(), self.step.code(self.recipe))
        store = self.root.store()
        keep_listing(store, listing)
        if self.force:
            return "forced"
        return reason(
            self.root.history(),
            store,
            self.step.name,
            config=config,
            inputs=situation.digests(self.step),
            code=self.code.steps[self.step.name],
            lock=self.code.lock,
            listing=listing,
            against="" if (before := self._continued_run()) is None else before.run,
        )

    def _take(self, situation: _Situation, hit: StepView) -> StageOutcome:
        run = situation.run_id
        held = situation.results.is_held(hit)
        own = [] if held else [cached(run, hit)]
        settled = {**situation.inputs, self.step.name: hit}
        _, lacking = self._append(situation, [*self._begin(situation), *own], settled, Unleased(self.root))
        self._write_files(hit, lacking)
        return StageOutcome(run, "present" if held else "cached", hit, completed=not lacking)

    # Executing

    def _execute(self, situation: _Situation, workspace: Workspace) -> StageOutcome | None:
        """What became of the step; None where another executor is at work on it, or has made it meanwhile."""
        if not self.lease.is_free():
            return None
        name, run = self.step.name, situation.run_id
        number = (situation.run.attempts.get(name, 0) if situation.run is not None else 0) + 1
        config = step_config(self.step, self.recipe)
        why = self._reason(situation, config)
        attempt = situation.attempt(self.step)
        started = attempt.started(config, self.code.steps[name], lock=self.code.lock, number=number)
        batch = [*self._begin(situation), *self._abandoned(situation), started]
        with Interruption() as interruption:
            try:
                with interruption.shield():
                    if not self.lease.begin(batch, partial(self._is_still, situation)):
                        return None
                log.info("%s: run %s, attempt %d; %s", name, run, number, why)
                begun = time.monotonic()
                made = self._heeding(situation, workspace, number)
                made = replace(made, seconds=round(time.monotonic() - begun, 3))
            except Paused as pause:
                with interruption.shield():
                    self.lease.end(attempt.paused(pause.where))
                raise
            except LeaseLost:
                return None
            except LedgerError as error:
                if self.lease.begun:
                    with interruption.shield():
                        self._record_failure(attempt, error)
                raise
            except KeyboardInterrupt as signal:
                if not self.lease.begun:
                    raise
                stopped = interrupted_at(f"step {name}", str(signal))
                with interruption.shield():
                    self._record_failure(attempt, stopped)
                raise stopped from signal
            else:
                with interruption.shield():
                    return self._completed(situation, made)
            finally:
                self.lease.stop()

    def _is_still(self, situation: _Situation, changed: bool) -> bool:
        """Whether the step is still to be executed, in the same run: asked again where it may have been made meanwhile
        (``changed``), or where another executor may have begun the run."""
        if not changed and situation.run is not None:
            return True
        now = self.read()
        name = self.step.name  # an attempt that another executor made meanwhile is told by this one, and counts
        seen = [(one.run.run, one.run.attempts.get(name)) if one.run else None for one in (now, situation)]
        is_made = not self.force and now.results.hit(self.step, now.identity) is not None
        return now.identity == situation.identity and seen[0] == seen[1] and not is_made

    def _abandoned(self, situation: _Situation) -> list[Draft]:
        """What is to be said of the attempt before this one, if its process died without a word."""
        run, name = situation.run, self.step.name
        if run is None or not run.attempts.get(name):
            return []
        last = ""
        for _, event in situation.results.cache.history.events(stream=stream_of(run.run)):
            if event.body.get("step") == name and event.type in _ATTEMPT_EVENTS:
                last = event.type
        if last != events.STEP_STARTED:
            return []
        training = run.training[-1].body if name == "train" and run.training else None
        preempted = events.StepPreempted(
            run=run.run,
            step=name,
            attempt=run.attempts[name],
            launch=0,
            again=True,
            reason="the process that executed the attempt ended without a word",
            processes=training.processes if training else 0,
            devices=training.devices if training else 0,
            at=max((fact.body.end for fact in run.segments), default=0) if training else 0,
        )
        return [situation.attempt(self.step).draft(events.STEP_PREEMPTED, preempted)]

    def _heeding(self, situation: _Situation, workspace: Workspace, attempt: int) -> StoredResult:
        """One attempt; a training that is asked to go back does, and goes on from there."""
        while True:
            try:
                return self._attempt(situation, workspace, attempt, self._requests(situation.run_id))
            except StoppedByFollower as asked:
                if not asked.back:
                    raise
                log.warning("%s: %s: %s", self.step.name, asked.where, asked.found)

    def _requests(self, run: str) -> Requests | None:
        """What may stop a training from now on. What was refuted until now is withdrawn, so that it goes on from the last state
        that held.

        Raises:
            StoppedByFollower: a follower asked for it, and nobody has answered yet.
        """
        if self.step.name != "train":
            return None
        point = own_points(REQUESTS).get("follow")
        if point is None:
            return None
        found: Requests = point.load()(self.root, run, self.lease.ask)
        return found

    def _attempt(
        self, situation: _Situation, workspace: Workspace, attempt: int, requests: Requests | None
    ) -> StoredResult:
        store = self.cache.store
        artifacts = {step: situation.inputs[step].output.artifact for step in self.step.inputs}
        inputs = workspace.prepare(store, {step: situation.inputs[step].output for step in self.step.inputs})
        if self.step.continues and self.recipe.phase is not None:
            came_from = continued.origin(situation.results.cache.history, self.recipe, self.execution.continues)
            inputs[PREVIOUS] = continued.checkout(store, came_from.checkpoint, workspace.folder / "inputs" / PREVIOUS)
            artifacts[PREVIOUS] = came_from.checkpoint
        elif self.step.continues and self.recipe.initial is not None:
            made = self.recipe.initial.model
            inputs[PREVIOUS] = continued.checkout(store, made, workspace.folder / "inputs" / PREVIOUS)
            artifacts[PREVIOUS] = made
        journal = LedgerJournal(self.root, situation.run_id, self.step.name, self.lease, requests)
        if self.step.continues and self.execution.fork is not None:
            tokenizer = situation.inputs["tokenizer"].output.digest
            take_over = load_plugin("marin.forks", "unlearning", "a training that is forked")
            take_over(
                situation.results.cache.history, journal, situation.run_id, self.recipe, tokenizer, self.execution.fork
            )
        with (
            running(situation.run_id, self.step.name),
            tracker.following(journal, self.root, situation.run_id, self.step.name) as told,
            self._beside(told, situation.run_id) as followed,
        ):
            return execute(
                self.step,
                Task(
                    run=situation.run_id,
                    recipe=self.recipe,
                    inputs=inputs,
                    out=workspace.out,
                    work=workspace.scratch,
                    store=store,
                    journal=followed,
                    execution=self.execution,
                    attempt=attempt,
                    root=self.root.absolute,
                    artifacts=artifacts,
                    check=partial(self._check, requests),
                ),
            )

    def _check(self, requests: Requests | None) -> None:
        self.lease.check()
        if requests is not None:
            requests.poll()

    def _beside(self, journal: Journal, run: str) -> AbstractContextManager[Journal]:
        beside = self.step.beside
        return beside.following(journal, self.root, run) if beside is not None else nullcontext(journal)

    def _completed(self, situation: _Situation, made: StoredResult) -> StageOutcome | None:
        """Record the result, everything that follows from it, and write the files; None where the lease was lost."""
        self._warn_of_divergence(situation, made)
        attempt = situation.attempt(self.step)
        settled = {**situation.inputs, self.step.name: attempt.result(made)}
        receipts, lacking = self._append(situation, [attempt.completed(made)], settled, self.lease)
        if not receipts:
            return None
        result = attempt.result(made, receipts[0].index)
        self._write_files(result, lacking)
        return StageOutcome(situation.run_id, "executed", result, completed=not lacking)

    def _record_failure(self, attempt: Attempt, failure: LedgerError) -> None:
        """Record why the attempt ended, as far as the ledger still takes it."""
        try:
            self.lease.end(attempt.failed(failure))
        except LedgerError as second:
            log.warning("the failure could not be recorded: %s", second)

    def _warn_of_divergence(self, situation: _Situation, made: StoredResult) -> None:
        for fact in completions(situation.results.cache.history, step=self.step.name, identity=situation.identity):
            if fact.body.output.digest != made.output.digest:
                log.warning(
                    "%s: other bits than event %d recorded for the same identity: expected %s, found %s",
                    self.step.name,
                    fact.index,
                    fact.body.output.digest,
                    made.output.digest,
                )

    # What is recorded

    def _begin(self, situation: _Situation) -> list[Draft]:
        """The beginning of a run that does not exist yet, and the inputs that it takes over."""
        run = situation.run_id
        taken = [cached(run, view) for view in situation.inputs.values() if not situation.results.is_held(view)]
        if situation.run is not None:
            return taken
        return [Draft(events.RUN_STARTED, stream_of(run), events.write(self._run_started(run))), *taken]

    def _continued_run(self) -> events.Continues | None:
        """Where the state that a phase begins with comes from."""
        if self.recipe.phase is None:
            return None
        return continued.origin(self.root.history(), self.recipe, self.execution.continues)

    def _run_started(self, run: str) -> events.RunStarted:
        source = provenance(code_folder())
        if source.diff:
            self.root.store().put_bytes(source.diff)
        arms = load_plugin("marin.registrations", "arms", "a registered experiment")
        return events.RunStarted(
            run=run,
            pipeline=self.plan.name,
            plan=plan_digest(self.plan, self.recipe, self.code),
            recipe_digest=digest(self.recipe),
            recipe=recorded(self.recipe),
            code={**source.describe(), "steps": dict(self.code.steps)},
            environment=environment.describe(self.code.lock, settings(self.recipe.arithmetic, self.execution)),
            continues=self._continued_run(),
            experiment=arms.citation(self.root.history(), self.recipe, self.plan.name),
            pinned=dict(self.plan.pinned),
        )

    def _append(
        self, situation: _Situation, own: Sequence[Draft], settled: Mapping[str, StepView], lease: Unleased
    ) -> tuple[Sequence[Receipt], list[str]]:
        """Record ``own``, what follows from it and the end of ``lease``; the steps of the run that lack their output then.
        Nothing where the lease was lost."""
        lacking: list[str] = []

        def drafts(results: RunResults) -> list[Draft]:
            nonlocal lacking
            following, lacking = rest(situation.run_id, results, settled, take_over=not self.force)
            return lease.ending([*own, *following])

        return append_fenced(self.root, situation.run_id, situation.results, drafts), lacking

    def _write_files(self, result: StepView, lacking: Sequence[str] = ()) -> None:
        """Metrics, tables, pointer, and the receipt last: DVC takes the stage as done when all are there. Receipts of steps
        that are ``lacking`` here (damaged, or made in another root) go, so that DVC has them made."""
        if self.project is None:
            return
        for name in lacking:
            receipt_path(self.project, name).unlink(missing_ok=True)
        store = self.root.store()
        if result.metrics:
            write_whole(metrics_path(self.project, result.step), encode_json(dict(result.metrics)))
        for name, table in result.tables.items():
            write_whole(table_path(self.project, name), store.read(table))
        pointer = pointer_of(result.output)
        write_whole(pointer_path(self.project, result.step), pointer.encode())
        receipt = encode_json({**asdict(pointer), "identity": result.identity})
        write_whole(receipt_path(self.project, result.step), receipt)


def _refuse_other_code(project: Path, plan: Plan, recipe: Recipe, code: CodeIdentity) -> None:
    """Where DVC watches other files than those that execute: a checkout whose package is not the installed one."""
    is_other = (project / "marin" / "__init__.py").is_file() and project.resolve() != code_folder()
    with suppress(MissingEvidence):
        if not is_other or code_identity(plan, project, recipe) == code:
            return
    raise UsageError(
        "the code that is installed is not that of this checkout",
        where=str(project / "marin"),
        expected="the same files, which DVC watches",
        found=f"others in {code_folder() / 'marin'}",
        cure="`make environment` in this checkout, and activate its .venv",
    )
