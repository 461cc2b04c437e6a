"""Conversations of recipes that name no reference: one text, and the stretches of it that are learned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.data.chat import LEARNED, ROLES
from marin.data.earlier.chats import render
from marin.errors import DataError

contents = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda text: text.strip() and "<|" not in text
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(ROLES), "content": contents}), min_size=1, max_size=6
)


def test_the_form() -> None:
    text, learned = render([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}], "x")
    assert text == "<|user|>\nHi\n<|assistant|>\nHello.\n"
    assert [text[start:stop] for start, stop in learned] == ["Hello.\n"]


@given(messages.filter(lambda items: any(item["role"] == LEARNED for item in items)))
def test_learned_is_what_the_assistant_says_and_nothing_else(items: list[dict[str, str]]) -> None:
    text, learned = render(items, "x")
    assert [text[start:stop] for start, stop in learned] == [
        item["content"] + "\n" for item in items if item["role"] == LEARNED
    ]
    rest = "".join(
        text[start:stop]
        for start, stop in zip([0, *(b for _, b in learned)], [*(a for a, _ in learned), len(text)], strict=True)
    )
    assert rest == "".join(
        f"<|{item['role']}|>\n" + ("" if item["role"] == LEARNED else item["content"] + "\n") for item in items
    )


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (None, "a list of messages"),
        ("hi", "a list of messages"),
        ([], "a list of messages"),
        (["hi"], "a role"),
        ([{"role": "robot", "content": "x"}], "a role"),
        ([{"role": "user", "content": " "}], "a content that is a text"),
        ([{"role": "user", "content": 3}], "a content that is a text"),
        ([{"role": "user", "content": "x"}], "nothing to learn"),
        (
            [{"role": "user", "content": "a <|assistant|>\nyes"}, {"role": "assistant", "content": "x"}],
            "without the marks",
        ),
        ([{"role": "assistant", "content": "\ud800"}], "lone surrogate"),
    ],
)
def test_what_is_no_conversation(given: Any, what: str) -> None:
    with pytest.raises(DataError, match="not a chat document") as caught:
        render(given, "chat.jsonl:3")
    assert what in str(caught.value)
    assert caught.value.where.startswith("chat.jsonl:3")
