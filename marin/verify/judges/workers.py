"""Training replayed segment by segment, each from its recorded start state, on as many workers as are wanted.

Every segment is executed on its own and the recorded digests chain them, so all together say what one replay from the
beginning says (docs/verify.md has the argument). Workers get and give JSON; they open the root themselves, to read.
Results come in the order of the train steps, so the first difference is the earliest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ledger import LedgerError, Store, Tampered, open_storage
from marin.errors import MissingEvidence
from marin.history.run import Run
from marin.pipeline.stages import PIPELINE
from marin.process.arithmetic import APPLIED, apply, settings
from marin.process.progress import Report
from marin.recipe.schema import Execution, from_plain
from marin.record.events import CheckpointSaved, Json, TrainSegment
from marin.record.outputs import listed_tensors
from marin.runners.reservation import reservation
from marin.runners.workers import warm_workers
from marin.verify.derivation.series import Measured, series_between
from marin.verify.segments.compare import Divergence
from marin.verify.verdict import Outcome, outcome_of
from marin.work.placed import Seat, Worker

if TYPE_CHECKING:
    from marin.verify.jax.replay import SegmentReplay


class ReplaySetup(msgspec.Struct, frozen=True):
    """What a worker needs for all segments. ``tokens`` and ``tokenizer`` are folders on this machine, ``program`` is the
    recorded one."""

    root: str
    recipe: Json
    program: Json
    tokens: str
    tokenizer: str
    execution: Execution
    seat: Seat


class Job(msgspec.Struct, frozen=True):
    """Segments in a row, of which only the first has its state before it in the store: ``checkpoint`` is the artifact of
    that, None for the recipe's own initial state, whose recorded list of tensors is the blob ``initial``. ``ends``: what
    is recorded of the stored states after them; ``measured``: of what is measured of each train step. ``named``: the
    answer names the compiled program in any case; one is asked, for all workers have the same software."""

    segments: list[TrainSegment]
    checkpoint: str | None
    initial: str | None
    ends: list[CheckpointSaved]
    measured: dict[str, dict[int, str]] = {}
    named: bool = False

    @property
    def where(self) -> str:
        """The train steps, for people."""
        return f"train steps {self.segments[0].start} to {self.segments[-1].end - 1}"


class SegmentResult(msgspec.Struct, frozen=True):
    """How the replay of a job ended. ``replayed``: it was executed, else ``line`` says why not; ``program``: what was
    compiled, where the job asks or something is wrong; ``losses`` are the losses found, from the first segment on."""

    outcome: Outcome
    divergence: Divergence | None = None
    line: str = ""
    program: Json | None = None
    losses: list[float] = []
    replayed: bool = False


@dataclass(frozen=True)
class SegmentsReplay:
    """How the replay of the chosen segments ended. ``lines`` are those of the verdict, but for what was done;
    ``segments_replayed`` counts those that were executed to come to a chosen one too.
    ``losses``: train step -> loss found. ``executed``: the first thing that is wrong was found by executing a segment.
    ``programs``: what was compiled, by the workers that say so."""

    outcome: Outcome
    segments_replayed: int
    seconds: float
    divergence: Divergence | None
    lines: tuple[str, ...]
    losses: Mapping[int, float] = field(default_factory=dict)
    executed: bool = False
    programs: tuple[Json, ...] = ()


Done = Callable[[TrainSegment, Sequence[float]], None]
"""Called with each segment that held, and the losses that were found."""


def replay_segments(
    run: Run,
    root: str,
    positions: Sequence[int],
    tokens: Path,
    tokenizer: Path,
    execution: Execution,
    workers: int,
    report: Report,
    *,
    store: Store,
    measured: Measured,
    done: Done | None = None,
) -> SegmentsReplay:
    """Execute the segments at ``positions`` again, in this order; stops at the first difference that is met. Each of the
    workers is as many processes as ``execution`` says, which replay a segment together.

    A segment whose state before it is not in ``store``, or which the run lets go, is reached from the nearest one before
    that is: the segments between are executed and compared too.
    """
    began = time.monotonic()
    folders = str(tokens.resolve()), str(tokenizer.resolve())
    recorded = run.training[-1].body.program if run.training else {}

    def setup(seat: Seat) -> ReplaySetup:
        return ReplaySetup(root, run.started.body.recipe, recorded, *folders, execution, seat)

    stretches = _stretches(run, positions, store)
    jobs = [_job(run, stretch) for stretch in stretches]
    ends = [(job.segments[0].start, job.segments[-1].end) for job in jobs]
    jobs = [
        msgspec.structs.replace(job, measured=series_between(measured, *at)) for job, at in zip(jobs, ends, strict=True)
    ]
    jobs[0] = msgspec.structs.replace(jobs[0], named=True)
    answers: list[SegmentResult] = []
    own = msgspec.structs.replace(execution, devices=execution.local_devices, processes=1)
    each = reservation(PIPELINE.step("train"), run.recipe, own)
    variables = settings(run.recipe.arithmetic, execution) if execution.processes > 1 else {}
    if variables:  # processes with fewer devices than this one has: their contract is another
        variables[APPLIED] = variables["XLA_FLAGS"]
    crews = warm_workers(workers, each, runner=execution.runner, together=execution.processes, variables=variables)
    with WORKER.run(crews.run, setup, jobs) as results:
        for job, result in zip(jobs, results, strict=True):
            answers.append(result)
            reached = stretches[: len(answers)]
            report(sum(position in stretch for stretch in reached for position in positions), job.where)
            if result.outcome == "PASS" and done is not None:
                for segment in job.segments:
                    done(segment, _of(result.losses, job, segment))
            if result.outcome in ("FAIL", "UNSUPPORTED"):
                break
    worst: Outcome = next((outcome for outcome in _WORST_FIRST if any(a.outcome == outcome for a in answers)), "PASS")
    reasons = [
        line
        for answer in answers
        if answer.outcome == worst != "PASS"
        for line in (answer.divergence.lines() if answer.divergence else (answer.line,))
    ]
    return SegmentsReplay(
        outcome=worst,
        segments_replayed=sum(len(job.segments) for job, answer in zip(jobs, answers, strict=False) if answer.replayed),
        seconds=time.monotonic() - began,
        divergence=next((a.divergence for a in answers if a.divergence), None),
        lines=tuple(reasons),
        losses={
            job.segments[0].start + i: loss
            for job, answer in zip(jobs, answers, strict=False)
            for i, loss in enumerate(answer.losses)
        },
        executed=next((answer.replayed for answer in answers if answer.outcome == worst != "PASS"), False),
        programs=tuple(answer.program for answer in answers if answer.program is not None),
    )


_WORST_FIRST: tuple[Outcome, ...] = ("FAIL", "UNSUPPORTED", "UNAVAILABLE")


class SegmentWorker:
    """Replays one segment after the other. The training program is made at the first one, so that a machine that can
    not honour the contract is an answer and not a broken worker."""

    def __init__(self, setup: ReplaySetup) -> None:
        self._recipe = from_plain(setup.recipe, where="recipe of the run")
        self._execution = setup.execution
        apply(self._recipe.arithmetic, self._execution)  # before jax starts in this process
        from marin.training.runtime import hosts
        from marin.verify.jax.replay import SegmentReplay

        hosts.join(setup.seat.meeting, setup.seat.count, setup.seat.number)
        hosts.processes()  # all of them look for devices now: they wait two minutes for each other, and no longer
        self._leads = setup.seat.number == 0

        self._kind = SegmentReplay
        self._store = Store(open_storage(setup.root, readonly=True))
        self._setup = setup
        self._built: SegmentReplay | None = None

    def __call__(self, job: Job) -> SegmentResult:
        """How the replay of one job ended."""
        segment = job.segments[0]
        try:
            if segment.start > 0 and job.checkpoint is None:
                raise MissingEvidence(
                    "no training checkpoint is recorded",
                    where=f"before train step {segment.start}",
                    expected=segment.start_state,
                    found="nothing",
                    cure="verify with one worker: that needs no stored states",
                )
            replay = self._replay(job.named)
            initial = listed_tensors(self._store, job.initial)
            divergence, losses = replay.replay(job.segments, job.checkpoint, initial, job.ends, job.measured)
        except LedgerError as error:
            if not self._leads:  # the others wait for this process: anyone who sent the task has to hear of it
                raise
            return self._refused(job, error)
        program = replay.program if job.named or divergence is not None else None
        return SegmentResult(
            "PASS" if divergence is None else "FAIL", divergence, program=program, losses=list(losses), replayed=True
        )

    @staticmethod
    def _refused(job: Job, error: LedgerError) -> SegmentResult:
        segment = job.segments[0]
        if isinstance(error, Tampered):
            expected = error.expected or segment.start_state
            why = f"the stored state before it is not the recorded one ({error.what})"
            return SegmentResult("FAIL", Divergence(segment.start, (), expected, error.found, why))
        return SegmentResult(outcome_of(error), line=f"{job.where}: {error}")

    def _replay(self, named: bool) -> SegmentReplay:
        if self._built is None:
            self._built = self._kind(
                self._recipe,
                Path(self._setup.tokens),
                Path(self._setup.tokenizer),
                self._store,
                self._execution,
                program=self._setup.program,
                named=named,
            )
        return self._built


def _prepare(setup: ReplaySetup) -> None:
    """Import what a worker computes with; no device is looked for."""
    apply(from_plain(setup.recipe, where="recipe of the run").arithmetic, setup.execution)
    import marin.verify.jax.replay  # noqa: F401


WORKER = Worker(f"{__name__}:WORKER", ReplaySetup, Job, SegmentResult, SegmentWorker, _prepare)


def _stretches(run: Run, positions: Sequence[int], store: Store) -> list[range]:
    """Positions in a row, each from a state that is in the store to a chosen one: as many as there are such states before
    chosen ones, in the order in which they are asked for."""
    ends: dict[int, int] = {}
    saved, gone = {fact.body.state: fact.body.artifact for fact in run.checkpoints}, run.let_go

    def begins(position: int) -> bool:
        artifact = saved.get(run.segments[position].body.start_state)
        return position == 0 or (artifact is not None and artifact not in gone and _has(store, artifact))

    for position in positions:
        first = next(i for i in range(position, -1, -1) if begins(i))
        ends[first] = max(position, ends.get(first, 0))
    return [range(first, last + 1) for first, last in ends.items()]


def _has(store: Store, artifact: str) -> bool:
    """True also where the store does not answer: anyone who needs the bytes says why."""
    try:
        return store.has(artifact)
    except LedgerError:
        return True


def _of(losses: Sequence[float], job: Job, segment: TrainSegment) -> Sequence[float]:
    first = job.segments[0].start
    return losses[segment.start - first : segment.end - first]


def _job(run: Run, stretch: range) -> Job:
    saved = {fact.body.state: fact.body for fact in run.checkpoints}
    segments = [run.segments[position].body for position in stretch]
    ends = [saved[segment.end_state] for segment in segments if segment.end_state in saved]
    first, link = segments[0], run.started.body.continues
    if link is not None and first.start == link.step:
        return Job(segments, link.checkpoint, None, ends)
    if first.start == 0:
        lists = (fact.body.manifest for fact in run.training if fact.body.first_step == 0)
        return Job(segments, None, next(lists, None), ends)
    before = saved.get(first.start_state)
    return Job(segments, before.artifact if before is not None else None, None, ends)
