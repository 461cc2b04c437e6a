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
    """One text to be continued: at most ``limit`` new tokens, ended by ``stops``; ``occurrence``: which of equal ones;
    ``echo``: the text's own tokens are scored too."""

    text: str
    limit: int
    temperature: float
    stops: tuple[str, ...] = ()
    occurrence: int = 0
    echo: bool = False


@dataclass(frozen=True)
class GeneratedText:
    """``lost``: how many tokens of the prompt had no room. ``logprobs`` are those of ``new``, natural logarithms;
    ``before``, where they were asked for, those of the prompt's tokens behind its first."""

    text: str
    why: str
    new: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt: tuple[int, ...]
    lost: int
    before: tuple[float, ...] = ()


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
        echoed = [len(kept) - 1 if one.echo else 0 for one, (kept, _, _) in zip(part, cut, strict=True)]
        rows = [Row((*kept, *new), more + len(new)) for (kept, _, _), new, more in zip(cut, news, echoed, strict=True)]
        scored = iter(scorer.score([row for row in rows if row.scored]))
        for question, (kept, _, lost), new, more in zip(asking, cut, news, echoed, strict=True):
            text, why = question.completion(new, kept)
            values = next(scored).logprobs if more + len(new) else ()
            said.append(GeneratedText(text, why, new, values[more:], kept, lost, values[:more]))
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
            echo = bool(request.get("echo_prompt"))
            wanted += [TextRequest(str(request["prompt"]), limit, heat, stops, echo=echo)] * count
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
    """As HELM's clients leave it: without the tokens from a stop on; of an echo with those of the prompt, whose first has 0."""
    ends = (*map(str, request.get("stop_sequences") or ()),)
    tokens = (
        [(0.0, said.prompt[0]), *zip(said.before, said.prompt[1:], strict=True)] if request.get("echo_prompt") else []
    )
    for value, token in zip(said.logprobs, said.new, strict=True):
        if token in subject.recipe.tokens.stops or (said.why == "stop" and token_text(subject, token).startswith(ends)):
            break
        tokens.append((value, token))
    return {
        "text": (str(request["prompt"]) if request.get("echo_prompt") else "") + said.text,
        "logprob": math.fsum(value for value, _ in tokens),
        "tokens": [{"text": token_text(subject, token), "logprob": value} for value, token in tokens],
        "finish_reason": {"reason": said.why},
    }


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
