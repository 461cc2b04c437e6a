"""W&B as a tracker that follows a run (:class:`marin.execution.tracker.Tracker`).

wandb takes a second to import: only a run that it follows waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from marin.execution.step import Journal
from marin.plugins.wandb.choice import choice, from_words, keep
from marin.record.root import Root

log = logging.getLogger(__name__)


class WandbTracker:
    """The entry point ``wandb``."""

    def choose(self, words: Mapping[str, str]) -> bool:
        keep(choice := from_words(words))
        return choice.log

    @contextmanager
    def following(self, journal: Journal, root: Root, run: str) -> Iterator[Journal]:
        from marin.plugins.wandb.live import LiveJournal

        live = LiveJournal(journal, root, run)
        try:
            yield live
        finally:
            live.close()

    def completed(self, root: Root, run: str) -> None:
        from marin.plugins.wandb.export import export_wandb

        try:
            asked = choice()
            written = export_wandb(root, run, root.views(), asked)
            log.info("W&B was told of the run: %s" if asked.mode == "online" else "for `wandb sync`: %s", written)
        except Exception as error:  # a library's own, and the run is recorded already
            log.warning("not written for W&B: %s", error)
