"""How people find a run: whether lists show it, what it is about in a sentence, tags of their own.

Labels are events (``run.labelled/v1``) in a stream beside the run's. They say nothing of what the run is, decide no
verdict, and never take anything out of the log: an archived run is left out by lists, and found by its name as before. A name
that speaks for the ledger is shown as ``label:marin.verified``: a reader of ``marin.verified`` takes what stands beside it for
an own verdict, so Marin alone gives such names, and a log that was copied may have one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ledger import Event
from marin.errors import MarinError
from marin.process.text import visible
from marin.record.events import LOOP, RunLabelled, read

VERDICT = "verified"
MARK = "label:"
_LOOK_ALIKES = str.maketrans(
    "\u0430\u0435\u0456\u0457\u0433\u043f\u043c\u0432\u0501\u03b1\u03b9\u0131\u03b7\u03bd\u03b5\u03c1\u217f\u0261\u0491"
    "\u00b7\u3002\uff61\u2027\u2219\u22c5\u30fb\u0387\u06d4\u0701\u0702\u05c5",
    "aeiirnmvdaiinvepmgr............",
)
"""Letters and dots that are drawn as those of ``marin.verified`` (Unicode's confusables), after their compatible form."""


@dataclass(frozen=True)
class Labels:
    """What was said of a run so far."""

    archived: bool = False
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def first(cls, recipe: Mapping[str, object]) -> Labels:
        """As a run of this recipe begins: with the tags that its loop gave it (``marin.start_run(..., tags=...)``)."""
        given = loop.get("tags") if isinstance(loop := recipe.get(LOOP), Mapping) else None
        tags = given if isinstance(given, Mapping) else {}
        return cls(tags={marked_label(name): value for name, value in tags.items() if isinstance(value, str)})

    def after(self, body: RunLabelled) -> Labels:
        """As the next event leaves them."""
        gone = {marked_label(name) for name in body.untagged}
        kept = {name: value for name, value in self.tags.items() if name not in gone}
        return Labels(
            self.archived if body.archived is None else body.archived,
            self.description if body.description is None else body.description,
            kept | {marked_label(name): value for name, value in body.tags.items()},
        )


def label_stream(run: str) -> str:
    """The stream that holds the labels of ``run``, which are not part of its execution."""
    return f"labels/{run}"


def labelled(events: Iterable[tuple[int, Event]]) -> Iterator[RunLabelled]:
    """What these events say, in their order; one whose body does not fit, or that stands in another run's stream, says
    nothing."""
    for index, event in events:
        try:
            body = read(RunLabelled, event.body, where=f"event {index}")
        except MarinError:
            continue
        if event.stream == label_stream(body.run):
            yield body


def speaks_for_the_ledger(name: str) -> bool:
    """Whether eyes take ``name`` for one that Marin gives: ``marin.…`` or ``verified``, in any case, with spaces, accents or
    unseen characters, or in letters of another alphabet that look the same."""
    seen = _as_seen(name)
    return seen.startswith("marin.") or seen == VERDICT


def marked(name: str) -> str:
    """``name`` as it is shown of what someone else wrote."""
    return f"{MARK}{name}" if speaks_for_the_ledger(name) else name


def marked_label(name: str) -> str:
    """As :func:`marked`, for a label of a run: MLflow's own names decide what it shows, so these are marked too."""
    return f"{MARK}{name}" if speaks_for_the_ledger(name) or _as_seen(name).startswith("mlflow.") else name


def _as_seen(name: str) -> str:
    letters = (letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    seen = "".join(letter for letter in letters if visible(letter) == letter and not letter.isspace())
    return unicodedata.normalize("NFKD", seen.casefold()).translate(_LOOK_ALIKES)
