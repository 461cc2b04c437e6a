"""The verdict ``evaluation``: the numbers that a harness drew from states of the run follow from these states.

What is recorded is taken apart without believing it: the event and the stored tree have to agree; the requests are made
again from the stored tasks and their data; every request (or a sample that nobody could choose) is answered again by the
state whose bytes are proven; metrics and errors are computed again from all answers. A stored task is data: nothing of it
is executed or fetched (:mod:`marin.plugins.evaluation.harness.tasks`); it may name functions that the judge's own harness has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ledger import LedgerError, digest_bytes
from marin.errors import MissingEvidence, UsageError
from marin.evaluation.code import other_code
from marin.history.run import Fact
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.harness import tasks as harness
from marin.plugins.evaluation.harness.installed import CURE, check_installed
from marin.plugins.evaluation.heldout.judge import check_stands, judge_measured, opened, recorded_states
from marin.plugins.evaluation.recorded import records
from marin.plugins.evaluation.recorded.benchmark import benchmarks, is_of_harness
from marin.plugins.evaluation.recorded.comparison import first_difference
from marin.plugins.evaluation.recorded.records import Key, Sample, Settings, TaskGroup, wrong_groups
from marin.plugins.evaluation.recorded.task import NAME, EvaluationTask
from marin.process.arithmetic import apply
from marin.process.progress import bar
from marin.recipe.schema import Arithmetic, Execution
from marin.verify.case import Case
from marin.verify.segments.sampling import describe_bound, draw, seed
from marin.verify.verdict import EvaluationSummary, Outcome, Verdict, outcome_of, worst

if TYPE_CHECKING:
    from marin.evaluation.subject import Subject
    from marin.plugins.evaluation.recorded.evaluated import Evaluated


@dataclass(frozen=True)
class Stored:
    """The tree of one evaluation, read and found to be what its event says."""

    tasks: tuple[EvaluationTask, ...]
    settings: Settings
    samples: dict[str, list[Sample]]


def judge_evaluation(case: Case, sample: int | None, root: bytes) -> tuple[Verdict, EvaluationSummary] | None:
    """Every evaluation that is recorded of the run, or that its recipe asks for; None where there is nothing of either.

    Args:
        sample: how many requests of each evaluation are answered again; None: all. ``root``: the log's, which draws them.
    """
    recorded = case.record.evaluations
    during = judge_measured(case, sample, root)
    if not recorded and not during:
        return None
    verdicts = [verdict for verdict, _, _ in during]
    total, answered = sum(count for _, count, _ in during), sum(count for _, _, count in during)
    for fact in recorded:
        verdict, again = _judge(case, fact, sample, seed(root, fact.body.identity))
        verdicts.append(verdict)
        total += fact.body.requests
        answered += again
    outcome: Outcome = worst([verdict.outcome for verdict in verdicts])
    found = [verdict for verdict in verdicts if verdict.outcome == outcome]
    first = next((line for verdict in found for line in verdict.lines), None) if outcome == "FAIL" else None
    lines = tuple(line for verdict in (found if outcome != "PASS" else verdicts) for line in verdict.lines)
    executed = any(verdict.executed for verdict in found)
    return Verdict(outcome, lines, executed), EvaluationSummary(
        len(recorded) + len(case.record.measured), total, answered, first
    )


def _judge(case: Case, fact: Fact[EvaluationRecorded], sample: int | None, drawn: bytes) -> tuple[Verdict, int]:
    """One evaluation, and how many of its requests were answered again."""
    try:
        return _judged(case, fact, sample, drawn)
    except UsageError as error:  # what a task asks for is the operator's word
        return Verdict("UNAVAILABLE", (f"event {fact.index}: not executed: {error}",)), 0
    except LedgerError as error:
        return Verdict(outcome_of(error), (f"event {fact.index}: {error}",)), 0


def _judged(case: Case, fact: Fact[EvaluationRecorded], sample: int | None, drawn: bytes) -> tuple[Verdict, int]:
    body, where = fact.body, f"event {fact.index}"
    check_stands(case, _states(case, body), body.state)
    if wrong := _contradictions(case, body):
        return Verdict("FAIL", tuple(f"{where}: the records contradict each other: {line}" for line in wrong)), 0
    folder = case.workshop / "evaluations" / str(fact.index)
    folder.parent.mkdir(parents=True, exist_ok=True)
    case.store.checkout(body.samples, folder)

    verdict, answered, _ = judge_tree(
        body,
        where,
        folder,
        lambda: opened(case, body.state, body.step),
        case.run.recipe.arithmetic,
        case.execution,
        sample,
        drawn,
    )
    return verdict, answered


def judge_tree(
    body: EvaluationRecorded,
    where: str,
    folder: Path,
    subject: Callable[[], Subject],
    arithmetic: Arithmetic,
    execution: Execution,
    sample: int | None,
    drawn: bytes,
) -> tuple[Verdict, int, Evaluated | None]:
    """One evaluation by its tree in ``folder`` and the state that ``subject`` opens: the verdict, how many requests were
    answered again, and what came of it.

    Raises:
        MissingEvidence: lm-evaluation-harness is not installed, or is another one.
    """
    stored = read_tree(body, folder)
    if isinstance(stored, str):
        return Verdict("FAIL", (f"{where}: {stored}",)), 0, None
    asked = asker_of(body, where)
    tasks = tuple(asked.checked(task, f"the stored task {task.name}") for task in stored.tasks)
    apply(arithmetic, execution)
    evaluated = asked.load()  # jax, after the contract is in force
    from marin.plugins.evaluation.recorded.evaluated import numbers

    keys = sorted(records.requests_of(stored.samples))
    if not keys:
        return Verdict("UNAVAILABLE", (f"{where}: nothing was asked: expected requests, found none",)), 0, None
    again = None
    if sample is not None and sample < len(keys):
        again = {keys[place] for place in draw(len(keys), sample, drawn)}
    found = _again(evaluated, subject(), body, replace(stored, tasks=tasks), execution, again)
    answered = len(keys) if again is None else len(again)
    groups = "".join(f"; group {group.name} of {_listed(group.tasks)}" for group in stored.settings.groups)
    code = sorted({value["function"] for task in tasks for _, value in harness.functions_of(task.config)})
    calls = f"; by {_listed(code, 'functions')} of lm_eval/tasks" if code else ""
    asked_of = f"{_listed(body.tasks)}{groups}{calls}"
    said = f"{where}: {asked_of}: {answered} of {len(keys)} requests answered again by state {body.state}"
    if difference := first_difference(stored.samples, found.samples, body.results, numbers(found.results)):
        line = f"{where}: {difference}"
        if other := other_code(body.code, body.lock, found.asker.starts, subject().recipe):
            return Verdict("UNAVAILABLE", (other, f"so the difference below proves nothing; {line}")), answered, found
        return Verdict("FAIL", (line,), executed=True), answered, found
    if again is None:
        return Verdict("PASS", (said,)), answered, found
    return Verdict("PARTIAL", (said, describe_bound(len(again)))), answered, found


def _listed(tasks: Collection[str], what: str = "tasks") -> str:
    """Names in words, of many the first."""
    names = list(tasks)
    return ", ".join(names) if len(names) < 9 else f"{', '.join(names[:6])} and {len(names) - 6} more {what}"


def _states(case: Case, body: EvaluationRecorded) -> dict[str, int]:
    """The states that may be evaluated, each with the train step before which it is."""
    states = recorded_states(case)
    if (begun := case.run.begun) is not None and begun.made_again:
        states.setdefault(begun.state, begun.step)
    last = body.step if not case.run.segments else case.run.segments[-1].body.end
    states.setdefault(case.run.output("train").digest, last)
    return states


def _contradictions(case: Case, body: EvaluationRecorded) -> list[str]:
    """What the event says of other events, and of itself."""
    states = _states(case, body)
    pairs: list[tuple[str, object, object]] = [
        ("tokenizer", case.run.output("tokenizer").digest, body.tokenizer),
        ("state", body.state if body.state in states else "a recorded state of the run", body.state),
        ("step", states.get(body.state, body.step), body.step),
        ("identity", records.identity_of(body), body.identity),
    ]
    return [f"{name}: expected {expected}, found {found}" for name, expected, found in pairs if expected != found]


def read_tree(body: EvaluationRecorded, folder: Path) -> Stored | str:
    """The stored tree; or what in it is not what the event says. Its files are those that were written of what is judged,
    byte by byte: a field, a line or a second value of a name beside that would be judged by nobody."""
    named = [*body.tasks, *(split for told in body.tasks.values() for split in told.data)]
    if odd := [name for name in named if not NAME.fullmatch(name)]:  # they become names of files
        return f"a name of a task or split: expected letters, digits, _ . -, found {odd[0][:80]}"
    try:
        settings = msgspec.convert(body.settings, Settings)
    except msgspec.ValidationError as error:
        return f"its settings are invalid: {error}"
    if wrong := wrong_groups(settings.groups, body.tasks):
        return wrong
    kept = records.read_groups(folder)  # an older release stored none
    parted = None if kept is None else wrong_groups(kept, body.tasks) or _other_groups(settings.groups, kept)
    if parted:
        return f"the stored groups are not those of the event: {parted}"
    tasks, samples = [], {}
    for name, told in body.tasks.items():
        task = records.read_task(folder, name, sorted(told.data))
        found = list(records.read_samples(folder, name))
        if records.config_digest(task) != told.config:
            return f"task {name}: its stored configuration is not the recorded one: expected {told.config}"
        for split, digest in told.data.items():
            if digest_bytes(task.data[split]) != digest:
                return f"task {name}: its data {split} is not the recorded one: expected {digest}"
        if (len(found), records.prompts_digest(found)) != (told.documents, told.prompts):
            return f"task {name}: what was asked is not what the event says: expected {told.documents} documents, {told.prompts}"
        tasks.append(task)
        samples[name] = found
    written = dict(records.files_of(tasks, samples, body.results, kept or ()))
    if stray := {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} ^ written.keys():
        return f"the stored tree has, or lacks, {', '.join(sorted(stray))[:200]}"
    if (folder / "results.json").read_bytes() != written["results.json"]:
        return "the stored results are not those of the event"
    if other := [name for name, content in written.items() if (folder / name).read_bytes() != content]:
        return f"{other[0]} says more than what is judged, or says it otherwise than it is written"
    asked = [request for documents in samples.values() for one in documents for request in one.requests]
    counted = (len(asked), sum(request.truncated > 0 for request in asked))
    if counted != (body.requests, body.truncated):
        return f"requests and those truncated: expected {(body.requests, body.truncated)}, found {counted}"
    return Stored(tuple(tasks), settings, samples)


def _other_groups(told: Sequence[TaskGroup], stored: Sequence[TaskGroup]) -> str | None:
    """Where the groups of the event are not the stored ones."""
    for group, kept in zip_longest(told, stored):
        if group is None or kept is None or group.name != kept.name:
            return f"expected the group {kept.name if kept else 'none'}, found {group.name if group else 'none'}"
        if group.tasks != kept.tasks:
            return f"group {group.name}: expected {_listed(kept.tasks)}, found {_listed(group.tasks)}"
        if group.metrics != kept.metrics:
            return f"group {group.name}: other means"
    return None


@dataclass(frozen=True)
class Asker:
    """Who made the requests of an evaluation: what its tasks may be, and how they are asked again."""

    checked: Callable[[EvaluationTask, str], EvaluationTask]
    load: Callable[[], Callable[..., Evaluated]]


def asker_of(body: EvaluationRecorded, where: str) -> Asker:
    """Who recorded ``body``.

    Raises:
        MissingEvidence: it is not installed here, or in another version.
    """
    if not is_of_harness(body.harness):
        known = {one.version: one for one in benchmarks().values()}
        if body.harness not in known:
            raise MissingEvidence(
                "a benchmark that is not installed here",
                where=where,
                expected=body.harness,
                found=", ".join(sorted(known)) or "none",
                cure="verify it with a Marin that has it",
            )
        return Asker(known[body.harness].checked, known[body.harness].load)
    check_installed(where, body.harness)
    if (installed := version("lm-eval")) != body.harness:
        raise MissingEvidence(
            "another lm-evaluation-harness", where=where, expected=body.harness, found=installed, cure=CURE
        )
    return Asker(harness.checked, _harness)


def _harness() -> Callable[..., Evaluated]:
    from marin.plugins.evaluation.harness.recording import evaluated

    return evaluated


def _again(
    evaluated: Callable[..., Evaluated],
    subject: Subject,
    body: EvaluationRecorded,
    stored: Stored,
    execution: Execution,
    again: set[Key] | None,
) -> Evaluated:
    from marin.evaluation.scoring import Scorer

    scorer = Scorer(subject.model, subject.recipe, devices=execution.devices)
    recorded = records.requests_of(stored.samples)
    with bar("evaluation", body.requests) as progress:
        return evaluated(
            subject,
            scorer,
            stored.tasks,
            stored.settings,
            progress=lambda done: progress(done, ""),
            recorded=recorded,
            again=again,
        )
