"""What was generated, in the OpenAI interface's shapes, and beside it, under ``marin``, what it takes to generate it again.

Log-likelihoods are printed with as many digits as name a float64, so a client that parses them has the very bits.
"""

from __future__ import annotations

import codecs
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from marin.data.borrowed.ranks import alphabet
from marin.evaluation.scoring import Prompt, has_causal_pass, request_name
from marin.evaluation.subject import Subject
from marin.plugins.serve.engine import SequenceRequest, SequenceUpdate
from marin.plugins.serve.ranking import Ranked
from marin.plugins.serve.wire import Refused


@dataclass(frozen=True)
class Choice:
    """One sequence of a request: choice ``index``; ``occurrence``: which of equal prompts of the request it is."""

    index: int
    prompt: tuple[int, ...]
    occurrence: int


@dataclass(frozen=True)
class Question:
    """A request, as far as it decides tokens. ``alternatives``: how many likeliest tokens each position names; None: no
    log-likelihoods. ``copies``: choices of each prompt."""

    subject: Subject
    sequences: tuple[Choice, ...]
    limit: int
    temperature: float
    seed: int
    stops: tuple[str, ...]
    echo: bool = False
    alternatives: int | None = None
    chat: bool = False
    copies: int = 1
    id: str = ""
    created: int = 0

    def asked(self) -> list[SequenceRequest]:
        """For the engine."""
        return [
            SequenceRequest(
                Prompt(
                    one.prompt,
                    self.limit,
                    partial(self.stop, prompt=one.prompt),
                    self.temperature,
                    request_name(one.prompt, one.occurrence),
                ),
                self.seed,
                -1 if self.alternatives is None else len(one.prompt) - 1 if self.echo else 0,
            )
            for one in self.sequences
        ]

    def stop(self, new: tuple[int, ...], prompt: tuple[int, ...] = ()) -> bool:
        text = self.subject.decode(new, prompt) if self.stops else ""
        return any(stop in text for stop in self.stops)

    def completion(self, new: tuple[int, ...], prompt: tuple[int, ...] = ()) -> tuple[str, str]:
        """The text of ``new`` behind ``prompt``, before the first stop string, and why it ends."""
        text = self.subject.decode(new, prompt)
        ends = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if ends:
            return text[: min(ends)], "stop"
        return text, "stop" if new and new[-1] in self.subject.recipe.tokens.stops else "length"

    def safe(self, new: tuple[int, ...], prompt: tuple[int, ...] = ()) -> str:
        """The beginning of the text that later tokens cannot change: no half character, no beginning of a stop, no space that
        goes with what follows it."""
        text = self.completion(new, prompt)[0].rstrip("�")
        held = self.subject.tokenizer.unsettled(text)
        for stop in self.stops:
            held = max(held, *(size for size in range(len(stop)) if text.endswith(stop[:size])))
        return text[: len(text) - held]

    def provenance(self) -> dict[str, Any]:
        """What was asked of which state: with each choice's tokens, enough to generate it again."""
        return {
            "run": self.subject.run or None,
            "state": self.subject.state,
            "step": self.subject.step if self.subject.run else None,
            "tokenizer": self.subject.tokenizer_digest,
            "seed": self.seed,
            "temperature": self.temperature,
            "max_tokens": self.limit,
            "stop": list(self.stops),
        } | ({"causal": True} if has_causal_pass(self.subject.recipe) else {})


def question(
    subject: Subject,
    prompts: Sequence[Sequence[int]],
    *,
    n: int,
    limit: int | None,
    temperature: float,
    seed: int,
    stops: tuple[str, ...],
    echo: bool = False,
    alternatives: int | None = None,
    chat: bool = False,
) -> Question:
    """The question that these tokens are. ``limit`` None: as many new tokens as the context has room for.

    Raises:
        Refused: a prompt and its new tokens are longer than the model's context.
    """
    room = subject.recipe.model.seq_len + 1 - max(len(tokens) for tokens in prompts)
    vocabulary = min(subject.tokenizer.rows, subject.model.Vocab.size)
    if any(token >= vocabulary for tokens in prompts for token in tokens):
        raise Refused(
            f"a token that the model does not know: it has {vocabulary}", param="prompt", code="invalid_value"
        )
    if (limit is None and room < 1) or (limit is not None and limit > room):
        raise Refused(
            f"This model's maximum context length is {subject.recipe.model.seq_len} tokens. The longest prompt has "
            f"{subject.recipe.model.seq_len + 1 - room}, which leaves room for {max(room, 0)}, not {limit or 1}",
            param="messages" if chat else "prompt",
            code="context_length_exceeded",
        )
    seen: dict[tuple[int, ...], int] = {}
    sequences = []
    for number, tokens in enumerate(prompts):
        key = tuple(tokens)
        for copy in range(n):
            sequences.append(Choice(number * n + copy, key, seen.get(key, 0)))
            seen[key] = seen.get(key, 0) + 1
    return Question(
        subject,
        tuple(sequences),
        room if limit is None else limit,
        temperature,
        seed,
        stops,
        echo,
        alternatives,
        chat,
        n,
        f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
        int(time.time()),
    )


@dataclass
class Answer:
    """What was told of a question so far. ``counted``: its stream ends with the usage, in a chunk of its own."""

    question: Question
    model: str
    counted: bool = False
    told: dict[int, SequenceUpdate] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)

    def usage(self) -> dict[str, int]:
        """Tokens of the prompts, each once for its copies, and all new ones."""
        prompts = sum(len(one.prompt) for one in self.question.sequences) // self.question.copies
        new = sum(len(told.new) for told in self.told.values())
        return {"prompt_tokens": prompts, "completion_tokens": new, "total_tokens": prompts + new}

    def whole(self) -> dict[str, Any]:
        """The answer as one object."""
        choices = [self.choice(place) for place in range(len(self.question.sequences))]
        return self._head() | {"choices": choices, "usage": self.usage(), "marin": self.evidence()}

    def evidence(self) -> dict[str, Any]:
        """:meth:`Question.provenance` with the tokens of each choice."""
        return self.question.provenance() | {
            "choices": [
                {
                    "prompt_tokens": list(one.prompt),
                    "occurrence": one.occurrence,
                    "tokens": list(self.told[place].new) if place in self.told else [],
                }
                for place, one in enumerate(self.question.sequences)
            ]
        }

    def piece(self, told: SequenceUpdate) -> list[dict[str, Any]]:
        """The chunks that a stream sends when this is told: further text, and at the end why it ends."""
        question, first = self.question, told.place not in self.sent
        self.told[told.place] = told
        prompt = question.sequences[told.place].prompt
        text, why = question.completion(told.new, prompt)
        echoed = question.subject.decode(prompt) if question.echo else ""
        text = echoed + (text if told.done else question.safe(told.new, prompt))
        before = self.sent.get(told.place, 0)
        self.sent[told.place] = max(before, len(text))
        index = question.sequences[told.place].index
        chunks = []
        if question.chat and first:
            chunks.append({"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        if text[before:]:
            said: dict[str, Any] = {"delta": {"content": text[before:]}} if question.chat else {"text": text[before:]}
            chunks.append({"index": index, **said, "logprobs": None, "finish_reason": None})
        if told.done:
            end: dict[str, Any] = {"delta": {}} if question.chat else {"text": ""}
            chunks.append({"index": index, **end, "logprobs": self._logprobs(told.place), "finish_reason": why})
        return [self._head(stream=True) | {"choices": [chunk]} for chunk in chunks]

    def last(self, told: SequenceUpdate) -> list[dict[str, Any]]:
        """The chunks that end a stream, with the evidence. One without a choice is for clients that asked for the usage:
        others take a choice out of each."""
        chunks, evidence = self.piece(told), {"marin": self.evidence()}
        if self.counted:
            return [*chunks, self._head(stream=True) | {"choices": [], "usage": self.usage()} | evidence]
        return [*chunks[:-1], chunks[-1] | evidence]

    def _head(self, stream: bool = False) -> dict[str, Any]:
        if self.question.chat:
            kind = "chat.completion.chunk" if stream else "chat.completion"
        else:
            kind = "text_completion"
        return {
            "id": self.question.id,
            "object": kind,
            "created": self.question.created,
            "model": self.model,
            "system_fingerprint": self.question.subject.state,
        } | ({"usage": None} if stream and self.counted else {})

    def choice(self, place: int) -> dict[str, Any]:
        """A choice of :meth:`whole`."""
        question, told = self.question, self.told[place]
        text, why = question.completion(told.new, question.sequences[place].prompt)
        head = {"index": question.sequences[place].index, "logprobs": self._logprobs(place), "finish_reason": why}
        if question.chat:
            return head | {"message": {"role": "assistant", "content": text, "refusal": None}}
        return head | {
            "text": (question.subject.decode(question.sequences[place].prompt) if question.echo else "") + text
        }

    def _logprobs(self, place: int) -> dict[str, Any] | None:
        question, told = self.question, self.told[place]
        if question.alternatives is None:
            return None
        shown = (*question.sequences[place].prompt, *told.new) if question.echo else told.new
        values, likeliest = _values(told.ranked, len(shown))
        texts = [token_text(question.subject, token) for token in shown]
        if question.chat:
            return {
                "content": [
                    _entry(question, token, value, others)
                    for token, value, others in zip(shown, values, likeliest, strict=True)
                ]
            }
        tops = [self._tops(token, value, others) for token, value, others in zip(shown, values, likeliest, strict=True)]
        prompt = question.sequences[place].prompt
        before = prompt if question.echo else ()
        offsets = [*text_offsets(question.subject, before), *text_offsets(question.subject, told.new, prompt)]
        echoed = len(question.subject.decode(before)) if before else 0
        places = [offset + (echoed if number >= len(before) else 0) for number, offset in enumerate(offsets)]
        return {"tokens": texts, "token_logprobs": values, "top_logprobs": tops, "text_offset": places}

    def _tops(self, token: int, value: float | None, others: tuple[tuple[int, float], ...]) -> dict[str, float] | None:
        """The likeliest tokens, and the token itself."""
        if value is None or not self.question.alternatives:
            return None if value is None else {}
        named = [(other, chance) for other, chance in others[: self.question.alternatives] if other != token]
        return {token_text(self.question.subject, other): chance for other, chance in [(token, value), *named]}


def _values(ranked: Ranked | None, count: int) -> tuple[list[float | None], list[tuple[tuple[int, float], ...]]]:
    """Log-likelihoods and likeliest tokens of ``count`` tokens; the first of an echo has none."""
    known = len(ranked.logprobs) if ranked is not None else 0
    lacking = count - known
    values: list[float | None] = [None] * lacking + list(ranked.logprobs if ranked is not None else ())
    return values, [()] * lacking + list(ranked.likeliest if ranked is not None else ())


def _entry(
    question: Question, token: int, value: float | None, others: tuple[tuple[int, float], ...]
) -> dict[str, Any]:
    def named(token: int, value: float | None) -> dict[str, Any]:
        raw = token_bytes(question.subject, token)
        return {"token": raw.decode("utf-8", "replace"), "logprob": value, "bytes": list(raw)}

    tops = [named(other, chance) for other, chance in others[: question.alternatives or 0]]
    return named(token, value) | {"top_logprobs": tops}


_BYTE = re.compile("<0x([0-9A-F]{2})>")
"""A token for a byte that no other token has, as SentencePiece names it."""


@cache
def _byte_of() -> dict[str, int]:
    """The byte of each letter of a byte-level vocabulary."""
    return {letter: byte for byte, letter in enumerate(alphabet())}


def token_bytes(subject: Subject, token: int) -> bytes:
    """The bytes that one token stands for."""
    piece = subject.tokenizer.id_to_token(token) or ""
    letters = _byte_of()
    if subject.tokenizer.byte_fallback and (byte := _BYTE.fullmatch(piece)):
        return bytes.fromhex(byte[1])
    if type(subject.tokenizer.decoder).__name__ == "ByteLevel" and all(letter in letters for letter in piece):
        return bytes(letters[letter] for letter in piece)
    return (piece.replace("▁", " ") if piece else "").encode("utf-8")


def text_offsets(subject: Subject, tokens: tuple[int, ...], prompt: tuple[int, ...] = ()) -> list[int]:
    """For each token, how many letters of their text stand before it. A token within a letter has the place of that letter.
    ``prompt``: the tokens before them."""
    found: list[int] = []
    if subject.tokenizer.cleans or type(subject.tokenizer.decoder).__name__ != "ByteLevel":
        whole = subject.text(tokens, prompt)
        for count in range(len(tokens)):
            before = subject.text(tokens[:count], prompt) if count else ""
            shown = len(before if whole.startswith(before) else before.rstrip("\ufffd"))
            found.append(
                max([shown, *found[-1:]])
            )  # bytes before a letter's last hide those before them from the decoder
        return found
    decoder, letters = codecs.getincrementaldecoder("utf-8")("replace"), 0
    for token in tokens:
        raw = token_bytes(subject, token)
        begun = bool(decoder.getstate()[0]) and not (raw and 0x80 <= raw[0] < 0xC0)
        found.append(letters + begun)  # a letter that this token does not go on with is shown as one sign
        letters += len(decoder.decode(raw))
    return found


def token_text(subject: Subject, token: int) -> str:
    """One token as the interface shows it: its text, or ``bytes:\\xNN`` where it is a part of a character."""
    raw = token_bytes(subject, token)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
