"""BabyLM's tasks on a state, from their data to what is recorded of them.

A choice among sentences is that of the greatest log-likelihood of a completion: of the tokens that end inside it. Nothing is
put in front but what the tokenizer itself puts there, so the first token of a sentence is not scored, as in the pipeline.
Equal ones go to the first. A word's surprisal in reading times is that of its tokens one by one, each after the text so far,
encoded anew. Log-likelihoods are those of :mod:`marin.evaluation.scoring`, and a sum of them is rounded once.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from marin.data.tokenizer import Tokenizer
from marin.evaluation.evaluate import exponential
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.babylm.predictions import predictions
from marin.plugins.evaluation.babylm.scores import accuracy, reading, spearman
from marin.plugins.evaluation.babylm.tasks import BABYLM, Item, items
from marin.plugins.evaluation.recorded.answering import answered, row_to_score
from marin.plugins.evaluation.recorded.evaluated import Asker, Evaluated
from marin.plugins.evaluation.recorded.records import Key, Outcome, Request, Sample, ScoredRow, Settings
from marin.plugins.evaluation.recorded.task import EvaluationTask

MOST = 700.0
"""Of which a float has an exponential."""
ASKER = Asker(BABYLM, ("marin/plugins/evaluation/babylm/scoring.py",))


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
    documents = {task.name: list(items(task, settings.limit)) for task in tasks}
    asked: dict[Key, Request] = {}
    for name, found in documents.items():
        for number, item in enumerate(found):
            for place, (text, part) in enumerate(item.texts):
                asked[name, number, place, 0] = _request(subject.tokenizer, scorer.seq_len, text, part, place)
    by_document: dict[tuple[str, int], list[Request]] = defaultdict(list)
    for key, request in answered(scorer, asked, recorded or {}, again, progress).items():
        by_document[key[:2]].append(request)
    samples = {
        name: [_sample(number, item, by_document[name, number]) for number, item in enumerate(found)]
        for name, found in documents.items()
    }
    results = {task.name: _numbers(task, settings, documents[task.name], samples[task.name]) for task in tasks}

    def write(body: EvaluationRecorded) -> dict[str, bytes]:
        told = {f"{name}.json": predictions(name, one) for name, one in samples.items()}
        return {name: json.dumps(value).encode() + b"\n" for name, value in told.items()}

    return Evaluated(ASKER, tuple(tasks), settings, results, samples, write)


# -- what is asked


def _request(tokenizer: Tokenizer, seq_len: int, text: str, part: int | str, place: int) -> Request:
    """A completion of the last ``part`` characters of ``text``, or the word ``part`` after it."""
    if isinstance(part, str):
        rows = list(_word(tokenizer, seq_len, text, part))
        return Request("loglikelihood", [text, part], place, rows=rows)
    encoding = tokenizer.encode(text, add_special_tokens=True)
    begin = len(text) - part
    first = next((at for at, (_, end) in enumerate(encoding.offsets) if end > begin), len(encoding.ids))
    kept = encoding.ids[-(seq_len + 1) :]
    scored = min(len(encoding.ids) - first, len(kept) - 1)
    rows = [row_to_score(kept, scored)] if scored > 0 else []
    return Request("loglikelihood", [text, part], place, truncated=len(encoding.ids) - len(kept), rows=rows)


def _word(tokenizer: Tokenizer, seq_len: int, text: str, word: str) -> Iterator[ScoredRow]:
    for place, target in enumerate(tokenizer.encode(word, add_special_tokens=False).ids):
        # after the first, the pipeline takes the first token of the decoded one
        part = tokenizer.decode([target], skip_special_tokens=False)
        asked = target if place == 0 else (tokenizer.encode(part, add_special_tokens=False).ids or [target])[0]
        before = tokenizer.encode(text, add_special_tokens=True).ids[-seq_len:]
        if before:
            yield row_to_score([*before, asked], 1)
        text += part


# -- what is made of the answers


def _sample(number: int, item: Item, requests: list[Request]) -> Sample:
    values = [request.total() for request in requests]
    if not item.said:  # reading times: surprisals of the word, and of the one before
        metrics = {name: -value + 0.0 for name, value in zip(("pred", "prev_pred"), values, strict=False)}
        return _judged(number, item, requests, None, None, metrics)
    if len(requests) == 1:  # the age of acquisition
        return _judged(number, item, requests, None, list(item.said), {"surprisal": -values[0] + 0.0})
    best = values.index(max(values))
    if item.ratio is None:
        return _judged(number, item, requests, item.said[0], item.said[best], {"acc": float(best == 0)})
    share = 1.0 / math.fsum(exponential(min(MOST, value - values[0])) for value in values)
    return _judged(number, item, requests, item.ratio.hex(), item.said[best], {"prob": share})


def _judged(
    number: int, item: Item, requests: list[Request], target: Any, said: Any, metrics: Mapping[str, float]
) -> Sample:
    outcome = Outcome(item.uid, said, {name: value.hex() for name, value in metrics.items()})
    return Sample(number, item.digest, target, requests, [outcome])


def _numbers(
    task: EvaluationTask, settings: Settings, documents: Sequence[Item], samples: Sequence[Sample]
) -> dict[str, float]:
    """The task's numbers in the shape of the harness."""
    kind = task.config["babylm"]
    found = [sample.outcomes[0].metrics for sample in samples]
    if kind == "aoa":
        values = [float.fromhex(metrics["surprisal"]) for metrics in found]
        return {"surprisal,none": math.fsum(values) / len(values)} if values else {}
    if kind == "reading":
        lines = [json.loads(line) for split in sorted(task.data) for line in task.data[split].splitlines() if line]
        surprisals = [{name: float.fromhex(value) for name, value in metrics.items()} for metrics in found]
        return reading([{**line, **one} for line, one in zip(lines, surprisals, strict=False)])
    if kind.startswith("wug"):
        pairs = [(float.fromhex(one["prob"]), item.ratio or 0.0) for one, item in zip(found, documents, strict=True)]
        return {"spearman,none": spearman(pairs)}
    right: dict[str, list[bool]] = defaultdict(list)
    for item, metrics in zip(documents, found, strict=True):
        right[item.uid].append(float.fromhex(metrics["acc"]) == 1.0)
    return accuracy(right)
