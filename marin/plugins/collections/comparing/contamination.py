"""Decontamination: which documents hold what an evaluation asks, by equal words in a row, with both places of each hit.

Nothing is approximate: numbers of n-grams only find candidates, and the words themselves are compared. There is no Bloom
filter, so a clean document is never called contaminated because of a collision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.data.local import json_objects
from marin.errors import DataError, DataMissing
from marin.plugins.collections.comparing.words import grams, hashes, spans
from marin.plugins.collections.document import Decision, Document, Judgement, Scalar
from marin.plugins.collections.settings import Contamination

STEP, REASON = "contamination", "contaminated"
MOST_HITS, QUOTED = 8, 160


@dataclass(frozen=True)
class Field:
    """One field of one record: its words, and of each the characters in the field's text."""

    evaluation: str
    record: int
    name: str
    words: tuple[str, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Hit:
    """Words ``[start, start + length)`` of a document that are words ``[at, at + length)`` of a field."""

    field: Field
    start: int
    at: int
    length: int


class Evaluations:
    """What evaluations ask, ready to be looked for."""

    def __init__(self, fields: Sequence[Field], settings: Contamination) -> None:
        self._settings = settings
        self._beside: dict[tuple[str, int], list[Field]] = defaultdict(list)
        found: dict[int, dict[int, list[tuple[Field, int]]]] = defaultdict(lambda: defaultdict(list))
        for field in fields:
            if field.words:
                self._beside[field.evaluation, field.record].append(field)
        for field in fields:
            length = min(len(field.words), settings.words)
            if length and (length >= settings.shortest or self._is_question(field)):
                for at, number in enumerate(grams(hashes(field.words), length).tolist()):
                    found[length][number].append((field, at))
        self._by_length = {}
        self.looked_for: set[tuple[str, int]] = set()
        """Evaluations and numbers of their records of which a document could hold something."""
        for length, numbers in found.items():
            rare = {
                number: places
                for number, places in numbers.items()
                if len({(field.evaluation, field.record) for field, _ in places}) <= settings.most_records
            }
            self.looked_for |= {(one.evaluation, one.record) for places in rare.values() for one, _ in places}
            if rare:
                self._by_length[length] = (np.array(sorted(rare), np.uint64), rare)

    def _is_question(self, field: Field) -> bool:
        """Of fields that are all too short to say much: whether this is the longest of several."""
        beside = self._beside[field.evaluation, field.record]
        longest = max(len(one.words) for one in beside)
        first = next(one for one in beside if len(one.words) == longest)
        return len(beside) > 1 and longest < self._settings.shortest and longest > 2 and first is field

    def hits(self, listed: Sequence[str]) -> Iterator[Hit]:
        """Where words of a document are words of a field, each as long as they go on; in the order of the document."""
        numbers = hashes(listed)
        found: list[Hit] = []
        for length, (known, places) in sorted(self._by_length.items()):
            here = grams(numbers, length)
            if not len(here):
                continue
            for start in np.flatnonzero(_among(here, known)).tolist():
                for field, at in places[int(here[start])]:
                    if tuple(listed[start : start + length]) != field.words[at : at + length]:
                        continue
                    if any(
                        one.field is field
                        and one.start <= start < one.start + one.length
                        and start - one.start == at - one.at
                        for one in found
                    ):
                        continue
                    if length < self._settings.shortest and not self._answered(field, listed, start):
                        continue
                    end = length
                    while (
                        start + end < len(listed)
                        and at + end < len(field.words)
                        and listed[start + end] == field.words[at + end]
                    ):
                        end += 1
                    found.append(Hit(field, start, at, end))
        found.sort(key=lambda hit: (hit.start, hit.field.evaluation, hit.field.record, hit.field.name, hit.at))
        yield from found

    def _answered(self, field: Field, listed: Sequence[str], start: int) -> bool:
        """Whether another field of the record stands shortly behind a short one."""
        behind = start + len(field.words)
        near = tuple(listed[behind : behind + self._settings.within])
        for other in self._beside[field.evaluation, field.record]:
            count = len(other.words)
            if other is not field and any(near[at : at + count] == other.words for at in range(len(near) - count + 1)):
                return True
        return False


def _among(here: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    places = np.minimum(np.searchsorted(known, here), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == here
    return found


class Decontaminate:
    """:class:`marin.plugins.collections.document.Step`: removes what holds a stretch of an evaluation."""

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations

    def judge(self, document: Document) -> Judgement:
        """A decision for each of the first hits; evidence counts characters of both texts."""
        listed, places = spans(document.text)
        hits = list(self._evaluations.hits(listed))
        if not hits:
            return Judgement(document)
        decisions = []
        for hit in hits[:MOST_HITS]:
            start, end = places[hit.start][0], places[hit.start + hit.length - 1][1]
            evidence: dict[str, Scalar] = {
                "evaluation": hit.field.evaluation,
                "record": hit.field.record,
                "field": hit.field.name,
                "words": hit.length,
                "document_start": start,
                "document_end": end,
                "evaluation_start": hit.field.places[hit.at][0],
                "evaluation_end": hit.field.places[hit.at + hit.length - 1][1],
                "text": document.text[start : min(end, start + QUOTED)],
                "hits": len(hits),
            }
            decisions.append(Decision(document.id, STEP, "remove", REASON, evidence))
        return Judgement(None, tuple(decisions))

    def measured(self, document: Document) -> Mapping[str, Any]:
        return {"hits": 0}


def load_evaluations(files: Sequence[tuple[Path, str]], fields: Sequence[str]) -> list[Field]:
    """The fields of evaluations in JSON lines: (file, its recorded name).

    Raises:
        DataError: a line is not a JSON object, or no record of a file has any of the fields.
        DataMissing: a file cannot be read.
    """
    found: list[Field] = []
    for path, name in files:
        before = len(found)
        try:
            with path.open("rb") as file:
                for number, value in json_objects(file, str(path)):
                    for field in fields:
                        for text in _texts(value.get(field)):
                            listed, places = spans(text)
                            found.append(Field(name, number, field, tuple(listed), tuple(places)))
        except OSError as error:
            raise DataMissing(
                "an evaluation cannot be read",
                where=str(path),
                found=error.strerror or str(error),
                cure="name another file",
            ) from error
        if len(found) == before:
            raise DataError(
                "an evaluation has none of the fields",
                where=str(path),
                expected=f"records with {', '.join(fields)}",
                found="none",
                cure="name its fields with --evaluation-fields",
            )
    return found


@dataclass(frozen=True)
class PassedOver:
    """Of an evaluation: how many of its ``records`` have nothing that is looked for, and the fields that no record has."""

    evaluation: str
    passed_over: int
    records: int
    lacking: tuple[str, ...]

    def __str__(self) -> str:
        lacking = f"; none has {' or '.join(self.lacking)}" if self.lacking else ""
        return f"{self.evaluation}: of {self.passed_over} of {self.records} records nothing is looked for{lacking}"


def passed_over(
    files: Sequence[tuple[Path, str]], fields: Sequence[str], settings: Contamination
) -> Iterator[PassedOver]:
    """Evaluations of which some record cannot be found in any document: its fields are not there, or too short, or in too many
    of its records.

    Raises:
        DataError, DataMissing: as for :func:`load_evaluations`.
    """
    for path, name in files:
        found = load_evaluations([(path, name)], fields)
        looked_for = Evaluations(found, settings).looked_for
        with path.open("rb") as file:
            records = sum(1 for _ in json_objects(file, str(path)))
        if len(looked_for) < records:
            there = {one.name for one in found}
            yield PassedOver(name, records - len(looked_for), records, tuple(one for one in fields if one not in there))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
