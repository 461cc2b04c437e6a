"""The bodies of the events that runs are made of, and the names of their types: one door for those who record and read them.
What else is recorded stands in the file of its family (:mod:`marin.kinds.families`) alone.

A released name never changes meaning: a changed shape is a new version (``train.segment/v2``). 64-bit integers are strings,
floats that must be exact hex strings (``float.hex``), digests ``sha256:<hex>``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ledger import Draft
from marin.errors import MarinError
from marin.kinds.body import Body as Body
from marin.kinds.body import HexFloat as HexFloat
from marin.kinds.body import Json as Json
from marin.kinds.body import Output as Output
from marin.kinds.families.evaluation import *
from marin.kinds.families.following import *
from marin.kinds.families.lease import *
from marin.kinds.families.loop import *
from marin.kinds.families.run import *
from marin.kinds.families.step import *
from marin.kinds.families.tracking import *
from marin.kinds.families.train import *
from marin.kinds.families.verification import *
from marin.kinds.known import type_of


def read[T: Body](kind: type[T], body: Any, *, where: str) -> T:
    """``body`` as ``kind``; raises :class:`MarinError` with the path of the first field that does not fit."""
    try:
        return msgspec.convert(body, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MarinError(
            "event body does not fit its type", where=where, expected=kind.__name__, found=str(error)
        ) from None


def draft(body: Body, stream: str, **more: Any) -> Draft:
    """An event that says ``body``, of the type that has it; ``more`` as :class:`ledger.Draft` takes it."""
    return Draft(type_of(type(body)), stream, write(body), **more)


def write(body: Body) -> Json:
    """The JSON-shaped builtins of ``body``."""
    result = msgspec.to_builtins(body)
    assert isinstance(result, dict)
    return result
