"""Chat documents: messages in roles, written as one text, with the stretches that a model shall learn to say.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}

Messages are as the Hub has them: roles system, user, assistant and tool, any number of turns; an assistant may call tools
(``tool_calls``: a function's name and arguments), with or without a content. Each message becomes ``<|role|>``, a line end, its
content, its calls (one JSON object a line) and a line end. Learned is what the assistant says, with the line end that closes it;
roles and everybody else's words are context. The marks are plain text to the tokenizer, so a content that contains one is
refused: it could forge a turn. Another form is a chat template (:mod:`marin.data.template`).
"""

from __future__ import annotations

import json
import re
from typing import Any

from marin.errors import NoConversation

ROLES = ("system", "user", "assistant", "tool")
LEARNED = "assistant"
_MARK = re.compile(r"<\|(?:" + "|".join(ROLES) + r")\|>")

Span = tuple[int, int]
"""Where a stretch of a text begins and ends, in characters."""


def render(messages: object, where: str) -> tuple[str, tuple[Span, ...]]:
    """The text of a conversation, and the spans in it that are learned.

    Raises:
        NoConversation: it is none, or a content forges a mark.
    """
    pieces: list[str] = []
    spans: list[Span] = []
    size = 0
    for number, message in enumerate(checked(messages, where)):
        role, content = message["role"], said(message)
        if mark := _MARK.search(content):
            raise _bad(f"{where}, message {number}", "a content without the marks of turns", mark.group())
        head = f"<|{role}|>\n"
        if role == LEARNED:
            spans.append((size + len(head), size + len(head) + len(content) + 1))
        pieces += [head, content, "\n"]
        size += len(head) + len(content) + 1
    return "".join(pieces), tuple(spans)


def said(message: dict[str, Any]) -> str:
    """What a message says: its content, and each call of a tool as a line of JSON."""
    calls = [
        json.dumps({"name": call["function"]["name"], "arguments": call["function"]["arguments"]}, ensure_ascii=False)
        for call in message.get("tool_calls") or []
    ]
    return "\n".join([*([message["content"]] if message["content"] else []), *calls])


def checked(messages: object, where: str) -> list[dict[str, Any]]:
    """The messages of a conversation, each with a known role and something to say.

    Raises:
        NoConversation: it is no list of messages, a role is unknown, nothing is said, or the assistant says nothing.
    """
    if not isinstance(messages, list) or not messages:
        found = "nothing" if messages is None else type(messages).__name__
        raise _bad(where, "a list of messages in the field 'messages'", found)
    for number, message in enumerate(messages):
        at = f"{where}, message {number}"
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ROLES:
            raise _bad(at, f"a role: {', '.join(ROLES)}", repr(role))
        calls = message.get("tool_calls") if role == LEARNED else None
        if calls:
            _check_calls(calls, at)
        if not (calls and content is None) and (not isinstance(content, str) or not content.strip()):
            raise _bad(at, "a content that is a text", "nothing" if not content else type(content).__name__)
        try:
            json.dumps(message, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise _bad(at, "characters", "a lone surrogate") from None
    if not any(message["role"] == LEARNED for message in messages):
        raise _bad(where, "at least one message of the assistant", "none: there is nothing to learn")
    return messages


def _check_calls(calls: object, at: str) -> None:
    """Raises NoConversation unless these are calls of functions: a name, and arguments as an object or its JSON."""
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        if not isinstance(function.get("name"), str) or not isinstance(function.get("arguments"), dict | str):
            raise _bad(at, "tool_calls: a function's name and arguments each", repr(call)[:80])


def _bad(where: str, expected: str, found: str) -> NoConversation:
    return NoConversation(
        "not a chat document", where=where, expected=expected, found=found, cure="correct or remove the line"
    )
