"""What the ledger checks of an event before it takes it: the shape of the body, by the type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ledger import Refused
from marin.record.events import BODIES, Body


def schema_checks() -> dict[str, Callable[[Any], None]]:
    """For the ledger's registry of types: a check by event type that raises ``Refused`` on a body of the wrong shape."""

    def checker(name: str, kind: type[Body]) -> Callable[[Any], None]:
        def check(body: Any) -> None:
            try:
                msgspec.convert(body, kind)
            except msgspec.ValidationError as error:
                fields = ", ".join(field.encode_name for field in msgspec.structs.fields(kind) if field.required)
                raise Refused(
                    "the body of an event does not fit its type",
                    where=name,
                    expected=f"an object with {fields}",
                    found=str(error),
                    cure="correct the body; a new shape is a new version of the type",
                ) from None

        return check

    return {name: checker(name, kind) for name, kind in BODIES.items()}
