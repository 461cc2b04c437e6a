"""Where two evaluations of the same tasks part: the first task, document, request and token. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from marin.plugins.evaluation.recorded.records import Request, Sample
from marin.process.text import clipped


def first_difference(
    recorded: Mapping[str, Sequence[Sample]],
    found: Mapping[str, Sequence[Sample]],
    results: Mapping[str, Mapping[str, str]],
    results_found: Mapping[str, Mapping[str, str]],
) -> str | None:
    """The first difference, in the order of tasks, documents, requests and tokens, numbers of whole tasks last; None where
    there is none. Numbers are hex floats."""
    return next(_differences(recorded, found, results, results_found), None)


def _differences(
    recorded: Mapping[str, Sequence[Sample]],
    found: Mapping[str, Sequence[Sample]],
    results: Mapping[str, Mapping[str, str]],
    results_found: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    for task in sorted({*recorded, *found}):
        for a, b in zip_longest(recorded.get(task, ()), found.get(task, ())):
            if a is None or b is None:
                yield f"task {task}: {len(recorded.get(task, ()))} documents are recorded, {len(found.get(task, ()))} are there"
                return
            yield from (f"task {task}, sample {a.doc}: {line}" for line in _of_samples(a, b))
    for task in sorted({*results, *results_found}):
        a_metrics, b_metrics = results.get(task, {}), results_found.get(task, {})
        for name in sorted({*a_metrics, *b_metrics}):
            if a_metrics.get(name) != b_metrics.get(name):
                said = f"recorded {_number(a_metrics.get(name))}, found {_number(b_metrics.get(name))}"
                yield f"task {task}: {name}: {said}"


def _of_samples(a: Sample, b: Sample) -> Iterator[str]:
    for name in ("doc", "doc_hash", "target"):
        if getattr(a, name) != getattr(b, name):
            yield f"{_NAMES[name]}: recorded {_quoted(getattr(a, name))}, found {_quoted(getattr(b, name))}"
    for number, (one, other) in enumerate(zip_longest(a.requests, b.requests)):
        if one is None or other is None:
            yield f"{len(a.requests)} requests are recorded, {len(b.requests)} are there"
            return
        yield from (f"request {number}: {line}" for line in _of_requests(one, other))
    for one, other in zip_longest(a.outcomes, b.outcomes):
        if one != other:
            name = (one or other).filter
            yield f"outcome under the filter {name}: recorded {_quoted(one)}, found {_quoted(other)}"


_NAMES = {"doc": "number", "doc_hash": "document", "target": "gold answer"}


def _of_requests(a: Request, b: Request) -> Iterator[str]:
    if (a.kind, a.arguments) != (b.kind, b.arguments):
        yield f"prompt: recorded {_quoted(a.arguments)}, found {_quoted(b.arguments)}"
    for row_a, row_b in zip_longest(a.rows, b.rows):
        if row_a is None or row_b is None:
            yield f"{len(a.rows)} sequences are recorded, {len(b.rows)} are there"
            return
        for place, (one, other) in enumerate(zip_longest(row_a.tokens, row_b.tokens)):
            if one != other:
                yield f"token {place}: recorded {one}, found {other}"
        if len(row_a.logprobs) != len(row_b.logprobs):
            yield f"{len(row_a.logprobs)} tokens are recorded as scored, {len(row_b.logprobs)} are"
        first = len(row_b.tokens) - len(row_b.logprobs)
        for place, (value_a, value_b) in enumerate(zip(row_a.logprobs, row_b.logprobs, strict=False), start=first):
            if value_a != value_b:
                yield f"token {place}: log-likelihood recorded {_number(value_a)}, found {_number(value_b)}"
        if row_a.greedy != row_b.greedy:
            yield f"whether it is what greedy decoding gives: recorded {row_a.greedy}, found {row_b.greedy}"
    for name in ("text", "prompt", "truncated", "number", "repeat"):
        if getattr(a, name) != getattr(b, name):
            yield f"{name}: recorded {_quoted(getattr(a, name))}, found {_quoted(getattr(b, name))}"


def _number(text: str | None) -> str:
    if text is None:
        return "none"
    try:
        return f"{text} ({float.fromhex(text):.7g})"
    except (ValueError, OverflowError):
        return _quoted(text)


def _quoted(value: object) -> str:
    return clipped(repr(value), 160)
