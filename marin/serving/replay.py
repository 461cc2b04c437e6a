"""An answer of the server generated again: its tokens, its text and its log-likelihoods, or the first that differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin.errors import UsageError
from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.serving.answers import question
from marin.serving.evidence import Choice, Evidence
from marin.serving.wire import Refused


@dataclass(frozen=True)
class Replayed:
    """``difference`` None: every token, text and log-likelihood is the same."""

    tokens: int
    logprobs: int
    difference: Mapping[str, Any] | None


def replay(subject: Subject, scorer: Scorer, evidence: Evidence, answer: Mapping[str, Any]) -> Replayed:
    """Generate every choice again.

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
    try:
        asked = question(
            subject, [one.prompt_tokens for one in evidence.choices], n=1, limit=evidence.max_tokens,
            temperature=evidence.temperature, seed=evidence.seed, stops=tuple(evidence.stop)
        )  # fmt: skip
    except Refused as error:
        raise UsageError(
            "not a question that the server takes", where="marin", expected="its own", found=str(error)
        ) from None
    stop = asked.asked()[0].prompt.stop
    prompts = [
        Prompt(tuple(one.prompt_tokens), evidence.max_tokens, stop, evidence.temperature,
               request_name(one.prompt_tokens, one.occurrence))
        for one in evidence.choices
    ]  # fmt: skip
    count = logprobs = 0
    for place, (choice, new) in enumerate(zip(evidence.choices, scorer.generate(prompts, evidence.seed), strict=True)):
        if difference := _tokens_differ(place, choice.tokens, new):
            return Replayed(count, logprobs, difference)
        count += len(new)
        said = _of(answer, place)
        text = asked.said(new)[0]
        whole = subject.decode(tuple(choice.prompt_tokens)) + text
        if said["text"] is not None and said["text"] not in (text, whole):
            return Replayed(count, logprobs, {"choice": place, "what": "text", "expected": text, "found": said["text"]})
        compared, difference = _logprobs_differ(place, scorer, choice, new, said["logprobs"])
        logprobs += compared
        if difference:
            return Replayed(count, logprobs, difference)
    return Replayed(count, logprobs, None)


def _of(answer: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Text and log-likelihoods of a choice as the answer shows them; None: it shows none."""
    choices = answer.get("choices")
    chosen = choices[place] if isinstance(choices, list) and place < len(choices) else {}
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


def _tokens_differ(place: int, recorded: list[int], new: tuple[int, ...]) -> dict[str, Any] | None:
    for number in range(max(len(recorded), len(new))):
        theirs = recorded[number] if number < len(recorded) else None
        ours = new[number] if number < len(new) else None
        if ours != theirs:
            return {"choice": place, "what": "token", "token": number, "expected": ours, "found": theirs}
    return None


def _logprobs_differ(
    place: int, scorer: Scorer, choice: Choice, new: tuple[int, ...], shown: list[Any] | None
) -> tuple[int, dict[str, Any] | None]:
    """How many were compared, and the first that differs. They are those of the last tokens: the new ones, or of an echo
    all but the first."""
    row = (*choice.prompt_tokens, *new)
    if not shown or len(row) < 2:
        return 0, None
    scored = len(row) - 1 if len(shown) == len(row) else len(new)
    found = scorer.score([Row(row, scored)])[0].logprobs if scored else ()
    ours: list[float | None] = [*(None for _ in range(len(shown) - scored)), *found]
    for number, (mine, theirs) in enumerate(zip(ours, shown, strict=False)):
        if mine != theirs:
            return number, {"choice": place, "what": "logprob", "token": number, "expected": mine, "found": theirs}
    if len(ours) != len(shown):
        return 0, {"choice": place, "what": "logprobs", "expected": len(ours), "found": len(shown)}
    return scored, None
