"""What a step changed in a text, line by line: found by doing the steps again on what was read.

Decisions say how many lines went and why; the lines themselves stand in no column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from marin.plugins.collections.document import Document
from marin.plugins.collections.queries.documents import Collection, retained_row
from marin.plugins.collections.queries.passed import step_at
from marin.plugins.collections.settings import CollectionSettings, divided, step_settings
from marin.plugins.collections.tasks.cutting import STEP as CUT

MASKING = "pii"
"""The step that masks: what it does is told as it left it, and lines of other steps as it would leave them."""


def changed_lines(
    collection: Collection, settings: CollectionSettings, document: Document, step: str
) -> tuple[Iterator[str], Iterator[str]]:
    """The lines that ``step`` took out, and those that it put in their place, each in the order of the text. Of a step that makes
    text of what is read all lines are put: what was read is not in the store. None of both where the steps cannot be done again.

    Args:
        settings: those of the collection.
        document: as it was before it was judged.
        step: the kind of a step that changed it.
    """
    before, after = _texts(collection, settings, document, step)
    if step == MASKING:
        return iter(()), _without(after, before)
    before, after = (masked(text, settings) for text in (before, after))
    return _without(before, after), _without(after, before)


def masked(text: str, settings: CollectionSettings) -> str:
    """The text as the collection's own masking leaves it; as it is where there is none."""
    for _, made in step_settings([one for one in settings.steps if one["kind"] == MASKING], where="settings"):
        left = made.make().judge(Document("", text, "")).document
        text = "" if left is None else left.text
    return text


def _texts(collection: Collection, settings: CollectionSettings, document: Document, step: str) -> tuple[str, str]:
    """The text before and after the step; two empty ones where they are not known."""
    first, rest = divided(settings.steps)
    if any(one["kind"] == step for one in first):
        return "", document.text
    for place, one in enumerate(rest, start=len(first)):
        made = step_at(collection.store, collection.artifact, settings.steps, place)
        after = None if made is None else made.judge(document).document
        if after is None:
            return "", ""
        if one["kind"] == step and after.text != document.text:
            return document.text, after.text
        document = after
    row = retained_row(collection, document.id) if step == CUT else None  # paragraphs go last of all
    return ("", "") if row is None else (document.text, str(row["text"]))


def _without(text: str, other: str) -> Iterator[str]:
    """The lines of ``text`` that ``other`` does not have, or has less often, in order; no empty ones."""
    lines = text.split("\n")
    more = Counter(lines) - Counter(other.split("\n"))
    for line in lines:
        if more[line] > 0:
            more[line] -= 1
            if line.strip():
                yield line
