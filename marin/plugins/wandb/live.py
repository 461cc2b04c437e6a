"""W&B during a training, by Levanter's tracker: each segment is logged as soon as the ledger has it.

So W&B shows nothing that is not recorded. A training that goes on after an interruption logs under the same id what the
folders of the run lack, wherever it was stopped. The journal stands between training and ledger anyway, on every
runner; the training's own code knows nothing of trackers.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marin.execution.step import Journal
from marin.history.runs import load
from marin.kinds.families.measured import EvaluationMeasured, EvaluationRecorded
from marin.plugins.wandb.choice import choice
from marin.plugins.wandb.file import EVALUATED, STEP, logged_points
from marin.plugins.wandb.run import checkpoint_of, evaluations_of, opened, reaching, rows_of, training_of
from marin.record import events
from marin.record.root import Root

if TYPE_CHECKING:
    from marin.training.runtime.tracker import Tracker

log = logging.getLogger(__name__)


class LiveJournal:
    """:class:`marin.execution.step.Journal` around another one. Whatever W&B does, the training goes on."""

    def __init__(self, journal: Journal, root: Root, run: str) -> None:
        self._journal, self._root, self._run = journal, root, run
        self._following: _Following | None = None
        self._segments: list[events.TrainSegment] = []

    def record(self, kind: str, body: events.Body) -> int:
        """Record, and when that is durable tell W&B."""
        index = self._journal.record(kind, body)
        try:
            self._tell(kind, body)
        except Exception as error:  # a library's own
            self._lost(error)
        return index

    def history(self, kind: str) -> Sequence[events.Body]:
        """As the ledger has it."""
        return self._journal.history(kind)

    def close(self) -> None:
        """Finish the W&B run, completely written."""
        try:
            if self._following is not None:
                self._following.log(self._segments, [])
                self._following.finish()
        except Exception as error:
            self._lost(error)
        self._following = None

    def _tell(self, kind: str, body: events.Body) -> None:
        if kind == events.TRAIN_STARTED:
            self._following = _Following(self._root, self._run)
            self._following.log(
                [item for item in self.history(events.TRAIN_SEGMENT) if isinstance(item, events.TrainSegment)],
                [item for item in self.history(events.METRICS_RECORDED) if isinstance(item, events.MetricsRecorded)],
            )
        elif self._following is None:
            return
        elif kind == events.CHECKPOINT_SAVED and isinstance(body, events.CheckpointSaved):
            self._following.checkpoint(body)
        elif isinstance(body, EvaluationMeasured | EvaluationRecorded):
            self._following.evaluated(body)
        elif kind == events.TRAIN_SEGMENT and isinstance(body, events.TrainSegment):
            self._segments.append(body)
        elif kind == events.METRICS_RECORDED and isinstance(body, events.MetricsRecorded):
            self._following.log(self._segments, [body])
            self._segments.clear()

    def _lost(self, error: Exception) -> None:
        self._following = None
        log.warning("W&B does not follow any more, the run goes on: %s", error)
        if (wandb := sys.modules.get("wandb")) is not None:
            with contextlib.suppress(Exception):  # a library's own: its service still holds the run that failed
                wandb.teardown()


class _Following:
    """One W&B run of this process."""

    def __init__(self, root: Root, run: str) -> None:
        # Here: jax is up by now, under the recipe's settings.
        from marin.training.runtime.tracker import wandb_tracker

        recorded, folder = load(root.history(), run), root.views()
        self._recipe, self._run = recorded.started.body.recipe, run
        self._mode = (asked := choice()).mode
        self._logged = logged_points(folder, run, training_of(recorded), self._mode)
        with reaching(self._mode):
            self._wandb: Any = opened(recorded, root, folder, asked)
        self._tracker: Tracker = wandb_tracker(self._wandb)
        log.info(
            "W&B, %s: %s", self._mode, self._wandb.url if self._mode == "online" else self._wandb.settings.sync_dir
        )

    def log(self, segments: Sequence[events.TrainSegment], measured: Sequence[events.MetricsRecorded]) -> None:
        """What these say of train steps that W&B was not told of yet."""
        for step, values in sorted(rows_of(self._recipe, segments, measured).items()):
            if step > self._logged.step:
                self._tracker.log({STEP: step, **values}, step=step)
                self._logged.step = step

    def evaluated(self, body: EvaluationMeasured | EvaluationRecorded) -> None:
        """What was evaluated of a recorded state, each point once."""
        values = {
            key: value for key, value in evaluations_of(body).items() if (key, body.step) not in self._logged.evaluated
        }
        if values:
            self._logged.evaluated |= {(key, body.step) for key in values}
            self._tracker.log({EVALUATED: body.step, **values}, step=body.step)

    def checkpoint(self, saved: events.CheckpointSaved) -> None:
        """A training checkpoint, by reference."""
        self._wandb.log_artifact(checkpoint_of(self._run, saved), aliases=[f"step-{saved.step}"])

    def finish(self) -> None:
        """Everything is in the file when this returns."""
        import wandb

        with reaching(self._mode):
            self._tracker.finish()
            wandb.teardown()  # its service writes the file's end when it ends
