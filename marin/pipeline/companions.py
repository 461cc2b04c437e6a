"""What goes along with a step by a plugin: loaded only for runs whose recipe asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from marin.execution.step import Companion, Journal
from marin.history.executions import executed
from marin.provenance.plugins import load_plugin
from marin.recipe.schema import Recipe
from marin.record.root import Root

GROUP = "marin.companions"


@dataclass(frozen=True)
class Beside:
    """The :class:`Companion` ``name`` of a plugin, for the recipes of which ``asks`` says what it is to do."""

    name: str
    asks: Callable[[Recipe], object]

    def asked(self, recipe: Recipe) -> object:
        return self.asks(recipe)

    def check(self, root: Root, recipe: Recipe) -> None:
        if self.asks(recipe) is not None:
            self._loaded().check(root, recipe)

    def lacks(self, root: Root, recipe: Recipe, identity: str) -> bool:
        """See there.

        Raises:
            NotInstalled: the recipe asks, and no plugin answers.
        """
        return self.asks(recipe) is not None and self._loaded().lacks(root, recipe, identity)

    @contextmanager
    def following(self, journal: Journal, root: Root, run: str) -> Iterator[Journal]:
        if self.asks(executed(root.history(), run).recipe) is None:
            yield journal
            return
        with self._loaded().following(journal, root, run) as watched:
            yield watched

    def completed(self, root: Root, run: str, journal: Journal) -> None:
        if self.asks(executed(root.history(), run).recipe) is not None:
            self._loaded().completed(root, run, journal)

    def _loaded(self) -> Companion:
        companion: Companion = load_plugin(GROUP, self.name, "evaluation.every")
        return companion
