"""Which tracker follows a run besides the ledger: none, or W&B (``tracker=wandb``, or MARIN_TRACKER=wandb).

MLflow needs none of this: it is a projection that is always there. Which tracker follows decides no bit, so the choice
is in no recipe and in no identity: it is a variable of the environment, which stages and workers inherit. Whatever
happens to the tracker is said on stderr and takes nothing from the run, which the ledger has.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from marin.errors import UsageError
from marin.pipeline.step import Journal
from marin.record.root import Root

VARIABLE = "MARIN_TRACKER"
TRACKERS = ("none", "wandb")

log = logging.getLogger(__name__)


def chosen(named: str | None = None) -> str:
    """The tracker that ``named`` or else the environment names.

    Raises:
        UsageError: there is no such tracker.
    """
    tracker = named or os.environ.get(VARIABLE) or "none"
    if tracker not in TRACKERS:
        raise UsageError(
            "no such tracker",
            where="tracker" if named else VARIABLE,
            expected=" or ".join(TRACKERS),
            found=tracker,
            cure="MLflow shows every run without one: marin ui",
        )
    return tracker


def environment() -> dict[str, str]:
    """The variable that carries the choice to processes on other machines; nothing where there is no tracker."""
    tracker = chosen()
    return {} if tracker == "none" else {VARIABLE: tracker}


@contextmanager
def following(journal: Journal, root: Root, run: str, step: str) -> Iterator[Journal]:
    """The journal that a step gets: for a training that a tracker follows, one that tells it what became durable."""
    if step != "train" or chosen() == "none":
        yield journal
        return
    from marin.tracking.wandb.live import LiveJournal  # wandb takes a second, and only who asked waits for it

    live = LiveJournal(journal, root, run)
    try:
        yield live
    finally:
        live.close()


def completed(root: Root, run: str) -> None:
    """A run has all its outputs: the tracker gets what it does not have yet."""
    if chosen() == "none":
        return
    from marin.tracking.wandb.export import export_wandb

    try:
        log.info("for `wandb sync`: %s", export_wandb(root, run, root.local / "projections"))
    except Exception as error:  # a library's own, and the run is recorded already
        log.warning("not written for W&B: %s", error)
