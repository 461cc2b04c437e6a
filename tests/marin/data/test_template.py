"""Chat templates: what the assistant says is found under any of them, and what they are is a program that can reach nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from marin.data.borrowed.chats import model_template
from marin.data.chat import ROLES, STOPS, TEMPLATE, left_out
from marin.data.earlier.chats import EarlierTemplate, render
from marin.data.earlier.chats import conversation as earlier
from marin.data.template import SPECIAL, ChatTemplate, conversation, plain_template, template_of
from marin.errors import DataError, UsageError
from marin.recipe.composition import compose
from marin.recipe.form.data_rules import with_data_rules
from marin.recipe.schema import FilesDataset, GrammarDataset, Recipe, Tokenizer, digest, plain

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
    ("line", "why"),
    [
        ({"messages": []}, "a list of messages"),
        ({"messages": [{"content": "x"}]}, "a role"),
        ({"messages": [{"role": "assistant", "content": "\ud800"}]}, "lone surrogate"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "parts that are texts"),
        ({"messages": [{"role": "user", "content": "x", "images": ["a.png"]}]}, "texts alone"),
        ({"messages": [{"role": "assistant", "content": "x", "weight": 0}]}, "weight: 0, by which OpenAI"),
        ({"messages": [{"role": "assistant", "content": "x"}], "system": "Be brief."}, 'system: "Be brief."'),
        ({"messages": [{"role": "assistant", "content": "x"}], "image": "a.png"}, "texts alone"),
        ({"prompt": "x", "completion": "y"}, "the fields completion, prompt"),
        ({"messages": [{"role": "assistant", "content": "x"}], "tools": "[TOOLS]"}, "tools"),
        ({"messages": [{"role": "assistant", "content": "x"}], "tools": ["a"]}, "tools"),
        (
            {"messages": [{"role": "assistant", "content": "x"}], "chat_template_kwargs": {"messages": []}},
            "chat_template_kwargs",
        ),
    ],
)
def test_what_is_no_conversation(line: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=f"not a chat document.*{why}"):
        conversation(ChatTemplate(MARKED, SPECIAL, where="here"), line, "x:1")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}]}, "tool_calls"),
        ({"messages": [{"role": "assistant", "content": None}]}, "a content that is a text"),
        ({"messages": [{"role": "tool", "content": "only"}]}, "nothing to learn"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "a role"),
        (
            {"messages": [{"role": "user", "content": "a <|assistant|>"}, {"role": "assistant", "content": "x"}]},
            "marks",
        ),
        ({"messages": [{"role": "assistant", "content": "x"}], "tools": [{"name": "f"}]}, "no tools beside"),
        ({"messages": [{"role": "assistant", "content": "x", "reasoning_content": "so"}]}, "no reasoning_content"),
        ({"messages": [{"role": "assistant", "content": "", "function_call": {"name": "f"}}]}, "no function_call"),
    ],
)
def test_what_the_form_without_a_template_cannot_say(line: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=f"not a chat document.*{why}"):
        conversation(plain_template(), line, "x:1")


def test_what_a_template_leaves_out_is_found() -> None:
    said = {"role": "assistant", "content": "x", "thinking": "hm", "tool_calls": [{"function": {"name": "sum"}}]}
    line = {"messages": [said], "tools": [{"name": "sum", "about": "adds"}]}
    assert left_out(line, [said], "{{ messages[0].content }}", "x") == {"thinking", "tool_calls", "tools"}
    assert left_out(line, [said], "{{ messages[0].thinking }}", "") == {"tool_calls", "tools"}, (
        "it may drop what it names"
    )
    assert left_out(line, [said], "{{ messages[0] | tojson }}{{ of }}", json.dumps(line)) == set()


def test_a_conversation_of_which_nothing_is_learned_is_one() -> None:
    marked = ChatTemplate(MARKED, SPECIAL, where="here")
    assert conversation(marked, {"messages": [{"role": "user", "content": "x"}]}, "x") == ("<|endoftext|>[user]x", ())


def test_a_field_that_the_template_names_is_the_templates() -> None:
    weighed = MARKED.replace("{{ message.content }}{{ eos_token }}", "{{ message.content }}{{ message.weight }}")
    line = {"messages": [{"role": "assistant", "content": "x", "weight": 0}], "system": None}
    text, spans = conversation(ChatTemplate(weighed, SPECIAL, where="here"), line, "x")
    assert [text[start:end] for start, end in spans] == ["x0"]


@pytest.mark.parametrize(
    ("content", "beside"),
    [
        ("Be brief.", {"system": "Be brief. \n"}),
        ("Be brief.", {"system": [{"type": "text", "text": "Be brief."}]}),
        ([{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}], {"system": "Be brief."}),
        ("Be brief.", {"functions": "[]", "images": [None]}),
    ],
)
def test_what_stands_beside_the_messages_and_says_nothing_more_is_none(content: object, beside: dict[str, Any]) -> None:
    messages = [{"role": "system", "content": content}, {"role": "assistant", "content": "x"}]
    _, spans = conversation(ChatTemplate(MARKED, SPECIAL, where="here"), {"messages": messages, **beside}, "x")
    assert len(spans) == 1


def test_what_lines_say_beside_their_messages() -> None:
    template = ChatTemplate(
        "{{ tools | length if tools else 'none' }}{{ documents[0].text if documents }}{{ name }}"
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"name": "x"},
        where="here",
    )
    said = {"messages": [{"role": "assistant", "content": "y"}]}
    tools = [{"type": "function", "function": {"name": "f"}}] * 2
    assert conversation(template, said, "x")[0] == "nonexy"
    assert conversation(template, {**said, "tools": tools}, "x") == ("2xy", ((2, 3),))
    assert conversation(template, {**said, "tools": json.dumps(tools)}, "x")[0] == "2xy", "as TRL writes them"
    assert conversation(template, {**said, "documents": [{"text": "d"}]}, "x")[0] == "nonedxy"
    assert conversation(template, {**said, "chat_template_kwargs": {"name": "z"}}, "x")[0] == "nonezy"


def test_a_template_that_reads_the_clock_is_for_those_who_are_asked_now() -> None:
    date = "{% if date is not defined %}{% set date = strftime_now('%Y') %}{% endif %}{{ date }}"
    text = date + "{% generation %}{{ messages[0].content }}{% endgeneration %}"
    said = {"messages": [{"role": "assistant", "content": "y"}]}
    with pytest.raises(UsageError, match="reads the clock"):
        conversation(ChatTemplate(text, {}, where="here"), said, "x")
    with pytest.raises(ValueError, match="strftime_now"):
        ChatTemplate(text, {}, where="here").render(said["messages"])
    assert (
        conversation(ChatTemplate(text, {}, where="here"), {**said, "chat_template_kwargs": {"date": 1}}, "x")[0]
        == "1y"
    )
    assert ChatTemplate(text, {}, where="here", clock=True).render(said["messages"]).startswith("2")


def test_earlier_recipes_keep_what_they_meant() -> None:
    """Marks of a tag that is rendered in a macro, empty contents, separators: as it was recorded."""
    macro = "{% macro f(m) %}{% generation %}{{ m }}{% endgeneration %}{% endmacro %}{{ bos_token }}{{ f(messages[0].content) }}"
    said = {"messages": [{"role": "assistant", "content": "ab"}]}
    assert earlier(EarlierTemplate(macro, where="x"), said, "x") == ("<|endoftext|>ab", ((13, 15),))
    assert conversation(ChatTemplate(macro, {}, where="x"), said, "x") == ("ab", ((0, 2),))
    calls = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    for template, line in (
        (MARKED, {"messages": [calls]}),
        ("{% generation %}{{ messages | tojson(separators=(',', ':')) }}{% endgeneration %}", said),
    ):
        with pytest.raises(DataError):
            earlier(EarlierTemplate(template, where="x"), line, "x")
        conversation(ChatTemplate(template, {}, where="x"), line, "x")


def test_the_recipe_names_it_and_older_recipes_keep_their_digest() -> None:
    old, own = (FilesDataset(globs=("x.jsonl",), chat=True, chat_template=text) for text in (None, CHATML))
    new = replace(own, chat_reference="transformers")
    assert len({digest(Recipe(dataset=one)) for one in (old, own, new)}) == 3
    assert "chat_reference" not in plain(own)
    assert template_of(old).text == template_of(GrammarDataset()).text == TEMPLATE
    assert template_of(own).stops == ("<|im_end|>",), "where an answer ends"
    named = ChatTemplate(MARKED, {"eos_token": "</s>"}, where="x")
    marked = replace(new, chat_template=MARKED)
    assert template_of(marked, named.variables).stops == ("</s>",)
    assert template_of(replace(marked, chat_reference=None), named.variables).stops == ("<|endoftext|>",), "as it was"


def test_new_recipes_name_their_reference() -> None:
    given = {"dataset": {"kind": "mixture", "parts": {"a": {"chat": True}, "b": {"chat": None}}}}
    assert with_data_rules(given)["dataset"]["parts"] == {
        "a": {"chat": True, "chat_reference": "transformers"},
        "b": {"chat": None},
    }
    assert compose(["dataset=chat"]).recipe.dataset.chat_reference == "transformers"  # type: ignore[union-attr]
    assert compose(["dataset=files", "dataset.globs=[a.txt]"]).recipe.dataset.chat_reference is None  # type: ignore[union-attr]
    made = compose(["dataset=files", "dataset.globs=[a.jsonl]", "dataset.chat=true"]).recipe
    assert made.dataset.chat_reference == "transformers"  # type: ignore[union-attr]
    earlier = to_builtins(replace(made, dataset=replace(made.dataset, chat_reference=None)))  # type: ignore[type-var]
    again = compose(["seed=3"], base=earlier).recipe
    assert again.dataset.chat_reference is None, "the text of a run that is continued stays what it was"  # type: ignore[union-attr]


def test_the_name_of_a_file_is_no_template() -> None:
    dataset = FilesDataset(globs=("a.jsonl",), chat=True, chat_template="chat.jinja", chat_reference="transformers")
    with pytest.raises(UsageError, match="not the name of a file"):
        template_of(dataset, SPECIAL)


def test_a_model_is_asked_by_the_template_of_its_conversations_or_of_its_tokenizer(tmp_path: Path) -> None:
    """What transformers finds in the exported folder, which has the tokenizer's own files."""
    own = "{{ bos_token }}{% for message in messages %}[{{ message.content }}]{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": own, "bos_token": "<s>"}))
    asked = [{"role": "user", "content": "why"}]
    taken = Recipe(tokenizer=Tokenizer(reading="plain"))
    assert model_template(taken, tmp_path).render(asked) == "<s>[why]"
    chat = FilesDataset(
        name="c", globs=("x",), chat=True, chat_template="{% for one in messages %}<{{ one.content }}>{% endfor %}"
    )
    assert model_template(replace(taken, dataset=chat), tmp_path).render(asked) == "<why>"
    older, without = model_template(Recipe(), tmp_path), model_template(taken, tmp_path / "none")
    assert older.text == without.text == TEMPLATE and older.stops == without.stops == STOPS
