"""Requests and their answers: a sequence that was recorded stands for itself, unless it is to be answered again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from marin.evaluation.scoring import Row, Scorer
from marin.plugins.evaluation.recorded.records import Key, Request, ScoredRow


def row_to_score(tokens: Sequence[int], scored: int) -> ScoredRow:
    """A sequence whose last ``scored`` tokens are asked for."""
    return ScoredRow(list(tokens), [""] * scored, False)


def answered(
    scorer: Scorer,
    asked: Mapping[Key, Request],
    recorded: Mapping[Key, Request],
    again: Collection[Key] | None,
    done: Callable[[int], None] = lambda count: None,
) -> dict[Key, Request]:
    """What was ``asked``, answered: by ``scorer``, or by what is ``recorded`` where that has the same tokens and is not to be
    answered ``again`` (None: all is). ``done`` hears how many sequences are scored."""
    known = {key: recorded_answer(recorded.get(key), request, key, again) for key, request in asked.items()}
    anew = [
        (key, number) for key, request in asked.items() if known[key] is None for number in range(len(request.rows))
    ]
    rows = [asked[key].rows[number] for key, number in anew]
    results = scorer.score([Row(tuple(row.tokens), len(row.logprobs)) for row in rows], done)
    found: dict[Key, list[ScoredRow]] = {key: [] for key in asked}
    for (key, _), row, scored in zip(anew, rows, results, strict=True):
        found[key].append(ScoredRow(row.tokens, [value.hex() for value in scored.logprobs], scored.greedy))
    return {
        key: kept if (kept := known[key]) is not None else msgspec.structs.replace(request, rows=found[key])
        for key, request in asked.items()
    }


def recorded_answer(known: Request | None, asked: Request, key: Key, again: Collection[Key] | None) -> Request | None:
    """The recorded answer, where it stands for this request."""
    if known is None or again is None or key in again:
        return None
    shape, had = ([(row.tokens, len(row.logprobs)) for row in one.rows] for one in (asked, known))
    same = known.prompt == asked.prompt if asked.kind == "generate_until" else shape == had
    return known if same and known.arguments == asked.arguments and known.kind == asked.kind else None
