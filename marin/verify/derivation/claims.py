"""What a run claims, and how each claim is established. Pure: the record in, claims out.

Every sentence that the record of a run amounts to is one :class:`Claim`, with the way in which it can be established:

* ``signature``: it is what entries of the log say, or follows from them by arithmetic;
* ``hash``: bytes that are hashed here are what it says;
* ``execution``: the installed code, executed here, gives it;
* ``claimed``: nothing here can establish it.

:func:`derive` knows nothing of any verdict; :func:`settle_claims` says which claims the verdicts established. So the
verdicts are the summary of this list, and not the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger import LedgerError
from marin.data.exclusion import not_excluded_from
from marin.execution.plan import Plan
from marin.history.run import Fact, StepView, plan_of
from marin.kinds.claim import Basis, Claim, Status
from marin.kinds.known import among, kind_of_body
from marin.process.text import number_text, several
from marin.recipe.evaluation import CorpusSet
from marin.recipe.schema import artifacts
from marin.record import events
from marin.record.outputs import by_content
from marin.verify.derivation.attempts import unjudged_events
from marin.verify.derivation.record import RunRecord, facts, is_verdict
from marin.verify.derivation.records import unexplained
from marin.verify.derivation.series import recorded_series


def derive(
    record: RunRecord, plan: Plan, *, until: events.Continues | None = None, otherwise: Sequence[str] = ()
) -> tuple[Claim, ...]:
    """All claims of a run, in the order in which they would be asked about. ``until``: of a run that a later phase
    continues, where it was left; what it says of the time after that is judged by nobody. ``otherwise``: in what the program
    that was executed here is not the one that the run records."""
    if record.run.is_loop:
        return (
            *_of_loop(record),
            *_of_bytes(record),
            *(Claim(str(item), "claimed", event=item.index) for item in unexplained(record, plan)),
            *_of_circumstances(record),
            *(Claim(str(item), "claimed", event=item.index) for item in unjudged_events(record)),
        )
    later = f"what it did from train step {until.step} on, and what came of that" if until is not None else ""
    return (
        *([Claim(later, "claimed")] if later else ()),
        *_of_the_log(record),
        *_of_bytes(record),
        *_of_data(record),
        *_of_artifacts(record),
        *_of_training(record),
        *(Claim(f"it was computed by the program that it records: {line}", "claimed") for line in otherwise[:8]),
        *_of_exclusion(record),
        *_of_the_model(record),
        *_of_evaluations(record),
        *(Claim(str(item), "claimed", event=item.index) for item in unexplained(record, plan, until=until)),
        *_of_circumstances(record),
        *(Claim(str(item), "claimed", event=item.index) for item in unjudged_events(record)),
    )


def settle_claims(
    claims: Sequence[Claim], verdicts: Mapping[str, str], replayed: Collection[tuple[int, int]] = ()
) -> tuple[Claim, ...]:
    """The claims with what came of them.

    Args:
        verdicts: outcomes by name.
        replayed: the stretches of train steps that were executed here, or taken from one's own earlier verification.
    """
    return tuple(replace(claim, status=_status(claim, verdicts, replayed)) for claim in claims)


HEADINGS: Mapping[tuple[Status, Basis], str] = {
    ("contradicted", "signature"): "not established: the record contradicts some of these",
    ("contradicted", "hash"): "not established: the bytes contradict some of these",
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


def group_claims(claims: Sequence[Claim]) -> list[tuple[str, list[str]]]:
    """The claims under headings, those that may be believed apart from the others; neighbouring segments in one line."""
    groups = []
    for (status, basis), heading in HEADINGS.items():
        chosen = [claim for claim in claims if (claim.status, claim.basis) == (status, basis)]
        if chosen:
            groups.append((heading, list(_merged(chosen))))
    return groups


def count_claims(claims: Sequence[Claim]) -> list[tuple[str, str]]:
    """How many claims stand under each heading; of those that are open, by the verdict that would look at them. What contradicts
    the record is not counted: every sentence of it is wanted."""
    told = []
    for (status, basis), heading in HEADINGS.items():
        names = [claim.verdict for claim in claims if (claim.status, claim.basis) == (status, basis)]
        if names and status == "open":
            told.append((heading, ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))))
        elif names and status != "contradicted":
            told.append((heading, str(len(names))))
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
        gives = "its configuration, its inputs and the code and lock that it names"
        named = f"step {name} has the identity {view.identity}, which {gives} give{where}"
        yield Claim(named, "signature", "ledger", view.index)
    if started.body.experiment:
        yield Claim(f"it was registered before, as {started.body.experiment}", "signature", "ledger", started.index)
    if started.body.continues is not None:
        link = started.body.continues
        phase = f"it continues run {link.run} from the state {link.state} before train step {link.step}"
        yield Claim(phase, "signature", "training", started.index)
    if run.completed is not None:
        yield Claim("it is complete: every step of its plan has its output", "signature", "ledger", run.completed.index)


def _of_bytes(record: RunRecord) -> Iterator[Claim]:
    for name, view in record.run.steps.items():
        stored = f"the stored bytes of {name} are {view.output.digest} ({view.output.kind}, {view.output.size} bytes)"
        yield Claim(stored, "hash", "artifacts", view.index)
    gone = record.run.let_go
    if saved := [fact for fact in record.run.checkpoints if fact.body.artifact not in gone]:
        yield Claim(f"{len(saved)} training checkpoints hold the recorded states", "hash", "artifacts", saved[0].index)
    if left := [fact for fact in record.run.checkpoints if fact.body.artifact in gone]:
        lists = f"each list of tensors of the {several(len(left), 'training checkpoints')} that the run lets go is its state's"
        yield Claim(lists, "hash", "artifacts", left[0].index)
        yield Claim(f"these were stored as {_stored(left)}", "claimed", event=left[0].index)


def _stored(left: Sequence[Fact[events.CheckpointSaved]]) -> str:
    """Artifact and size of the first few, and how many there are more."""
    told = [f"step {one.body.step}: {one.body.artifact}, {one.body.size} bytes" for one in left[:4]]
    return "; ".join([*told, *([f"and {len(left) - len(told)} more"] if len(left) > len(told) else [])])


def _of_data(record: RunRecord) -> Iterator[Claim]:
    recipe = record.run.readable_recipe
    kept = recipe is not None and recipe.initial is not None
    taken = recipe.tokenizer if recipe is not None and recipe.tokenizer.artifact is not None else None
    sources = {
        "corpus": "the raw data",
        "tokenizer": "the model that it begins with" if kept else "that corpus" if taken is None else taken.artifact,
        "tokens": "that corpus and tokenizer",
    }
    for name in events.DATA_STEPS:
        if (view := record.run.steps.get(name)) is not None:
            follows = f"{name} {view.output.digest}{_metrics(view)} follows from {sources[name]}"
            yield Claim(follows, "execution", "data", view.index)
    if taken is not None:
        origin = taken.taken_from or "elsewhere"
        yield Claim(f"the tokenizer was taken from {origin}, and how it was made is not recorded here", "claimed")


def _of_artifacts(record: RunRecord) -> Iterator[Claim]:
    if (recipe := record.run.readable_recipe) is None:
        return
    if (initial := recipe.initial) is not None:
        begins = f"training begins with the model {initial.model} and the tokenizer {initial.tokenizer}"
        yield Claim(begins, "execution", "training")
        yield Claim(f"they were taken from {initial.name}, and how they were made is not recorded here", "claimed")
    for artifact in artifacts(recipe).values():
        if artifact.maker is None:
            yield Claim(f"{artifact.address} {artifact.digest} is what was adopted for it", "claimed")
        else:
            yield Claim(f"{artifact.address} {artifact.digest} was made by {artifact.maker}", "execution", "data")


def _of_training(record: RunRecord) -> Iterator[Claim]:
    for fact in record.run.segments:
        body = fact.body
        losses = f"{_number(body.losses[0])} to {_number(body.losses[-1])}" if body.losses else "none"
        these = f"these tokens, losses ({losses}) and states, and end in {body.end_state}"
        text = f"train steps {body.start} to {body.end - 1} have {these}"
        yield Claim(text, "execution", "training", fact.index, (body.start, body.end))
    if told := [name for name in recorded_series(record) if name != events.GRAD_NORM]:
        yield Claim(f"train steps have the recorded {', '.join(told)}", "execution", "training")


def _of_exclusion(record: RunRecord) -> Iterator[Claim]:
    """Of a run whose recipe excludes documents, and of one that was forked to unlearn them."""
    if (recipe := record.run.readable_recipe) is None:
        return
    exclude, rest = recipe.exclude or (), not_excluded_from(recipe)
    if exclude:
        made = "its tokenizer was trained without them"
        if rest:
            made = f"whether they were read by {' and '.join(rest)} is not said"
        named = f"{', '.join(exclude[:4])}{' ...' if len(exclude) > 4 else ''}"
        blank = f"{len(exclude)} documents are blank in its tokens, and {made}: {named}"
        yield Claim(blank, "execution", "data", record.run.started.index)
    for stretch in record.stretches:
        for kind in among({event.type for _, event in stretch.events}):
            if kind.says is not None:
                for fact in facts(stretch, kind.body):
                    yield from kind.says(fact, _Around(stretch.started.body, record.referred))
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
        text = f"train steps {first} to {last} have these losses ({losses[first]:.4f} to {losses[last]:.4f}){ends}"
        yield Claim(text, "execution", "training", run.loop[0].index)
    unsaid = [step for fact in run.loop for step, batch in enumerate(fact.body.batches, fact.body.start) if not batch]
    if unsaid:
        yield Claim(f"of {several(len(unsaid), 'train steps')} it does not say what they saw", "claimed")
    for name, view in run.steps.items():
        if name != events.LOOP:
            yield Claim(f"output {name} is {view.output.digest}", "execution", "model", view.index)
    measured = {
        series.key: fact.index for fact in facts(record.own, events.MetricsRecorded) for series in fact.body.series
    }
    if names := ", ".join(sorted(name for name in measured if not name.startswith(events.MACHINE))):
        yield Claim(f"its loop measured {names}: compared with nothing", "claimed", event=max(measured.values()))


def _of_the_model(record: RunRecord) -> Iterator[Claim]:
    for name in events.MODEL_STEPS:
        if (view := record.run.steps.get(name)) is not None:
            what = "measured on the last state" if name == "evaluate" else "the last state in a public format"
            yield Claim(f"{name} {view.output.digest}{_metrics(view)} is {what}", "execution", "model", view.index)


def _of_evaluations(record: RunRecord) -> Iterator[Claim]:
    for fact in (*record.evaluations, *record.measured):
        kind = kind_of_body(type(fact.body))
        assert kind is not None and kind.claims is not None
        yield from kind.claims(fact, _Around(record.own.started.body, record.referred))
    recipe = record.run.readable_recipe
    asked = (recipe.evaluation.sets if recipe is not None else None) or {}
    files = [name for name, one in asked.items() if not isinstance(one, CorpusSet)]
    if files and record.measured:
        yield Claim(f"the text of {', '.join(files)} is what the files had that the recipe names", "claimed")


@dataclass(frozen=True)
class _Around:
    started: events.RunStarted
    referred: Mapping[int, Any]


def _of_circumstances(record: RunRecord) -> Iterator[Claim]:
    """What no replay can establish (docs/threat-model.md)."""
    run, started = record.run, record.run.started
    code, environment = started.body.code, started.body.environment
    changed = ", with changes" if code.get("dirty") else ""
    yield Claim(f"a run of the plan that is called {plan_of(started.body.pipeline)}", "claimed", event=started.index)
    yield Claim(f"made by commit {code.get('commit') or 'unknown'}{changed}", "claimed", event=started.index)
    yield Claim(f"on {_machine(environment)}", "claimed", event=started.index)
    times = [event.time for _, event in record.own.events if not is_verdict(event)]
    actors = sorted({event.actor for stretch in record.stretches for _, event in stretch.events})
    yield Claim(f"from {min(times)} to {max(times)}, by {', '.join(actors)}", "claimed")
    if seconds := {name: view.seconds for name, view in run.steps.items()}:
        spent = ", ".join(f"{name} {value} s" for name, value in seconds.items())
        yield Claim(f"in {spent}", "claimed")
    for stretch in record.stretches:
        for kind in among({event.type for _, event in stretch.events}):
            if kind.claims is not None and not kind.judge:
                for fact in facts(stretch, kind.body):
                    yield from kind.claims(fact, _Around(stretch.started.body, record.referred))
        measured = {
            series.key
            for fact in facts(stretch, events.MetricsRecorded)
            for series in fact.body.series
            if series.key.startswith(events.MACHINE)
        }
        if measured:
            yield Claim(f"measured meanwhile: {', '.join(sorted(measured))}", "claimed")
    if stored := [name for name, view in run.steps.items() if by_content(view.output)]:
        files = f"the files in which {', '.join(stored)} and training checkpoints are stored"
        yield Claim(f"{files} hold nothing beside their tensors but what their writers left", "claimed")
    if others := facts(record.own, events.ReplayCompleted):
        often = "once" if len(others) == 1 else f"{len(others)} times"
        yield Claim(f"verified {often}, says this log", "claimed", event=others[-1].index)


def _metrics(view: StepView) -> str:
    told = ", ".join(f"{name}={number_text(value)}" for name, value in view.metrics.items())
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
