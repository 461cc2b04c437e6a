"""Outputs as AlpacaEval and HELM read them, the configuration for vLLM, and the card, by independent readers where there are
some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from marin.data.borrowed.chats import template_in
from marin.data.chat import TEMPLATE
from marin.data.template import ChatTemplate
from marin.errors import DataError, UsageError
from marin.evaluation.scoring import Row, Scorer
from marin.evaluation.subject import Subject
from marin.plugins.serve import files
from marin.plugins.serve.answers import token_text
from marin.plugins.serve.vllm import as_yaml, command, configuration

REQUEST = {
    "model": "m",
    "prompt": "the dog",
    "temperature": 0.8,
    "num_completions": 2,
    "max_tokens": 5,
    "stop_sequences": ["\n"],
    "echo_prompt": False,
    "top_p": 1,
    "embedding": False,
}


def test_instructions_become_outputs_that_pandas_reads(tmp_path: Path, subject: Subject, scorer: Scorer) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps([{"instruction": "why", "dataset": "x"}, {"prompt": "y" * 90}, {"instruction": "why"}]))
    rows = files.read_instructions(path)
    template = ChatTemplate(TEMPLATE, {}, where="test")
    texts = [files.instruction_prompt(row["instruction"], template) for row in rows]
    wanted = files.numbered([files.TextRequest(text, 6, 0.9) for text in texts])
    said = files.say_all(subject, scorer, wanted, 3, lambda count: None)
    assert said == files.say_all(subject, scorer, wanted, 3, lambda count: None)
    assert [one.lost > 0 for one in said] == [False, True, False] and said[0].new != said[2].new
    (tmp_path / "out.json").write_text(files.alpaca_eval(rows, said, "ours"), encoding="utf-8")
    table = pd.read_json(tmp_path / "out.json")
    assert list(table["instruction"]) == ["why", "y" * 90, "why"] and set(table["generator"]) == {"ours"}
    assert list(table["output"]) == [one.text for one in said] and "dataset" in table


def test_rows_of_instructions_are_lines_of_json(tmp_path: Path) -> None:
    """A text may hold what Python's ``splitlines`` takes for an end of a line; an input beside it would be left out."""
    path = tmp_path / "set.jsonl"
    text = "one\u2028two\x85three"
    path.write_text(json.dumps({"instruction": text}, ensure_ascii=False) + "\r\n\r\n", encoding="utf-8-sig")
    assert files.read_instructions(path) == [{"instruction": text}]
    path.write_text(json.dumps({"instruction": "Translate.", "input": "Hallo"}))
    with pytest.raises(DataError, match="input: Hallo"):
        files.read_instructions(path)


def test_a_scenario_of_helm_is_answered_request_by_request(tmp_path: Path, subject: Subject, scorer: Scorer) -> None:
    states = [{"instance": {"id": str(n)}, "request": REQUEST, "train_trial_index": 0} for n in range(2)]
    path = tmp_path / "scenario_state.json"
    path.write_text(json.dumps({"adapter_spec": {"method": "generation"}, "request_states": states}))
    state, wanted = files.read_scenario(path)
    assert [one.occurrence for one in wanted] == [0, 1, 2, 3]
    said = files.say_all(subject, scorer, wanted, 1, lambda count: None)
    answered = json.loads(files.helm(subject, state, said))
    assert [one["instance"]["id"] for one in answered["request_states"]] == ["0", "1"]
    found = [done for one in answered["request_states"] for done in one["result"]["completions"]]
    assert [one["text"] for one in found] == [one.text for one in said]
    ends = {*subject.recipe.tokens.stops, *(n for n in range(300) if token_text(subject, n).startswith("\n"))}
    sizes = [next((at for at, token in enumerate(one.new) if token in ends), len(one.new)) for one in said]
    assert [one["logprob"] for one in found] == [
        pytest.approx(sum(one.logprobs[:size])) for one, size in zip(said, sizes, strict=True)
    ]
    assert all(set(one) == {"text", "logprob", "tokens", "finish_reason"} for one in found)


def test_an_echo_for_helm_has_the_log_likelihoods_of_the_prompt(
    subject: Subject, scorer: Scorer, tmp_path: Path
) -> None:
    """What its perplexities and choices by likelihood are: a request of no new token, whose prompt is scored."""
    requests = [REQUEST | {"max_tokens": most, "num_completions": 1, "echo_prompt": True} for most in (0, 3)]
    path = tmp_path / "scenario_state.json"
    path.write_text(json.dumps({"request_states": [{"request": one} for one in requests]}))
    state, wanted = files.read_scenario(path)
    said = files.say_all(subject, scorer, wanted, 1, lambda count: None)
    scored, gone_on = (
        one["result"]["completions"][0] for one in json.loads(files.helm(subject, state, said))["request_states"]
    )
    ids = tuple(subject.encode("the dog"))
    (row,) = scorer.score([Row(ids, len(ids) - 1)])
    assert [one["logprob"] for one in scored["tokens"]] == [0.0, *row.logprobs] and scored["text"] == "the dog"
    assert scored["logprob"] == pytest.approx(sum(row.logprobs)) and sum(row.logprobs) < 0
    assert [one["logprob"] for one in gone_on["tokens"]][: len(ids)] == [0.0, *row.logprobs]
    assert len(gone_on["tokens"]) > len(ids) and gone_on["text"].startswith("the dog")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("{", DataError),
        ("[]", DataError),
        (json.dumps({"request_states": [{"request": {}}]}), DataError),
        (json.dumps({"request_states": [{"request": REQUEST | {"num_completions": 10**9}}]}), DataError),
        (json.dumps({"request_states": [{"request": REQUEST | {"max_tokens": float("inf")}}]}), DataError),
        (json.dumps({"request_states": [{"request": REQUEST | {"top_p": 0.5}}]}), UsageError),
        (json.dumps({"request_states": [{"request": REQUEST | {"messages": [{}]}}]}), UsageError),
    ],
)
def test_what_is_no_scenario_is_said(tmp_path: Path, content: str, kind: type[Exception]) -> None:
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(kind):
        files.read_scenario(tmp_path / "state.json")


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[1]", '[{"instruction": 3}]'])
def test_what_are_no_instructions_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / "set.json").write_text(content)
    with pytest.raises(DataError):
        files.read_instructions(tmp_path / "set.json")


def test_the_configuration_for_vllm_is_yaml_and_the_command_says_the_same(tmp_path: Path, subject: Subject) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    found = configuration(tmp_path, subject.recipe, "model")
    assert yaml.safe_load("\n".join(as_yaml(found))) == found
    assert found["dtype"] == "float32" and found["max-model-len"] == 64
    assert all(f"--{name} {value}" in command(found) for name, value in found.items() if name != "model")


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ self.__init__.__globals__ }}",
        "{% for a in range(10**9) %}x{% endfor %}",
        "{{ raise_exception('no') }}",
        "{{ messages[9]['role'] }}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_reaches_nothing_and_fails_in_words(template: str) -> None:
    made = ChatTemplate(template, {}, where="test")
    with pytest.raises(ValueError, match=r"\w"):
        made.render([{"role": "user", "content": "a"}])


def test_the_template_of_a_folder_is_found_where_transformers_puts_it(tmp_path: Path) -> None:
    assert template_in(tmp_path) is None
    config: dict[str, Any] = {
        "chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "bos_token": {"content": "<s>"},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = template_in(tmp_path)
    assert found is not None and found.render([{"role": "user", "content": "a"}]) == "<s>a"
    (tmp_path / "chat_template.jinja").write_text("{{ messages | tojson }}")
    found = template_in(tmp_path)
    assert found is not None and found.render([{"role": "u", "content": "<é>"}]) == '[{"role": "u", "content": "<é>"}]'
    (tmp_path / "chat_template.jinja").write_text("{% if")
    with pytest.raises(UsageError, match="chat template"):
        template_in(tmp_path)
