"""The verdicts on a run, and the claims that they establish.

Each verdict is a function of what the ledger and the store hold and of what is executed here; each has a file of its own
in :mod:`marin.verify.judges`. ``ledger`` and ``artifacts`` read and hash; ``data``, ``training``, ``model`` and
``evaluation`` execute the installed code (never code that a ledger names) on the recorded recipe and tasks, which are
data. docs/threat-model.md says what each verdict rests on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ledger import LedgerError, LogReader, Refused, VerifierKey, check, parse_time
from marin.data.collected import collections_of
from marin.data.reach import EVERYTHING, Reach
from marin.errors import NotInstalled, UsageError
from marin.history.run import Run
from marin.history.runs import facts, read_fact, resolve, stream_of
from marin.pipeline.stages import PIPELINE
from marin.process.arithmetic import apply, check_devices
from marin.provenance import environment
from marin.provenance.code import code_folder, lock_digest
from marin.provenance.plugins import load_plugin
from marin.recipe.schema import Execution
from marin.record.events import DATA_STEPS, MODEL_STEPS, Continues, ReplayCompleted, draft
from marin.record.root import LedgerHistory, Root
from marin.record.trust.authorship import of_this_log
from marin.record.trust.pins import PinCheck, Pins
from marin.record.trust.trusted import Keys
from marin.record.verdicts import COPY, EVALUATION, NAMES, SHOWN, effective, of_the_log
from marin.verify.case import JUDGES, Case
from marin.verify.derivation import claims
from marin.verify.derivation.record import RunRecord, pinned_steps, read_record
from marin.verify.derivation.series import recorded_series
from marin.verify.earlier import Proofs
from marin.verify.environment_diff import environment_diff, unless_environment_differs
from marin.verify.judges.artifacts import judge_artifacts
from marin.verify.judges.data import judge_data
from marin.verify.judges.ledger import Outside, judge_events, judge_ledger
from marin.verify.judges.loop import OWN, LoopVerdicts, check_command_wanted, unrequested_verdict
from marin.verify.judges.model import judge_model
from marin.verify.judges.training import TrainingReplay, judge_training, not_trained
from marin.verify.segments import programs
from marin.verify.segments.sampling import WHOLE, Scope, Selection, select
from marin.verify.verdict import NOT_RUN, EvaluationSummary, Report, TrainingSummary, Verdict, judge_safely

if TYPE_CHECKING:
    from marin.verify.segments.explanation import Setting
    from marin.verify.segments.screening import Screening

logger = logging.getLogger(__name__)

EXECUTES = {"data": DATA_STEPS, "training": ("train",), "model": MODEL_STEPS}
"""Verdict -> the steps whose code gives it."""
WALKED = ("ledger", "artifacts", "data", "training")
"""The verdicts that runs before a phase are asked for. The model is that of the last phase."""


@dataclass(frozen=True)
class Options:
    """How a verification is done.

    ``own``: the root of this reproducer, whose log gets each segment that held, and from which those of a broken
    verification are taken (unless ``fresh``); None: nothing is kept and nothing taken. ``remember``: move the pin of
    this log. ``sources``: whose word counts beside the log's. ``since``: only segments recorded from here on: see
    :func:`since_index`. ``screen``: look at the recorded states first, without replay. ``reach``: what the recipe's
    data may lead to. ``experiment``: the verifier's own file, whose steps are executed where the run began with what a
    step of an experiment made. ``by``: the verifier's own command that makes a run of a user's own loop again.
    """

    execution: Execution
    trusted: Sequence[VerifierKey] = ()
    pins: Pins | None = None
    remember: bool = True
    workers: int = 1
    scope: Scope = WHOLE
    own: Root | None = None
    fresh: bool = False
    since: str | None = None
    screen: bool = False
    reach: Reach = EVERYTHING
    experiment: Path | None = None
    by: str = ""
    sources: Outside = field(kw_only=True)


class LogAsRead(NamedTuple):
    """The log of a verification: read once, so that everything is judged from the very same one, whatever the root shows
    to anyone who opens it again. ``seen``: how it agrees with what was seen of it before, where that is asked."""

    keys: Keys
    reader: LogReader
    history: LedgerHistory
    seen: PinCheck | None

    @classmethod
    def of(cls, root: Root, options: Options) -> LogAsRead:
        """Read it, as it is now."""
        keys, reader = root.keys(options.trusted), root.reader(options.trusted)
        if options.pins is not None:  # whatever is judged, and before anything is read
            options.pins.compare(reader, root.storage, root.absolute, named=keys.mine)
        history = root.history_as_read(reader, options.trusted)
        seen = None
        if options.pins is not None:  # it may have grown meanwhile: what is judged is what is remembered
            seen = options.pins.compare(reader, root.storage, root.absolute, named=keys.mine)
        return cls(keys, reader, history, seen)


class Verification:
    """One verification of one run; :meth:`report` gives the verdicts asked for.

    Raises:
        UsageError: there is no such run, or its logical shards do not divide over the devices.
        MissingEvidence: the log lacks the beginning of the run, or of one that it took a step from.
    """

    def __init__(
        self, root: Root, name: str, options: Options, *, until: Continues | None = None, read: LogAsRead | None = None
    ) -> None:
        self.root, self.options, self.until = root, options, until
        self.read = read or LogAsRead.of(root, options)
        self.keys, self.reader, self.history, self.seen = self.read
        self.record_of_run = read_record(self.history, resolve(self.history, name))
        self.run: Run = self.record_of_run.run
        if until is not None:
            kept = tuple(fact for fact in self.run.segments if fact.body.end <= until.step)
            self.run = replace(self.run, segments=kept)
        check_command_wanted(self.run, options.by)
        if (recipe := self.run.readable_recipe) is not None:
            check_devices(recipe, options.execution)
        scope = options.scope
        if options.since is not None:
            scope = replace(scope, since=since_index(self.run, options.since, options.own or root, self.reader))
        self.scope = scope
        self.selection = self._select(scope)
        self.environment = environment_diff(self.record_of_run)
        self.screening: Screening | None = None
        self.trained: TrainingReplay | None = None
        self.executed: LoopVerdicts | None = None
        self.evaluated = EvaluationSummary(0, 0, 0)

    def report(self, only: Collection[str] | None = None) -> Report:
        """Judge. Verdicts that were not asked for are NOT_RUN. Without ``only``: the five on the run, and what was
        evaluated of it if something was."""
        if only is None:
            only = SHOWN if self.record_of_run.evaluated else NAMES
            if self.run.is_loop and self.options.by:
                only = self.run.answerable
        with TemporaryDirectory(prefix="marin-verify-") as folder:
            own = self._report(only, Path(folder))
        if self.seen is not None and self.until is None and self.options.remember:
            # What was signed was signed, whatever the verdict.
            assert self.options.pins is not None  # they gave it
            self.options.pins.keep(self.seen)
        return self._with_phases_before(own, only)

    def explain(self, report: Report, settings: Sequence[Setting], steps: tuple[int, int] | None) -> Report:
        """The report with an explanation of the first step that differs: between the recorded and the present setting,
        or between two given ones (then also when nothing failed: in the segment of ``steps``, or the first)."""
        explain_report = load_plugin("marin.explanations", "train", "--explain")
        divergence = self.trained.divergence if self.trained is not None else None
        found: Report = explain_report(
            report,
            self.run,
            self.root.store_to_read(),
            divergence,
            settings,
            devices=self.options.execution.devices,
            remarks=self.environment.remarks,
            steps=steps or self.scope.steps,
        )
        return found

    def record(self, report: Report, own: Root | None = None) -> Report:
        """Append the verdicts to the log of ``own`` (this root's, unless given); the report with the event's index. Those on
        a copy of that log in another place are recorded as such, with the place.

        Raises:
            ledger.Refused: what fails in the copy says nothing of the log itself, such as damaged bytes.
        """
        about, into = report.as_json()["log_checkpoint"], own or self.root
        words: dict[str, str] = {name: verdict.outcome for name, verdict in report.verdicts.items()}
        if into.absolute != self.root.absolute and into.verifier.name == about["origin"]:
            about[COPY] = self.root.location
            if "FAIL" in words.values() and not of_the_log(words, about):
                raise Refused(
                    "what fails is this copy's own, and no fault of the log that it is a copy of",
                    where=self.root.location,
                    found=f"FAIL of {', '.join(name for name in words if words[name] == 'FAIL')}",
                    expected=f"what would fail in {into.location} too",
                    cure="mend the copy, or verify the log itself",
                )
        body = ReplayCompleted(
            run=report.run,
            verdicts=words,
            training={**report.as_json()["training"], "segments_taken": report.training.segments_taken},
            first_divergence=report.first_divergence(),
            log_checkpoint=about,
            details={name: [line[:2000] for line in verdict.lines[:20]] for name, verdict in report.verdicts.items()},
            environment=environment.describe(lock_digest(code_folder())),
        )
        (receipt,) = into.append([draft(body, stream_of(report.run))])
        return replace(report, event=receipt.index)

    def judged_run(self, report: Report, own: Root | None) -> Run:
        """The run, with the verification that ``report`` is among those that were given on it, where it was recorded."""
        event = own.history().event(report.event) if own is not None and report.event is not None else None
        if event is None or report.event is None:
            return self.run
        return replace(self.run, verdicts=(*self.run.verdicts, read_fact(ReplayCompleted, (report.event, event))))

    @property
    def alone(self) -> Execution:
        """How this process computes, whatever others do together."""
        return msgspec.structs.replace(self.options.execution, processes=1)

    def _report(self, only: Collection[str], workshop: Path) -> Report:
        case = Case(
            root=self.root,
            store=self.root.store_to_read(),
            history=self.history,
            keys=self.keys,
            record=self.record_of_run,
            run=self.run,
            execution=self.alone,
            workers=self.options.workers,
            processes=self.options.execution.processes,
            workshop=workshop,
            reach=self.options.reach,
            until=self.until,
        )
        if self.options.screen:
            self._screen(case)
        verdicts = {
            name: self._judged(name, judge, case) if name in only else unrequested_verdict(self.run, name)
            for name, judge in self._judges(case).items()
        } | {EVALUATION: NOT_RUN}
        if EVALUATION in only:
            verdicts[EVALUATION] = self._judged(EVALUATION, lambda: self._evaluation(case, verdicts["model"]), case)
        elif not case.record.evaluated:  # it follows from the model's, and nothing is executed
            verdicts[EVALUATION] = judge_safely(lambda: self._evaluation(case, verdicts["model"]))
        trained = self.trained or not_trained(case, verdicts["training"])
        if self.screening is not None and self.screening.violations and verdicts["training"].outcome == "NOT_RUN":
            lines = tuple(finding.describe() for finding in self.screening.violations)
            verdicts["training"] = Verdict("FAIL", lines)
        checkpoint = self.reader.checkpoint()
        outcomes = {name: verdict.outcome for name, verdict in verdicts.items()}
        return Report(
            run=self.run.run,
            verdicts=verdicts,
            training=trained.summary,
            divergence=trained.divergence,
            origin=checkpoint.origin,
            size=checkpoint.size,
            root=checkpoint.root.hex(),
            remarks=self.environment.remarks,
            wanted=tuple(only),
            claims=claims.settle_claims(
                claims.derive(
                    replace(case.record, run=case.run),
                    PIPELINE,
                    until=case.until,
                    otherwise=trained.otherwise or self._other_versions(),
                ),
                outcomes,
                trained.replayed,
            ),
            losses=trained.losses,
            screening=self.screening,
            evaluation=self.evaluated,
        )

    def _other_versions(self) -> Sequence[str]:
        """In what the run's training names other libraries than those that are installed, whether it was executed or not."""
        recorded = self.run.training[-1].body.program if self.run.training else {}
        recipe = self.run.readable_recipe
        if recipe is None:
            return ()
        return programs.other_versions(recorded, recipe.arithmetic.profile, environment.versions())

    def _judges(self, case: Case) -> Mapping[str, Callable[[], Verdict]]:
        if self.run.is_loop:
            return self._judges_of_loop(case)
        return {
            "ledger": lambda: self._ledger(case),
            "artifacts": lambda: judge_artifacts(case),
            "data": lambda: self._data(case),
            "training": lambda: self._training(case),
            "model": lambda: judge_model(case, self.run.planned),
        }

    def _judges_of_loop(self, case: Case) -> Mapping[str, Callable[[], Verdict]]:
        unmade = Verdict("NOT_RUN", (f"it was {OWN}: give the command that makes it again by --by",))
        if not self.options.by:
            trained, model = lambda: unmade, lambda: unmade
        else:
            trained, model = lambda: self._executed(case).training, lambda: self._executed(case).model
        return {
            "ledger": lambda: self._ledger(case),
            "artifacts": lambda: judge_artifacts(case),
            "data": lambda: unrequested_verdict(self.run, "data"),
            "training": trained,
            "model": model,
        }

    def _executed(self, case: Case) -> LoopVerdicts:
        """The user's command executed, once for both verdicts."""
        if self.executed is None:
            folder = case.workshop / f"by-{len(list(case.workshop.glob('by-*')))}"
            judge_by_command = load_plugin(JUDGES, "command", "--by")
            self.executed = judge_by_command(case, self.options.by, folder)
            found, count = self.executed, len(self.run.loop)
            summary = TrainingSummary("full", count, count, 1, 0.0, command=self.options.by)
            self.trained = TrainingReplay(found.training, summary, found.divergence, found.losses or {})
        return self.executed

    def _ledger(self, case: Case) -> Verdict:
        """Of a run that a later phase continues, its events alone: the log is one."""
        if self.until is not None:
            return judge_events(case)
        line = self.seen.text(pinned=self.options.remember) if self.seen else ""
        return judge_ledger(case, self.reader, line, self.options.sources)

    def _data(self, case: Case) -> Verdict:
        pinned = pinned_steps(self.run)
        taken = [name for name in DATA_STEPS if name in pinned]
        made = judge_data(case, taken, self.run.planned, self.options.experiment)
        if made.outcome != "FAIL" and (collections_of(case.run.recipe) or case.collections):
            judge = load_plugin(JUDGES, "collections", "a collection in the recipe")
            made = judge(case, made, self.scope.sample, self.reader.checkpoint().root)
        if made.outcome != "FAIL" and case.run.recipe.exclude is not None:
            made = load_plugin(JUDGES, "exclusion", "documents that the recipe excludes")(case, made)
        return made

    def _training(self, case: Case) -> Verdict:
        if "train" not in self.run.steps and not self.run.segments:
            return Verdict("NOT_RUN", ("the run recorded no training",))
        proofs = Proofs.read(self.run, self.options.own, recorded_series(self.record_of_run), fresh=self.options.fresh)
        drawn_by = self.reader.checkpoint().root.hex()
        self.trained = judge_training(case, self.selection, proofs, self.screening, drawn_by)
        return self.trained.verdict

    def _evaluation(self, case: Case, model: Verdict) -> Verdict:
        record, found = case.record, None
        if record.evaluations or record.measured or (not self.run.is_loop and case.run.recipe.evaluation.every):
            judge = load_plugin(JUDGES, EVALUATION, "evaluations of the run")
            found = judge(case, self.scope.sample, self.reader.checkpoint().root)
        if found is not None:
            verdict: Verdict
            verdict, self.evaluated = found
            return replace(verdict, lines=(*verdict.lines, *_withdrawn(record)))
        numbers = "stands" if record.aside else "is recorded"
        own = f"the pipeline's own evaluation is judged by model; no number of a harness {numbers}"
        own = "nothing was evaluated of what the loop saved" if self.run.is_loop else own
        return Verdict(
            "PASS" if model.outcome == "PASS" and "evaluate" in case.run.steps else "NOT_RUN",
            (own, *_withdrawn(record)),
        )

    def _judged(self, name: str, judge: Callable[[], Verdict], case: Case) -> Verdict:
        logger.info("verifying %s", name)
        steps = EXECUTES.get(name, ())

        def safely() -> Verdict:
            if (steps or name == EVALUATION) and not self.run.is_loop:
                case.open_tokenizers()
            return judge()

        return unless_environment_differs(
            judge_safely(safely), self.environment, steps, self.root.location, self.run.run
        )

    def _screen(self, case: Case) -> None:
        """Look at the recorded states; whatever stops it is not a verdict."""
        apply(self.run.recipe.arithmetic, self.alone)  # before jax starts
        try:
            screen_run = load_plugin("marin.explanations", "states", "--screen")
        except NotInstalled as error:
            logger.warning("not screened: %s", error)
            return
        self.screening = screen_run(case.run, case.store)

    # -- which parts are judged -----------------------------------------------------------------------------------

    def _select(self, scope: Scope) -> Selection:
        """The segments to replay. In a chain of phases, train steps that are asked for may all be another run's."""
        ranges = [(fact.body.start, fact.body.end) for fact in self.run.segments]
        in_chain = self.until is not None or self.run.started.body.continues is not None
        if (
            in_chain
            and scope.steps is not None
            and not any(a < scope.steps[1] and scope.steps[0] < b for a, b in ranges)
        ):
            return Selection((), 0, "range")
        indices = [fact.index for fact in self.run.segments]
        return select(ranges, scope, self.reader.checkpoint().root, self.run.run, indices)

    def _with_phases_before(self, report: Report, only: Collection[str]) -> Report:
        """The report joined with those of the runs that this one continues; its own when it is not a phase."""
        if self.run.started.body.continues is None or self.until is not None:
            return report
        wanted = [name for name in only if name in WALKED]

        def judge(run: str, link: Continues) -> tuple[Run, Report]:
            options = replace(self.options, since=None, scope=self.scope)
            earlier = Verification(self.root, run, options, until=link, read=self.read)
            return earlier.run, earlier.report(wanted)

        with_phases_before = load_plugin(JUDGES, "phases", "a run that continues another")
        found: Report = with_phases_before(report, self.history, self.run, wanted, judge)
        return found


def _withdrawn(record: RunRecord) -> tuple[str, ...]:
    """What was evaluated and does not count: what the recipe asks for is asked of what stands."""
    count = len(record.aside)
    if not count:
        return ()
    told = f"{count} event{'s' * (count > 1)} with numbers of states that the training withdrew: nobody judges or repeats them"
    return (told,)


def since_index(run: Run, since: str, own: Root, log: LogReader) -> int:
    """The index in the log from which segments count. ``since``: an index, a time (RFC 3339), or ``last``: the size of
    ``log`` when this reproducer's newest full verification of training that passed saw it.

    Raises:
        UsageError: it is not one of these.
    """
    if since.isdecimal():
        return int(since)
    if since == "last":
        history = own.history()
        given = facts(history, ReplayCompleted, stream=stream_of(run.run))
        done = [fact.body for fact in given if history.written.is_mine(fact.index)]
        seen = [
            int(body.log_checkpoint["size"])
            for body in done
            if of_the_log(effective(body.verdicts, body.training), body.log_checkpoint).get("training") == "PASS"
            and of_this_log(body.log_checkpoint, log)
            and own.is_own()
        ]
        return max(seen, default=0)
    try:
        moment = parse_time(since)
    except (LedgerError, ValueError):
        raise UsageError(
            "not a place in the log",
            where="--since",
            found=since,
            cure="see `marin log` for both",
            expected="an index, a time like 2026-01-31T12:00:00Z, or last",
        ) from None
    return next((fact.index for fact in run.segments if parse_time(fact.time) >= moment), 1 << 62)


def unreadable(
    root: Root, name: str, trusted: Sequence[VerifierKey], error: LedgerError, only: Collection[str]
) -> Report:
    """The report on a run that can not even be read: the ledger fails, with everything that is wrong in it."""
    keys = root.keys(trusted).verifiers
    findings = check(root.storage, keys, artifacts=False)  # those of other runs may be elsewhere
    lines = tuple(str(finding) for finding in findings) or (str(error),)
    try:
        checkpoint = root.reader(trusted).checkpoint()
        origin, size, digest = checkpoint.origin, checkpoint.size, checkpoint.root.hex()
    except LedgerError:
        origin, size, digest = root.verifier.name, 0, ""
    unread = Verdict("UNAVAILABLE", ("the run can not be read from this log",))
    verdicts = {key: Verdict("FAIL", lines) if key == "ledger" else unread if key in only else NOT_RUN for key in SHOWN}
    return Report(
        run=name,
        verdicts=verdicts,
        training=TrainingSummary("none", 0, 0, 1, 0.0),
        divergence=None,
        origin=origin,
        size=size,
        root=digest,
        remarks=(),
    )
