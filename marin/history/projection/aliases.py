"""Which model of a name was verified: the last one whose run, as it is by now, is verified as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marin.history.projection.intents import AliasGone, AliasSet, Intent
from marin.history.projection.record import RunRecord

VERIFIED = "verified"


class VerifiedModels:
    """Follows the alias of each registered model."""

    def __init__(self) -> None:
        self._passed: dict[str, list[tuple[str, str]]] = {}

    def after(self, runs: Mapping[str, RunRecord], run: str, name: str, model: str) -> Iterator[Intent]:
        """Where the alias of ``name`` goes after something was said of ``run``, whose ``model`` is "" if it has none."""
        passed = self._passed.setdefault(name, [])
        before = bool(passed)
        if model and runs[run].passes():
            passed[:] = [found for found in passed if found[0] != run]
            passed.append((run, model))
        while passed and not runs[passed[-1][0]].passes():
            passed.pop()
        if passed:
            yield AliasSet(name, VERIFIED, passed[-1][1])
        elif before:
            yield AliasGone(name, VERIFIED)
