"""A process that draws completions and is killed in the middle of its first piece, once for a folder."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from marin.plugins.rl.samplers import Drawn, Piece, Sampler, SamplerSetup, prepare
from marin.work.placed import Worker

KILLED = "MARIN_TEST_KILLED"
"""The folder."""


class Dying(Sampler):
    """Drawn, and dead before it can say so."""

    def __call__(self, piece: Piece) -> Drawn:
        drawn = super().__call__(piece)
        if piece.prompts:
            try:
                (Path(os.environ[KILLED]) / "killed").touch(exist_ok=False)
            except FileExistsError:
                return drawn
            os.kill(os.getpid(), signal.SIGKILL)
        return drawn


WORKER = Worker(f"{__name__}:WORKER", SamplerSetup, Piece, Drawn, Dying, prepare)
