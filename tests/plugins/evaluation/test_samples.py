"""Texts that states continue: those of `marin generate`, asked again by a verifier, and a change of any word is located."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marin.errors import DataError, DataMissing, UsageError
from marin.evaluation.scoring import Prompt, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.judge import asker_of, read_tree
from marin.plugins.evaluation.recorded.comparison import first_difference
from marin.plugins.evaluation.recorded.evaluated import Evaluated, numbers
from marin.plugins.evaluation.recorded.records import RULES, Request, Sample, requests_of, write_tree
from marin.plugins.evaluation.samples.drawing import evaluated
from marin.plugins.evaluation.samples.task import NAME, checked, read, settings_of, task_of, without_samples
from marin.plugins.evaluation.samples.texts import texts_of
from marin.recipe.evaluation import TextSamples
from marin.record.events import CheckpointSaved

LONG = "more than the context of this model holds, which is sixty-four of its tokens"
ASKED = TextSamples(prompts=("The dog", LONG, "The dog", "<|endoftext|>"), max_tokens=6, seed=5)


@pytest.fixture(scope="module")
def found(subject: Subject, scorer: Scorer) -> Evaluated:
    return evaluated(subject, scorer, [task_of(ASKED)], settings_of(ASKED))


@pytest.fixture(scope="module")
def body(found: Evaluated, subject: Subject) -> EvaluationRecorded:
    return found.body(subject, f"sha256:{'0' * 64}")


def asked_again(
    found: Evaluated, subject: Subject, scorer: Scorer, samples: Mapping[str, list[Sample]], key: int
) -> str:
    again = {(NAME, key, 0, 0)}
    new = evaluated(subject, scorer, found.tasks, found.settings, recorded=requests_of(samples), again=again)
    return first_difference(samples, new.samples, numbers(found.results), numbers(new.results)) or ""


def changed(found: Evaluated, place: int, **values: Any) -> dict[str, list[Sample]]:
    samples = list(found.samples[NAME])
    (request,) = samples[place].requests
    samples[place] = msgspec.structs.replace(samples[place], requests=[msgspec.structs.replace(request, **values)])
    return {NAME: samples}


def test_tokens_are_those_of_a_generation_of_their_prompt_alone(
    found: Evaluated, subject: Subject, scorer: Scorer
) -> None:
    said = [request for sample in found.samples[NAME] for request in sample.requests]
    for place, occurrence in ((0, 0), (2, 1)):
        tokens = (0, *subject.encode("The dog"))
        (new,) = scorer.generate([Prompt(tokens, 6, lambda new: False, 0.8, request_name(tokens, occurrence))], 5)
        assert said[place].rows[0].tokens == [*tokens, *new] and said[place].text == subject.decode(new, tokens)
        assert len(said[place].rows[0].logprobs) == len(new)
    assert said[1].truncated == len(subject.encode(LONG)) + 1 - len(said[1].prompt) > 0
    assert said[3].prompt == [0, *subject.encode("<|endoftext|>")] and len(said[3].prompt) > 2, "the text, and no mark"
    count = sum(len(request.rows[0].logprobs) for request in said)
    assert found.results[NAME] == {"tokens,none": count / 4}
    assert [line.partition("|")[0] for line in texts_of({NAME: found.samples[NAME][:1]})] == ["The dog"]


@pytest.mark.parametrize(("rules", "before"), [(1, True), (4, True), (RULES, False)])
def test_texts_of_earlier_rules_are_generated_as_they_were(
    rules: Any, before: bool, subject: Subject, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Scorer] = []
    monkeypatch.setattr(Scorer, "one_by_one", lambda self: asked.append(self) or self)
    settings = msgspec.structs.replace(settings_of(ASKED), rules=rules)
    evaluated(subject, scorer, [], settings)
    assert asked == [scorer] * before


def test_what_stands_is_taken_and_a_changed_answer_is_located(
    found: Evaluated, subject: Subject, scorer: Scorer
) -> None:
    assert asked_again(found, subject, scorer, {NAME: list(found.samples[NAME])}, 0) == ""
    (request,) = found.samples[NAME][1].requests
    row = request.rows[0]
    worse = msgspec.structs.replace(row, logprobs=["-0x1.0p+0", *row.logprobs[1:]])
    other = msgspec.structs.replace(row, tokens=[*row.tokens[:-1], row.tokens[-1] ^ 1])
    for values in ({"text": "a better text"}, {"rows": [worse]}, {"rows": [other]}, {"truncated": 0}):
        assert f"task {NAME}, sample 1" in asked_again(found, subject, scorer, changed(found, 1, **values), 1)
    assert f"task {NAME}, sample 1" in asked_again(found, subject, scorer, changed(found, 1, text="better"), 0), (
        "drawn or not"
    )


def test_the_stored_tree_is_what_the_event_says(found: Evaluated, body: EvaluationRecorded, tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", found.tasks, found.samples, numbers(found.results))
    stored = read_tree(body, tmp_path / "tree")
    assert not isinstance(stored, str) and [checked(task, "here") for task in stored.tasks] == list(stored.tasks)
    assert asker_of(body, "here").load() is evaluated


def test_which_states_have_the_samples_of_a_recipe(body: EvaluationRecorded) -> None:
    def saved(step: int, state: str) -> CheckpointSaved:
        digest = f"sha256:{'1' * 64}"
        return CheckpointSaved(run="aaaa", step=step, state=state, artifact=digest, manifest=digest, size=1)

    due = [saved(3, f"sha256:{'4' * 64}"), saved(body.step, body.state)]
    assert without_samples(ASKED, due, [body]) == due[:1]
    older = msgspec.structs.replace(body, settings={**body.settings, "rules": 1})
    oldest = msgspec.structs.replace(body, settings={key: x for key, x in body.settings.items() if key != "rules"})
    assert [without_samples(ASKED, due, [one]) for one in (older, oldest)] == [due[:1], due[:1]]
    assert without_samples(ASKED, due, [msgspec.structs.replace(body, settings={"rules": 9})]) == due
    for other in (
        msgspec.structs.replace(ASKED, seed=6),
        msgspec.structs.replace(ASKED, temperature=0.0),
        msgspec.structs.replace(ASKED, max_tokens=7),
        msgspec.structs.replace(ASKED, prompts=ASKED.prompts[:3]),
    ):
        assert without_samples(other, due, [body]) == due
    assert without_samples(ASKED, due, [msgspec.structs.replace(body, harness="0.4.13")]) == due


def test_a_file_is_prompts_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    with pytest.raises(DataMissing):
        read(file)
    file.write_text("The dog\n\nOnce\n", encoding="utf-8")
    assert read(file) == [task_of(TextSamples(prompts=("The dog", "Once")))]
    file.write_bytes("The\u2028dog\x0c\r\nOnce".encode())
    assert read(file) == [task_of(TextSamples(prompts=("The\u2028dog\x0c", "Once")))]
    with pytest.raises(UsageError):
        read(file, ["one"])
    for data in (b"", b"\n\n", b"\xff", b"a\n" * 65):
        file.write_bytes(data)
        with pytest.raises(DataError):
            read(file)


@pytest.mark.parametrize(
    "config",
    [
        {"samples": "continued", "max_tokens": 0, "temperature": 0.8},
        {"samples": "continued", "max_tokens": 1, "temperature": -1.0},
        {"samples": "continued", "max_tokens": 1, "temperature": 0.8, "more": 1},
        {"samples": "other", "max_tokens": 1, "temperature": 0.8},
        {"samples": "continued", "max_tokens": True, "temperature": 0.8},
        {},
    ],
)
def test_a_stored_task_that_is_none_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        checked(replace(task_of(ASKED), config=config), "here")


@pytest.mark.parametrize(
    "line",
    [
        {"prompt": ""},
        {"prompt": 1},
        {"prompt": "a", "more": 1},
        {"text": "a"},
        {"prompt": "\ud800"},
        {"prompt": "a" * 10_001},
    ],
)
def test_stored_prompts_that_are_none_are_refused(line: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        checked(replace(task_of(ASKED), data={"prompts": json.dumps(line).encode() + b"\n"}), "here")


def test_only_the_bytes_that_are_written_are_a_task() -> None:
    spaced = b'{ "prompt": "a" }\n'
    with pytest.raises(DataError):
        checked(replace(task_of(ASKED), data={"prompts": spaced}), "here")


def test_a_request_of_no_row_has_no_text(subject: Subject, scorer: Scorer) -> None:
    """What is recorded is data: fields that are not there end nothing."""
    task = task_of(TextSamples(prompts=("a",), max_tokens=2))
    known = Request("generate_until", ["a", {"max_tokens": 2, "temperature": 0.8}], prompt=[0, *subject.encode("a")])
    made = evaluated(subject, scorer, [task], settings_of(ASKED), recorded={(NAME, 0, 0, 0): known}, again=set())
    assert made.samples[NAME][0].requests[0].text == "" and made.results[NAME] == {"tokens,none": 0.0}
