"""A tracker for Levanter's own trainer: what it logs goes into a run of the ledger.

    import marin.loops.levanter            # ``tracker: {type: marin}`` of a trainer's configuration is known from here on

Levanter's loop is then its user's own: recorded, and compared by a command (`marin verify RUN --by COMMAND`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from levanter.tracker import NoopTracker, Tracker, TrackerConfig

from marin.loops.loop import Loop, start_run
from marin.loops.tensors import scalar

LOSS = "train/loss"


class MarinTracker(Tracker):  # type: ignore[misc]
    """Reports to a run that :func:`marin.start_run` began. A step without ``train/loss`` gives measurements alone."""

    name = "marin"

    def __init__(self, run: Loop) -> None:
        self.run, self._step = run, 0
        self._newest = (-1, "")

    def log_hyperparameters(self, hparams: dict[str, Any]) -> None:
        """They are part of the recipe, which the configuration gives before the run begins."""

    def log(self, metrics: Mapping[str, Any], *, step: int | None, commit: bool | None = None) -> None:
        """Every finite or infinite scalar of a train step, of the last one where ``step`` is None; histograms and texts are left
        out. What Levanter tells of its last train step it tells again when it ends."""
        del commit
        found = {name: value for name, given in metrics.items() if (value := scalar(given)) is not None}
        loss = found.pop(LOSS, None) if step is not None else None
        self._step = self._step if step is None else int(step)
        if loss is not None:
            before, self._newest = self._newest, (self._step, loss.hex())
            loss = None if self._newest == before else loss
        if loss is not None or found:
            self.run.tell(self._step, loss, None, found)

    def log_summary(self, metrics: dict[str, Any]) -> None:
        """Numbers of the whole run, as of the last train step."""
        self.log(metrics, step=None)

    def log_artifact(self, artifact_path: Any, *, name: str | None = None, type: str | None = None) -> None:
        """Keep it in the store, as an output of the run."""
        del type
        self.run.save(name or os.path.basename(os.fspath(artifact_path)), artifact_path)

    def finish(self) -> None:
        """The run is complete."""
        self.run.finish()


@TrackerConfig.register_subclass("marin")
@dataclass
class MarinTrackerConfig(TrackerConfig):  # type: ignore[misc]
    """``tracker: {type: marin, title: ..., recipe: {...}}``. ``recipe``: whatever decides the bits; ``root``: as
    ``marin.open``."""

    title: str = ""
    recipe: dict[str, Any] | None = None
    root: str | None = None

    def init(self, run_id: str | None) -> Tracker:
        """Begin a run; Levanter's own id is a tag of it. Of several processes that train as one the first records."""
        if sys.modules["jax"].process_index() != 0:
            return NoopTracker()
        tags = {} if run_id is None else {"levanter": run_id}
        return MarinTracker(start_run(self.title, recipe=self.recipe, tags=tags, root=self.root))
