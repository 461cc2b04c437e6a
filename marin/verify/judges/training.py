"""The verdict ``training``: train steps executed again, and compared in tokens, losses and states.

With one worker and no selection all of them, in order, from the recipe's own initial state; otherwise the chosen
segments, each from its recorded start state (docs/verify.md has the argument why all of them together say the same).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from ledger import LedgerError, StateManifest, digest_bytes
from marin.execution.continued import checkout
from marin.process.arithmetic import apply
from marin.process.progress import bar
from marin.process.text import several
from marin.process.waiting import waiting
from marin.provenance.plugins import load_plugin
from marin.recipe.model import WORDS
from marin.recipe.objective import between_updates
from marin.recipe.schema import Recipe
from marin.record.events import TrainSegment
from marin.record.outputs import listed_tensors
from marin.verify.case import Case
from marin.verify.derivation.series import recorded_series
from marin.verify.earlier import Proofs
from marin.verify.judges.workers import SegmentsReplay, replay_segments
from marin.verify.segments import compare, programs
from marin.verify.segments.compare import Divergence
from marin.verify.segments.ordering import by_execution
from marin.verify.segments.sampling import Selection, describe_bound
from marin.verify.verdict import NOT_RUN, Outcome, TrainingSummary, Verdict, explained

if TYPE_CHECKING:
    from marin.verify.segments.screening import Screening

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingReplay:
    """What came of it. ``replayed``: stretches of train steps that hold. ``losses``: train step -> loss found. ``otherwise``:
    how the program that was executed differs from the one that the run says it was made by."""

    verdict: Verdict
    summary: TrainingSummary
    divergence: Divergence | None = None
    losses: Mapping[int, float] = field(default_factory=dict)
    replayed: tuple[tuple[int, int], ...] = ()
    otherwise: tuple[str, ...] = ()


def not_trained(case: Case, verdict: Verdict = NOT_RUN) -> TrainingReplay:
    """Where nothing was executed."""
    return TrainingReplay(verdict, TrainingSummary("none", len(case.run.segments), 0, case.workers, 0.0))


def judge_training(
    case: Case, chosen: Selection, proofs: Proofs, screening: Screening | None, drawn_by: str
) -> TrainingReplay:
    """Judge the segments of ``chosen``; the chain of all is checked in any case.

    Args:
        proofs: what this reproducer has executed before.
        drawn_by: root hash of the log, which drew the sample.
    """
    segments = [fact.body for fact in case.run.segments]
    nothing = TrainingSummary(chosen.mode, len(segments), 0, case.workers, 0.0)
    if (broken := broken_record(case, segments)) is not None:
        return TrainingReplay(Verdict("FAIL", broken.lines()), nothing, broken)
    if not chosen.positions:
        return TrainingReplay(
            Verdict("NOT_RUN", ("no segment of the run is among those that were asked for",)), nothing
        )
    apply(case.run.recipe.arithmetic, case.execution)
    taken = {i: index for i in chosen.positions if (index := proofs.of(segments[i])) is not None}
    shared = case.workers > 1 or case.processes > 1
    if shared or chosen.mode != "full" or taken:
        trained = _by_segments(case, chosen, proofs, taken, screening, drawn_by)
        if shared or chosen.mode != "full" or trained.verdict.outcome != "UNAVAILABLE":
            return _with_cut(case, segments, trained)
        logger.info("a stored state is not there: everything is executed from the beginning")
    return _with_cut(case, segments, _in_order(case, segments, proofs))


def _with_cut(case: Case, segments: Sequence[TrainSegment], trained: TrainingReplay) -> TrainingReplay:
    """UNAVAILABLE where the recipe wants a state recorded that no segment ends in: train steps that are executed in larger
    pieces than the recipe cuts them into are right, and show less of the run than it promised."""
    if trained.verdict.outcome not in ("PASS", "PARTIAL"):
        return trained
    recipe, last = case.run.recipe, segments[-1].end
    length = recipe.trainer.steps_per_segment
    wanted = set(range(recipe.first_step + length, last, length))
    if recipe.trainer.states_at_words is not None:
        states_at = load_plugin(*WORDS, "trainer.states_at_words").states_at
        inputs = case.inputs(("tokens", "tokenizer"))
        wanted |= {step for step in states_at(recipe, inputs["tokenizer"], inputs["tokens"] / "train") if step < last}
    if lacking := sorted(wanted - {segment.end for segment in segments}):
        steps = ", ".join(map(str, lacking[:8]))
        line = f"the recipe wants a state recorded before train step {steps}, and no segment ends in it"
        return replace(trained, verdict=Verdict("UNAVAILABLE", (line, *trained.verdict.lines), executed=True))
    return trained


def broken_record(case: Case, segments: Sequence[TrainSegment]) -> Divergence | None:
    """What is wrong with the records of training, before anything is executed: a phase without its link, or the first
    break in the chain of segments; between two stored states, with the tensors that differ."""
    recipe, until = case.run.recipe, case.until
    if (recipe.phase is None) != (case.run.started.body.continues is None):
        wanted = "the recipe's phase and the link to the run before it"
        found = "no run that it continues" if recipe.phase is not None else "a run that it continues, and no phase"
        return Divergence(recipe.first_step, (), wanted, found, "the link is broken")
    if within := [segment.end for segment in segments if not between_updates(recipe, segment.end)]:
        one = f"one before train step {within[0]}"
        return Divergence(within[0], (), "states between updates", one, "a segment ends in an update")
    if recipe.trainer.most_epochs is not None and (longer := too_long(recipe, tokens_trained(case))) is not None:
        return longer
    last, final = (until.step, until.state) if until else (recipe.last_step, case.run.output("train").digest)
    begins = recipe.phase.state if recipe.phase is not None else None
    broken = compare.chain(segments, last, final, first=recipe.first_step, first_state=begins)
    if broken is None:
        return None
    states = [_state(case, digest) for digest in (broken.expected, broken.found)]
    if states[0] is None or states[1] is None:
        return broken
    return replace(broken, tensors=by_execution(states[0].differing(states[1])))


def too_long(recipe: Recipe, tokens: int) -> Divergence | None:
    """Whether the recipe has more train steps than its own limit of epochs allows. ``tokens``: of the train split."""
    most = recipe.most_steps(tokens)
    if most is None or recipe.trainer.num_steps <= most:
        return None
    allowed = f"{most} train steps at most, {recipe.trainer.most_epochs} epochs of {tokens} tokens"
    if (phase := recipe.phase) is not None and phase.uncounted:
        allowed = (
            f"none: epochs are counted, and phases before it read {phase.uncounted} sequences that it does not count"
        )
    steps = f"{recipe.trainer.num_steps}"
    return Divergence(recipe.first_step, (), allowed, steps, "more epochs than the recipe allows")


def tokens_trained(case: Case) -> int:
    """As recorded, which the verdict ``data`` counts again; where the run says nothing of them (they were adopted, or taken over
    from what is not here), as they lie in the store."""
    recorded = case.run.metrics.get("tokens.train_tokens")
    if recorded is not None:
        return int(recorded)
    from marin.tensors.token_caches import document_offsets  # TensorStore, where it is needed

    return int(document_offsets(case.inputs(("tokens",))["tokens"] / "train")[-1])


def _in_order(case: Case, segments: Sequence[TrainSegment], proofs: Proofs) -> TrainingReplay:
    with waiting("importing jax and Levanter"):
        from marin.verify.jax.replay import replay  # jax, after the contract is in force

    recipe, run = case.run.recipe, case.run
    recorded = run.training[-1].body.program if run.training else {}
    with bar("training", recipe.trainer.num_steps) as progress:
        inputs = case.inputs(("tokens", "tokenizer"))
        link, initial = run.started.body.continues, recipe.initial
        before = link.checkpoint if link is not None else None if initial is None else initial.model
        lists = [started.body.manifest for started in run.training if started.body.first_step == 0]
        previous = checkout(case.store, before, case.workshop / "previous") if before is not None else None
        result = replay(
            recipe,
            inputs["tokens"],
            inputs["tokenizer"],
            segments,
            _tensors(case, lists),
            case.store,
            case.execution,
            progress,
            previous,
            program=recorded,
            saved={fact.body.state: fact.body for fact in run.checkpoints},
            measured=recorded_series(case.record),
            done=proofs.keep,
        )
    summary = TrainingSummary("full", len(segments), result.segments_replayed, 1, result.seconds)
    compared = ProgramComparison(case, recorded, (result.program,))
    held = tuple((segment.start, segment.end) for segment in segments[: result.segments_replayed])
    if result.divergence is not None:
        verdict = compared.failed(result.divergence)
        return TrainingReplay(verdict, summary, result.divergence, result.losses, held[:-1])
    steps = sum(segment.end - segment.start for segment in segments)
    again = f"{several(steps, 'train steps')} in {several(len(segments), 'segments')} executed again"
    done = f"{again} on {case.execution.devices} device(s), same bits"
    otherwise = compared.lines()
    return TrainingReplay(Verdict("PASS", (done, *otherwise)), summary, None, result.losses, held, otherwise)


def _by_segments(
    case: Case, chosen: Selection, proofs: Proofs, taken: Mapping[int, int], screening: Screening | None, drawn_by: str
) -> TrainingReplay:
    """The chosen segments, each on its own, suspicious ones first."""
    segments = [fact.body for fact in case.run.segments]
    suspicious = screening.suspicious if screening is not None else ()
    extra = [i for i in suspicious[: len(chosen.positions)] if i not in chosen.positions]
    wanted = {*chosen.positions, *extra}
    order = list(dict.fromkeys(i for i in (*suspicious, *chosen.positions) if i in wanted and i not in taken))
    result = SegmentsReplay("PASS", 0, 0.0, None, ())
    if order:
        with bar("training", len(order)) as progress:
            inputs = case.inputs(("tokens", "tokenizer"))
            result = replay_segments(
                case.run,
                case.root.absolute,
                order,
                inputs["tokens"],
                inputs["tokenizer"],
                msgspec.structs.replace(case.execution, processes=case.processes),
                case.workers,
                progress,
                store=case.store,
                measured=recorded_series(case.record),
                done=proofs.keep,
            )
    summary = TrainingSummary(
        chosen.mode, len(segments), result.segments_replayed, case.workers, result.seconds, len(taken)
    )
    compared = ProgramComparison(case, case.run.training[-1].body.program if case.run.training else {}, result.programs)
    if result.outcome != "PASS":
        verdict = Verdict(result.outcome, (*result.lines, *compared.lines()), executed=result.executed)
        if result.outcome == "FAIL" and result.executed and result.divergence is not None:
            verdict = compared.failed(result.divergence)
        return TrainingReplay(verdict, summary, result.divergence, result.losses)
    lines = training_lines(case, chosen, order, extra, taken, drawn_by)
    if (more := result.segments_replayed - len(order)) > 0:
        lines.append(f"{more} more segments executed on the way to them: the states before them are not kept")
    outcome: Outcome = "PASS" if chosen.mode == "full" else "PARTIAL"
    held = tuple((segments[i].start, segments[i].end) for i in sorted({*order, *taken}))
    otherwise = compared.lines()
    return TrainingReplay(
        Verdict(outcome, (*lines, *result.lines, *otherwise)), summary, None, result.losses, held, otherwise
    )


@dataclass(frozen=True)
class ProgramComparison:
    """The programs that were executed here, ``present``, against the one that the run recorded."""

    case: Case
    recorded: Mapping[str, object]
    present: tuple[Mapping[str, object], ...]

    def lines(self) -> tuple[str, ...]:
        """What differs, for people."""
        told = (line for one in self.present for line in programs.lines(self.recorded, one, self._first))
        return tuple(dict.fromkeys(told))

    def failed(self, divergence: Divergence) -> Verdict:
        """FAIL by what was executed, and whether the recorded programs define what came out."""
        masked = any((self.case.inputs(("tokens",))["tokens"] / "train").rglob("loss_mask"))
        recipe = self.case.run.recipe
        defined = bool(self.present) and all(
            programs.defined(divergence, self.recorded, one, recipe, masked=masked) for one in self.present
        )
        told = explained(self.lines, ())
        return Verdict("FAIL", (*divergence.lines(), *told), executed=True, defined=defined)

    def _first(self, names: Sequence[str]) -> Mapping[str, str]:
        """Where each of these programs differs first from the recorded one, whose plain form a published root has."""
        digests, found = programs.digests(self.recorded), {}
        for name in names:
            file = f"programs/{digests[name].removeprefix('sha256:')}.json"
            with suppress(LedgerError):
                data = self.case.root.storage.read(file)
                if digest_bytes(data) == digests[name]:
                    found[name] = data
        if not found:
            return {}
        from marin.training.model import vocabulary_size  # jax, in a process that computes under the contract
        from marin.training.runtime.profile import exact_profile

        vocabulary = vocabulary_size(self.case.inputs(("tokenizer",))["tokenizer"], self.case.run.recipe.model)
        return exact_profile().differences(self.case.run.recipe, vocabulary, found)


def training_lines(
    case: Case, chosen: Selection, order: Sequence[int], extra: Sequence[int], taken: Mapping[int, int], drawn_by: str
) -> list[str]:
    """What a PASS of ``training`` says: how much was executed, and how it was chosen."""
    segments = [fact.body for fact in case.run.segments]
    steps = sum(segments[i].end - segments[i].start for i in order)
    together = f" in {case.processes} processes" if case.processes > 1 else ""
    learned = case.run.recipe.objective
    updates = f" ({several(steps // learned.num_iterations, 'updates')})" if learned is not None else ""
    lines = []
    if order or not taken:
        lines.append(
            f"{steps} train steps{updates} in {len(order)} of {len(segments)} segments executed again by {case.workers} "
            f"worker(s) on {case.execution.devices} device(s) each{together}, same bits; all segments form one chain"
        )
    if taken:
        before = sum(segments[i].end - segments[i].start for i in taken)
        lines.append(
            f"{before} train steps in {len(taken)} of {len(segments)} segments executed again earlier, same bits: this "
            f"reproducer's own events {min(taken.values())} to {max(taken.values())}; --fresh executes them now"
        )
    if extra:
        lines.append(f"{len(extra)} of them because screening found them suspicious")
    if chosen.mode == "sampled":
        bound = describe_bound(len(chosen.positions))
        lines.append(
            f"{several(len(chosen.positions), 'segments')} drawn from {chosen.among} by the log's root {drawn_by}: {bound}"
        )
    return lines


def _state(case: Case, digest: str) -> StateManifest | None:
    """The recorded list of tensors of a state, if it is there and is what the digest says."""
    return _tensors(case, [fact.body.manifest for fact in case.run.checkpoints if fact.body.state == digest], digest)


def _tensors(case: Case, lists: Sequence[str], state: str = "") -> StateManifest | None:
    found = (listed_tensors(case.store, listed, state) for listed in lists)
    return next(filter(None, found), None)
