"""A text on a state: the log-likelihood of each of its tokens, and the numbers that follow from them.

The text is predicted whole, token for token, after an end of text and in the windows of lm-evaluation-harness. A window is a
request, so that a verifier can draw some of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.heldout.measuring import encode_texts, numbers_of, plain_tokenizer, windows
from marin.plugins.evaluation.recorded.answering import answered, row_to_score
from marin.plugins.evaluation.recorded.evaluated import Asker, Evaluated
from marin.plugins.evaluation.recorded.records import Key, Outcome, Request, Sample, Settings
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.plugins.perplexity.task import SPLIT, VERSION


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
    texts = {task.name: task.rows(SPLIT)[0]["text"] for task in tasks}
    asked: dict[Key, Request] = {}
    for name, text in texts.items():
        (tokens,) = encode_texts(plain_tokenizer(subject), [text])
        for number, row in enumerate(windows(tokens, scorer.seq_len, scorer.recipe.tokens.begin)):
            rows = [row_to_score(row.tokens, row.scored)]
            asked[name, 0, number, 0] = Request("loglikelihood_rolling", [], number, rows=rows)
    found = answered(scorer, asked, recorded or {}, again, progress)
    samples, results = {}, {}
    for name, text in texts.items():
        requests = [request for key, request in found.items() if key[0] == name]
        scores = [float.fromhex(value) for request in requests for row in request.rows for value in row.logprobs]
        numbers, data = numbers_of(scores, len(text.encode())), text.encode()
        outcome = Outcome("none", None, dict(numbers))
        samples[name] = [Sample(0, hashlib.sha256(data).hexdigest(), None, requests, [outcome])]
        results[name] = {f"{metric},none": float.fromhex(value) for metric, value in numbers.items()}
    asker = Asker(VERSION, ("marin/plugins/perplexity/scoring.py",))
    return Evaluated(asker, tuple(tasks), settings, results, samples, lambda body: {})
