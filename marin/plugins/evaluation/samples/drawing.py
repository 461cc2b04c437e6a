"""What a state says after prompts: drawn tokens, their text, and how likely each was.

A prompt is a request, so that a verifier can draw some of them. Its tokens come from the seed, the prompt and the state alone
(:mod:`marin.evaluation.scoring`). Of a prompt that is longer than the context allows the beginning is cut, and that is counted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.recorded.answering import recorded_answer
from marin.plugins.evaluation.recorded.evaluated import Asker, Evaluated
from marin.plugins.evaluation.recorded.records import Key, Outcome, Request, Sample, ScoredRow, Settings
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.plugins.evaluation.samples.task import SPLIT, VERSION, Continued

CODE = ("marin/plugins/evaluation/samples/drawing.py",)


def evaluated(
    subject: Subject,
    scorer: Scorer,
    tasks: Sequence[EvaluationTask],
    settings: Settings,
    *,
    progress: Callable[[int], None] = lambda done: None,
    recorded: Mapping[Key, Request] | None = None,
    again: Collection[Key] | None = None,
) -> Evaluated:
    """Ask ``tasks``; ``recorded`` and ``again`` as :func:`marin.plugins.evaluation.recorded.answering.answered` takes them."""
    samples, results = {}, {}
    scorer = scorer if settings.rules > 4 else scorer.one_by_one()
    for task in tasks:
        config = msgspec.convert(dict(task.config), Continued)
        texts = [row["prompt"] for row in task.rows(SPLIT)][: settings.limit]
        prompts, asked = _requests(subject, scorer.seq_len, config, texts, task.name)
        known = {key: recorded_answer((recorded or {}).get(key), request, key, again) for key, request in asked.items()}
        anew = [key for key in asked if known[key] is None]
        drawn = dict(zip(anew, scorer.generate([prompts[key] for key in anew], settings.seed), strict=True))
        scored = scorer.score([Row((*prompts[key].tokens, *new), len(new)) for key, new in drawn.items()], progress)
        rows = {
            key: [ScoredRow([*prompts[key].tokens, *new], [value.hex() for value in one.logprobs], False)]
            for (key, new), one in zip(drawn.items(), scored, strict=True)
        }
        samples[task.name] = [
            _sample(subject, text, kept if (kept := known[key]) is not None else request, rows.get(key), key[1])
            for text, (key, request) in zip(texts, asked.items(), strict=True)
        ]
        count = sum(one.outcomes[0].metrics["tokens"] for one in samples[task.name])
        results[task.name] = {"tokens,none": count / len(texts)}
    return Evaluated(Asker(VERSION, CODE), tuple(tasks), settings, results, samples, lambda body: {})


def _requests(
    subject: Subject, context: int, config: Continued, texts: Sequence[str], name: str
) -> tuple[dict[Key, Prompt], dict[Key, Request]]:
    """What is asked, as the scorer takes it and as it is recorded."""
    room = min(config.max_tokens, max(1, context // 2))
    prompts, asked, seen = {}, {}, Counter[tuple[int, ...]]()
    for number, text in enumerate(texts):
        whole = (subject.recipe.tokens.begin, *subject.encode(text))
        kept = whole[-max(1, context - room) :]
        limit = min(config.max_tokens, context + 1 - len(kept))
        key: Key = (name, number, 0, 0)
        heat = config.temperature
        prompts[key] = Prompt(kept, limit, lambda new: False, heat, request_name(kept, seen[kept]))
        seen[kept] += 1
        arguments = [text, {"max_tokens": config.max_tokens, "temperature": heat}]
        cut = len(whole) - len(kept)
        asked[key] = Request("generate_until", arguments, truncated=cut, prompt=list(kept))
    return prompts, asked


def _sample(subject: Subject, text: str, request: Request, rows: list[ScoredRow] | None, number: int) -> Sample:
    """One prompt with what was said after it; ``rows`` of one that was drawn, None of one that stands as it is recorded."""
    request = request if rows is None else msgspec.structs.replace(request, rows=rows)
    new = tuple(token for row in request.rows for token in row.tokens[len(request.prompt) :])
    request = msgspec.structs.replace(request, text=subject.decode(new, tuple(request.prompt)))
    outcome = Outcome("none", request.text, {"tokens": len(new)})
    return Sample(number, hashlib.sha256(text.encode()).hexdigest(), None, [request], [outcome])
