"""One of a few words as an argument or option."""

from __future__ import annotations

import difflib
from typing import Any

import click


class OneOf(click.Choice[str]):
    """One of these words; of another the nearest is named."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As click's own.

        Raises:
            BadParameter: it is not one of them.
        """
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = difflib.get_close_matches(str(value), list(self.choices), n=1)
            if not near:
                raise
            raise click.BadParameter(f"{error.message} Did you mean {near[0]!r}?", ctx, param) from None
