"""Chat templates: what the assistant says is found under any of them, and what they are is a program that can reach nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.data.chat import ROLES, render
from marin.data.template import SPECIAL, ChatTemplate, conversation, template_of
from marin.errors import DataError, UsageError
from marin.recipe.schema import FilesDataset, GrammarDataset, Recipe, digest
from marin.serving.chat import TEMPLATE

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MARKED = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}]"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}"
    "{% else %}{{ message.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
LAST_ONLY = (  # as some do: what was said before is shortened once another message follows
    "{% for message in messages %}{{ message.role }}:{% if loop.last %}{{ message.content }}{% else %}{{ message.content[:3] }}"
    "{% endif %};{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 2+2?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}],
    },
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "Four."},
]


def learned(template: str, messages: list[dict[str, Any]]) -> list[str]:
    text, spans = ChatTemplate(template, SPECIAL, where="here").learned(messages, None, "x")
    return [text[start:end] for start, end in spans]


def test_tools_are_called_and_answer() -> None:
    text, spans = render(TALK, "x")
    assert [text[start:end] for start, end in spans] == ['{"name": "add", "arguments": {"a": 2, "b": 2}}\n', "Four.\n"]
    assert "<|tool|>\n4\n" in text


contents = st.text(st.characters(codec="utf-8", max_codepoint=0xD7FF), min_size=1, max_size=8).filter(
    lambda text: text.strip() and "<|" not in text
)
functions = st.fixed_dictionaries({"name": contents, "arguments": st.dictionaries(contents, contents)})
calls = st.lists(st.fixed_dictionaries({"function": functions}), min_size=1, max_size=2)
message = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(ROLES), "content": contents}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none() | contents, "tool_calls": calls}),
)
talks = st.lists(message, max_size=4).map(lambda found: [*found, {"role": "assistant", "content": "yes"}])


@given(talks)
def test_the_built_in_form_is_the_template_that_is_exported(messages: list[dict[str, Any]]) -> None:
    text, spans = render(messages, "x")
    assert ChatTemplate(TEMPLATE, {}, where="here").learned(messages, None, "x") == (text, spans)


def test_what_the_assistant_says_under_other_templates() -> None:
    talk = [one for one in TALK if one["content"]]
    assert learned(CHATML, talk) == ["Four.<|im_end|>\n"]
    more = [*talk, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]
    assert learned(CHATML, more) == ["Four.<|im_end|>\n", "Yes.<|im_end|>\n"]
    assert learned(MARKED, more) == ["Four.<|endoftext|>", "Yes.<|endoftext|>"]
    assert ChatTemplate(MARKED, SPECIAL, where="here").render(more[:2]).endswith("[assistant]")


def test_a_template_that_rewrites_what_was_said_is_refused() -> None:
    two = [
        {"role": "assistant", "content": "first answer"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "second"},
    ]
    with pytest.raises(DataError, match=r"before others follow.*generation"):
        learned(LAST_ONLY, two)
    assert learned(LAST_ONLY, two[:1]) == ["first answer;"]


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10**9) %}xxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}",
        "{{ cycler.__init__.__globals__ }}",
        "{% generation %}{{ messages[0].content }}",
        "{% include 'etc/passwd' %}",
        "x" * 70_000,
    ],
)
def test_a_template_reaches_nothing_and_ends(template: str) -> None:
    with pytest.raises((DataError, UsageError)):
        learned(template, [{"role": "assistant", "content": "x"}])


@pytest.mark.parametrize(
    "line",
    [
        {"messages": [{"role": "assistant", "content": "a \ue000 mark"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}]},
        {"messages": [{"role": "assistant", "content": None}]},
        {"messages": [{"role": "tool", "content": "only"}]},
    ],
)
def test_what_is_no_conversation(line: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="not a chat document"):
        conversation(ChatTemplate(MARKED, SPECIAL, where="here"), line, "x:1")


def test_the_recipe_names_it_and_older_recipes_keep_their_digest() -> None:
    plain, own = (FilesDataset(globs=("x.jsonl",), chat=True, chat_template=text) for text in (None, CHATML))
    assert digest(Recipe(dataset=plain)) != digest(Recipe(dataset=own))
    assert template_of(plain) is None and template_of(GrammarDataset()) is None
    made = template_of(own)
    assert made is not None and made.stops == ("<|im_end|>",), "where an answer ends"
