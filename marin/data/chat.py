"""Chat documents: messages in roles, written as one text, with the stretches that a model shall learn to say.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}

Messages are as the Hub has them, any number of turns; what a message may hold, its template says
(:mod:`marin.data.template`). Without a template they have the form of :data:`TEMPLATE`: each becomes ``<|role|>``, a line end,
its content, its calls of tools (one JSON object a line) and a line end. Learned is what the assistant says, with the line end
that closes it; roles and everybody else's words are context. These marks are plain text to the tokenizer, so a content that
contains one is refused: it could forge a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from marin.errors import NoConversation

ROLES = ("system", "user", "assistant", "tool")
LEARNED = "assistant"
MARK = re.compile(r"<\|(?:" + "|".join(ROLES) + r")\|>")
TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in " + repr(list(ROLES)) + " -%}"
    "{{ raise_exception('a role is " + ", ".join(ROLES) + "') }}"
    "{%- endif -%}"
    "{{ '<|' + message['role'] + '|>\\n' + (message['content'] or '') }}"
    "{%- for call in message['tool_calls'] or [] -%}"
    "{{ ('\\n' if message['content'] or not loop.first else '') + "
    "{'name': call['function']['name'], 'arguments': call['function']['arguments']} | tojson }}"
    "{%- endfor -%}"
    "{{ '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"
)
"""The form of a data set that names no template, as transformers and vLLM render it."""
STOPS = tuple(f"\n<|{role}|>" for role in ROLES)
"""Where an answer under :data:`TEMPLATE` ends: at the next turn."""

UNLEARNED = {"weight": "OpenAI", "loss": "ms-swift", "train": "axolotl"}
"""Fields of a message by which others leave it out of what is learned, with 0 or false."""
BESIDE = {"system": "LLaMA-Factory", "functions": "OpenAI"}
"""Fields of a line whose content others put before its messages."""
SAYING = ("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "refusal")
"""Fields of a message in which something is said beside its content."""
AMBIGUOUS = {"human": "user", "gpt": "assistant"}
"""Roles of ShareGPT, and what axolotl makes of them."""


def messages_of(value: Mapping[str, Any], where: str) -> object:
    """The messages of a line, whatever they are: :func:`checked` says. ``{"conversations": [{"from": ROLE, "value": TEXT}]}`` is
    read as TRL's trainer reads it (1.16.0, ``maybe_convert_to_chatml``).

    Raises:
        NoConversation: tools differ in what these roles mean, or the conversation stands in a field that none reads.
    """
    turns = value.get("conversations")
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], dict):
        if "messages" not in value:
            found = ", ".join(sorted(map(str, value)))[:80] or "nothing"
            cure = (
                "write a line as messages of role and content: what is asked is the user's, the answer the assistant's"
            )
            raise not_a_chat(where, "a list of messages in the field 'messages'", f"the fields {found}", cure)
        return value["messages"]
    if not ("from" in turns[0] and "value" in turns[0]):
        if "messages" in value:
            return value["messages"]
        raise not_a_chat(
            where, "messages in the field 'messages'", "in 'conversations'", "call the field 'messages' in every line"
        )
    roles = [turn.get("from") for turn in turns if isinstance(turn, dict)]
    if odd := next((role for role in roles if isinstance(role, str) and role in AMBIGUOUS), None):
        raise not_a_chat(
            where,
            f"a role that every tool reads alike: {', '.join(ROLES)}",
            f"{odd!r}, which TRL hands to the template as it is and axolotl calls {AMBIGUOUS[odd]!r}",
            "write user for human and assistant for gpt in every line",
        )
    return [_renamed(turn) if isinstance(turn, dict) else turn for turn in turns]


def _renamed(turn: Mapping[str, Any]) -> dict[str, Any]:
    names = {"from": "role", "value": "content"}
    rest = {name: item for name, item in turn.items() if name not in names}
    return rest | {names[name]: turn[name] for name in names if name in turn}


def checked(messages: object, where: str) -> list[dict[str, Any]]:
    """The messages of a conversation, for a template to take or to refuse: each with a role, and of texts alone.

    Raises:
        NoConversation: it is not a list of messages, one has no role, or holds what is not text (an image, half a character).
    """
    if not isinstance(messages, list) or not messages:
        found = "nothing" if messages is None else "an empty list" if messages == [] else type(messages).__name__
        raise not_a_chat(where, "a list of messages in the field 'messages'", found)
    for number, message in enumerate(messages):
        at = f"{where}, message {number}"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or not role:
            raise not_a_chat(at, f"a role, such as {', '.join(ROLES)}", repr(role))
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        odd = [part for part in parts if not (isinstance(part, dict) and isinstance(part.get("text"), str))]
        if odd or not isinstance(content, str | list | None):
            raise not_a_chat(at, "a content that is a text, or parts that are texts", _kind(odd[0] if odd else content))
        for name in ("images", "audio", "video"):
            if message.get(name):
                raise not_a_chat(at, "texts alone", name)
        try:
            json.dumps(message, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise not_a_chat(at, "characters", "a lone surrogate") from None
    return messages


def check_nothing_is_left_out(
    value: Mapping[str, Any], messages: list[dict[str, Any]], template: str, where: str
) -> None:
    """Refuse a line with a field that another tool obeys and that no template of transformers sees, where its value would change
    what is said or learned. A field of a message that ``template`` names is the template's.

    Raises:
        NoConversation: it has one.
    """
    for number, message in enumerate(messages):
        for name, tool in UNLEARNED.items():
            if message["role"] == LEARNED and message.get(name, 1) in (0, False) and not _names(template, name):
                raise not_a_chat(
                    f"{where}, message {number}",
                    "answers that are all learned, as transformers and TRL learn them",
                    f"{name}: {json.dumps(message[name])}, by which {tool} leaves this one out",
                    f"let the line end before it or after it, or let the template's {{% generation %}} ask for {name}",
                )
    first = _text_of(messages[0].get("content")) if messages[0]["role"] == "system" else None
    for name, tool in BESIDE.items():
        if value.get(name) not in (None, "", "[]", "{}", [], {}) and _text_of(value[name]) != first:
            raise not_a_chat(
                where,
                "all that is said in the messages; transformers and TRL leave out what stands beside them",
                f"{name}: {json.dumps(value[name])[:80]}, which {tool} puts before them",
                "make it a message",
            )
    for name in ("image", "images", "video", "videos", "audio", "audios"):
        if value.get(name) not in (None, "", [], [None]):
            raise not_a_chat(where, "texts alone", name)
    if value.get("documents") and "documents" in template and not objects(value["documents"]):
        raise not_a_chat(
            where, "documents: a list of objects, as transformers takes them", repr(value["documents"])[:80]
        )


def _text_of(content: object) -> object:
    """What a content says, which stands as a text or as its parts; another value as it is."""
    parts: list[Any] = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "".join(texts).strip() if len(texts) == len(parts) else content


def _names(template: str, field: str) -> bool:
    return re.search(rf"""[.'"]{field}\b""", template) is not None


def objects(value: object) -> bool:
    """Whether it is a list of objects."""
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _kind(value: object) -> str:
    return str(value.get("type", "no text"))[:80] if isinstance(value, dict) else type(value).__name__


def left_out(value: Mapping[str, Any], messages: list[dict[str, Any]], template: str, text: str) -> set[str]:
    """Fields of a line or its messages in which something is said that ``template`` does not name and that is not in the ``text``
    that it made, as transformers leaves it out."""
    said = [("tools", value.get("tools")), *((name, one.get(name)) for one in messages for name in SAYING)]
    return {
        name
        for name, item in said
        if item not in (None, "", "[]", [], {})
        and re.search(rf"\b{name}\b", template) is None
        and not any(one.strip() in text for one in texts_of(item) if one.strip())
    }


def check_plain(messages: list[dict[str, Any]], where: str, tools: object = None) -> None:
    """Refuse what the form without a template cannot say: tools, thoughts, other roles, no text, calls without a name, forged
    marks.

    Raises:
        NoConversation: a message is so.
    """
    other = "a template that writes it: name one in dataset.chat_template"
    if tools not in (None, "", "[]", []):
        raise not_a_chat(where, f"no tools beside the messages, or {other}", "tools", "name a template")
    for number, message in enumerate(messages):
        if odd := next((name for name in SAYING if message.get(name) and name != "tool_calls"), None):
            raise not_a_chat(
                f"{where}, message {number}", f"no {odd} beside the content, or {other}", odd, "name a template"
            )
    for number, message in enumerate(messages):
        at, content = f"{where}, message {number}", message.get("content")
        if message["role"] not in ROLES:
            raise not_a_chat(at, f"a role: {', '.join(ROLES)}", repr(message["role"]))
        if isinstance(content, list):
            raise not_a_chat(at, "a content that is a text; a template may take parts", "a list of parts")
        calls = message.get("tool_calls") if message["role"] == LEARNED else None
        if calls:
            check_calls(calls, at)
        elif message["role"] in ("user", LEARNED) and not (content or "").strip():
            raise not_a_chat(at, "a content that is a text", "nothing")
        if mark := next((mark for text in texts_of(message) if (mark := MARK.search(text))), None):
            raise not_a_chat(at, "a content without the marks of turns", mark.group())


def texts_of(value: object) -> Iterator[str]:
    """Every text in a value of JSON, but for the names of its fields and the role."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if name != "role":
                yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)


def check_calls(calls: object, at: str) -> None:
    """Raises NoConversation unless these are calls of functions: a name, and arguments as an object or its JSON."""
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        if not isinstance(function.get("name"), str) or not isinstance(function.get("arguments"), dict | str):
            raise not_a_chat(at, "tool_calls: a function's name and arguments each", repr(call)[:80])


def not_a_chat(where: str, expected: str, found: str, cure: str = "correct or remove the line") -> NoConversation:
    """The refusal of a line."""
    return NoConversation("not a chat document", where=where, expected=expected, found=found, cure=cure)
