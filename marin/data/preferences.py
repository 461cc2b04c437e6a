"""Preferences: two conversations that begin alike, of which people prefer one, as the Hub has them.

    {"chosen": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}], "rejected": [… answered worse]}
    {"prompt": [{"role": "user", "content": "…"}], "chosen": [{"role": "assistant", "content": "…"}], "rejected": […]}

Each is a conversation as in :mod:`marin.data.chat`, in the same form or by the same template. A corpus has the chosen document,
then the rejected one, in the train split; of those that are held out the chosen documents are its validation split, and both
texts are minimal pairs, so that what is measured of a model is the share of preferences that it has too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from marin.data.documents import CHOSEN, REJECTED, Document, SplitCount, read_documents
from marin.data.lines.writing import SplitWriter
from marin.errors import NoConversation

_WORDS = {list: "a list", str: "a text", dict: "an object", type(None): "nothing"}
NAME = "preferences"
"""Of these pairs among minimal pairs."""


def conversations(value: Mapping[str, object], where: str) -> tuple[object, object]:
    """The messages of both conversations of a line, whatever they are: anyone who renders them checks them.

    Raises:
        NoConversation: the line is not a preference, or prefers nothing.
    """
    if lacking := [name for name in (CHOSEN, REJECTED) if name not in value]:
        found = ", ".join(sorted(map(str, value)))[:80] or "nothing"
        raise _none(
            where, f"two lists of messages, chosen and rejected; there is no {lacking[0]}", f"the fields {found}"
        )
    prompt, chosen, rejected = (value.get(name, []) for name in ("prompt", CHOSEN, REJECTED))
    if not (isinstance(prompt, list) and isinstance(chosen, list) and isinstance(rejected, list)):
        said = zip(("prompt", CHOSEN, REJECTED), (prompt, chosen, rejected), strict=True)
        kinds = ", ".join(f"{name} as {_WORDS.get(type(one), type(one).__name__)}" for name, one in said)
        raise _none(
            where,
            "lists of messages, also what is prompt: write a text as a message of role and content, and leave a prompt out that "
            "chosen and rejected begin with",
            kinds,
        )
    if chosen == rejected:
        raise _none(where, "two different answers", "the same twice" if chosen else "nothing")
    return [*prompt, *chosen], [*prompt, *rejected]


def pairs(split: Path) -> Iterator[tuple[Document, Document]]:
    """Chosen and rejected documents, in the order of a split that alternates them."""
    documents = read_documents(split)
    return zip(documents, documents, strict=True)


def hold_out(split: Path, chosen_alone: Path) -> tuple[SplitCount, list[dict[str, str]]]:
    """Write the chosen documents of the held-out ``split`` by themselves; what that split has then, and the minimal pairs."""
    found = []
    with chosen_alone.open("wb") as file:
        writer = SplitWriter(file)
        for number, (chosen, rejected) in enumerate(pairs(split), start=1):
            writer.write(chosen)
            told = {"sentence_good": chosen.text, "sentence_bad": rejected.text, "UID": NAME, "pairID": str(number)}
            found.append(told)
    return writer.count(), found


def _none(where: str, expected: str, found: str) -> NoConversation:
    return NoConversation(
        "not a preference", where=where, expected=expected, found=found, cure="correct or remove the line"
    )
