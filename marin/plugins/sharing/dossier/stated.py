"""What no ledger can know of a model, and its provider has to state: one card, itself an event before it is quoted.

A card is YAML. Its values have the names of :data:`STATED`, nested or with dots. It may also name what the ledger knows
(:mod:`marin.plugins.sharing.dossier.facts`); then both must say the same.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger import Draft
from marin.errors import UsageError
from marin.history.run import Fact
from marin.history.runs import History, read_fact
from marin.plugins.sharing.dossier.kinds import CARD_STATED, CardStated
from marin.recipe.form.yaml import read_yaml
from marin.record.events import write
from marin.record.root import Root

Value = str | int | float | bool | list[str]
LONGEST = 100_000
"""Bytes of a card."""

STATED: Mapping[str, str] = {
    "summary.version": "Version of the summary and of the form",
    "provider.name": "Legal name of the provider",
    "provider.contact": "Address and contact of the provider",
    "provider.representative": "Authorised representative in the Union with contact, or that there is none",
    "provider.signatory": "Signatory of the code of practice, with its commitments on reservations of rights",
    "model.name": "Name and version under which the model is released",
    "model.release_date": "Date of the first release through any channel",
    "model.market_date": "Date on which the model is placed on the Union market",
    "model.base": "Models that this one was made from",
    "model.rationale": "Why the model was designed so, and what was assumed",
    "model.licence": "Licence, as SPDX names it",
    "model.licence_category": "Kind of licence: free and open source, or which other",
    "model.distribution": "Channels by which the model is distributed, and how one gets at it",
    "model.assets": "What is released beside the weights, and under which licence",
    "model.intended_use": "Tasks that the model is meant for",
    "model.acceptable_use": "Acceptable use policy, or that there is none",
    "model.systems": "Kinds of systems into which the model can be integrated",
    "model.integration": "Technical means that integration needs",
    "model.hardware": "Hardware that use of the model needs",
    "model.software": "Software that use of the model needs",
    "model.limitations": "Limitations, and what the model should not be used for",
    "model.input_limit": "Largest input, where it is not the context",
    "training.rationale": "Why the training was designed so, and what was assumed",
    "training.watts": "Power of the machine that trained, where its energy was not measured (watts)",
    "training.energy_mwh": "Energy that training consumed, where neither it nor the power is known (megawatt hours)",
    "training.energy_method": "How the energy was measured or estimated",
    "data.acquired_until": "Latest date on which training data was acquired",
    "data.continuous": "Training goes on with newer data after that date",
    "data.language": "Languages of the data, as BCP 47 names them",
    "data.linguistic": "Linguistic characteristics of the data",
    "data.types": "Types of content in the data",
    "data.characteristics": "Other relevant characteristics of the data",
    "data.size_comments": "Comments on modalities and size",
    "data.licence": "Licence of the data, as SPDX names it",
    "data.description": "What the data is and why it was chosen",
    "data.obtained": "How the data was obtained and selected",
    "data.curation": "How the data was curated, beyond what the ledger has",
    "data.unsuitable": "Measures to find unsuitable sources",
    "data.biases": "Measures to find identifiable biases, and biases that are known",
    "data.personal": "Personal or sensitive information in the data",
    "data.public": "Publicly available data sets were used",
    "data.public_modalities": "Modalities of publicly available data sets",
    "data.public_datasets": "Large publicly available data sets, with links",
    "data.public_others": "Other publicly available data sets, in general",
    "data.public_comments": "Comments on publicly available data sets",
    "data.licensed": "Data sets were licensed commercially from rightsholders",
    "data.licensed_modalities": "Modalities of licensed data sets",
    "data.private": "Private data sets were obtained from other third parties",
    "data.private_modalities": "Modalities of private data sets",
    "data.private_known": "Private data sets that are publicly known",
    "data.private_others": "Private data sets that are not publicly known, in general",
    "data.private_comments": "Comments on private data sets",
    "data.crawled": "Data was crawled or scraped by the provider or on their behalf",
    "data.crawlers": "Names or identifiers of the crawlers",
    "data.crawler_purposes": "Purposes of the crawlers",
    "data.crawler_behaviour": "Behaviour of the crawlers: robots.txt, paywalls, captchas",
    "data.crawled_period": "Period of the crawling, from and until",
    "data.crawled_content": "Types of content and online sources that were crawled",
    "data.crawled_modalities": "Modalities of crawled data",
    "data.domains": "Most relevant domain names that were crawled",
    "data.crawled_comments": "Comments on crawled data",
    "data.user_prompts": "Data from interactions with the model was used",
    "data.user_services": "Data from interactions with other services or products was used",
    "data.user_sources": "Services and products that user data was collected by",
    "data.user_modalities": "Modalities of user data",
    "data.user_comments": "Comments on user data",
    "data.synthetic": "Synthetic AI-generated data was created by the provider or on their behalf",
    "data.synthetic_modalities": "Modalities of synthetic data",
    "data.synthetic_models": "General-purpose AI models on the market that generated synthetic data",
    "data.synthetic_others": "Other AI models that generated synthetic data",
    "data.synthetic_comments": "Comments on synthetic data",
    "data.other": "There were other sources of data",
    "data.other_sources": "Other sources of data, described",
    "data.other_comments": "Comments on other sources",
    "data.reservation": "Measures to respect reservations of rights (text and data mining), with opt-out protocols",
    "data.reservation_comments": "Comments on reservations of rights",
    "data.illegal": "Measures to avoid or remove illegal content",
    "data.more": "Other information on data processing",
}
"""Name of each value that only a provider can state, and what it is."""
YES_OR_NO = frozenset(
    {
        "provider.signatory",
        "data.continuous",
        "data.public",
        "data.licensed",
        "data.private",
        "data.crawled",
        "data.user_prompts",
        "data.user_services",
        "data.synthetic",
        "data.other",
    }
)
"""Those that are answered by yes or no; other fields are asked where the answer is yes."""
NUMBERS = frozenset({"training.watts", "training.energy_mwh"})
"""Those that are numbers, not below 0."""


def card_stream(run: str) -> str:
    """The stream of what is stated of ``run``, which is not part of its execution."""
    return f"card/{run}"


def read_card(path: Path) -> dict[str, Value]:
    """The values of a card, by name.

    Raises:
        UsageError: it is not a card; the message names the first value that is wrong.
    """
    try:
        data = path.read_bytes()
        values = read_yaml(data, most_bytes=LONGEST)
    except (OSError, ValueError) as error:
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
            raise UsageError(
                "not a value of a card",
                where=f"{where}: {full}",
                expected="a text, a number, yes or no, or a list of texts",
                found=repr(value)[:80],
            )
    return found


def check_card(card: Mapping[str, Value], known: Mapping[str, object], *, where: str) -> None:
    """Refuse a card with names that nobody asks for, or that says something else than the ledger (``known``).

    Raises:
        UsageError: with what the ledger says and what the card says.
    """
    for name, value in card.items():
        if name in known:
            if value != known[name]:
                raise UsageError(
                    "the card contradicts the ledger",
                    where=f"{where}: {name}",
                    expected=f"{known[name]}, as the ledger has it",
                    found=f"{value}",
                    cure="correct the card",
                )
        elif name not in STATED:
            near = difflib.get_close_matches(name, [*STATED, *known], n=1)
            raise UsageError(
                "a card with a name that no document asks for",
                where=f"{where}: {name}",
                expected="one of those that docs/dossier.md lists",
                found=name,
                cure=f"did you mean {near[0]}?" if near else "leave it out",
            )
        elif name in YES_OR_NO and not isinstance(value, bool):
            raise UsageError(
                "a card that answers neither yes nor no",
                where=f"{where}: {name}",
                expected="yes or no",
                found=f"{value}",
                cure=f"what there is to say has names beside it: {name}_...",
            )
        elif name in NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
            raise UsageError(
                "not a number in the card", where=f"{where}: {name}", expected="a number from 0", found=f"{value}"
            )


def blank_card(known: Mapping[str, object]) -> str:
    """A card to be filled in: each name with what it is, those that the ledger answers left out."""
    lines = [
        "# What the ledger cannot know of the model. Fill in what holds, remove the rest:",
        "#     marin export RUN --dossier DIR --stated THIS_FILE",
    ]
    for name, meaning in STATED.items():
        if name not in known:
            lines += ["", f"# {meaning}{' (yes or no)' if name in YES_OR_NO else ''}", f"#{name}:"]
    return "\n".join(lines) + "\n"


def record_card(root: Root, run: str, card: Mapping[str, Value]) -> None:
    """Record what is stated of ``run``, unless it is what was stated last."""
    last = newest_card(root.history(), run)
    body = CardStated(about=run, values=dict(card))
    if last is None or last.body != body:
        root.append([Draft(CARD_STATED, card_stream(run), write(body))])


def newest_card(history: History, run: str) -> Fact[CardStated] | None:
    """The newest card of ``run``."""
    last = None
    for item in history.events(stream=card_stream(run), type=CARD_STATED):
        fact = read_fact(CardStated, item)
        last = fact if fact.body.about == run else last
    return last
