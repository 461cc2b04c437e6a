"""An answer of the server generated again: its tokens, its text, its log-likelihoods and whatever else its choices show, or
the first that differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from marin.errors import UsageError
from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.plugins.serve.answers import Answer, Question, question
from marin.plugins.serve.engine import SequenceUpdate
from marin.plugins.serve.evidence import Evidence
from marin.plugins.serve.ranking import RANKED, Ranked, Ranker
from marin.plugins.serve.wire import Refused


@dataclass(frozen=True)
class Replayed:
    """``difference`` None: every token, text and log-likelihood is the same."""

    tokens: int
    logprobs: int
    difference: Mapping[str, Any] | None


def replay(subject: Subject, scorer: Scorer, evidence: Evidence, answer: Mapping[str, Any]) -> Replayed:
    """Generate every choice again: where its tokens are those that are drawn one after another, one pass shows it.

    Raises:
        UsageError: the answer is another state's, or asks for what the model cannot be asked.
    """
    for name, ours, theirs in (
        ("state", subject.state, evidence.state),
        ("tokenizer", subject.tokenizer_digest, evidence.tokenizer),
    ):
        if ours != theirs:
            raise UsageError(
                "the answer is that of another model",
                where=f"marin.{name}",
                expected=ours,
                found=theirs[:100],
                cure="name the run and the step that the answer names",
            )
    # Anyone may have written the answer: what it says was asked passes the same checks as a request to the server.
    try:
        asked = question(
            subject,
            [one.prompt_tokens for one in evidence.choices],
            n=1,
            limit=evidence.max_tokens,
            temperature=evidence.temperature,
            seed=evidence.seed,
            stops=tuple(evidence.stop),
        )
    except Refused as error:
        raise UsageError(
            "not a question that the server takes", where="marin", expected="its own", found=str(error)
        ) from None
    prompts = [
        Prompt(
            tuple(one.prompt_tokens),
            evidence.max_tokens,
            partial(asked.stop, prompt=tuple(one.prompt_tokens)),
            evidence.temperature,
            request_name(one.prompt_tokens, one.occurrence),
            tuple(one.tokens),
        )
        for one in evidence.choices
    ]
    shown = answer.get("choices", [{} for _ in prompts])
    if not isinstance(shown, list) or len(shown) != len(prompts):
        found = len(shown) if isinstance(shown, list) else None
        return Replayed(0, 0, {"what": "choices", "expected": len(prompts), "found": found})
    # Choice by choice, and the first difference ends it: what follows a wrong token follows from it.
    count = logprobs = 0
    generating = scorer if evidence.causal else scorer.one_by_one()
    generated, ranker = generating.generate(prompts, evidence.seed), Ranker(scorer)
    for place, (choice, new, chosen) in enumerate(zip(evidence.choices, generated, shown, strict=True)):
        if difference := _tokens_differ(place, choice.tokens, new):
            return Replayed(count, logprobs, difference)
        count += len(new)
        said = _of(chosen)
        prompt = tuple(choice.prompt_tokens)
        text, alone = (
            asked.completion(new, prompt)[0],
            asked.completion(new)[0],
        )  # an older release read the new tokens by themselves
        whole = [subject.decode(prompt) + one for one in (text, alone)]
        if said["text"] is not None and said["text"] not in (text, alone, *whole):
            return Replayed(count, logprobs, {"choice": place, "what": "text", "expected": text, "found": said["text"]})
        row, values = (*choice.prompt_tokens, *new), said["logprobs"] or []
        scored = len(row) - 1 if len(values) == len(row) else len(new)  # the new ones, or of an echo all but the first
        ranked = ranker.rank([Row(row, scored)])[0] if values and scored else None
        compared, difference = _logprobs_differ(place, ranked, values)
        logprobs += compared
        if difference := difference or _rest_differs(asked, place, new, chosen, ranked, len(values) == len(row)):
            return Replayed(count, logprobs, difference)
    return Replayed(count, logprobs, None)


def _of(chosen: Any) -> dict[str, Any]:
    """Text and log-likelihoods of a choice as the answer shows them; None: it shows none."""
    chosen = chosen if isinstance(chosen, dict) else {}
    message, shown = chosen.get("message"), chosen.get("logprobs")
    text = message.get("content") if isinstance(message, dict) else chosen.get("text")
    values = None
    if isinstance(shown, dict):
        content = shown.get("content")
        values = (
            [one.get("logprob") if isinstance(one, dict) else None for one in content]
            if isinstance(content, list)
            else shown.get("token_logprobs")
        )
    return {"text": text, "logprobs": values if isinstance(values, list) else None}


def _rest_differs(
    asked: Question, place: int, new: tuple[int, ...], chosen: Any, ranked: Ranked | None, echo: bool
) -> dict[str, Any] | None:
    """What a choice shows beside its text, against what the server says of these tokens. How many likeliest tokens it names,
    and whether it is of a chat, is read off it."""
    if not isinstance(chosen, dict):
        return {"choice": place, "what": "choice", "expected": "an object", "found": type(chosen).__name__}
    if not chosen:
        return None
    told = chosen.get("logprobs")
    chat = "message" in chosen or (isinstance(told, dict) and "content" in told)
    expected: dict[str, Any] = {}
    for alternatives in (None,) if told is None else range(RANKED + 1):
        said = replace(asked, echo=echo, chat=chat, alternatives=alternatives)
        expected = Answer(said, "", told={place: SequenceUpdate(place, new, True, ranked)}).choice(place)
        if expected["logprobs"] == _counted_by_text(told, expected["logprobs"]):
            expected["logprobs"] = told
            break
    for name, value in chosen.items():
        if name not in expected and name != "text":
            return {"choice": place, "what": name[:40], "expected": None, "found": str(value)[:80]}
        if name != "text" and value != expected[name]:
            return {"choice": place, "what": name, "expected": expected[name], "found": value}
    return None


def _counted_by_text(told: Any, expected: Any) -> Any:
    """Log-likelihoods as an answer shows them. An older release counted ``text_offset`` by the names of tokens
    (``bytes:\\xe6``); where it did, the letters of the text stand in their place."""
    if not isinstance(told, dict) or not isinstance(expected, dict) or "text_offset" not in expected:
        return told
    lengths = [len(name) for name in expected["tokens"]]
    by_names = [sum(lengths[:count]) for count in range(len(lengths))]
    return {**told, "text_offset": expected["text_offset"]} if told.get("text_offset") == by_names else told


def _tokens_differ(place: int, recorded: list[int], new: tuple[int, ...]) -> dict[str, Any] | None:
    for number in range(max(len(recorded), len(new))):
        theirs = recorded[number] if number < len(recorded) else None
        ours = new[number] if number < len(new) else None
        if ours != theirs:
            return {"choice": place, "what": "token", "token": number, "expected": ours, "found": theirs}
    return None


def _logprobs_differ(place: int, ranked: Ranked | None, shown: list[Any]) -> tuple[int, dict[str, Any] | None]:
    """How many were compared, and the first that differs. They are those of the last tokens."""
    if ranked is None:
        return 0, None
    found = ranked.logprobs
    ours: list[float | None] = [*(None for _ in range(len(shown) - len(found))), *found]
    for number, (mine, theirs) in enumerate(zip(ours, shown, strict=False)):
        if mine != theirs:
            return number, {"choice": place, "what": "logprob", "token": number, "expected": mine, "found": theirs}
    if len(ours) != len(shown):
        return 0, {"choice": place, "what": "logprobs", "expected": len(ours), "found": len(shown)}
    return len(found), None
