"""Which model of a name was verified: the last one whose run, as it is by now, is verified as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marin.history.projection.text import model_name
from marin.plugins.mlflow.folding.intents import AliasGone, AliasSet, Intent
from marin.plugins.mlflow.folding.projected import ProjectedRun

VERIFIED = "verified"


class VerifiedModels:
    """Follows the alias of each registered model, among ``runs`` as they go on."""

    def __init__(self, runs: Mapping[str, ProjectedRun]) -> None:
        self._runs = runs
        self._passed: dict[str, list[tuple[str, str]]] = {}

    def after(self, projected: ProjectedRun) -> Iterator[Intent]:
        """Where the alias goes after something was said of a run."""
        name, run = model_name(projected.experiment), projected.name
        passed = self._passed.setdefault(name, [])
        before = bool(passed)
        if projected.model is not None and projected.passes:
            passed[:] = [found for found in passed if found[0] != run]
            passed.append((run, projected.ids.model(projected.model)))
        while passed and not self._runs[passed[-1][0]].passes:
            passed.pop()
        if passed:
            yield AliasSet(name, VERIFIED, passed[-1][1])
        elif before:
            yield AliasGone(name, VERIFIED)
