"""The words by which forgeries are known to be refused are words of the product: what a kind expects to read (`says=`,
`claimed=`) stands in a text of the product, or is put together of such texts and of values, or is what the forger wrote.

So a message that is changed is seen here, in a second, and not when its forgery is tried."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tests.adversary.forgeries.kinds
from tests.adversary.forgeries.doors import all_kinds

MOST_VALUES = 3
"""Of how many values a text may be put together beside the product's words."""
VALUE = re.compile(r"[\w.\-/+]+")
EXPECTED = ("says", "claimed", "unsaid")
"""The arguments of a kind that say what is read of it."""


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a source that is said; of one with values in it, what stands between them. A docstring is not one of them."""
    explained = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explained:
            yield node.value


def sources(*folders: str) -> Iterator[ast.Module]:
    return (ast.parse(path.read_text("utf-8")) for folder in folders for path in sorted(Path(folder).rglob("*.py")))


@cache
def product() -> str:
    """All texts of the product, each between two zeros."""
    return "\0".join(["", *(text for tree in sources("marin", "ledger") for text in texts(tree)), ""])


@cache
def forged() -> frozenset[str]:
    """What forgers write: their texts, without those by which they are known to be refused."""
    found = set[str]()
    for tree in sources("tests/adversary/forgeries"):
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        words = {text for call in calls for named in call.keywords if named.arg in EXPECTED for text in texts(named)}
        every = list(texts(tree))
        found |= {text for text in every if text not in words or every.count(text) > 1}
    return frozenset(found)


def is_put_together(text: str, values: int = MOST_VALUES, *, first: bool = True) -> bool:
    """Whether it is the end of a text of the product, then values and whole texts in turn, then the beginning of another."""
    if not first and f"\0{text}" in product():
        return True
    for cut in range(0 if first else 1, len(text)):
        piece, rest = text[:cut], text[cut:]
        is_said = not piece or (f"{piece}\0" if first else f"\0{piece}\0") in product()
        found = VALUE.match(rest)
        if values == 0 or not is_said or found is None:
            continue
        for end in range(1, found.end() + 1):
            if not (rest[:end].isdigit() or rest[:end] in forged()):
                continue
            if (not rest[end:] and piece) or (rest[end:] and is_put_together(rest[end:], values - 1, first=False)):
                return True
    return False


def expected() -> dict[str, str]:
    """Every text that a kind expects, with the kind's name."""
    found = {}
    for kind in tests.adversary.forgeries.kinds.KINDS.values():
        found |= {text: kind.name for text in (kind.says, kind.claimed, kind.unsaid) if text}
    return found | {kind.says: kind.id for kind in all_kinds() if kind.says}


def test_every_expected_text_is_one_of_the_product_or_of_the_forger() -> None:
    written = "\0".join(forged())
    odd = {
        text: name
        for text, name in expected().items()
        if text not in product() and text not in written and not is_put_together(text)
    }
    assert odd == {}, "a message of the product was changed: change what its forgery expects with it"


@pytest.mark.parametrize(
    "text",
    [
        "none of those that stand",
        "an event was left in",
        "expected something that nobody ever says",
        "a key that was never vouched by anybody",
    ],
)
def test_a_text_of_nobody_is_seen(text: str) -> None:
    assert text not in product() and text not in "\0".join(forged()) and not is_put_together(text)
