"""All documents of a dossier, made from what is proven of a run: equal events give equal bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from marin.plugins.sharing.dossier.documents import card, crate, croissant, cyclonedx, eu, spdx
from marin.plugins.sharing.dossier.documents.forms import fill_form
from marin.plugins.sharing.dossier.documents.marked import encode_document, fields, plain
from marin.plugins.sharing.dossier.documents.page import INDEX, page
from marin.plugins.sharing.dossier.facts import Subject

FIELDS = "fields.json"

FORMS: Mapping[str, Callable[[Subject], Any]] = {
    eu.SUMMARY: lambda subject: fill_form(subject, eu.FORMS[eu.SUMMARY]),
    eu.FORM: lambda subject: fill_form(subject, eu.FORMS[eu.FORM]),
    cyclonedx.FILE: cyclonedx.bill,
    spdx.FILE: spdx.spdx,
    crate.FILE: crate.crate,
}
"""Documents that are one JSON value, by file."""


def documents(subject: Subject) -> dict[str, bytes]:
    """Every file that follows from what is proven, by path."""
    text, listed = card.card(subject)
    files = {card.FILE: text}
    for file, document in forms(subject).items():
        files[file] = encode_document(plain(document))
        listed += fields(document, file)
    files[FIELDS] = encode_document(listed)
    files[INDEX] = page(subject, sorted(files))
    return files


def forms(subject: Subject) -> dict[str, Any]:
    """The JSON documents, with the marks of their values."""
    described = {croissant.file_of(name): croissant.croissant(subject, name) for name in croissant.names(subject)}
    return {name: form(subject) for name, form in FORMS.items()} | described


def first_difference(file: str, found: bytes, made: bytes) -> str:
    """Where two versions of a file part, for people."""
    if file.endswith(".json"):
        try:
            return _parted(json.loads(found), json.loads(made), "")
        except (ValueError, RecursionError):
            return "no JSON"
    lines, expected = found.split(b"\n"), made.split(b"\n")
    for number, (line, other) in enumerate(zip(lines, expected, strict=False), 1):
        if line != other:
            return f"line {number}"
    return f"line {min(len(lines), len(expected)) + 1}"


def _parted(found: Any, made: Any, at: str) -> str:
    if isinstance(found, dict) and isinstance(made, dict):
        for name in (*made, *found):
            if name not in found or name not in made:
                return f"{at}/{name}"
            if found[name] != made[name]:
                return _parted(found[name], made[name], f"{at}/{name}")
    if isinstance(found, list) and isinstance(made, list):
        for place, (one, other) in enumerate(zip(found, made, strict=False)):
            if one != other:
                return _parted(one, other, f"{at}/{place}")
    return at or "its form"
