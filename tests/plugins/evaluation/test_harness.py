"""lm-evaluation-harness over our log-likelihoods: its numbers by hand, its edges, and its tasks shut in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="the extra `evaluation` (make evaluation)")

from lm_eval.api.instance import Instance

from marin.data.template import ChatTemplate
from marin.errors import UsageError
from marin.evaluation.scoring import Row, Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.harness.model import Harness, generation
from marin.plugins.evaluation.harness.recording import evaluated
from marin.plugins.evaluation.harness.tasks import read_named
from marin.plugins.evaluation.recorded.evaluated import numbers
from marin.plugins.evaluation.recorded.records import RULES, Settings, write_tree
from tests.plugins.evaluation.conftest import PAIRS, QUESTIONS

pytestmark = pytest.mark.evaluation

SETTINGS = Settings()


def instance(kind: Any, *arguments: Any, doc: int = 0) -> Instance:
    return Instance(kind, {}, arguments, 0, ("t", doc, 1))


def asked(subject: Subject, scorer: Scorer, kind: str, *requests: tuple[Any, ...]) -> tuple[list[Any], Harness]:
    lm = Harness(subject, scorer, 3)
    return getattr(lm, kind)([instance(kind, *args, doc=n) for n, args in enumerate(requests)]), lm


def test_minimal_pairs_are_won_by_the_likelier_sentence(folder: Path, subject: Subject, scorer: Scorer) -> None:
    found = evaluated(subject, scorer, read_named(["pairs"], folder).tasks, SETTINGS)

    def total(text: str) -> float:
        tokens = (0, *subject.encode(text))  # a space parts an empty context from its answer
        return scorer.score([Row(tokens, len(tokens) - 1)])[0].total

    won = [total(f" {pair['good']}") > total(f" {pair['bad']}") for pair in PAIRS]
    assert found.results["pairs"]["acc,none"] == sum(won) / len(won)
    totals = [request.total() for sample in found.samples["pairs"] for request in sample.requests]
    assert totals == [total(f" {pair[side]}") for pair in PAIRS for side in ("good", "bad")]


@pytest.mark.parametrize(("rules", "prompt"), [(1, "<a>"), (2, "<a>"), (3, "<a>"), (4, "[a]")])
def test_a_chat_that_was_recorded_is_asked_by_the_template_of_its_rules(
    subject: Subject, scorer: Scorer, rules: int, prompt: str
) -> None:
    own, before = (
        ChatTemplate(text, {}, where="here") for text in ("[{{ messages[0].content }}]", "<{{ messages[0].content }}>")
    )
    lm = Harness(replace(subject, template=own, earlier=before), scorer, 3, rules=rules)
    assert lm.apply_chat_template([{"role": "user", "content": "a"}]) == prompt
    folder = Harness(replace(subject, template=own), scorer, 3, rules=rules)
    assert folder.apply_chat_template([{"role": "user", "content": "a"}]) == "[a]", "a folder's own, under any rules"


@pytest.mark.parametrize(("rules", "before"), [(1, True), (4, True), (RULES, False)])
def test_texts_of_earlier_rules_are_generated_as_they_were(
    rules: Any, before: bool, folder: Path, subject: Subject, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Scorer] = []
    monkeypatch.setattr(Scorer, "one_by_one", lambda self: calls.append(self) or self)
    evaluated(subject, scorer, read_named(["pairs"], folder).tasks, Settings(rules=rules))
    assert calls == [scorer] * before


def test_a_group_has_the_mean_of_its_tasks_by_their_size(folder: Path, subject: Subject, scorer: Scorer) -> None:
    other = (
        (folder / "pairs.yaml").read_text().replace("task: pairs", "task: other").replace("pairs.jsonl", "other.jsonl")
    )
    (folder / "other.yaml").write_text(other, encoding="utf-8")
    (folder / "other.jsonl").write_text(json.dumps(PAIRS[0]) + "\n", encoding="utf-8")
    metric = "aggregate_metric_list: [{metric: acc, aggregation: mean, weight_by_size: true}]"
    (folder / "both.yaml").write_text(f"group: both\ntask: [pairs, other]\n{metric}\n", encoding="utf-8")
    settings = Settings(groups=read_named(["both", "text"], folder).groups)
    assert [group.name for group in settings.groups] == ["both"]
    results = evaluated(subject, scorer, read_named(["both"], folder).tasks, settings).results
    expected = (3 * results["pairs"]["acc,none"] + results["other"]["acc,none"]) / 4
    assert results["both"]["acc,none"] == pytest.approx(expected, rel=1e-12)
    assert float.fromhex(numbers(results)["both"]["acc,none"]) == results["both"]["acc,none"]


def test_bits_per_byte_are_those_of_all_windows(folder: Path, subject: Subject, scorer: Scorer) -> None:
    found = evaluated(subject, scorer, read_named(["text"], folder).tasks, SETTINGS)
    texts = [row["question"] for row in QUESTIONS]
    rows = [request.rows for sample in found.samples["text"] for request in sample.requests]
    assert [sum(len(row.logprobs) for row in one) for one in rows] == [len(text) for text in texts], "each token once"
    assert [len(one) for one in rows] == [1, 1, 2, 1], "90 tokens take two windows of 64"
    nats = sum(request.total() for sample in found.samples["text"] for request in sample.requests)
    bits = -nats / sum(len(text.encode()) for text in texts) / 0.6931471805599453
    assert found.results["text"]["bits_per_byte,none"] == pytest.approx(bits, rel=1e-12)


def test_the_same_tasks_give_the_same_tree_whatever_is_on_its_way(
    folder: Path, subject: Subject, scorer: Scorer, tmp_path: Path
) -> None:
    tasks = read_named(["pairs", "said", "text"], folder).tasks
    trees = []
    for number, used in enumerate((scorer, Scorer(subject.model, subject.recipe, ahead=7))):
        found = evaluated(subject, used, tasks, SETTINGS)
        (place := tmp_path / str(number)).mkdir()
        write_tree(place, tasks, found.samples, numbers(found.results))
        trees.append({path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()})
    assert trees[0] == trees[1] and len(trees[0]) == 10


def test_repeats_draw_each_for_itself_and_fewshot_examples_by_the_seed(
    folder: Path, subject: Subject, scorer: Scorer
) -> None:
    (task,) = read_named(["said"], folder).tasks
    one, other = (evaluated(subject, scorer, [task], Settings(seed=seed)) for seed in (1, 2))
    first = one.samples["said"][0].requests
    assert [(r.number, r.repeat) for r in first] == [(0, 0), (0, 1)] and first[0].rows != first[1].rows
    prompts = [[r.arguments[0] for s in found.samples["said"] for r in s.requests] for found in (one, other)]
    assert prompts[0] != prompts[1]
    assert one.requests[-1].truncated == 0 and one.body(subject, f"sha256:{'1' * 64}").truncated > 0


def test_a_request_longer_than_the_context_loses_its_beginning(subject: Subject, scorer: Scorer) -> None:
    (answer, whole), lm = asked(subject, scorer, "loglikelihood", ("x" * 100, " y"), ("", "y" * 80))
    request = lm.asked[("t", 0, 0, 0)]
    assert (request.truncated, len(request.rows[0].tokens), len(request.rows[0].logprobs)) == (37, 65, 2)
    assert answer == (scorer.score([Row(tuple(request.rows[0].tokens), 2)])[0].total, request.greedy())
    assert len(lm.asked[("t", 1, 0, 0)].rows[0].logprobs) == 64 and whole[0] < 0


def test_an_empty_continuation_says_nothing_and_costs_nothing(subject: Subject, scorer: Scorer) -> None:
    answers, _ = asked(subject, scorer, "loglikelihood", ("a", ""), ("", ""), ("a  ", ""))
    assert answers[:2] == [(0.0, True), (0.0, True)]
    assert answers[2][0] < 0, "spaces at the end of the context belong to the continuation, as in the harness"
    assert asked(subject, scorer, "loglikelihood_rolling", ("",))[0] == [0.0]


def test_a_stop_string_that_never_comes_ends_at_the_limit(subject: Subject, scorer: Scorer) -> None:
    (text,), lm = asked(subject, scorer, "generate_until", ("ab", {"until": ["\x00never"], "max_gen_toks": 9}))
    assert len(lm.asked[("t", 0, 0, 0)].rows[0].logprobs) <= 9 and text
    (cut,), _ = asked(subject, scorer, "generate_until", ("ab", {"until": [text[2]], "max_gen_toks": 9}))
    assert cut == text.split(text[2])[0]
    (long,), lm = asked(subject, scorer, "generate_until", ("ab" * 50, {"until": [], "max_gen_toks": 10**9}))
    assert lm.asked[("t", 0, 0, 0)].truncated == 68 and long


def test_generation_is_what_the_options_say() -> None:
    assert generation({"until": "a", "temperature": 0.0, "top_p": 0.9}) == (["a"], 256, 0.0)
    assert generation({"do_sample": True, "temperature": 0.5, "max_gen_toks": 3}) == ([], 3, 0.5)
    assert generation({"do_sample": False, "temperature": 0.5, "until": ["", "b"]}) == (["b"], 256, 0.0)
    with pytest.raises(UsageError, match="top_p"):
        generation({"do_sample": True, "temperature": 0.5, "top_p": 0.9})


@pytest.mark.parametrize(
    "changed",
    [
        {"doc_to_text": "{{ ''.__class__.__mro__[1].__subclasses__() }}"},
        {"doc_to_text": "{{ absent }}"},
        {"doc_to_text": "{% for x in range(10 ** 9) %}{{ x }}{% endfor %}"},
        {"doc_to_text": "{{ 'a' * 10 ** 12 }}"},
        {"doc_to_text": "{{ good | regex_replace('(', 'x') }}"},
        {"doc_to_choice": "{{ good }}"},
        {"filter_list": [{"name": "f", "filter": [{"function": "regex", "regex_pattern": "("}]}]},
        {"fewshot_split": "test", "num_fewshot": 50},
    ],
)
def test_a_template_that_reaches_out_or_does_not_fit_is_an_answer(
    with_task: Callable[..., Path], subject: Subject, scorer: Scorer, changed: dict[str, object]
) -> None:
    tasks = read_named(["odd"], with_task(**changed)).tasks
    with pytest.raises(UsageError, match="can not evaluate"):
        evaluated(subject, scorer, tasks, SETTINGS)


def test_a_chat_template_is_in_the_prompts_and_in_the_identity(folder: Path, subject: Subject, scorer: Scorer) -> None:
    (task,) = read_named(["said"], folder).tasks
    plain, chat = (evaluated(subject, scorer, [task], Settings(limit=1, chat=chat)) for chat in (False, True))
    prompt = plain.requests[0].arguments[0]
    assert chat.requests[0].arguments[0] == f"<|user|>\n{prompt}\n<|assistant|>\n"
    tree = f"sha256:{'1' * 64}"
    assert plain.body(subject, tree).identity != chat.body(subject, tree).identity
    assert chat.body(subject, tree).settings["chat"] is True
    with pytest.raises(UsageError, match="no chat template"):
        evaluated(replace(subject, template=None), scorer, [task], Settings(limit=1, chat=True))


def test_the_files_are_the_harnesss_own_and_the_same_each_time(folder: Path, subject: Subject, scorer: Scorer) -> None:
    tasks = read_named(["pairs", "said"], folder).tasks
    one, other = (evaluated(subject, scorer, tasks, SETTINGS) for _ in range(2))
    body = one.body(subject, f"sha256:{'1' * 64}")
    files = one.files(body)
    assert files == other.files(body) and set(files) == {"results.json", "samples_pairs.jsonl", "samples_said.jsonl"}
    results = json.loads(files["results.json"])
    assert {"results", "configs", "versions", "n-shot", "n-samples", "higher_is_better", "config"} <= set(results)
    assert results["n-samples"]["pairs"] == {"original": 3, "effective": 3} and b" at 0x" not in files["results.json"]
    (first, *rest) = [json.loads(line) for line in files["samples_pairs.jsonl"].splitlines()]
    assert len(rest) == 2 and first["arguments"]["gen_args_0"]["arg_1"] == f" {PAIRS[0]['good']}"
    assert first["doc"] == PAIRS[0] and first["target"] == "0" and first["acc"] in (0.0, 1.0)
