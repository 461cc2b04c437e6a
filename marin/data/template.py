"""Chat templates: messages as a text by a Jinja template, in jinja2's sandbox, and what of that text the assistant says.

Reference: ``apply_chat_template`` of transformers 5.12.1. A template gets what it gets there: ``messages``, ``tools``,
``documents``, ``add_generation_prompt``, the special tokens of the tokenizer that is used, what a line says in
``chat_template_kwargs``, ``raise_exception``, ``strftime_now``, ``tojson``, and the tag ``{% generation %}`` around what the
assistant says. Where a template has that tag, it says what is learned, counted as transformers counts it; otherwise that
follows from the text with and without each of the assistant's messages, and a template whose text before a message depends on
what comes after it is refused. Templates are foreign programs in a small language: the sandbox gives them no file, no module
and no attribute of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from marin.data import chat
from marin.data.documents import Span
from marin.data.tokenizer import END_OF_TEXT
from marin.errors import NoConversation, UsageError
from marin.recipe.schema import Dataset, FilesDataset, chats, parts

LONGEST = 65_536
"""Characters of a template."""
MOST_TEXT = 4_000_000
"""Characters of what it renders."""
MOST_INDENT = 256
"""Of ``tojson``."""
SPECIAL = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT, "pad_token": END_OF_TEXT}
"""The special tokens of the tokenizers that are trained here."""
OWN = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"}
)
"""What a line's ``chat_template_kwargs`` may not name."""
_HERE = "CONTINUE_FINAL_MESSAGE_TAG "


class ReadsClock(Exception):
    """A template asks for the time where the same messages have to give the same text."""


class _Generation(Extension):
    """``{% generation %} ... {% endgeneration %}``: where in the text it lies, by what was rendered before it, as transformers
    has it. (Inside a macro or a ``set`` that is elsewhere; so it is there.)"""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.used = False
        self.size = 0
        self.spans: list[Span] | None = None

    def parse(self, parser: Parser) -> nodes.Node:
        self.used = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark_span"), [], [], body).set_lineno(line)

    def _mark_span(self, caller: Any) -> str:
        text = str(caller())
        if self.spans is not None:
            self.spans.append((self.size, self.size + len(text)))
        return text


class ChatTemplate:
    """A compiled template. ``variables``: what else it may name (``bos_token`` and the like). ``stops``: texts at which an
    answer under it ends. ``clock``: it may ask for the time. ``marks``: it says itself what the assistant says.

    Raises:
        UsageError: it is not a template.
    """

    def __init__(
        self, text: str, variables: Mapping[str, str], *, where: str, stops: tuple[str, ...] = (), clock: bool = False
    ) -> None:
        self.text, self.variables, self.stops = text, dict(variables), stops
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = _now if clock else _no_clock
        generation = environment.extensions[_Generation.identifier]
        assert isinstance(generation, _Generation)
        self._generation = generation
        try:
            if len(text) > LONGEST:
                raise ValueError(f"{len(text)} characters")
            self._template = environment.from_string(text)
        except (TemplateError, ValueError, RecursionError) as error:
            raise unreadable(where, error) from None
        self.marks = generation.used

    def tree(self) -> nodes.Template:
        """What it says, as jinja2 parses it."""
        return self._template.environment.parse(self.text)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        prompt: bool = True,
        continues: bool = False,
        others: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt after which the assistant speaks: with ``prompt`` the head of its next message, with ``continues`` (and
        ``prompt`` false) the last message, open for its continuation. ``others``: further variables.

        Raises:
            ValueError: the template refuses these messages, or cannot render them.
        """
        if continues and prompt:
            raise ValueError("a prompt continues the last message or begins another, not both")
        given = {"tools": tools, "documents": documents, **(others or {})}
        try:
            return self._continued(messages, given) if continues else self._rendered(messages, given, prompt=prompt)
        except ReadsClock as error:
            raise ValueError(str(error)) from None

    def learned(
        self, messages: Sequence[Mapping[str, Any]], tools: object, where: str, others: Mapping[str, Any] | None = None
    ) -> tuple[str, tuple[Span, ...]]:
        """The text of a whole conversation, and the spans of it that the assistant says.

        Raises:
            NoConversation: the template refuses it, or does not say what the assistant says.
            UsageError: it reads the clock.
        """
        given = {"tools": tools, "documents": None, **(others or {})}
        generation = self._generation
        try:
            generation.spans = [] if self.marks else None
            whole = self._rendered(messages, given, prompt=False)
            spans, generation.spans = generation.spans, None
            if spans is None:
                spans = by_difference(lambda some, prompt: self._rendered(some, given, prompt=prompt), messages, whole)
        except ReadsClock as error:
            raise UsageError(
                "a chat template that reads the clock",
                where=where,
                expected="the same text of the same conversation, whenever it is made",
                found=str(error),
                cure="say the date in the line's chat_template_kwargs where the template takes it, or write it into the template",
            ) from None
        except ValueError as error:
            raise NoConversation(
                "the chat template cannot render a conversation",
                where=where,
                expected="messages that it takes",
                found=str(error)[:200],
                cure="correct or remove the line, or mark what the assistant says by {% generation %} in the template",
            ) from None
        finally:
            generation.spans = None
        return whole, tuple(spans)

    def _rendered(self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any], *, prompt: bool) -> str:
        parts, generation = [], self._generation
        size = generation.size = 0
        try:
            for part in self._template.generate(
                messages=[dict(message) for message in messages],
                add_generation_prompt=prompt,
                **{**self.variables, **given},
            ):
                size += len(part)
                if size > MOST_TEXT:
                    raise ValueError(f"the rendered chat has more than {MOST_TEXT} characters")
                parts.append(part)
                if generation.spans is not None:
                    generation.size = size
        except ReadsClock:
            raise
        except Exception as error:  # whatever a foreign program runs into, a lack of memory too
            raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None
        return "".join(parts)

    def _continued(self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> str:
        """As transformers cuts it: at a tag behind the last message's text, which the template may have stripped."""
        said = [dict(message) for message in deepcopy(list(messages))]
        final = said[-1].get("content") if said else None
        blocks = [part for part in final if "text" in part] if isinstance(final, list) else None
        if final is None or blocks == [] or "content" not in self.text:
            raise ValueError("the last message has no text to continue")
        if blocks:
            final = blocks[-1]["text"]
            blocks[-1]["text"] = final + _HERE
        else:
            said[-1]["content"] = final + _HERE
        text, tag = self._rendered(said, given, prompt=False), _HERE.strip()
        if final.strip() not in text or tag not in text:
            raise ValueError("the last message is not in the text that the template makes of it")
        place = text.rindex(tag)
        return text[:place] if text[place : place + len(_HERE)] == _HERE else text[:place].rstrip()


def by_difference(
    rendered: Callable[[Sequence[Mapping[str, Any]], bool], str], messages: Sequence[Mapping[str, Any]], whole: str
) -> list[Span]:
    """What each of the assistant's messages adds to the text ``whole`` after the prompt before it.

    Raises:
        ValueError: the text before a message depends on what follows.
    """
    spans = []
    for number, message in enumerate(messages):
        if message["role"] != chat.LEARNED:
            continue
        before, after = rendered(messages[:number], True), rendered(messages[: number + 1], False)
        if not (whole.startswith(after) and after.startswith(before)):
            raise ValueError(f"message {number} is another text before others follow it")
        spans.append((len(before), len(after)))
    return spans


def template_of(dataset: Dataset, special: Mapping[str, str] | None = None, *, clock: bool = False) -> ChatTemplate:
    """The template that a recipe's conversations are written by (of a mixture's parts the one that all of them have), or the
    form that they have without one. ``special``: the special tokens of its tokenizer; None: of one that is trained here. An
    answer ends where the template closes the assistant's message. ``clock``: it may ask for the time.

    Raises:
        UsageError: it is not a template.
    """
    known = chats(dataset)
    found = known or [part for part in parts(dataset).values() if isinstance(part, FilesDataset) and part.chat]
    texts = {part.chat_template for part in found}
    text = texts.pop() if len(texts) == 1 else None
    where, variables = "dataset.chat_template", SPECIAL if special is None or not known else special
    if text is None:
        return plain_template(variables)
    plain, answer = ChatTemplate(text, variables, where=where, clock=True), "an answer"
    asked = [{"role": "user", "content": "a question"}, {"role": chat.LEARNED, "content": answer}]
    try:
        said = plain.render(asked, prompt=False)
    except ValueError as error:
        raise UsageError("a chat template that renders no conversation", where=where, found=str(error)[:200]) from None
    if answer not in said:
        raise UsageError(
            "a chat template that leaves out what is said",
            where=where,
            expected="a Jinja template that writes the messages",
            found=text[:80],
            cure='it is the text of a template and not the name of a file: dataset.chat_template="$(cat FILE)"',
        )
    end = said.rpartition(answer)[2].strip()
    return ChatTemplate(text, variables, where=where, stops=(end,) if end else (), clock=clock)


def plain_template(special: Mapping[str, str] = SPECIAL) -> ChatTemplate:
    """The form of conversations without a template."""
    return ChatTemplate(chat.TEMPLATE, special, where="a run's chats", stops=chat.STOPS)


def conversation(template: ChatTemplate, value: Mapping[str, Any], where: str) -> tuple[str, tuple[Span, ...]]:
    """A line's conversation by ``template``: its text, and what of it is learned. Its tools may be JSON, as TRL writes them.

    Raises:
        NoConversation: it is not one, or the template does not take it.
        UsageError: the template reads the clock.
    """
    messages = chat.checked(chat.messages_of(value, where), where)
    chat.check_nothing_is_left_out(value, messages, template.text, where)
    if template.text == chat.TEMPLATE:
        chat.check_plain(messages, where, tools_of(value.get("tools"), where))
    if not template.marks and not any(message["role"] == chat.LEARNED for message in messages):
        raise chat.not_a_chat(where, "at least one message of the assistant", "none: there is nothing to learn")
    others = value.get("chat_template_kwargs") or {}
    if not isinstance(others, dict) or (named := sorted(OWN & others.keys())):
        found = ", ".join(named) if isinstance(others, dict) else type(others).__name__
        raise chat.not_a_chat(where, "chat_template_kwargs: an object that names no argument of its own", found)
    documents = value.get("documents")
    given = {"documents": documents} if chat.objects(documents) else {}
    return template.learned(messages, tools_of(value.get("tools"), where), where, {**given, **others})


def tools_of(value: object, where: str) -> list[dict[str, Any]] | None:
    """The tools of a line: their JSON schemas, or one JSON text of these.

    Raises:
        NoConversation: they are neither.
    """
    tools = value
    if isinstance(value, str):
        try:
            tools = json.loads(value)
        except (ValueError, RecursionError):
            tools = value
    if tools is None:
        return None
    if not chat.objects(tools):
        raise chat.not_a_chat(where, "tools: a list of JSON schemas, or a text that is one in JSON", repr(value)[:80])
    assert isinstance(tools, list)
    return tools


def unreadable(where: str, error: Exception) -> UsageError:
    """The refusal of a text that is not a template."""
    return UsageError(
        "a chat template that cannot be read",
        where=where,
        expected=f"a jinja2 template of at most {LONGEST} characters",
        found=" ".join(str(error).split())[:200],
        cure="name another with --chat-template",
    )


def raise_exception(message: object) -> NoReturn:
    """What a template calls by this name."""
    raise TemplateError(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _no_clock(form: str) -> NoReturn:
    raise ReadsClock(f"strftime_now({str(form)[:40]!r})")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers' filter: nothing is escaped for HTML."""
    if isinstance(indent, int) and indent > MOST_INDENT:
        raise TemplateError(f"tojson(indent={indent})")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
