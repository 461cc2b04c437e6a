"""Many prompts at once, and the files that other evaluations read.

AlpacaEval      a list of ``{"instruction", "output", "generator"}``, and ``dataset`` where the prompts name one: what its
                ``--model_outputs`` reads
HELM            ``scenario_state.json`` as ``helm-run --dry-run`` writes it, with the ``result`` of every request filled in, as
                helm.benchmark.adaptation.request_state describes it

A prompt that leaves no room for the new tokens loses its beginning, as in lm-evaluation-harness, and is counted.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from marin.data.template import ChatTemplate
from marin.errors import DataError, UsageError
from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.plugins.serve.answers import Question, token_text

MOST_BYTES = 1 << 30
AT_ONCE = 64
"""Sequences between two words on progress."""


@dataclass(frozen=True)
class TextRequest:
    """One text to be continued: at most ``limit`` new tokens, ended by ``stops``; ``occurrence``: which of equal ones."""

    text: str
    limit: int
    temperature: float
    stops: tuple[str, ...] = ()
    occurrence: int = 0


@dataclass(frozen=True)
class GeneratedText:
    """``lost``: how many tokens of the prompt had no room. ``logprobs`` are those of ``new``, natural logarithms."""

    text: str
    why: str
    new: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt: tuple[int, ...]
    lost: int


def numbered(wanted: Sequence[TextRequest]) -> list[TextRequest]:
    """Each with its occurrence among equal texts, so that each draws for itself."""
    seen: Counter[str] = Counter()
    found = []
    for one in wanted:
        found.append(replace(one, occurrence=seen[one.text]))
        seen[one.text] += 1
    return found


def say_all(
    subject: Subject, scorer: Scorer, wanted: Sequence[TextRequest], seed: int, done: Callable[[int], None]
) -> list[GeneratedText]:
    """What the model says after each text. ``done`` hears how many are there."""
    said: list[GeneratedText] = []
    for start in range(0, len(wanted), AT_ONCE):
        part = wanted[start : start + AT_ONCE]
        cut = [_cut(subject, one) for one in part]
        asking = [
            Question(subject, (), limit, one.temperature, seed, one.stops)
            for one, (_, limit, _) in zip(part, cut, strict=True)
        ]
        prompts = [
            Prompt(
                kept, limit, partial(question.stop, prompt=kept), one.temperature, request_name(kept, one.occurrence)
            )
            for one, question, (kept, limit, _) in zip(part, asking, cut, strict=True)
        ]
        news = scorer.generate(prompts, seed)
        rows = [Row((*kept, *new), len(new)) for (kept, _, _), new in zip(cut, news, strict=True)]
        scored = iter(scorer.score([row for row in rows if row.scored]))
        for question, (kept, _, lost), new in zip(asking, cut, news, strict=True):
            text, why = question.completion(new, kept)
            said.append(GeneratedText(text, why, new, next(scored).logprobs if new else (), kept, lost))
        done(len(said))
    return said


def _cut(subject: Subject, one: TextRequest) -> tuple[tuple[int, ...], int, int]:
    """Tokens of the prompt that have room, the most new ones, and how many of the prompt are lost."""
    context = subject.recipe.model.seq_len
    whole = subject.encode(one.text) or [subject.recipe.tokens.begin]
    kept = tuple(whole[-(context - min(one.limit, context // 2)) :])
    return kept, min(one.limit, context + 1 - len(kept)), len(whole) - len(kept)


# -- AlpacaEval ----------------------------------------------------------------------------------------------------


def read_instructions(path: Path) -> list[dict[str, str]]:
    """Rows with an ``instruction`` (or ``prompt``), of JSON lines or a JSON list, as AlpacaEval's own set is.

    Raises:
        DataError: it is neither, or a row has no text.
    """
    said = _read_json(path)
    rows = said if isinstance(said, list) else [said]
    found = []
    for number, row in enumerate(rows):
        text = (row.get("instruction") or row.get("prompt")) if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise DataError(
                "a prompt without a text", where=f"{path}, row {number}", expected="instruction or prompt", found="none"
            )
        if row.get("input"):
            raise DataError(
                "a prompt of two parts",
                where=f"{path}, row {number}",
                expected="an instruction that says all, as AlpacaEval's rows have it",
                found=f"input: {str(row['input'])[:80]}",
                cure="write the input into the instruction",
            )
        dataset = row.get("dataset")
        found.append({"instruction": text} | ({"dataset": dataset} if isinstance(dataset, str) else {}))
    return found


def instruction_prompt(text: str, template: ChatTemplate | None) -> str:
    """What the model continues: the instruction as a chat, or as it is where there is no template."""
    return template.render([{"role": "user", "content": text}]) if template is not None else text


def alpaca_eval(rows: Sequence[Mapping[str, str]], said: Sequence[GeneratedText], generator: str) -> str:
    """AlpacaEval's file of outputs."""
    outputs = [{**row, "output": one.text, "generator": generator} for row, one in zip(rows, said, strict=True)]
    return json.dumps(outputs, indent=2, ensure_ascii=False) + "\n"


# -- HELM ----------------------------------------------------------------------------------------------------------


def read_scenario(path: Path) -> tuple[dict[str, Any], list[TextRequest]]:
    """A scenario state, and what each completion of its requests wants, request by request.

    Raises:
        DataError: it is not one.
        UsageError: a request asks for what the model cannot be asked.
    """
    state = _read_json(path)
    try:
        wanted = []
        for number, one in enumerate(state["request_states"]):
            request = one["request"]
            _refuse(request, f"{path}, request {number}")
            count, limit, heat = (
                int(request["num_completions"]),
                int(request["max_tokens"]),
                float(request["temperature"]),
            )
            stops = tuple(str(stop) for stop in request.get("stop_sequences") or ())
            if not (1 <= count <= 128 and 0 <= limit < 2**31 and 0.0 <= heat <= 2.0 and math.isfinite(heat)):
                raise ValueError(f"request {number}: {count} completions of {limit} tokens at temperature {heat}")
            wanted += [TextRequest(str(request["prompt"]), limit, heat, stops)] * count
        return state, numbered(wanted)
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DataError(
            "not a scenario state of HELM",
            where=str(path),
            expected="scenario_state.json of `helm-run --dry-run`",
            found=f"{type(error).__name__}: {str(error)[:200]}",
        ) from None


def helm(subject: Subject, state: Mapping[str, Any], said: Sequence[GeneratedText]) -> str:
    """The scenario state with its results."""
    answers = iter(said)
    states = []
    for one in state["request_states"]:
        request = one["request"]
        completions = [_completion(subject, request, next(answers)) for _ in range(int(request["num_completions"]))]
        result = {"success": True, "embedding": [], "completions": completions, "cached": False}
        states.append({**one, "result": result})
    return json.dumps({**state, "request_states": states}, indent=2, ensure_ascii=False) + "\n"


def _completion(subject: Subject, request: Mapping[str, Any], said: GeneratedText) -> dict[str, Any]:
    tokens = [
        {"text": token_text(subject, token), "logprob": value}
        for token, value in zip(said.new, said.logprobs, strict=True)
    ]
    text = (str(request["prompt"]) if request.get("echo_prompt") else "") + said.text
    return {"text": text, "logprob": math.fsum(said.logprobs), "tokens": tokens, "finish_reason": {"reason": said.why}}


def _refuse(request: Mapping[str, Any], where: str) -> None:
    for name, neutral in (
        ("embedding", (False, None)),
        ("top_p", (1, None)),
        ("presence_penalty", (0, None)),
        ("frequency_penalty", (0, None)),
        ("messages", (None,)),
        ("multimodal_prompt", (None,)),
    ):
        if request.get(name) not in neutral:
            raise UsageError(
                "a request that asks for what is not here",
                where=f"{where}, {name}",
                expected=repr(neutral[0]),
                found=str(request.get(name))[:100],
                cure="adapt the scenario without it",
            )


def _read_json(path: Path) -> Any:
    """JSON, or JSON lines as a list."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path.stat().st_size} bytes")
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".jsonl":  # a text may hold other ends of lines, as U+2028
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        return json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            "a file that is no JSON", where=str(path), expected=".json, or .jsonl by lines", found=str(error)[:200]
        ) from None
