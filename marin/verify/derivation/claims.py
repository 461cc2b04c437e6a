"""What a run claims, and how each claim is established. Pure: the record in, claims out.

Every sentence that the record of a run amounts to is one :class:`Claim`, with the way in which it can be established:

* ``signature``: it is what entries of the log say, or follows from them by arithmetic;
* ``hash``: bytes that are hashed here are what it says;
* ``execution``: the installed code, executed here, gives it;
* ``claimed``: nothing here can establish it.

:func:`derive` knows nothing of any verdict; :func:`settled` says which claims the verdicts established. So the
verdicts are the summary of this list, and not the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ledger import LedgerError
from marin.data.exclusion import not_excluded_from
from marin.errors import UsageError
from marin.execution.plan import Plan
from marin.history.names import plan_of
from marin.history.run import Fact, StepView
from marin.process.text import several, written
from marin.recipe.evaluation import CorpusSet
from marin.recipe.schema import Initial, Tokenizer, artifacts
from marin.record import events as kinds
from marin.record.events import (
    DATA_STEPS,
    LOOP,
    MODEL_STEPS,
    CheckpointSaved,
    Continues,
    EvaluationMeasured,
    EvaluationRecorded,
    MetricsRecorded,
    StepFailed,
    StepPaused,
    StepPreempted,
    StepStarted,
    TrainStarted,
    TrainWithdrawn,
)
from marin.record.outputs import by_content
from marin.verify.derivation.record import VERDICTS, RunRecord, facts
from marin.verify.derivation.records import MEASURED, unexplained
from marin.verify.derivation.standing import unjudged

Basis = Literal["signature", "hash", "execution", "claimed"]
Status = Literal["established", "contradicted", "open", "claimed"]


@dataclass(frozen=True)
class Claim:
    """One sentence that the record amounts to.

    ``verdict``: which one looks at it; "" where none can. ``event``: where in the log it is said. ``steps``:
    the train steps it is about, if it is about some. ``status``: what came of it (``open``: it could be established and
    was not).
    """

    text: str
    basis: Basis
    verdict: str = ""
    event: int | None = None
    steps: tuple[int, int] | None = None
    status: Status = "open"

    def as_json(self) -> dict[str, Any]:
        """As ``marin verify --json`` prints it."""
        return {
            "claim": self.text,
            "by": self.basis,
            "verdict": self.verdict or None,
            "event": self.event,
            "status": self.status,
        }


def derive(record: RunRecord, plan: Plan, *, until: Continues | None = None) -> tuple[Claim, ...]:
    """All claims of a run, in the order in which they would be asked about. ``until``: of a run that a later phase
    continues, where it was left; what it says of the time after that is judged by nobody."""
    if record.run.is_loop:
        return (
            *_of_loop(record),
            *_of_bytes(record),
            *(Claim(str(item), "claimed", event=item.index) for item in unexplained(record, plan)),
            *_of_circumstances(record),
            *(Claim(str(item), "claimed", event=item.index) for item in unjudged(record)),
        )
    later = f"what it did from train step {until.step} on, and what came of that" if until is not None else ""
    return (
        *([Claim(later, "claimed")] if later else ()),
        *_of_the_log(record),
        *_of_bytes(record),
        *_of_data(record),
        *_of_artifacts(record),
        *_of_training(record),
        *_of_exclusion(record),
        *_of_the_model(record),
        *_of_evaluations(record),
        *_of_measured(record),
        *(Claim(str(item), "claimed", event=item.index) for item in unexplained(record, plan, until=until)),
        *_of_circumstances(record),
        *(Claim(str(item), "claimed", event=item.index) for item in unjudged(record)),
    )


def settled(
    claims: Sequence[Claim], verdicts: Mapping[str, str], replayed: Collection[tuple[int, int]] = ()
) -> tuple[Claim, ...]:
    """The claims with what came of them.

    Args:
        verdicts: outcomes by name.
        replayed: the stretches of train steps that were executed here, or taken from one's own earlier verification.
    """
    return tuple(replace(claim, status=_status(claim, verdicts, replayed)) for claim in claims)


HEADINGS: Mapping[tuple[Status, Basis], str] = {
    ("contradicted", "signature"): "contradicted by the record",
    ("contradicted", "hash"): "contradicted by the bytes",
    ("contradicted", "execution"): "not what was found by execution, or after it",
    ("established", "signature"): "established by signature",
    ("established", "hash"): "established by hash",
    ("established", "execution"): "established by execution",
    ("open", "signature"): "not established: signatures were not checked, or not all",
    ("open", "hash"): "not established: bytes were not hashed",
    ("open", "execution"): "not established: nothing was executed for it",
    ("claimed", "claimed"): "claimed by this log, and established by nobody here",
}
"""What stands over claims of one status, in the order in which a reader wants them."""


def grouped(claims: Sequence[Claim]) -> list[tuple[str, list[str]]]:
    """The claims under headings, those that may be believed apart from the others; neighbouring segments in one line."""
    groups = []
    for (status, basis), heading in HEADINGS.items():
        chosen = [claim for claim in claims if (claim.status, claim.basis) == (status, basis)]
        if chosen:
            groups.append((heading, list(_merged(chosen))))
    return groups


def counted(claims: Sequence[Claim]) -> list[tuple[str, str]]:
    """How many claims are open, under the heading of each way in which they could be established, by the verdict that would
    look at them: what nobody asked for is many sentences, and says little."""
    told = []
    for (status, basis), heading in HEADINGS.items():
        names = [
            claim.verdict for claim in claims if status == "open" and (claim.status, claim.basis) == (status, basis)
        ]
        if names:
            told.append((heading, ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))))
    return told


def _merged(claims: Sequence[Claim]) -> Iterator[str]:
    stretch: list[Claim] = []
    for claim in [*claims, None]:
        if claim is not None and claim.steps and (not stretch or _ends(stretch) == claim.steps[0]):
            stretch.append(claim)
            continue
        if len(stretch) > 1:
            first = stretch[0].steps[0] if stretch[0].steps else 0
            yield f"train steps {first} to {_ends(stretch) - 1}, in {len(stretch)} segments: tokens, losses and states"
        elif stretch:
            yield stretch[0].text
        stretch = [claim] if claim is not None and claim.steps else []
        if claim is not None and not claim.steps:
            yield claim.text


def _ends(stretch: Sequence[Claim]) -> int:
    return stretch[-1].steps[1] if stretch[-1].steps else 0


def _status(claim: Claim, verdicts: Mapping[str, str], replayed: Collection[tuple[int, int]]) -> Status:
    if claim.basis == "claimed":
        return "claimed"
    outcome = verdicts.get(claim.verdict, "NOT_RUN")
    if outcome == "PASS":
        return "established"
    if outcome == "PARTIAL" and claim.steps is not None and claim.steps in replayed:
        return "established"
    return "contradicted" if outcome == "FAIL" else "open"


def _of_the_log(record: RunRecord) -> Iterator[Claim]:
    run, started = record.run, record.run.started
    count = sum(len(stretch.events) for stretch in record.stretches)
    yield Claim(f"{count} events say what run {run.run} is, and agree with one another", "signature", "ledger")
    yield Claim(f"its recipe is {started.body.recipe_digest}", "signature", "ledger", started.index)
    for name, view in run.steps.items():
        where = f", taken over from run {view.origin}" if view.cached and view.origin != run.run else ""
        yield Claim(
            f"step {name} has the identity {view.identity}, which its configuration, its inputs and the code and lock that it "
            f"names give{where}",
            "signature",
            "ledger",
            view.index,
        )
    if started.body.experiment:
        yield Claim(f"it was registered before, as {started.body.experiment}", "signature", "ledger", started.index)
    if started.body.continues is not None:
        link = started.body.continues
        yield Claim(
            f"it continues run {link.run} from the state {link.state} before train step {link.step}",
            "signature",
            "training",
            started.index,
        )
    if run.completed is not None:
        yield Claim("it is complete: every step of its plan has its output", "signature", "ledger", run.completed.index)


def _of_bytes(record: RunRecord) -> Iterator[Claim]:
    for name, view in record.run.steps.items():
        yield Claim(
            f"the stored bytes of {name} are {view.output.digest} ({view.output.kind}, {view.output.size} bytes)",
            "hash",
            "artifacts",
            view.index,
        )
    gone = record.run.let_go
    if saved := [fact for fact in record.run.checkpoints if fact.body.artifact not in gone]:
        yield Claim(f"{len(saved)} training checkpoints hold the recorded states", "hash", "artifacts", saved[0].index)
    if left := [fact for fact in record.run.checkpoints if fact.body.artifact in gone]:
        lists = f"each list of tensors of the {several(len(left), 'training checkpoints')} that the run lets go is its state's"
        yield Claim(lists, "hash", "artifacts", left[0].index)
        yield Claim(f"these were stored as {_stored(left)}", "claimed", event=left[0].index)


def _stored(left: Sequence[Fact[CheckpointSaved]]) -> str:
    """Artifact and size of the first few, and how many there are more."""
    told = [f"step {one.body.step}: {one.body.artifact}, {one.body.size} bytes" for one in left[:4]]
    return "; ".join([*told, *([f"and {len(left) - len(told)} more"] if len(left) > len(told) else [])])


def _of_data(record: RunRecord) -> Iterator[Claim]:
    kept, taken = initial_of(record) is not None, _tokenizer_of(record)
    sources = {
        "corpus": "the raw data",
        "tokenizer": "the model that it begins with" if kept else "that corpus" if taken is None else taken.artifact,
        "tokens": "that corpus and tokenizer",
    }
    for name in DATA_STEPS:
        if (view := record.run.steps.get(name)) is not None:
            yield Claim(
                f"{name} {view.output.digest}{_metrics(view)} follows from {sources[name]}",
                "execution",
                "data",
                view.index,
            )
    if taken is not None:
        yield Claim(
            f"the tokenizer was taken from {taken.taken_from or 'elsewhere'}, and how it was made is not recorded here",
            "claimed",
        )


def _tokenizer_of(record: RunRecord) -> Tokenizer | None:
    """A tokenizer that was made elsewhere."""
    try:
        found = record.run.recipe.tokenizer
    except UsageError:
        return None  # of another version; the verdicts that need it say so
    return None if found.artifact is None else found


def initial_of(record: RunRecord) -> Initial | None:
    """The model that a run's training begins with, where it was made elsewhere."""
    try:
        return record.run.recipe.initial
    except UsageError:
        return None  # of another version; the verdicts that need it say so


def _of_artifacts(record: RunRecord) -> Iterator[Claim]:
    try:
        taken = artifacts(record.run.recipe)
    except UsageError:
        return  # of another version; the verdicts that need it say so
    if (initial := initial_of(record)) is not None:
        yield Claim(
            f"training begins with the model {initial.model} and the tokenizer {initial.tokenizer}",
            "execution",
            "training",
        )
        yield Claim(f"they were taken from {initial.name}, and how they were made is not recorded here", "claimed")
    for artifact in taken.values():
        if artifact.maker is None:
            yield Claim(f"{artifact.address} {artifact.digest} is what was adopted for it", "claimed")
        else:
            yield Claim(f"{artifact.address} {artifact.digest} was made by {artifact.maker}", "execution", "data")


def _of_training(record: RunRecord) -> Iterator[Claim]:
    for fact in record.run.segments:
        body = fact.body
        losses = f"{_number(body.losses[0])} to {_number(body.losses[-1])}" if body.losses else "none"
        yield Claim(
            f"train steps {body.start} to {body.end - 1} have these tokens, losses ({losses}) and states, and end in "
            f"{body.end_state}",
            "execution",
            "training",
            fact.index,
            (body.start, body.end),
        )


def _of_exclusion(record: RunRecord) -> Iterator[Claim]:
    """Of a run whose recipe excludes documents, and of one that was forked to unlearn them."""
    try:
        exclude, rest = record.run.recipe.exclude or (), not_excluded_from(record.run.recipe)
    except UsageError:
        return
    if exclude:
        made = "its tokenizer was trained without them"
        if rest:
            made = f"whether they were read by {' and '.join(rest)} is not said"
        yield Claim(
            f"{len(exclude)} documents are blank in its tokens, and {made}: "
            f"{', '.join(exclude[:4])}{' ...' if len(exclude) > 4 else ''}",
            "execution",
            "data",
            record.run.started.index,
        )
    for index, fork in record.forks.items():
        body, request = fork.fact.body, fork.request
        kept = f"its train steps before {body.step} are those of run {body.from_run}"
        begun = (
            kept if body.same_tokenizer else f"without them the tokenizer is another than that of run {body.from_run}"
        )
        yield Claim(f"{begun}, and its recipe is that run's but for what it excludes", "signature", "ledger", index)
        if request is not None:
            asked = f"asked for by event {request.index}, before the work, for {len(request.body.documents)} documents"
            yield Claim(asked, "signature", "ledger", request.index)
            yield Claim(f"for this reason: {request.body.reason or 'none given'}", "claimed", event=request.index)
            if body.same_tokenizer:
                first = f"the first train step of run {body.from_run} that read one of them is {request.body.first_use}"
                yield Claim(first, "execution", "data", request.index)
    if exclude:
        yield Claim("no other copy of the model is left, and no near copy of their text was read", "claimed")


def _of_loop(record: RunRecord) -> Iterator[Claim]:
    """Of a run that its user's own loop recorded."""
    run, started = record.run, record.run.started
    yield Claim(f"{len(record.own.events)} events say what run {run.run} is, and agree", "signature", "ledger")
    if run.completed is not None:
        yield Claim("its loop says that it is complete", "signature", "ledger", run.completed.index)
    yield Claim(f"what decides its bits is {started.body.recipe_digest}", "claimed", event=started.index)
    losses, states = run.losses, [fact.body.state for fact in run.loop if fact.body.state]
    if losses:
        first, last = min(losses), max(losses)
        ends = f", and pass through {len(states)} recorded states, the last {states[-1]}" if states else ""
        yield Claim(
            f"train steps {first} to {last} have these losses ({losses[first]:.4f} to {losses[last]:.4f}){ends}",
            "execution",
            "training",
            run.loop[0].index,
        )
    unsaid = [step for fact in run.loop for step, batch in enumerate(fact.body.batches, fact.body.start) if not batch]
    if unsaid:
        yield Claim(f"of {several(len(unsaid), 'train steps')} it does not say what they saw", "claimed")
    for name, view in run.steps.items():
        if name != LOOP:
            yield Claim(f"output {name} is {view.output.digest}", "execution", "model", view.index)
    measured = {series.key: fact.index for fact in facts(record.own, MetricsRecorded) for series in fact.body.series}
    if measured:
        names = ", ".join(sorted(measured))
        yield Claim(f"its loop measured {names}: compared with nothing", "claimed", event=max(measured.values()))


def _of_the_model(record: RunRecord) -> Iterator[Claim]:
    for name in MODEL_STEPS:
        if (view := record.run.steps.get(name)) is not None:
            what = "measured on the last state" if name == "evaluate" else "the last state in a public format"
            yield Claim(f"{name} {view.output.digest}{_metrics(view)} is {what}", "execution", "model", view.index)


def _of_evaluations(record: RunRecord) -> Iterator[Claim]:
    for fact in record.evaluations:
        body = fact.body
        for task, results in body.results.items():
            told = ", ".join(
                f"{name.partition(',')[0]}={_decimal(value)}" for name, value in sorted(results.items()) if "," in name
            )
            yield Claim(
                f"{task} on the state before train step {body.step} ({told}) follows from that state, the task "
                f"{body.tasks[task].config if task in body.tasks else 'that is not named'} and its data, by "
                f"{_asker(body.harness)}{_asked(body, task)}",
                "execution",
                "evaluation",
                fact.index,
            )
        yield _by_code(fact)


def _by_code(fact: Fact[EvaluationRecorded] | Fact[EvaluationMeasured]) -> Claim:
    """Equal numbers are proof enough, whatever computed them: what did, is its word."""
    code = f"event {fact.index} was measured by code {fact.body.code} under lock {fact.body.lock or 'unknown'}"
    return Claim(code, "claimed", event=fact.index)


def _asker(harness: str) -> str:
    """Who asked: lm-evaluation-harness is recorded by its version alone, others by name and version."""
    return f"lm-evaluation-harness {harness}" if harness[:1].isdecimal() else harness


def _asked(body: EvaluationRecorded, task: str) -> str:
    """Of how many documents, with how many examples, and whether as a chat: numbers of other settings are other numbers."""
    limit, examples = body.settings.get("limit"), body.settings.get("num_fewshot")
    told = []
    if isinstance(limit, int):
        count = f"{body.tasks[task].documents} documents" if task in body.tasks else f"{limit} documents of each task"
        told.append(f"asked of the first {count}")
    elif task in body.tasks:
        told.append(f"asked of {body.tasks[task].documents} documents")
    told += [f"with {examples} examples"] if isinstance(examples, int) else []
    told += ["as messages of a chat"] if body.settings.get("chat") is True else []
    told += ["each example a turn"] if body.settings.get("multiturn") is True and examples != 0 else []
    told += ["after a system instruction"] if body.settings.get("system_instruction") else []
    return "".join(f", {part}" for part in told)


def _of_measured(record: RunRecord) -> Iterator[Claim]:
    for fact in record.measured:
        for name, one in fact.body.sets.items():
            told = ", ".join(f"{key}={_decimal(value)}" for key, value in sorted(one.numbers.items()))
            yield Claim(
                f"{name} on the state before train step {fact.body.step} ({told}) follows from that state and the text "
                f"{one.data}",
                "execution",
                "evaluation",
                fact.index,
            )
        yield _by_code(fact)
    try:
        asked = record.run.recipe.evaluation.sets or {}
    except UsageError:
        return  # of another version; the verdicts that need it say so
    files = [name for name, one in asked.items() if not isinstance(one, CorpusSet)]
    if files and record.measured:
        yield Claim(f"the text of {', '.join(files)} is what the files had that the recipe names", "claimed")


def _decimal(text: str) -> str:
    return f"{float.fromhex(text):.6g}"


def _of_circumstances(record: RunRecord) -> Iterator[Claim]:
    """What no replay can establish (docs/threat-model.md)."""
    run, started = record.run, record.run.started
    code, environment = started.body.code, started.body.environment
    changed = ", with changes" if code.get("dirty") else ""
    yield Claim(f"a run of the plan that is called {plan_of(started.body.pipeline)}", "claimed", event=started.index)
    yield Claim(f"made by commit {code.get('commit') or 'unknown'}{changed}", "claimed", event=started.index)
    yield Claim(f"on {_machine(environment)}", "claimed", event=started.index)
    times = [event.time for _, event in record.own.events if event.type not in VERDICTS]
    actors = sorted({event.actor for stretch in record.stretches for _, event in stretch.events})
    yield Claim(f"from {min(times)} to {max(times)}, by {', '.join(actors)}", "claimed")
    if seconds := {name: view.seconds for name, view in run.steps.items()}:
        spent = ", ".join(f"{name} {value} s" for name, value in seconds.items())
        yield Claim(f"in {spent}", "claimed")
    for stretch in record.stretches:
        for begun in facts(stretch, TrainStarted):
            kind = begun.body.device.get("kind", "cpu")
            yield Claim(
                f"trained from step {begun.body.first_step} on {begun.body.devices} device(s)"
                f"{'' if kind == 'cpu' else f' of the kind {kind}'} in "
                f"{begun.body.processes} process(es), attempt {begun.body.attempt}",
                "claimed",
                event=begun.index,
            )
        for step in facts(stretch, StepStarted):
            named = f", as {step.body.address}" if step.body.address else ""
            lock = step.body.lock or stretch.started.body.environment.get("lock") or "unknown"
            yield Claim(
                f"step {step.body.step}, attempt {step.body.attempt}, by code {step.body.code} under lock {lock}{named}",
                "claimed",
                event=step.index,
            )
        for paused in facts(stretch, StepPaused):
            yield Claim(f"step {paused.body.step} paused: {paused.body.where}", "claimed", event=paused.index)
        for failed in facts(stretch, StepFailed):
            yield Claim(f"step {failed.body.step} failed: {failed.body.error}", "claimed", event=failed.index)
        for lost in facts(stretch, StepPreempted):
            yield Claim(f"step {lost.body.step} was preempted: {lost.body.reason}", "claimed", event=lost.index)
        for back in facts(stretch, TrainWithdrawn):
            asked = record.requests.get(back.body.request)
            why = f", for a follower said: {asked.body.found}" if asked is not None else ""
            yield Claim(
                f"the training went back to the state before train step {back.body.step}{why}",
                "claimed",
                event=back.index,
            )
        measured = {
            series.key
            for fact in facts(stretch, MetricsRecorded)
            for series in fact.body.series
            if series.key.startswith(MEASURED)
        }
        if measured:
            yield Claim(f"measured meanwhile: {', '.join(sorted(measured))}", "claimed")
    if stored := [name for name, view in run.steps.items() if by_content(view.output)]:
        yield Claim(
            f"the files in which {', '.join(stored)} and training checkpoints are stored hold nothing beside their tensors "
            "but what their writers left",
            "claimed",
        )
    others = [item for item in record.own.events if item[1].type == kinds.REPLAY_COMPLETED]
    if others:
        often = "once" if len(others) == 1 else f"{len(others)} times"
        yield Claim(f"verified {often}, says this log", "claimed", event=others[-1][0])


def _metrics(view: StepView) -> str:
    told = ", ".join(f"{name}={written(value)}" for name, value in view.metrics.items())
    return f" ({told})" if told else ""


def _number(text: str) -> str:
    try:
        return f"{float.fromhex(text):.4f}"
    except (ValueError, OverflowError, LedgerError):
        return text


def _machine(environment: Mapping[str, Any]) -> str:
    processor, system = environment.get("processor"), environment.get("system")
    model = processor.get("model") if isinstance(processor, Mapping) else None
    name = system.get("name") if isinstance(system, Mapping) else None
    return f"{model or 'an unknown processor'}, {name or 'an unknown system'}"
