"""A loop around the replay that verification has: segments of a training, executed again as they are recorded.

Each turn reads what was appended, compares what the events say, executes the oldest segment that is not established yet,
hashes what it names in the store, and records in the reproducer's own log that it held. What made it, corpus, tokenizer and
tokens, is judged once, before. Nothing here is known to the training, which waits for nobody: a follower that is killed or
lags costs it nothing, and one that comes later goes on where the events of the one before it end.

The last word is the ordinary verification, as soon as the run ends: it takes the segments that held, and executes what is
wrong once more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ledger import LedgerError, Malformed, Tampered, Unavailable, Unverified
from marin.errors import Unsupported, UsageError
from marin.execution.leases.lease import TERM, Leases, utc_now
from marin.history.run import Fact, Run, age_in_words, record_digest, unverified
from marin.history.runs import resolve
from marin.pipeline.stages import PIPELINE
from marin.plugins.follow.stop_request import StopRequests
from marin.plugins.follow.unfinished import Unfinished
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution
from marin.record.events import DATA_STEPS, Continues, TrainSegment
from marin.record.root import Root
from marin.verify.case import Case
from marin.verify.derivation.record import Contradiction, RunRecord, read_record
from marin.verify.derivation.records import contradictions
from marin.verify.derivation.series import recorded_series
from marin.verify.earlier import Proofs
from marin.verify.judges.artifacts import judge_artifacts
from marin.verify.judges.workers import replay_segments
from marin.verify.segments import compare
from marin.verify.verdict import judge_safely
from marin.verify.verification import LogAsRead, Options, Verification

logger = logging.getLogger(__name__)

POLL_SECONDS, FAR_SECONDS = 0.2, 5.0
"""How often a root is asked for more, on this machine and at an address."""
PATIENCE = TERM.total_seconds()
"""Seconds without a sign of a run, after which nobody is taken to execute it."""
TRIES = 5
"""How often a log is read again before what is wrong with it counts: a copy may be renewed while it is read."""
SMALL = 64 << 20
"""Bytes up to which an output that the training stands on is hashed with each segment; larger ones before and at the end."""
BEFORE = ("ledger", "artifacts", "data")
"""What is judged once, of what the training stands on."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Refuted:
    """Something that does not hold: in words, and the segment that it is about, if it is about one."""

    found: str
    segment: Fact[TrainSegment] | None = None


def follow(
    root: Root,
    name: str,
    options: Options,
    *,
    only: Collection[str],
    requests: StopRequests | None,
    say: Say,
    patience: float = PATIENCE,
) -> Verification:
    """Follow the run that ``name`` means to its end, or to the first thing that does not hold; with ``requests``, until the
    training that was asked has stopped. The verification that has the last word, to be asked for its report.

    Raises:
        UsageError: there is no such run, or nothing here can replay it.
        LedgerError: the log cannot be read.
    """
    with TemporaryDirectory(prefix="marin-follow-") as folder:
        follower = Follower(root, name, options, frozenset(only), requests, say, Path(folder), patience)
        follower.follow()
        return follower.verification()


class Follower:
    """One follower of one run; see :func:`follow`."""

    def __init__(
        self,
        root: Root,
        name: str,
        options: Options,
        only: frozenset[str],
        requests: StopRequests | None,
        say: Say,
        workshop: Path,
        patience: float,
    ) -> None:
        self._root, self._options, self._only, self._requests, self._say = root, options, only, requests, say
        self._workshop, self._patience = workshop, patience
        self._place = root
        self._log = LogAsRead.of(root, options)
        self._name = resolve(self._log.history, name)
        self._record: RunRecord = read_record(self._log.history, self._name)
        check_replayable(self._record.run)
        self._proofs: Proofs | None = None
        self._leases, self._heard = Leases(), time.monotonic()
        self._judged_before = not set(BEFORE) & only
        self._done: set[str] = set()
        self._refuted: Refuted | None = None
        self._stored_wrong: Refuted | None = None
        self._last_line, self._agreed = "", -1

    @property
    def run(self) -> Run:
        """The run, as the log had it at the last look."""
        return self._record.run

    def follow(self) -> None:
        """Until there is nothing more to follow."""
        self._say(f"following run {self._name}")
        while True:
            worked = False
            if self._refuted is None:
                found, worked = self._next()
                if found is not None and not self._goes_home(found):
                    self._refute(found)
            if self._refuted is not None and self._requests is None:
                return
            if self._catch_up() or worked:
                continue
            if self._ended():
                return
            time.sleep(self._pause)

    def verification(self) -> Verification:
        """Of all that is recorded; of a run that did not come to its end, as far as it went."""
        run = self.run
        if self._place is not self._root:
            read = LogAsRead.of(self._root, self._options)
            run = read_record(read.history, self._name).run
        if "train" in run.steps or not run.segments:
            return Verification(self._root, self._name, self._options)
        last = run.segments[-1].body
        saved = {fact.body.state: fact.body.artifact for fact in run.checkpoints}
        until = Continues(
            run=run.run, step=last.end, state=last.end_state, checkpoint=saved.get(last.end_state, last.end_state)
        )
        return Unfinished(self._root, self._name, self._options, until=until)

    # -- the log

    def _catch_up(self) -> bool:
        """Take in what the log has by now; whether it says more of the run."""
        grown = False
        for left in reversed(range(TRIES)):
            try:
                grown = self._log.history.catch_up()
                break
            except (Malformed, Tampered, Unverified, Unavailable) as error:
                if not left:
                    if not isinstance(error, Unavailable):
                        found = Refuted(f"ledger FAIL: {error}")
                        if self._refuted is None and self._goes_home(found):
                            return True
                        self._refute(found)
                    raise
                logger.info("the log is read again: %s", error)
                time.sleep(self._pause)
        before = self.run.last_index
        if grown:
            self._record = read_record(self._log.history, self._name)
        if self.run.last_index == before:
            return False
        self._heard = time.monotonic()
        refuted = self._refuted.segment if self._refuted is not None else None
        if refuted is not None and refuted.index not in {fact.index for fact in self.run.segments}:
            self._say(f"the training withdrew what it recorded from train step {refuted.body.start} on")
            self._refuted = None
        return True

    def _ended(self) -> bool:
        """Whether nobody goes on with the run, as far as is known."""
        if self.run.status != "open":
            return True
        self._leases.catch_up(self._place)
        for state in self.run.states.values():
            holder = self._leases.holder(state.identity) if state.state == "running" else None
            if holder is not None and holder.alive(utc_now()):
                self._heard = time.monotonic()
        return time.monotonic() - self._heard > self._patience

    # -- what is judged

    def _next(self) -> tuple[Refuted | None, bool]:
        """Judge the next thing: what does not hold, and whether something was executed."""
        if "ledger" in self._only and self._agreed != self.run.last_index:
            if wrong := contradictions(self._record, PIPELINE):
                found = f"ledger FAIL: the records contradict each other: {wrong[0]}"
                return Refuted(found, self._segment_at(wrong[0])), False
            self._agreed = self.run.last_index
        if not set(DATA_STEPS) <= set(self.run.steps):
            return None, False
        if not self._judged_before:
            self._judged_before = True
            return self._what_it_stands_on(), True
        if "training" not in self._only:
            return None, False
        if self._proofs is None:
            self._prepare()
        if not self.run.segments:
            return None, False
        broken = self._broken_chain()
        return (broken, False) if broken is not None else self._segments()

    def _what_it_stands_on(self) -> Refuted | None:
        wanted = [name for name in BEFORE if name in self._only]
        verdicts = Verification(self._place, self._name, self._options).report(wanted).verdicts
        for name in wanted:
            if verdicts[name].outcome == "FAIL":
                return Refuted(f"{name} FAIL: {' '.join(verdicts[name].lines[:1])}")
        self._say(f"what the training stands on: {', '.join(f'{name} {verdicts[name].outcome}' for name in wanted)}")
        return None

    def _segment_at(self, wrong: Contradiction) -> Fact[TrainSegment] | None:
        """The first segment that is no longer to be trusted where this event contradicts others."""
        return (
            next((fact for fact in self.run.segments if fact.index >= wrong.index), None)
            if wrong.step == "train"
            else None
        )

    def _broken_chain(self) -> Refuted | None:
        run, bodies = self.run, [fact.body for fact in self.run.segments]
        last, first, phase = bodies[-1], run.recipe.first_step, run.recipe.phase
        begins = phase.state if phase is not None else None
        broken = compare.chain(bodies, last.end, last.end_state, first=first, first_state=begins)
        if broken is None:
            return None
        at = next((fact for fact in run.segments if broken.step is not None and fact.body.end > broken.step), None)
        return Refuted(f"training FAIL: {broken.describe()}", at or run.segments[-1])

    def _prepare(self) -> None:
        """Read what was established before, and compile and name every program: the first segment is not to wait for it."""
        self._proofs = Proofs.read(
            self.run, self._options.own, recorded_series(self._record), fresh=self._options.fresh
        )
        self._done |= set(self._proofs.known)
        apply(self.run.recipe.arithmetic, self._alone)
        if self._options.workers == self._options.execution.processes == 1:
            from marin.verify.jax.replay import prepared, program_of  # jax, after the contract is in force

            case = self._case()
            inputs = case.inputs(("tokens", "tokenizer"))
            training = prepared(self.run.recipe, inputs["tokens"], inputs["tokenizer"], self._alone, case.store)
            program_of(training, self._alone)
            if not self._done and self.run.recipe.phase is None and self.run.recipe.initial is None:
                training.start()
        self._say("ready: segments are executed as they are recorded")

    def _segments(self) -> tuple[Refuted | None, bool]:
        """Execute what is not established: all of it by several workers, or else the oldest segment, so that what comes
        meanwhile is seen at once."""
        positions = [i for i, fact in enumerate(self.run.segments) if record_digest(fact.body) not in self._done]
        if not positions:
            return None, False
        together = self._options.execution.processes > 1
        several = self._options.workers > 1 and len(positions) > 1
        positions = positions if several else positions[:1]
        case = self._case()
        inputs = case.inputs(("tokens", "tokenizer"))
        self._stored_wrong = None
        result = replay_segments(
            self.run,
            self._place.absolute,
            positions,
            inputs["tokens"],
            inputs["tokenizer"],
            self._options.execution if together else self._alone,
            self._options.workers if several else 1,
            _silent,
            store=case.store,
            measured=recorded_series(case.record),
            done=lambda segment, losses: self._held(case, segment, losses),
        )
        if result.outcome == "FAIL":
            first = next(i for i in positions if record_digest(self.run.segments[i].body) not in self._done)
            return Refuted(f"training FAIL: {' '.join(result.lines[:1])}", self.run.segments[first]), True
        if result.outcome == "UNSUPPORTED":
            raise Unsupported("this machine cannot follow the run", where=f"run {self._name}", found=result.lines[0])
        if result.outcome != "PASS":
            self._tell(f"not executed yet: {' '.join(result.lines[:1])}")
        return self._stored_wrong, result.outcome == "PASS"

    def _held(self, case: Case, segment: TrainSegment, losses: Sequence[float]) -> None:
        """A segment was executed and is as recorded: what it names in the store is looked at, and then it is established."""
        if self._stored_wrong is None:
            self._stored_wrong = self._stored(case, next(fact for fact in self.run.segments if fact.body == segment))
        if self._stored_wrong is not None:
            return
        assert self._proofs is not None, "it was asked what is open"
        self._done.add(record_digest(segment))
        self._proofs.measured = recorded_series(case.record)
        self._proofs.keep(segment, losses)
        age = age_in_words(unverified(self.run, self._done))
        self._tell(f"train steps {segment.start} to {segment.end - 1}: same bits; {age}")

    def _stored(self, case: Case, fact: Fact[TrainSegment]) -> Refuted | None:
        """What is wrong with the state after a segment, its trace, and the lists of tensors before it, as they are stored; or
        with what the training stands on, as far as that is small."""
        if "artifacts" not in self._only:
            return None
        run = self.run
        saved = tuple(one for one in run.checkpoints if one.body.state == fact.body.end_state)
        of_segment = replace(run, steps={}, segments=(fact,), checkpoints=saved)
        small = {name: run.steps[name] for name in DATA_STEPS if run.steps[name].output.size <= SMALL}
        of_data = replace(run, steps=small, segments=(), checkpoints=(), training=())
        for narrow, segment in ((of_segment, fact), (of_data, None)):
            with TemporaryDirectory(prefix="stored-", dir=self._workshop) as folder:
                verdict = judge_safely(partial(judge_artifacts, replace(case, run=narrow, workshop=Path(folder))))
            if verdict.outcome == "FAIL":
                return Refuted(f"artifacts FAIL: {' '.join(verdict.lines[:1])}", segment)
        return None

    def _case(self) -> Case:
        options, tokens = self._options, self.run.output("tokens").digest.removeprefix("sha256:")
        folder = self._workshop / tokens[:16]
        folder.mkdir(exist_ok=True)
        return Case(
            root=self._place,
            store=self._place.store_to_read(),
            history=self._log.history,
            keys=self._log.keys,
            record=self._record,
            run=self.run,
            execution=self._alone,
            workers=1,
            processes=options.execution.processes,
            workshop=folder,
            reach=options.reach,
        )

    # -- what is said of it

    def _refute(self, found: Refuted) -> None:
        """Something does not hold: say so, and ask the training to stop."""
        self._refuted = found
        self._say(found.found)
        if self._requests is None:
            return
        run = self.run
        step, state = (run.recipe.first_step, None) if not run.segments else self._last_held()
        try:
            event = self._requests.ask(run, found.found, found.segment, (step, state))
        except LedgerError as error:
            self._say(f"the training could not be asked to stop: {error}")
            return
        self._say("the training was asked before" if event is None else f"the training is asked to stop: event {event}")

    def _goes_home(self, found: Refuted) -> bool:
        """Whether something was found in a copy: that may be the copy's own fault, and does not stop the training.
        The log that the copy is of is followed from here on, and the training asked for what does not hold there."""
        if self._requests is None or self._requests.log.absolute == self._place.absolute:
            return False
        home = self._requests.log
        self._say(f"{found.found}")
        self._say(
            f"{self._place.location} is a copy: before the training is asked to stop, {home.location} is looked at"
        )
        self._place, self._workshop = home, self._workshop / "home"
        self._workshop.mkdir()
        self._log = LogAsRead.of(home, self._options)
        self._record = read_record(self._log.history, self._name)
        self._judged_before, self._agreed, self._heard = not set(BEFORE) & self._only, -1, time.monotonic()
        return True

    def _last_held(self) -> tuple[int, str | None]:
        """The number of the train step after the last state up to which everything held, and that state."""
        first = self.run.segments[0].body
        at, state = first.start, first.start_state
        for fact in self.run.segments:
            if self._refuted is not None and fact == self._refuted.segment:
                break
            if record_digest(fact.body) not in self._done:
                break
            at, state = fact.body.end, fact.body.end_state
        return at, state

    def _tell(self, line: str) -> None:
        if line != self._last_line:
            self._last_line = line
            self._say(line)

    @property
    def _alone(self) -> Execution:
        """How this process computes, whatever others do together."""
        return msgspec.structs.replace(self._options.execution, processes=1)

    @property
    def _pause(self) -> float:
        return FAR_SECONDS if "://" in self._place.location else POLL_SECONDS


def check_replayable(run: Run) -> None:
    """Refuse to follow what nothing here executes.

    Raises:
        UsageError: it was recorded by a loop of its user's own.
    """
    if run.is_loop:
        raise UsageError(
            "nothing of this run can be replayed while it goes on",
            where="--follow",
            expected="a training of the pipeline",
            found=f"run {run.run}, recorded by a loop of its user's own",
            cure="verify it when it has ended, with --by COMMAND",
        )


def _silent(_: int, __: str) -> None:
    """What is done is said segment by segment."""
