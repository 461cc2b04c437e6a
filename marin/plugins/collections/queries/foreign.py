"""A collection that someone else made can say anything in its columns: what does not fit becomes one error, never a defect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite

import pyarrow as pa

from ledger import LedgerError
from marin.errors import DataError
from marin.plugins.collections.document import Scalar

ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, pa.ArrowException)
"""What code meets in values of another form than a build writes them."""


@contextmanager
def as_columns(artifact: str) -> Iterator[None]:
    """Reading what ``artifact`` says.

    Raises:
        DataError: in the place of whatever its values make of code that expects those of a build.
    """
    try:
        yield
    except LedgerError:
        raise
    except ODD as error:
        raise DataError(
            "a collection does not have the form that a build writes",
            where=artifact,
            expected="its description and columns, as `marin data build` makes them",
            found=" ".join(f"{type(error).__name__}: {error}".split())[:200],
            cure="do not use it: `marin data verify` says more",
        ) from error


def scalars(text: str) -> Mapping[str, Scalar]:
    """Evidence or metadata, as a column has it.

    Raises:
        ValueError: it is not a JSON object of plain values, or has a number that JSON has not.
    """
    found = json.loads(text)
    if not isinstance(found, dict) or not all(map(_plain, found.values())):
        raise ValueError(f"no object of plain values: {text[:80]}")
    return found


def _plain(value: object) -> bool:
    return isfinite(value) if isinstance(value, float) else isinstance(value, str | int | None)
