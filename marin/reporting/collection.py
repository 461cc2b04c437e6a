"""A collection of documents as one page: what was read, what every step did to it, what stayed. A function of its account."""

from __future__ import annotations

from marin.collection.asking.account import Account
from marin.reporting.template import render, size

WIDEST = 100
"""Per cent of the longest bar of lengths."""


def page(found: Account) -> bytes:
    """The page, which loads nothing."""
    most = max(found.lengths.values(), default=1)
    return render(
        "collection.html.j2",
        artifact=found.artifact,
        numbers=[
            ("documents read", f"{found.read:,}"),
            ("kept", f"{found.kept:,}"),
            ("text kept", size(sum(source.bytes for source in found.sources))),
            *((f"{split} split", f"{count:,}") for split, count in found.splits.items()),
        ],
        sources=found.sources,
        steps=[(*key, f"{count:,}") for key, count in found.steps.items()],
        problems=[(reason, f"{count:,}") for reason, count in found.problems.items()],
        examples=[
            (
                reason,
                [(one.id, one.url, "; ".join(f"{key} {value}" for key, value in one.evidence.items())) for one in some],
            )
            for reason, some in found.examples.items()
        ],
        lengths=[(size(least), count, WIDEST * count / most) for least, count in found.lengths.items()],
        licences=[(name, f"{count:,}") for name, count in found.licences.items()],
    )
