"""Source files as syntax trees, each parsed and walked once for all tests of a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a file's text, which nobody changes."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of the tree, in the order of ``ast.walk``."""
    return tuple(ast.walk(parsed(source)))


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """A million nodes go with the tests that ask for them: every later collection of garbage would look through them."""
    yield
    nodes.cache_clear()
    parsed.cache_clear()
