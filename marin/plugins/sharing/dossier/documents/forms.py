"""What a form is: fields with a section, what asks for each, and the names of the values that answer it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from marin.plugins.sharing.dossier.facts import Entry, Subject

LAW = "Regulation (EU) 2024/1689"


@dataclass(frozen=True)
class FormField:
    """One field: its section, its words in short, the values that answer it, and the paragraph that asks for it. ``where``:
    values that are yes or no; the field is asked where one of them is yes. ``optional``: it may stay empty."""

    section: str
    question: str
    answers: tuple[str, ...]
    paragraph: str
    where: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Form:
    """A form: its title, who made it, and its fields in order."""

    title: str
    source: str
    fields: tuple[FormField, ...]


def form_fields(text: str, paragraph: str = "") -> tuple[FormField, ...]:
    """The fields that a table says, a line each: section | question | answers, with ``where:NAME`` and ``optional`` among them
    | paragraph (where it is not the same for all)."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.replace("\\\n", " ").strip().splitlines()]
    return tuple(_field(row[0], row[1], row[2].split(), row[3] if len(row) == 4 else paragraph) for row in rows)


def _field(section: str, question: str, words: list[str], paragraph: str) -> FormField:
    gates = tuple(word.removeprefix("where:") for word in words if word.startswith("where:"))
    names = tuple(word for word in words if word != "optional" and not word.startswith("where:"))
    return FormField(section, question, names, paragraph, gates, "optional" in words)


def fill_form(subject: Subject, form: Form) -> dict[str, Any]:
    """A form with its answers. Values that the log of an older run does not have are left out where others answer."""
    rows = []
    for item in form.fields:
        row: dict[str, Any] = {"section": item.section, "paragraph": item.paragraph, "question": item.question}
        if item.where:
            row["asked where"] = {name: subject[name] for name in item.where}
        told = answers(subject, item)
        row["answers"] = {one.name: one for one in told}
        if measured := [one.name for one in told if one.measured]:
            row["measured"] = measured
        rows.append(row)
    return {"form": form.title, "by": form.source, "law": LAW, "fields": rows}


def applies(subject: Subject, item: FormField) -> bool:
    """Whether a field is asked of this model: not where the provider said no to what it depends on."""
    return not item.where or any(subject[name].value is not False for name in item.where)


def answers(subject: Subject, item: FormField) -> list[Entry]:
    """The values that answer one field: none where it is not asked."""
    if not applies(subject, item):
        return []
    return [subject.values[name] for name in item.answers if name in subject.values]


def unanswered_fields(subject: Subject, form: Form) -> Iterator[FormField]:
    """Fields that nobody answered in full yet. What is optional is not among them."""
    for item in form.fields:
        if item.optional or not applies(subject, item):
            continue
        told = answers(subject, item)
        if not told or any(value.source == "open" for value in told):
            yield item
