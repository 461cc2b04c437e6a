"""Conversations as recipes have them that name no ``dataset.chat_reference``: runs that were recorded so are verified so.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}

Of the tokenizer nothing is known here: ``bos_token`` and ``eos_token`` are those of tokenizers that are trained here, and marks
are text. A content is a text that is not empty, and JSON has no separators of its own. What the assistant says is found by
marks that are rendered with it, or by what each of its messages adds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from marin.data.chat import LEARNED, MARK, ROLES, check_calls, not_a_chat
from marin.data.documents import Span
from marin.data.template import LONGEST, MOST_TEXT, by_difference, raise_exception, unreadable
from marin.data.tokenizer import END_OF_TEXT
from marin.errors import NoConversation

BEGIN, END = "\ue000", "\ue001"
"""Of what a generation tag holds, while it is rendered: characters for private use, which no message may have."""
SPECIAL = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT}
_CANNOT = (TemplateError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)


class _Generation(Extension):
    """``{% generation %} ... {% endgeneration %}``, as transformers has it."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Any) -> str:
        return f"{BEGIN}{caller()}{END}"


class EarlierTemplate:
    """A compiled template.

    Raises:
        UsageError: it is not a template.
    """

    def __init__(self, text: str, *, where: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = raise_exception
        try:
            if len(text) > LONGEST:
                raise ValueError(f"{len(text)} characters")
            self._template = environment.from_string(text)
        except (TemplateError, ValueError, RecursionError) as error:
            raise unreadable(where, error) from None

    def learned(self, messages: Sequence[Mapping[str, Any]], tools: object, where: str) -> tuple[str, tuple[Span, ...]]:
        """The text of a whole conversation, and the spans of it that the assistant says.

        Raises:
            NoConversation: the template refuses it, or does not say what the assistant says.
        """
        try:
            whole = self._rendered(messages, tools, prompt=False)
            spans = _marked(whole) if BEGIN in whole else self._by_difference(messages, tools, whole)
        except ValueError as error:
            raise NoConversation(
                "the chat template cannot render a conversation",
                where=where,
                expected="messages that it takes",
                found=str(error)[:200],
                cure="correct or remove the line, or mark what the assistant says by {% generation %} in the template",
            ) from None
        return whole.replace(BEGIN, "").replace(END, ""), tuple(spans)

    def _by_difference(self, messages: Sequence[Mapping[str, Any]], tools: object, whole: str) -> list[Span]:
        return by_difference(lambda some, prompt: self._rendered(some, tools, prompt=prompt), messages, whole)

    def _rendered(self, messages: Sequence[Mapping[str, Any]], tools: object, *, prompt: bool) -> str:
        parts, size = [], 0
        try:
            for part in self._template.generate(
                messages=[dict(message) for message in messages], tools=tools, add_generation_prompt=prompt, **SPECIAL
            ):
                size += len(part)
                if size > MOST_TEXT:
                    raise ValueError(f"the rendered chat has more than {MOST_TEXT} characters")
                parts.append(part)
        except _CANNOT as error:
            raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None
        return "".join(parts)


def conversation(template: EarlierTemplate, value: Mapping[str, Any], where: str) -> tuple[str, tuple[Span, ...]]:
    """A line's conversation by ``template``: its text, and what of it is learned.

    Raises:
        NoConversation: it is not one, or the template does not take it.
    """
    messages = checked(value.get("messages"), where)
    if any(mark in json.dumps(messages, ensure_ascii=False) for mark in (BEGIN, END)):
        raise NoConversation(
            "not a chat document",
            where=where,
            expected="characters that are not for private use",
            found="U+E000 or U+E001",
            cure="correct or remove the line",
        )
    return template.learned(messages, value.get("tools"), where)


def _marked(text: str) -> list[Span]:
    """The spans between the marks, counted without them."""
    spans, taken, begin = [], 0, 0
    for place, letter in enumerate(text):
        if letter == BEGIN:
            taken, begin = taken + 1, place - taken
        elif letter == END:
            spans.append((begin, place - taken))
            taken += 1
    return spans


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """As transformers' filter: nothing is escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent if indent is None or indent < 9 else 8)


def render(messages: object, where: str) -> tuple[str, tuple[Span, ...]]:
    """The text of a conversation, and the spans in it that are learned.

    Raises:
        NoConversation: it is not one, or a content forges a mark.
    """
    pieces: list[str] = []
    spans: list[Span] = []
    size = 0
    for number, message in enumerate(checked(messages, where)):
        role, content = message["role"], message_text(message)
        if mark := MARK.search(content):
            raise not_a_chat(f"{where}, message {number}", "a content without the marks of turns", mark.group())
        head = f"<|{role}|>\n"
        if role == LEARNED:
            spans.append((size + len(head), size + len(head) + len(content) + 1))
        pieces += [head, content, "\n"]
        size += len(head) + len(content) + 1
    return "".join(pieces), tuple(spans)


def message_text(message: dict[str, Any]) -> str:
    """What a message says: its content, and each call of a tool as a line of JSON."""
    calls = [
        json.dumps({"name": call["function"]["name"], "arguments": call["function"]["arguments"]}, ensure_ascii=False)
        for call in message.get("tool_calls") or []
    ]
    return "\n".join([*([message["content"]] if message["content"] else []), *calls])


def checked(messages: object, where: str) -> list[dict[str, Any]]:
    """The messages of a conversation, each with a known role and something to say.

    Raises:
        NoConversation: it is not a list of messages, a role is unknown, nothing is said, or the assistant says nothing.
    """
    if not isinstance(messages, list) or not messages:
        found = "nothing" if messages is None else type(messages).__name__
        raise not_a_chat(where, "a list of messages in the field 'messages'", found)
    for number, message in enumerate(messages):
        at = f"{where}, message {number}"
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ROLES:
            raise not_a_chat(at, f"a role: {', '.join(ROLES)}", repr(role))
        calls = message.get("tool_calls") if role == LEARNED else None
        if calls:
            check_calls(calls, at)
        if not (calls and content is None) and (not isinstance(content, str) or not content.strip()):
            raise not_a_chat(at, "a content that is a text", "nothing" if not content else type(content).__name__)
        try:
            json.dumps(message, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise not_a_chat(at, "characters", "a lone surrogate") from None
    if not any(message["role"] == LEARNED for message in messages):
        raise not_a_chat(where, "at least one message of the assistant", "none: there is nothing to learn")
    return messages
