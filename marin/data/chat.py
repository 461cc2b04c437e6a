"""Chat documents: messages in roles, written as one text, with the stretches that a model shall learn to say.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}

Each message becomes ``<|role|>``, a line end, its content and a line end. Learned is what the assistant says, with the
line end that closes it; roles and everybody else's words are context. The marks are plain text to the tokenizer, so a
content that contains one is refused: it could forge a turn.
"""

from __future__ import annotations

import re

from marin.errors import DataError

ROLES = ("system", "user", "assistant")
LEARNED = "assistant"
_MARK = re.compile(r"<\|(?:" + "|".join(ROLES) + r")\|>")

Span = tuple[int, int]
"""Where a stretch of a text begins and ends, in characters."""


def render(messages: object, where: str) -> tuple[str, tuple[Span, ...]]:
    """The text of a conversation, and the spans in it that are learned.

    Raises:
        DataError: it is no list of messages, a role is unknown, a content forges a mark, or the assistant says nothing.
    """
    if not isinstance(messages, list) or not messages:
        found = "nothing" if messages is None else type(messages).__name__
        raise _bad(where, "a list of messages in the field 'messages'", found)
    pieces: list[str] = []
    spans: list[Span] = []
    size = 0
    for number, message in enumerate(messages):
        at = f"{where}, message {number}"
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ROLES:
            raise _bad(at, f"a role: {', '.join(ROLES)}", repr(role))
        if not isinstance(content, str) or not content.strip():
            raise _bad(at, "a content that is a text", "nothing" if not content else type(content).__name__)
        if mark := _MARK.search(content):
            raise _bad(at, "a content without the marks of turns", mark.group())
        try:
            content.encode("utf-8")
        except UnicodeEncodeError:
            raise _bad(at, "characters", "a lone surrogate") from None
        head = f"<|{role}|>\n"
        if role == LEARNED:
            spans.append((size + len(head), size + len(head) + len(content) + 1))
        pieces += [head, content, "\n"]
        size += len(head) + len(content) + 1
    if not spans:
        raise _bad(where, "at least one message of the assistant", "none: there is nothing to learn")
    return "".join(pieces), tuple(spans)


def _bad(where: str, expected: str, found: str) -> DataError:
    return DataError(
        "not a chat document", where=where, expected=expected, found=found, cure="correct or remove the line"
    )
