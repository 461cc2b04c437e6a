"""A root that is not the same for anyone who looks again: class 15."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.forgeries.registry import kind
from bench.forgeries.workshop import OTHER, Shop
from ledger import PosixStorage, Storage
from marin.record import events as kinds
from marin.record.root import Root


class Turning:
    """Storage that shows the log of ``first`` until its checkpoint was read ``times``, and then that of ``second``."""

    def __init__(self, first: Storage, second: Storage, times: int) -> None:
        self._first, self._second, self._left = first, second, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._second if self._left < 0 else self._first, name)

    def read(self, name: str) -> bytes:
        """The bytes of the log that is shown now."""
        self._left -= name == "log/checkpoint"
        data: bytes = (self._second if self._left < 0 else self._first).read(name)
        return data


def _turn(shop: Shop, times: int) -> None:
    """What is published is the forged log, and the honest one for anyone who opens it again."""
    honest = shop.folder / "honest"
    shutil.copytree(shop.path, honest, copy_function=os.link)

    def shown(root: Root) -> Root:
        turning: Any = Turning(PosixStorage(Path(root.location)), PosixStorage(honest), times)
        return replace(root, storage=turning)

    shop.shown = shown


@kind(15, "another log for anyone who looks twice", says="another history")
def twice(shop: Shop) -> None:
    """The verdict is to be about the invented perplexity, and the execution about the honest run."""
    _turn(shop, 1)
    shop.rerecord(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["perplexity"] = (1.5).hex()
    shop.follow()


@kind(15, "another log for anyone who audits it", says="another log than the one that was read")
def audited(shop: Shop) -> None:
    """The records that are judged are not those that are audited."""
    _turn(shop, 2)
    shop.one(kinds.RUN_STARTED).body["environment"]["system"] = {"name": "another"}
    shop.follow()


@kind(
    15,
    "a trace that nobody has, so that nothing is compared with it",
    verdict="training",
    outcomes=("FAIL",),
    says="the recorded trace",
)
def kept_back(shop: Shop) -> None:
    """Without gradient norms nothing else binds it."""
    shop.all(kinds.TRAIN_SEGMENT)[1].body["trace"] = OTHER
    shop.drop(kinds.METRICS_RECORDED)
