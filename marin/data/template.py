"""Chat templates: messages as a text by a Jinja template, in jinja2's sandbox, and what of that text the assistant says.

Templates are foreign programs in a small language: the sandbox gives them no file, no module and no attribute of ours. They
get what transformers gives them: ``messages``, ``tools``, ``add_generation_prompt``, the special tokens, ``raise_exception``,
``tojson``, and the tag ``{% generation %}`` around what the assistant says. Where a template has that tag, it says what is
learned; otherwise that follows from the text with and without each of the assistant's messages, and a template whose text before
a message depends on what comes after it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from marin.data.chat import LEARNED, Span, checked
from marin.data.tokenizer import END_OF_TEXT
from marin.errors import NoConversation, UsageError
from marin.recipe.schema import Dataset, FilesDataset

LONGEST = 65_536
"""Characters of a template."""
MOST_TEXT = 4_000_000
"""Characters of what it renders."""
BEGIN, END = "\ue000", "\ue001"
"""Of what a generation tag holds, while it is rendered: characters for private use, which no message may have."""
SPECIAL = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT}
"""The special tokens of the tokenizers that are trained here."""
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


class ChatTemplate:
    """A compiled template. ``variables``: what else it may name (``bos_token`` and the like). ``stops``: texts at which an
    answer under it ends.

    Raises:
        UsageError: it is no template.
    """

    def __init__(self, text: str, variables: Mapping[str, str], *, where: str, stops: tuple[str, ...] = ()) -> None:
        self.text, self.variables, self.stops = text, dict(variables), stops
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        try:
            if len(text) > LONGEST:
                raise ValueError(f"{len(text)} characters")
            self._template = environment.from_string(text)
        except (TemplateError, ValueError, RecursionError) as error:
            raise UsageError(
                "a chat template that cannot be read",
                where=where,
                expected=f"a jinja2 template of at most {LONGEST} characters",
                found=" ".join(str(error).split())[:200],
                cure="name another with --chat-template",
            ) from None

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt after which the assistant speaks.

        Raises:
            ValueError: the template refuses these messages, or cannot render them.
        """
        return self._rendered(messages, None, prompt=True).replace(BEGIN, "").replace(END, "")

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
        """What each of the assistant's messages adds after the prompt before it."""
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != LEARNED:
                continue
            before = self._rendered(messages[:number], tools, prompt=True)
            after = self._rendered(messages[: number + 1], tools, prompt=False)
            if not (whole.startswith(after) and after.startswith(before)):
                raise ValueError(f"message {number} is another text before others follow it")
            spans.append((len(before), len(after)))
        return spans

    def _rendered(self, messages: Sequence[Mapping[str, Any]], tools: object, *, prompt: bool) -> str:
        parts, size = [], 0
        try:
            for part in self._template.generate(
                messages=[dict(message) for message in messages],
                tools=tools,
                add_generation_prompt=prompt,
                **self.variables,
            ):
                size += len(part)
                if size > MOST_TEXT:
                    raise ValueError(f"the rendered chat has more than {MOST_TEXT} characters")
                parts.append(part)
        except _CANNOT as error:
            raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None
        return "".join(parts)


def template_of(dataset: Dataset) -> ChatTemplate | None:
    """The template that a data set's conversations are written by; None: the form of :mod:`marin.data.chat`. An answer ends
    where the template closes the assistant's message.

    Raises:
        UsageError: it is no template.
    """
    text = dataset.chat_template if isinstance(dataset, FilesDataset) else None
    if text is None:
        return None
    where = "dataset.chat_template"
    plain, answer = ChatTemplate(text, SPECIAL, where=where), "an answer"
    try:
        asked = [{"role": "user", "content": "a question"}, {"role": LEARNED, "content": answer}]
        said, _ = plain.learned(asked, None, where)
        end = said.rpartition(answer)[2].strip()
    except NoConversation as error:
        raise UsageError("a chat template that renders no conversation", where=where, found=error.found) from None
    return ChatTemplate(text, SPECIAL, where=where, stops=(end,) if end else ())


def conversation(template: ChatTemplate, value: Mapping[str, Any], where: str) -> tuple[str, tuple[Span, ...]]:
    """A line's conversation by ``template``: its text, and what of it is learned.

    Raises:
        NoConversation: it is none, or the template does not take it.
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


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """As transformers' filter: nothing is escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent if indent is None or indent < 9 else 8)
