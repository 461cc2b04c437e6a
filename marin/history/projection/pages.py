"""The pages that a run has by now, by name; marin/reporting/pages.py draws them."""

from __future__ import annotations

RECORD = "record.json"
"""Every digest and fact of a run, which its steps show too: no tag repeats them."""
SAMPLES = "samples.json"
"""What states of a run said after prompts, as a table of MLflow."""


def pages_of(*, losses: bool, steps: bool, replayed: bool, collected: bool, sampled: bool = False) -> tuple[str, ...]:
    """The pages that a run has by now: of one with losses, with steps that were begun, with a verdict that counts, from a
    collection of documents, with samples of text."""
    found = ["report.html", RECORD]
    if losses:
        found += ["loss.png", "data_order.html"]
    if steps:
        found.append("lineage.html")
    if sampled:
        found.append(SAMPLES)
    if collected:
        found.append("collection.html")
    if replayed:
        found.append("verification.html")
    return tuple(found)
