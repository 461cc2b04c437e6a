"""A collection of documents as one page: what was read, what every step did to it, what stayed. A function of its account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin.recipe.units import human_size
from marin.reporting.template import render

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.plugins.collections.queries.account import Account
    from marin.record.root import Root

WIDEST = 100
"""Per cent of the longest bar."""


def draw(root: Root, run: Run) -> bytes:
    """The page of the collections that a run was made from."""
    # Here: a collection's columns, and the tokens that came of it.
    from marin.plugins.collections.queries.account import account
    from marin.plugins.collections.queries.documents import of_run
    from marin.plugins.collections.queries.tokens import tokens_by_source

    first, *others = of_run(root, run.run)
    tokens = tokens_by_source(run, root.store_to_read())
    return page(account(first, tokens), others=[other.artifact for other in others])


def page(found: Account, *, others: Sequence[str] = ()) -> bytes:
    """The page, which loads nothing. ``others``: digests of more collections that the same run was made from."""
    counted = any(source.tokens is not None for source in found.sources)
    return render(
        "collection.html.j2",
        artifact=found.artifact,
        others=others,
        numbers=[
            ("documents read", f"{found.read:,}"),
            ("kept", f"{found.kept:,}"),
            ("text kept", human_size(sum(source.bytes for source in found.sources))),
            *([("not compared with all", f"{found.not_compared:,}")] if found.not_compared else []),
            *((f"{split} split", f"{count:,}") for split, count in found.splits.items()),
        ],
        counted=counted,
        bound=found.most_compared if found.not_compared else 0,
        sources=found.sources,
        steps=[
            (*key, f"{one.documents:,}", "" if one.bytes is None else human_size(one.bytes))
            for key, one in found.steps.items()
        ],
        problems=[(reason, f"{count:,}") for reason, count in found.problems.items()],
        examples=[
            (reason, [(one.id, one.url, _evidence_text(one.evidence), one.text) for one in some])
            for reason, some in found.examples.items()
        ],
        changes=[
            (reason, [(one.id, one.url, _evidence_text(one.evidence), one.taken, one.put) for one in some])
            for reason, some in found.changes.items()
        ],
        lengths=_bars([(human_size(least), count) for least, count in found.lengths.items()]),
        similar=_bars([(f"{hundredths / 100:.2f}", count) for hundredths, count in found.similar.items()]),
        clusters=_bars([(f"{least:,}", count) for least, count in found.clusters.items()]),
        licences=[(name, f"{count:,}") for name, count in found.licences.items()],
    )


def _evidence_text(evidence: Mapping[str, Any]) -> str:
    return "; ".join(f"{key} {value}" for key, value in evidence.items())


def _bars(rows: Sequence[tuple[str, int]]) -> list[tuple[str, str, float]]:
    most = max((count for _, count in rows), default=1)
    return [(name, f"{count:,}", WIDEST * count / most) for name, count in rows]
