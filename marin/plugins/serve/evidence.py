"""What an answer of the server carries so that it can be generated again, read from a file that anybody may have written.

Its shape is checked, and nothing of it is believed but the question.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from marin.errors import UsageError
from marin.plugins.serve.wire import MOST_SEQUENCES, MOST_STOPS

MOST_BYTES = 64 << 20
Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Choice(Struct, frozen=True):
    """One continuation of an answer."""

    prompt_tokens: Annotated[list[Token], Meta(min_length=1)]
    tokens: list[Token]
    occurrence: Annotated[int, Meta(ge=0, le=MOST_SEQUENCES)] = 0


class Evidence(Struct, frozen=True):
    """What an answer says under ``marin``."""

    state: str
    tokenizer: str
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    temperature: Annotated[float, Meta(ge=0.0)]
    max_tokens: Annotated[int, Meta(ge=0)]
    stop: Annotated[list[str], Meta(max_length=MOST_STOPS * 2)]
    choices: Annotated[list[Choice], Meta(min_length=1, max_length=MOST_SEQUENCES)]
    run: str | None = None
    step: int | None = None
    causal: bool = False
    """Whether its tokens come from the causal pass of profile ``exact``; a release that had none says nothing."""


def read_answer(content: bytes, where: str) -> tuple[Evidence, dict[str, Any]]:
    """The evidence in a saved answer, and the answer; a stream's events and ``{"request", "response"}`` are answers too.

    Raises:
        UsageError: it is not one, or carries no evidence.
    """
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"{len(content)} bytes")
        if content.lstrip().startswith(b"data:"):
            events = [line[5:] for line in content.splitlines() if line.startswith(b"data:") and b"[DONE]" not in line]
            said = _joined([msgspec.json.decode(event) for event in events])
        else:
            said = msgspec.json.decode(content)
        said = said.get("response", said)
        return msgspec.convert(said["marin"], Evidence), said
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            "not an answer of `marin serve`",
            where=where,
            expected="its JSON, with the field marin",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            cure="save the answer as it came, as one JSON object, or the events of a stream",
        ) from None


def _joined(events: list[Any]) -> dict[str, Any]:
    """The chunks of a stream as one answer."""
    choices: dict[int, dict[str, Any]] = {}
    evidence = None
    for event in events:
        evidence = event.get("marin", evidence)
        for chunk in event["choices"]:
            choice = choices.setdefault(chunk["index"], {"index": chunk["index"], "text": "", "logprobs": None})
            choice["text"] += chunk.get("text") or (chunk.get("delta") or {}).get("content") or ""
            choice["logprobs"] = chunk.get("logprobs") or choice["logprobs"]
            choice["finish_reason"] = chunk.get("finish_reason")
    return {"choices": [choices[index] for index in sorted(choices)], "marin": evidence}
