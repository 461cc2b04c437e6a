"""What no ledger can know of a model, and its provider has to state: one card, itself an event before it is quoted.

A card is YAML. Its values have the names of :data:`STATED`, nested or with dots. It may also name what the ledger knows
(:mod:`marin.dossier.facts`); then both must say the same.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ledger import Draft
from marin.errors import UsageError
from marin.history.run import Fact
from marin.history.runs import History, read_fact
from marin.record.events import CARD_STATED, CardStated, write
from marin.record.root import Root

Value = str | int | float | bool | list[str]
LONGEST = 100_000
"""Bytes of a card."""

STATED: Mapping[str, str] = {
    "provider.name": "Legal name of the provider",
    "provider.contact": "Address and contact of the provider",
    "provider.representative": "Authorised representative in the Union, or that there is none",
    "model.name": "Name and version under which the model is released",
    "model.release_date": "Date of release",
    "model.market_date": "Date on which the model is placed on the Union market",
    "model.base": "Models that this one was made from",
    "model.licence": "Licence, as SPDX names it",
    "model.distribution": "Ways in which the model is distributed",
    "model.assets": "What is released with the model beside its weights",
    "model.intended_use": "Tasks that the model is meant for",
    "model.acceptable_use": "Acceptable use policy",
    "model.systems": "Kinds of systems into which the model can be integrated",
    "model.integration": "Technical means that integration needs",
    "model.hardware": "Hardware that use of the model needs",
    "model.software": "Software that use of the model needs",
    "model.limitations": "Limitations, and what the model should not be used for",
    "model.input_limit": "Largest input, where it is not the context",
    "training.rationale": "Why the key choices of design were made, and what was assumed",
    "training.energy_mwh": "Energy that training consumed, in megawatt hours",
    "training.energy_method": "How the energy was measured or estimated",
    "inference.compute_flop": "Compute of a benchmarked inference, in floating point operations",
    "inference.compute_method": "How that was measured",
    "data.acquired_until": "Latest date on which training data was acquired",
    "data.language": "Languages of the data, as BCP 47 names them",
    "data.linguistic": "Linguistic characteristics of the data",
    "data.types": "Types of content in the data",
    "data.licence": "Licence of the data, as SPDX names it",
    "data.description": "What the data is and why it was chosen",
    "data.obtained": "How the data was obtained and selected",
    "data.curation": "How the data was curated, beyond what the ledger has",
    "data.unsuitable": "Measures to find unsuitable sources",
    "data.biases": "Measures to find identifiable biases, and biases that are known",
    "data.personal": "Personal or sensitive information in the data",
    "data.public": "Publicly available data sets that were used",
    "data.private_licensed": "Data licensed from holders of rights",
    "data.private_other": "Private data sets from other third parties",
    "data.crawlers": "Crawlers: names, purposes, behaviour, period of collection",
    "data.domains": "Domains that were crawled most",
    "data.users": "Data from users of services of the provider",
    "data.synthetic": "Data that other models made",
    "data.other": "Other sources of data",
    "data.reservation": "Measures to respect reservations of rights (text and data mining)",
    "data.illegal": "Measures against illegal content",
    "data.more": "Other information on data processing",
}
"""Name of each value that only a provider can state, and what it is."""


def card_stream(run: str) -> str:
    """The stream of what is stated of ``run``, which is no part of its execution."""
    return f"card/{run}"


def read_card(path: Path) -> dict[str, Value]:
    """The values of a card, by name.

    Raises:
        UsageError: it is no card; the message names the first value that is wrong.
    """
    try:
        data = path.read_bytes()
        if len(data) > LONGEST:
            raise ValueError(f"{len(data)} bytes, more than {LONGEST}")
        if b"&" in data and b"*" in data and len(data) > 10_000:  # aliases of aliases grow without end
            raise ValueError("anchors in a card of this length")
        values = yaml.safe_load(data)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())[:200]
        raise UsageError("a card cannot be read", where=str(path), expected="YAML", found=said) from None
    if not isinstance(values, dict):
        raise UsageError("not a card", where=str(path), expected="names and values", found=type(values).__name__)
    return _flat(values, "", str(path))


def _flat(values: Mapping[Any, Any], before: str, where: str, depth: int = 0) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, value in values.items():
        full = f"{before}{name}"
        if isinstance(value, dict) and depth < 4:
            found |= _flat(value, f"{full}.", where, depth + 1)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            found[full] = list(value)
        elif isinstance(value, str | bool | int | float) and (not isinstance(value, float) or math.isfinite(value)):
            found[full] = str(value) if type(value) is int and abs(value) >= 2**53 else value
        elif hasattr(value, "isoformat"):
            found[full] = value.isoformat()  # YAML reads 2026-11-23 as a date
        else:
            raise UsageError("a value of a card that is none", where=f"{where}: {full}",
                             expected="a text, a number, yes or no, or a list of texts", found=repr(value)[:80])  # fmt: skip
    return found


def check_card(card: Mapping[str, Value], known: Mapping[str, object], *, where: str) -> None:
    """Refuse a card with names that nobody asks for, or that says something else than the ledger (``known``).

    Raises:
        UsageError: with what the ledger says and what the card says.
    """
    for name, value in card.items():
        if name in known:
            if value != known[name]:
                raise UsageError("the card contradicts the ledger", where=f"{where}: {name}", expected=f"{known[name]}, "
                                 "as the ledger has it", found=f"{value}", cure="correct the card")  # fmt: skip
        elif name not in STATED:
            near = difflib.get_close_matches(name, [*STATED, *known], n=1)
            raise UsageError("a card with a name that no document asks for", where=f"{where}: {name}",
                             expected="one of those that docs/dossier.md lists", found=name,
                             cure=f"did you mean {near[0]}?" if near else "leave it out")  # fmt: skip


def record_card(root: Root, run: str, card: Mapping[str, Value]) -> None:
    """Record what is stated of ``run``, unless it is what was stated last."""
    last = stated(root.history(), run)
    body = CardStated(about=run, values=dict(card))
    if last is None or last.body != body:
        root.append([Draft(CARD_STATED, card_stream(run), write(body))])


def stated(history: History, run: str) -> Fact[CardStated] | None:
    """The newest card of ``run``."""
    last = None
    for item in history.events(stream=card_stream(run), type=CARD_STATED):
        fact = read_fact(CardStated, item)
        last = fact if fact.body.about == run else last
    return last
