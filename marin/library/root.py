"""A root as an object: its runs as a table, and each by its name."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

from marin.history import runs as reading
from marin.history.names import data_of, model_of
from marin.history.projection.text import flatten
from marin.library.comparison import Comparison
from marin.library.run import Run
from marin.provenance.extras import need
from marin.provenance.plugins import load_plugin
from marin.record import root as roots

if TYPE_CHECKING:
    import pandas

NUMBERS = {
    "loss": "evaluate.loss",
    "perplexity": "evaluate.perplexity",
    "train_loss": "train.loss_last",
    "tokens": "train.tokens",
}
"""Columns of the table of runs, and the metric that each shows."""


def open(location: str | PathLike[str] | None = None) -> Root:
    """Open a root: a path, ``gs://…``, ``s3://…`` or ``https://…``; without one what MARIN_ROOT names, or ``.marin`` here
    or above.

    Raises:
        Unavailable: there is none.
    """
    return Root(roots.open_root(None if location is None else fspath(location)))


class Root:
    """A ledger and its store, opened to be read."""

    def __init__(self, opened: roots.Root) -> None:
        self._root = opened

    @property
    def location(self) -> str:
        """Where it is, as it was named."""
        return self._root.location

    @property
    def origin(self) -> str:
        """The name under which its log is signed."""
        return self._root.verifier.name

    def run(self, name: str = reading.LATEST) -> Run:
        """The run with this id, a unique beginning of one, or ``latest``.

        Raises:
            UsageError: no run or several answer to it.
        """
        history = self._root.history()
        return Run(self._root, reading.load(history, reading.resolve(history, name)))

    def runs(self, limit: int | None = None, *, archived: bool = False) -> pandas.DataFrame:
        """One row a run, by its id, in the order in which they began (the newest ``limit`` of them): status, verdict,
        loss and perplexity (NaN where it has none), model, data, seed, tags as ``tag.…``, and the recipe's fields as
        ``recipe.…``. Runs that were archived are there only if asked for. Raises NotInstalled without pandas."""
        need("pandas")
        import pandas

        history = self._root.history()
        hidden = set() if archived else reading.archived(history)
        names = [name for name in reading.run_ids(history) if name not in hidden]
        rows = []
        for name in names if limit is None else names[max(0, len(names) - limit) :]:
            view = reading.load(history, name)
            recipe = view.started.body.recipe
            rows.append(
                {
                    "run": view.run,
                    "status": view.status,
                    "verified": view.verified,
                    **{column: view.metrics.get(metric, float("nan")) for column, metric in NUMBERS.items()},
                    "model": model_of(recipe),
                    "data": data_of(recipe),
                    "seed": str(recipe.get("seed", "")),
                    "seconds": sum(step.seconds for step in view.steps.values()),
                    "started": view.started.time,
                    **{f"tag.{name}": value for name, value in view.labels.tags.items()},
                    **{f"recipe.{key}": value for key, value in flatten(recipe).items()},
                }
            )
        columns = ["run", "status", "verified", *NUMBERS, "model", "data", "seed", "seconds", "started"]
        frame = pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=columns)
        frame["started"] = pandas.to_datetime(frame["started"], utc=True)
        return frame.set_index("run")

    def compare(
        self,
        *runs: str,
        sweep: str | None = None,
        experiment: str | None = None,
        filters: Sequence[str] = (),
        metrics: Sequence[str] = (),
        baseline: str = "",
    ) -> Comparison:
        """Runs held against each other, as `marin compare` does: those that are named, of a sweep, of a registered experiment,
        or those for which ``filters`` hold.

        Raises:
            UsageError: nothing is named, fewer than two runs are left, or no run has such a name.
            MissingEvidence: there is no such sweep or experiment.
        """
        compare = load_plugin("marin.pages", "comparison", "a comparison of runs")
        return Comparison(
            compare(
                self._root,
                *runs,
                sweep=sweep,
                experiment=experiment,
                filters=filters,
                metrics=metrics,
                baseline=baseline,
            )
        )

    def __repr__(self) -> str:
        return f"<root {self.location}: log {self.origin}>"

    def _repr_html_(self) -> str:
        shown: str = self.runs(limit=20).filter(regex="^(?!recipe)").to_html()
        return shown
