"""What a collection is made by: the settings of its steps, typed and frozen, with everything that decides in their fields.

A step of one document comes from a table of kinds (:data:`KINDS`): a settings class by its module, imported when it is wanted,
so that anyone who has no web pages never loads what reads them. The same holds for readers of files (:data:`READERS`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from marin.errors import UsageError
from marin.plugins.collections.document import Reader, Settings
from marin.recipe.form.yaml import read_yaml

DEFAULT = "default"
DEFINITION = 3
"""What reading and comparing mean now. In 2 letters of three bytes that have an element of their own are lost, XHTML is read by
HTML's rules, and a plain text keeps its carriage returns. Collections that record none are of 1: there a column that Python has
no values for ends a file, numbers beyond 64 bits are rounded, and of the candidates for a near-duplicate the first ones are
compared, however alike."""
BEFORE: Mapping[int, Mapping[str, Mapping[str, Any]]] = {3: {"html": {"letters": False}}}
"""What a setting that says nothing is before a definition, by the kind of step."""
KINDS: Mapping[str, str] = {
    "c4": "marin.plugins.collections.steps.rules:C4",
    "encoding": "marin.plugins.collections.steps.rewriting:Repair",
    "fineweb": "marin.plugins.collections.steps.rules:FineWeb",
    "gopher_quality": "marin.plugins.collections.steps.rules:GopherQuality",
    "gopher_repetition": "marin.plugins.collections.steps.rules:GopherRepetition",
    "html": "marin.plugins.collections.steps.extraction:Html",
    "language": "marin.plugins.collections.steps.language:Language",
    "quality": "marin.plugins.collections.steps.quality:Quality",
    "pii": "marin.plugins.collections.steps.rewriting:Mask",
}
"""Settings of steps of one document, by the kind that a configuration names: ``module:Class``."""
READERS: Mapping[str, str] = {
    ".htm": "marin.plugins.collections.sources.page:read_html",
    ".html": "marin.plugins.collections.sources.page:read_html",
    ".warc": "marin.plugins.collections.sources.warc:read_warc",
    ".warc.gz": "marin.plugins.collections.sources.warc:read_warc",
    ".warc.zst": "marin.plugins.collections.sources.warc:read_warc",
    ".wet": "marin.plugins.collections.sources.warc:read_warc",
    ".wet.gz": "marin.plugins.collections.sources.warc:read_warc",
}
"""Readers beside those of :mod:`marin.plugins.collections.sources.lines`, by the end of a file's name: ``module:function``."""

TEXT_KINDS = frozenset(("encoding", "html"))
"""Steps that make the text that all others look at; where a configuration begins with them, they are done when a source is
read, and a change of what comes behind them reads no source again."""

Share = Annotated[float, Meta(gt=0.0, lt=1.0)]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all settings."""


class Near(Section, frozen=True):
    """Near-duplicates: documents whose sets of shingles (``shingle`` words in a row) have a Jaccard similarity of at least
    ``threshold`` (a decimal, taken exactly). Candidates are found by MinHash (Broder 1997) in ``bands`` of ``rows``; each is
    then compared by the sets themselves. A document is compared with at most ``most_compared`` kept ones."""

    threshold: Share = 0.8
    shingle: Annotated[int, Meta(ge=1, le=32)] = 5
    bands: Annotated[int, Meta(ge=1, le=64)] = 20
    rows: Annotated[int, Meta(ge=1, le=32)] = 6
    most_compared: Annotated[int, Meta(ge=1, le=100_000)] = 256

    @property
    def exact_threshold(self) -> Fraction:
        """The threshold as the decimal that was written."""
        return Fraction(repr(self.threshold))


class Contamination(Section, frozen=True):
    """Decontamination: a document that has ``words`` words in a row in common with a field of an evaluation's record, or all
    words of a field that has fewer, but at least ``shortest``. A field below that counts only where another field of its
    record stands within ``within`` words of it. What more than ``most_records`` records of the evaluation have in
    common is its form, and no question."""

    words: Annotated[int, Meta(ge=2, le=64)] = 13
    shortest: Annotated[int, Meta(ge=2, le=64)] = 8
    within: Annotated[int, Meta(ge=1, le=1000)] = 24
    most_records: Annotated[int, Meta(ge=1)] = 4


class Paragraphs(Section, frozen=True):
    """Paragraphs (lines) of at least ``least_characters`` that stand in a kept document with a lesser id too are taken out, of
    what is left when whole documents were compared and sampled (Wenzek et al. 2020, CCNet, of normalised paragraphs). A document
    of which nothing would be left goes, but for one that another was removed for."""

    least_characters: Annotated[int, Meta(ge=1)] = 32


class Sampling(Section, frozen=True):
    """Which part of the documents that are left belongs to the collection, drawn by their content. ``fraction``: of all, as a
    decimal that is taken exactly. ``shares``: patterns of names of sources and how their bytes of text relate to each other,
    the first pattern that fits; then of each as much is taken as lets the shares hold and no text repeat."""

    fraction: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    shares: dict[Annotated[str, Meta(min_length=1)], Annotated[float, Meta(gt=0.0)]] = {}


class CollectionSettings(Section, frozen=True):
    """Everything that decides a collection besides its sources. ``steps``: those of one document, in order, each a mapping with
    its ``kind`` and its settings. ``text_field``, ``metadata_fields``: what of a line or a row is read (``a.b``: ``b`` of ``a``),
    objects and lists as their JSON; None: all that are single values."""

    steps: tuple[dict[str, Any], ...] = ()
    paragraphs: Paragraphs | None = None
    exact: bool = True
    near: Near | None = Near()
    contamination: Contamination = Contamination()
    sampling: Sampling | None = None
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    metadata_fields: tuple[Annotated[str, Meta(min_length=1)], ...] | None = None
    validation_fraction: Share = 0.05


def step_settings(
    steps: Sequence[Mapping[str, Any]], *, where: str, definition: int = DEFINITION
) -> list[tuple[str, Settings]]:
    """The typed settings of the steps, by their kinds, in order.

    Raises:
        UsageError: a kind that there is none of, or settings that it does not have.
    """
    made: list[tuple[str, Settings]] = []
    for number, step in enumerate(steps):
        kind = str(step.get("kind", ""))
        at = f"{where}: steps.{number}"
        if kind not in KINDS:
            raise UsageError(
                "unknown kind of step",
                where=at,
                expected=", ".join(sorted(KINDS)) or "none is built in",
                found=kind,
                cure="name one of these",
            )
        module, _, name = KINDS[kind].partition(":")
        settings: dict[str, Any] = {}
        for number, before in BEFORE.items():
            settings |= before.get(kind, {}) if definition < number else {}
        settings |= {key: value for key, value in step.items() if key != "kind"}
        try:
            made.append((kind, cast(Settings, msgspec.convert(settings, getattr(import_module(module), name)))))
        except msgspec.ValidationError as error:
            raise _wrong(error, at) from None
    return made


def divided(steps: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    """The steps at the beginning that make text, and the others."""
    first = next((number for number, step in enumerate(steps) if step.get("kind") not in TEXT_KINDS), len(steps))
    return steps[:first], steps[first:]


def reader_of(name: str) -> Reader | None:
    """The reader for files whose name ends so, None where this room's own reads them or nobody does."""
    for suffix, place in READERS.items():
        if name.lower().endswith(suffix):
            module, _, function = place.partition(":")
            return cast(Reader, getattr(import_module(module), function))
    return None


def load_settings(name: str | None, conf: Path) -> CollectionSettings:
    """The settings that ``--config`` names: a member of ``conf/collection/`` or a YAML or JSON file; None: the defaults.

    Raises:
        UsageError: there is no such file, or it holds something else.
    """
    if name is None or name == DEFAULT:
        return CollectionSettings()
    member = conf / "collection" / f"{name}.yaml"
    path = member if member.is_file() and "/" not in name else Path(name)
    try:
        text = path.read_bytes()
    except OSError as error:
        known = sorted(item.stem for item in (conf / "collection").glob("*.yaml"))
        raise UsageError(
            "there is no such configuration",
            where=f"--config {name}",
            expected=f"a file, or one of {', '.join((DEFAULT, *known))}",
            found=error.strerror or str(error),
            cure="name one of these",
        ) from None
    try:
        found = json.loads(text) if path.suffix == ".json" else read_yaml(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "a configuration is not YAML",
            where=str(path),
            expected="keys such as steps, exact, near",
            found=" ".join(str(error).split())[:200],
            cure="correct it",
        ) from None
    settings = settings_of({} if found is None else found, where=str(path))
    step_settings(settings.steps, where=str(path))
    return settings


def settings_of(value: object, *, where: str) -> CollectionSettings:
    """Checked settings from parsed YAML or JSON; :class:`UsageError` names the first field that does not fit."""
    try:
        return msgspec.convert(value, CollectionSettings)
    except msgspec.ValidationError as error:
        raise _wrong(error, where) from None


def _wrong(error: msgspec.ValidationError, where: str) -> UsageError:
    return UsageError(
        "a setting does not fit", where=where, expected="settings", found=str(error), cure="correct it there"
    )
