"""What may be asked of the server, in the OpenAI interface's words, and how a refusal looks.

A setting that is not there is refused by name: an answer drawn in another way than it was asked for would be worse than
none. Reference: OpenAI's API reference, ``/v1/completions`` and ``/v1/chat/completions``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

MOST_BODY = 1 << 20
"""Bytes of a request."""
MOST_STOPS, LONGEST_STOP = 16, 256
MOST_SEQUENCES = 128
"""Sequences of one request: prompts times ``n``."""
MOST_MESSAGES = 1024
MOST_ALTERNATIVES = 5
COMPLETION_TOKENS = 16
"""New tokens of a completion that names no number: OpenAI's default."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "num_beams": (None, 1),
    "logit_bias": (None, {}),
    "suffix": (None, ""),
    "tools": (None, []),
    "tool_choice": (None, "none"),
    "functions": (None, []),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "function_call": (None, "none"),
    "length_penalty": (None, 1),
    "use_beam_search": (None, False),
    "ignore_eos": (None, False),
    "min_tokens": (None, 0),
    "stop_token_ids": (None, []),
    "bad_words": (None, []),
    "include_stop_str_in_output": (None, False),
    "skip_special_tokens": (None, False),
    "add_special_tokens": (None, False),
    "priority": (None, 0),
}
"""Settings of OpenAI and vLLM that are not there, with the values that change nothing."""

OTHER_NAMES = ("max_new_tokens", "max_gen_toks")
"""What other programs call the most new tokens. Never taken for it: their clients send ``max_tokens`` beside it, with a
number that nobody chose."""

UNUSED = (
    *("user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier", "prompt_cache_key"),
    "request_id",
)
"""What decides nothing about an answer here."""

NO_ANNOTATIONS: tuple[str, Any] = ("annotations", [])
"""What clients send back with an answer's message, beside fields that are null."""

Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Heat = Annotated[float, Meta(ge=0.0, le=2.0)]
Copies = Annotated[int, Meta(ge=1, le=MOST_SEQUENCES)]


@dataclass
class Refused(Exception):
    """An answer that is an error: ``{"error": {"message", "type", "param", "code"}}`` with ``status``."""

    message: str
    status: int = 400
    kind: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """The answer's JSON."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class ContentForm:
    """In which forms a template takes what a message says: as a ``text``, as a list of ``parts``, or both."""

    text: bool = True
    parts: bool = False

    def of(self, texts: Sequence[str], *, parted: bool) -> object:
        """The ``texts`` of a message that a client ``parted``, or said as one: as vLLM has it, one text has a line end between
        them where the template takes no parts, and a text is a part where it takes nothing else."""
        if self.parts and (parted or not self.text):
            return [{"type": "text", "text": text} for text in texts]
        return "\n".join(texts)


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How a stream ends."""

    include_usage: bool | None = False
    include_obfuscation: bool | None = None


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn; ``content``: a text, or parts that are texts."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    def for_template(self, number: int, form: ContentForm) -> dict[str, Any]:
        """What the client said, as a chat template takes it: arguments of calls as the object that their JSON says, as in vLLM.

        Raises:
            Refused: the content of a message is not text, or arguments are not JSON.
        """
        content = form.of(self.texts(number), parted=not isinstance(self.content, str))
        calls = [_call(one, f"messages[{number}].tool_calls") for one in self.tool_calls or ()]
        others = {name: getattr(self, name) for name in ("name", "tool_call_id", "reasoning_content")}
        return {"role": self.role, "content": content} | {
            name: value for name, value in {**others, "tool_calls": calls}.items() if value
        }

    def texts(self, number: int) -> list[str]:
        """What it says, part by part; beside calls of tools it may say nothing.

        Raises:
            Refused: the content of a message is not text.
        """
        if isinstance(self.content, str):
            return [self.content]
        texts = [part.get("text") for part in self.content or () if part.get("type") == "text"]
        lacks = self.content is None and not self.tool_calls
        if lacks or len(texts) != len(self.content or ()) or not all(isinstance(text, str) for text in texts):
            raise Refused("a message's content is a text", param=f"messages[{number}].content")
        return list(map(str, texts))


def _call(call: dict[str, Any], where: str) -> dict[str, Any]:
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else {}
    if not isinstance(function, dict) or isinstance(arguments, dict | list):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(arguments) if arguments else {}}}
    except (ValueError, TypeError, RecursionError):
        raise Refused("arguments of a call are JSON", param=where, code="invalid_value") from None


class Completion(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``/v1/completions``."""

    model: str | None = None
    prompt: str | list[Any] | None = None
    max_tokens: Number | None = COMPLETION_TOKENS
    temperature: Heat | None = 1.0
    n: Copies | None = 1
    best_of: Copies | None = None
    echo: bool | None = False
    logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None


class Chat(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``/v1/chat/completions``. How the prompt is made of the messages is said in vLLM's words."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MOST_MESSAGES)]
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    model: str | None = None
    max_tokens: Number | None = None
    max_completion_tokens: Number | None = None
    temperature: Heat | None = 1.0
    n: Copies | None = 1
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None


def read_request[T: (Completion, Chat)](kind: type[T], body: bytes) -> T:
    """The request in ``body``. A field that is null is one that is not there, as in OpenAI's interface.

    Raises:
        Refused: it is not a JSON object, or asks for something that is not there.
    """
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Refused(f"the body is no JSON: {str(error)[:200]}", code="invalid_json") from None
    if not isinstance(said, dict):
        raise Refused("the body is a JSON object", code="invalid_json")
    said = {name: value for name, value in said.items() if value is not None and name not in UNUSED}
    if isinstance(messages := said.get("messages"), list):
        said["messages"] = [_without_nulls(one) if isinstance(one, dict) else one for one in messages]
    for name, neutral in NEUTRAL.items():
        if (value := said.pop(name, None)) not in neutral:
            told = " or ".join(repr(one) for one in neutral if one is not None)
            raise Refused(
                f"{name} is not supported: leave it out, or give {told}; found {str(value)[:100]!r}",
                param=name,
                code="unsupported_parameter",
            )
    for name in sorted(said.keys() - {field.name for field in msgspec.structs.fields(kind)}):
        cure = "max_tokens is its name here" if name in OTHER_NAMES else "leave it out"
        raise Refused(f"{name[:100]} is not supported: {cure}", param=name[:100], code="unsupported_parameter")
    try:
        found = msgspec.convert(said, kind)
        _check_together(found)
        return found
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error)[:300]
        place = text.partition("$.")[2].partition("`")[0] or None
        raise Refused(text, param=place, code="invalid_value") from None


def _without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in message.items() if one is not None and (name, one) != NO_ANNOTATIONS}


def _check_together(asked: Completion | Chat) -> None:
    """That no field is there which another one makes void: OpenAI and vLLM refuse it too."""
    if asked.stream_options is not None and not asked.stream:
        raise Refused("stream_options is for streams: stream is false", param="stream_options", code="invalid_value")
    if not isinstance(asked, Chat):
        return
    if asked.top_logprobs and not asked.logprobs:
        raise Refused("top_logprobs wants logprobs: true beside it", param="top_logprobs", code="invalid_value")
    if None not in (asked.max_tokens, asked.max_completion_tokens) and asked.max_tokens != asked.max_completion_tokens:
        raise Refused(
            "max_tokens and max_completion_tokens are two names of one number: give one",
            param="max_completion_tokens",
            code="invalid_value",
        )


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop strings.

    Raises:
        Refused: there are too many, one is empty, or one is too long.
    """
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MOST_STOPS or any(not 0 < len(one) <= LONGEST_STOP for one in stops):
        raise Refused(
            f"at most {MOST_STOPS} stop strings of 1 to {LONGEST_STOP} characters", param="stop", code="invalid_value"
        )
    return stops


def prompts_of(request: Completion) -> list[str | list[int]]:
    """Each prompt, a text or tokens; without one an empty text.

    Raises:
        Refused: it is neither a text, nor tokens, nor a list of these.
    """
    prompt = request.prompt
    if prompt is None or isinstance(prompt, str):
        return [prompt or ""]
    items = [prompt] if prompt and all(_is_token(one) for one in prompt) else prompt
    if not items or not all(isinstance(one, str) or _are_tokens(one) for one in items):
        raise Refused("a text, tokens, or a list of these", param="prompt", code="invalid_value")
    return items


def _are_tokens(value: object) -> bool:
    return isinstance(value, list) and all(_is_token(one) for one in value)


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def seed_of(seed: int | None) -> int:
    """The seed that was asked for, or one that is drawn here and told in the answer."""
    return secrets.randbits(31) if seed is None else seed
