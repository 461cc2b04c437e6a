"""What a training of the census reads and writes: its setting, and a journal of what came of each step.

Needs Python 3.11 and numpy alone, so that it runs in the environment of any training. The runner copies a journal into a run
of the ledger (bench/census/recorded.py).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 8
HALF = 4


@dataclass(frozen=True)
class Setting:
    """How a training is to be executed; the defaults are how it is executed first."""

    devices: int = 1  # devices of jax, processes of torch, workers elsewhere
    cut: int = 1  # microbatches of a step: the global batch stays the same
    evaluation: int = 16  # rows of a batch of the evaluation
    steps: int = STEPS  # steps before it stops, counted from the first one
    resume: bool = False  # go on from the checkpoint
    folder: str = "."  # where the journal and checkpoints lie
    corpus: str = "LICENSE"  # a text in English

    @property
    def checkpoint(self) -> str:
        return os.path.join(self.folder, "checkpoint")

    def text(self) -> str:
        return Path(self.corpus).read_text(encoding="utf-8")


def setting() -> Setting:
    """What the runner wants, in the variable CENSUS; without it a training runs alone, in the present folder."""
    return Setting(**json.loads(os.environ.get("CENSUS", "{}")))


class Journal:
    """Of the first process alone: the others of a training write nothing."""

    def __init__(self, wanted: Setting) -> None:
        self._folder = (
            Path(wanted.folder, "journal")
            if int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or 0) == 0
            else None
        )
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def step(self, step: int, loss: Any, state: Any, batch: Any = None) -> None:
        """The loss of a train step and the state after it; of the batch its values."""
        if self._folder is None:
            return
        np.savez(self._folder / f"{step:03}.npz", **dict(_arrays("state", state)))
        if batch is not None:
            np.savez(self._folder / f"batch-{step:03}.npz", **dict(_arrays("batch", batch)))
        with (self._folder / "losses").open("a") as file:
            file.write(f"{step} {float(loss).hex()}\n")
        (self._folder / "versions").write_text(json.dumps(imported()))

    def evaluation(self, values: Any) -> None:
        """One number for each row of the evaluation, in its order."""
        if self._folder is not None:
            np.savez(self._folder / "evaluation.npz", values=np.asarray(values, dtype=np.float64))


def imported() -> dict[str, str]:
    """The versions of the top modules that this process has imported, as they say themselves."""
    top = {name: module for name, module in list(sys.modules.items()) if "." not in name and not name.startswith("_")}
    named = {name: getattr(module, "__version__", None) for name, module in top.items()}
    return {name: version for name, version in sorted(named.items()) if isinstance(version, str)}


def _arrays(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _arrays(f"{path}.{name}", item)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _arrays(f"{path}.{place}", item)
    elif isinstance(value, str | bytes):
        yield path, np.frombuffer(value.encode() if isinstance(value, str) else value, dtype=np.uint8)
    elif hasattr(value, "detach"):
        yield path, value.detach().cpu().numpy()
    elif hasattr(value, "shape") or isinstance(value, int | float):
        yield path, np.asarray(value)
    elif value is not None:
        leaves = sys.modules["jax"].tree_util.tree_flatten_with_path(value)[0]
        for keys, leaf in leaves:
            if hasattr(leaf, "shape"):
                yield path + sys.modules["jax"].tree_util.keystr(keys), np.asarray(leaf)
