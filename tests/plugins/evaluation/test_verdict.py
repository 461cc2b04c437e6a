"""The verdict `evaluation`: an honest record passes, and whatever an operator signs instead is found and located.

Each forgery is complete: the operator holds the key, stores another tree and signs the event that agrees with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("lm_eval", reason="the extra `evaluation` (make evaluation)")

from ledger import Event, Store
from marin.errors import MissingEvidence
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.history.executed import Beginning
from marin.history.run import Fact
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation import judge as evaluation
from marin.plugins.evaluation.babylm import scoring
from marin.plugins.evaluation.harness import installed
from marin.plugins.evaluation.harness.recording import ASKER, evaluated
from marin.plugins.evaluation.harness.tasks import read_named
from marin.plugins.evaluation.recorded import records
from marin.plugins.evaluation.recorded.evaluated import Asker, Evaluated, numbers
from marin.plugins.evaluation.recorded.records import Sample, Settings
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.recipe.schema import Execution
from marin.record.events import CHECKPOINT_SAVED, Continues
from marin.verify.verdict import EvaluationSummary, Verdict
from tests.ledger.memory import MemoryStorage

pytestmark = pytest.mark.evaluation

BEGUN = "sha256:" + "0" * 64
ROOT = bytes(32)


@dataclass(frozen=True)
class Claimed:
    """What an operator wants to be recorded."""

    tasks: tuple[EvaluationTask, ...]
    settings: Settings
    samples: dict[str, list[Sample]]
    results: dict[str, dict[str, str]]
    asker: Asker = ASKER

    def sample(self, task: str, number: int, change: Callable[[Sample], Sample]) -> Claimed:
        found = {name: list(samples) for name, samples in self.samples.items()}
        found[task][number] = change(found[task][number])
        return replace(self, samples=found)


def _saved(state: str, step: int) -> dict[str, Any]:
    return {"run": "aaaa", "step": step, "state": state, "artifact": state, "manifest": state, "size": 1}


class Court:
    """A store, a subject, and the judge."""

    def __init__(self, folder: Path, subject: Subject) -> None:
        self.store, self.folder, self.subject, self.count = Store(MemoryStorage()), folder, subject, 0

    def recorded(self, claim: Claimed, **event: Any) -> EvaluationRecorded:
        """Stored and signed, with an event that agrees with the tree unless it is told otherwise."""
        self.count += 1
        place = self.folder / f"tree{self.count}"
        place.mkdir()
        records.write_tree(place, claim.tasks, claim.samples, claim.results, claim.settings.groups)
        whole = Evaluated(claim.asker, claim.tasks, claim.settings, {}, claim.samples, lambda body: {})
        body = whole.body(self.subject, self.store.put_tree(place).digest)
        body = msgspec.structs.replace(body, results=claim.results, **event)
        return msgspec.structs.replace(body, identity=event.get("identity") or records.identity_of(body))

    def judge(
        self,
        *bodies: EvaluationRecorded,
        sample: int | None = None,
        saved: Mapping[str, int] | None = None,
        planted: Mapping[str, int] | None = None,
    ) -> tuple[Verdict, EvaluationSummary] | None:
        """``saved``: states of training checkpoints, with their train steps, where segments end; ``planted``: others, where
        none does."""
        self.count += 1
        ends = {self.subject.step: self.subject.state} | {step: state for state, step in (saved or {}).items() if step}
        starts = {0: next((state for state, step in (saved or {}).items() if not step), BEGUN)} | ends
        segments = [
            SimpleNamespace(body=SimpleNamespace(start=start, start_state=starts[start], end=end, end_state=ends[end]))
            for start, end in pairwise(sorted(starts))
        ]
        every = {**(saved or {}), **(planted or {})}
        told = [
            (place, Event(f"{place}", CHECKPOINT_SAVED, "run/aaaa", place, "", "", _saved(state, step)))
            for place, (state, step) in enumerate(every.items())
        ]
        subject = self.subject
        outputs = {"train": subject.state, "tokenizer": subject.tokenizer_digest}
        run = SimpleNamespace(
            run="aaaa",
            output=lambda name: SimpleNamespace(digest=outputs[name]),
            checkpoints=[
                SimpleNamespace(index=place, body=SimpleNamespace(state=state, step=step))
                for place, (state, step) in enumerate(every.items())
            ],
            begun=Beginning(0, BEGUN, True),
            segments=tuple(segments),
            recipe=subject.recipe,
            steps={"train": None, "evaluate": None},
        )
        facts = tuple(Fact(index, "", body) for index, body in enumerate(bodies, start=7))
        case = SimpleNamespace(
            run=run,
            record=SimpleNamespace(evaluations=facts, measured=(), stretches=(SimpleNamespace(events=told),)),
            until=Continues(run="", step=0, state="", checkpoint=""),
            store=self.store,
            execution=Execution(devices=1),
            workshop=self.folder / f"workshop{self.count}",
        )
        return evaluation.judge_evaluation(case, sample, ROOT)  # type: ignore[arg-type]


@pytest.fixture
def court(tmp_path: Path, subject: Subject, scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> Court:
    monkeypatch.setattr("marin.evaluation.subject.open_subject", lambda run, store, step: subject)
    monkeypatch.setattr("marin.evaluation.scoring.Scorer", lambda model, recipe, devices: scorer)
    monkeypatch.setattr(evaluation, "apply", lambda arithmetic, execution: None)
    return Court(tmp_path, subject)


@pytest.fixture
def honest(folder: Path, subject: Subject, scorer: Scorer) -> Claimed:
    tasks, settings = tuple(read_named(["small", "text"], folder).tasks), Settings(seed=5)
    found = evaluated(subject, scorer, tasks, settings)
    return Claimed(tasks, settings, {name: list(one) for name, one in found.samples.items()}, numbers(found.results))


def test_an_honest_record_passes_whole_and_is_partial_by_a_sample(court: Court, honest: Claimed) -> None:
    body = court.recorded(honest)
    verdict, summary = court.judge(body, body)
    assert (verdict.outcome, summary) == ("PASS", EvaluationSummary(2, 36, 36)), verdict
    verdict, summary = court.judge(body, sample=4)
    assert (verdict.outcome, summary) == ("PARTIAL", EvaluationSummary(1, 18, 4)), verdict
    assert court.judge(body, sample=100)[0].outcome == "PASS", "a sample of all is all"


@pytest.mark.parametrize(
    ("step", "of"),
    [(0, f"sha256:{'8' * 64}"), (3, f"sha256:{'8' * 64}"), (3, f"sha256:{'5' * 64}")],
    ids=["that it began with", "of a train step", "that it ended with"],
)
def test_numbers_of_one_state_are_not_told_of_another(court: Court, honest: Claimed, step: int, of: str) -> None:
    """A checkpoint that was never saved is recorded of a train step of which another state is there."""
    body = court.recorded(honest, state=of, step=step)
    verdict, summary = court.judge(body, saved={of: step})
    assert verdict.outcome == "FAIL" and summary.first_difference is not None, verdict
    assert f"expected state {of} before train step {step}, found {court.subject.state} before" in verdict.lines[0]


def test_numbers_of_a_state_that_no_segment_leads_to_are_judged_by_nobody(court: Court, honest: Claimed) -> None:
    """A checkpoint of any weights may be recorded in the middle of a segment: what follows from it says nothing of the run."""
    of = f"sha256:{'7' * 64}"
    verdict, _ = court.judge(court.recorded(honest), court.recorded(honest, state=of, step=2), planted={of: 2})
    assert verdict.outcome == "UNAVAILABLE", verdict
    assert "with which none does" in verdict.lines[0]


def test_where_nothing_is_recorded_the_pipelines_own_decides(court: Court) -> None:
    assert court.judge() is None


def bit(text: str) -> str:
    """The same hex float with another last bit that float32 has."""
    digits = re.fullmatch(r"(-?0x1\.)([0-9a-f]+)(p.*)", text)
    assert digits is not None
    mantissa = int(digits[2].ljust(13, "0"), 16) ^ (1 << 29)
    return f"{digits[1]}{mantissa:013x}{digits[3]}"


def changed_row(sample: Sample, number: int, **values: Any) -> Sample:
    request = sample.requests[number]
    row = msgspec.structs.replace(request.rows[0], **values)
    requests = [*sample.requests]
    requests[number] = msgspec.structs.replace(request, rows=[row, *request.rows[1:]])
    return msgspec.structs.replace(sample, requests=requests)


def accuracy(claim: Claimed) -> Claimed:
    return replace(claim, results=claim.results | {"pairs": claim.results["pairs"] | {"acc,none": (1.0).hex()}})


def outcome(claim: Claimed) -> Claimed:
    def won(sample: Sample) -> Sample:
        (one,) = sample.outcomes
        right = {"acc": (1.0 - float.fromhex(one.metrics["acc"])).hex()}
        return msgspec.structs.replace(sample, outcomes=[msgspec.structs.replace(one, metrics=right)])

    return claim.sample("pairs", 1, won)


def likelihood(claim: Claimed) -> Claimed:
    def likelier(sample: Sample) -> Sample:
        values = list(sample.requests[1].rows[0].logprobs)
        values[3] = bit(values[3])
        return changed_row(sample, 1, logprobs=values)

    return claim.sample("pairs", 2, likelier)


def swapped(claim: Claimed) -> Claimed:
    one, other = claim.samples["pairs"][:2]
    numbered = [msgspec.structs.replace(other, doc=0), msgspec.structs.replace(one, doc=1)]
    return replace(claim, samples=claim.samples | {"pairs": [*numbered, *claim.samples["pairs"][2:]]})


def prompt(claim: Claimed) -> Claimed:
    def asked(sample: Sample) -> Sample:
        first, *rest = sample.requests
        return msgspec.structs.replace(
            sample, requests=[msgspec.structs.replace(first, arguments=["Say it: ", first.arguments[1]]), *rest]
        )

    return claim.sample("pairs", 0, asked)


def tokens(claim: Claimed) -> Claimed:
    def other(sample: Sample) -> Sample:
        return changed_row(sample, 0, tokens=[*sample.requests[0].rows[0].tokens[:-1], 9])

    return claim.sample("pairs", 0, other)


def said(claim: Claimed) -> Claimed:
    def told(sample: Sample) -> Sample:
        first, *rest = sample.requests
        return msgspec.structs.replace(sample, requests=[msgspec.structs.replace(first, text="two"), *rest])

    return claim.sample("said", 0, told)


def template(claim: Claimed) -> Claimed:
    first, *rest = claim.tasks
    return replace(claim, tasks=(replace(first, config={**first.config, "doc_to_target": 1}), *rest))


def gold(claim: Claimed) -> Claimed:
    pairs, one, text = claim.tasks
    edited = one.data["test"].replace(b'"answer": "c"', b'"answer": "d"')
    return replace(claim, tasks=(pairs, replace(one, data={"test": edited}), text))


def left_out(claim: Claimed) -> Claimed:
    return replace(claim, samples=claim.samples | {"pairs": claim.samples["pairs"][:-1]})


def fewshot(claim: Claimed) -> Claimed:
    return replace(claim, settings=Settings(seed=6))


FORGERIES: dict[Callable[[Claimed], Claimed], str] = {
    accuracy: r"task pairs: acc,none: recorded 0x1\.0000000000000p\+0",
    outcome: r"task pairs, sample 1: outcome under the filter none",
    likelihood: r"task pairs, sample 2: request 1: token 4: log-likelihood recorded",
    swapped: r"task pairs, sample 0: document",
    prompt: r"task pairs, sample 0: request 0: prompt: recorded \['Say it: '",
    tokens: r"task pairs, sample 0: request 0: token 13: recorded 9",
    said: r"task said, sample 0: request 0: text: recorded 'two'",
    template: r"task pairs, sample 0: gold answer: recorded 0, found 1",
    gold: r"task said, sample ",
    left_out: r"task pairs: 2 documents are recorded, 3 are there",
    fewshot: r"task said, sample \d: request \d: prompt",
}


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_found_and_located(court: Court, honest: Claimed, forge: Callable[[Claimed], Claimed]) -> None:
    verdict, summary = court.judge(court.recorded(honest), court.recorded(forge(honest)))
    assert (verdict.outcome, verdict.executed) == ("FAIL", True), verdict
    assert summary.first_difference is not None
    assert re.search(f"event 8: .*{FORGERIES[forge]}", summary.first_difference), summary.first_difference


@pytest.mark.parametrize(
    "forge", [accuracy, outcome, swapped, prompt, said, template, left_out], ids=lambda forge: forge.__name__
)
def test_what_follows_from_all_answers_is_found_by_any_sample(
    court: Court, honest: Claimed, forge: Callable[[Claimed], Claimed]
) -> None:
    assert court.judge(court.recorded(forge(honest)), sample=1)[0].outcome == "FAIL"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"state": f"sha256:{'6' * 64}"}, "state: expected a recorded state of the run"),
        ({"step": 3}, "step: expected 6, found 3"),
        ({"tokenizer": f"sha256:{'6' * 64}"}, "tokenizer"),
        ({"identity": f"sha256:{'6' * 64}"}, "identity"),
        ({"requests": 1}, "requests and those truncated"),
        ({"truncated": 0}, "requests and those truncated"),
        ({"settings": {"limit": "all"}}, "settings"),
        ({"tasks": {}}, "the stored tree has, or lacks, data/pairs"),
    ],
)
def test_an_event_that_disagrees_fails_without_execution(
    court: Court, honest: Claimed, event: dict[str, Any], said: str
) -> None:
    verdict, _ = court.judge(court.recorded(honest, **event))
    assert (verdict.outcome, verdict.executed) == ("FAIL", False) and said in verdict.lines[0], verdict


def test_an_event_that_says_other_numbers_than_its_tree_fails(court: Court, honest: Claimed) -> None:
    body = court.recorded(honest)
    wrong = msgspec.structs.replace(body, results=accuracy(honest).results)
    verdict, _ = court.judge(wrong)
    assert verdict.outcome == "FAIL" and "the stored results are not those of the event" in verdict.lines[0]


def twice(line: bytes) -> bytes:
    return line.replace(b'"target":', b'"target":7,"target":', 1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("samples/pairs.jsonl", lambda content: content.replace(b'"target":', b'"acc":1.0,"target":', 1)),
        ("samples/pairs.jsonl", twice),
        ("samples/pairs.jsonl", lambda content: content.replace(b'"greedy":', b'"seen_by_people":true,"greedy":', 1)),
        ("samples/pairs.jsonl", lambda content: b" " + content),
        ("tasks/pairs.json", lambda content: content.replace(b"{", b'{"metadata": {"version": 9},', 1)),
        ("results.json", lambda content: b"{"),
        ("results.json", lambda content: content.replace(b"{", b'{"mmlu": {"acc,none": "0x1.0p+0"}, "mmlu": 1,', 1)),
    ],
)
def test_what_a_stored_file_says_beside_what_is_judged_fails(
    court: Court, honest: Claimed, tmp_path: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    body = court.recorded(honest)
    court.store.checkout(body.samples, tmp_path / "more", how="copy")
    path = tmp_path / "more" / name
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))
    said = msgspec.structs.replace(body, samples=court.store.put_tree(tmp_path / "more").digest)
    verdict, _ = court.judge(said)
    assert (verdict.outcome, verdict.executed) == ("FAIL", False), verdict


@pytest.mark.parametrize("name", ["../../../elsewhere/x", "/etc/x", "\x1b[2J"])
def test_a_name_that_leads_out_of_the_tree_opens_nothing(
    court: Court, honest: Claimed, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "read_task", lambda *arguments: pytest.fail("it was opened"))
    told = court.recorded(honest).tasks
    for tasks in ({name: told["pairs"]}, {"pairs": msgspec.structs.replace(told["pairs"], data={name: OTHER})}):
        verdict, _ = court.judge(court.recorded(honest, tasks=tasks))
        assert verdict.outcome == "FAIL" and "a name of a task or split" in verdict.lines[0], verdict


def test_settings_that_nobody_knows_fail(court: Court, honest: Claimed) -> None:
    settings = msgspec.to_builtins(honest.settings) | {"contamination_checked": True}
    verdict, _ = court.judge(court.recorded(honest, settings=settings))
    assert verdict.outcome == "FAIL" and "contamination_checked" in verdict.lines[0], verdict


def test_data_that_is_not_what_the_event_says_fails(court: Court, honest: Claimed) -> None:
    told = court.recorded(honest).tasks
    verdict, _ = court.judge(court.recorded(gold(honest), tasks=told))
    assert verdict.outcome == "FAIL" and "task said: its data test is not the recorded one" in verdict.lines[0]


def test_stored_code_is_never_executed(court: Court, honest: Claimed) -> None:
    first, *rest = honest.tasks
    for key, value in (("process_results", "import os"), ("doc_to_text", "{{ ''.__class__.__mro__ }}")):
        asks = replace(honest, tasks=(replace(first, config={**first.config, key: value}), *rest))
        verdict, _ = court.judge(court.recorded(asks))
        assert verdict.outcome == "UNAVAILABLE" and "not executed" in verdict.lines[0], verdict


def test_a_difference_under_other_software_accuses_nobody(
    court: Court, honest: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"sha256:{'4' * 64}"
    assert court.judge(court.recorded(honest, code=other))[0].outcome == "PASS", "equal bits are proof enough"
    for changed in ({"code": other}, {"lock": other}):
        verdict, _ = court.judge(court.recorded(likelihood(honest), **changed))
        assert (verdict.outcome, verdict.executed) == ("UNAVAILABLE", False) and "proves nothing" in verdict.lines[1]
    verdict, _ = court.judge(court.recorded(honest, harness="0.4.12"))
    assert verdict.outcome == "UNAVAILABLE" and "0.4.12" in verdict.lines[0]
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    verdict, _ = court.judge(court.recorded(honest))
    assert verdict.outcome == "UNAVAILABLE" and "requirements-evaluation.lock" in verdict.lines[0]


def test_bytes_that_are_not_there_are_missing(court: Court, honest: Claimed) -> None:
    verdict, _ = court.judge(court.recorded(honest, samples=f"sha256:{'6' * 64}"))
    assert verdict.outcome == "UNAVAILABLE", verdict
    verdict, _ = court.judge(court.recorded(honest), court.recorded(accuracy(honest)))
    assert verdict.outcome == "FAIL" and verdict.lines, verdict
    assert all("event 8" in line for line in verdict.lines), "the worst decides"


def test_the_tree_is_json_that_others_read(court: Court, honest: Claimed, tmp_path: Path) -> None:
    court.store.checkout(court.recorded(honest).samples, tmp_path / "out")
    lines = (tmp_path / "out" / "samples" / "pairs.jsonl").read_text().splitlines()
    assert [json.loads(line)["target"] for line in lines] == [0, 0, 0]
    assert MissingEvidence.exit_code == 3


OTHER = f"sha256:{'4' * 64}"
BLIMP = [
    {"sentence_good": f"{who} sees {who}self", "sentence_bad": f"{who} see {who}self"} for who in ("him", "her", "it")
]


def babylm(subject: Subject, scorer: Scorer) -> Claimed:
    data = "".join(json.dumps(row) + "\n" for row in BLIMP).encode()
    tasks = (EvaluationTask("supplement_filtered", {"babylm": "blimp"}, {"selves": data}),)
    found = scoring.evaluated(subject, scorer, tasks, Settings())
    samples = {name: list(one) for name, one in found.samples.items()}
    return Claimed(tasks, Settings(), samples, numbers(found.results), scoring.ASKER)


def test_babylm_needs_no_harness_and_its_forgeries_are_located(
    court: Court, subject: Subject, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    claim = babylm(subject, scorer)
    body = court.recorded(claim)
    assert (body.harness, court.judge(body)[0].outcome) == ("babylm-eval 2026", "PASS")
    assert court.judge(body, sample=2)[0].outcome == "PARTIAL"
    (task,), name = claim.tasks, "supplement_filtered"
    edited = replace(task, data={"selves": task.data["selves"].replace(b"him sees", b"him saws")})
    numbers = {**claim.results[name], "acc,none": (0.125).hex()}
    forged = {
        "acc,none: recorded": replace(claim, results={name: numbers}),
        "sample 1: outcome": claim.sample(name, 1, lambda one: replaced_outcome(one, {"acc": (0.5).hex()})),
        "sample 2: request 1: token 4: log-likelihood": claim.sample(
            name,
            2,
            lambda one: changed_row(
                one, 1, logprobs=[*(row := one.requests[1].rows[0].logprobs)[:3], bit(row[3]), *row[4:]]
            ),
        ),
        "sample 0: document": replace(claim, tasks=(edited,)),
        "2 documents are recorded": replace(claim, samples={name: claim.samples[name][:2]}),
        "3 documents are recorded, 1 are there": replace(claim, settings=Settings(limit=1)),
    }
    for line, one in forged.items():
        verdict, summary = court.judge(court.recorded(one))
        assert verdict.outcome == "FAIL" and line in str(summary.first_difference), (line, verdict)
    for odd in ({"babylm": "ewok"}, {"babylm": "blimp", "process_results": "x"}):
        verdict, _ = court.judge(court.recorded(replace(claim, tasks=(replace(task, config=odd),))))
        assert verdict.outcome != "PASS" and "no data set of BabyLM" in verdict.lines[0], verdict
    verdict, _ = court.judge(
        court.recorded(replace(claim, tasks=(replace(task, name="pairs"),), samples={"pairs": claim.samples[name]}))
    )
    assert verdict.outcome != "PASS", verdict


def replaced_outcome(sample: Sample, metrics: dict[str, str]) -> Sample:
    (one,) = sample.outcomes
    return msgspec.structs.replace(sample, outcomes=[msgspec.structs.replace(one, metrics=metrics)])
