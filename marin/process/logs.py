"""Where a process logs, and how: one line each, of which nothing reaches a terminal that is not visible."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from marin.process.text import ERASED, as_commands, mark_output, visible


class OneLine(logging.Formatter):
    """A record of ours is one visible line; what libraries say keeps its lines, each made visible. On a ``terminal`` it
    takes the place of what is drawn live, which is drawn again below."""

    def __init__(self, form: str, *, terminal: bool = False) -> None:
        super().__init__(form)
        self._before = ERASED if terminal else ""

    def format(self, record: logging.LogRecord) -> str:
        told = super().format(record)
        own = record.name.partition(".")[0] in ("ledger", "marin") and not record.exc_info
        return self._before + visible(as_commands(told) if own else told, keep="" if own else "\n")


class _Saying(logging.StreamHandler[TextIO]):
    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        mark_output()


def log_to(stream: TextIO, *, level: int, own: int, form: str = "%(message)s") -> None:
    """Log to ``stream``: this project's packages from level ``own`` on, all others from ``level`` on."""
    handler = _Saying(stream)
    handler.setFormatter(OneLine(form, terminal=stream.isatty()))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name in ("ledger", "marin"):
        logging.getLogger(name).setLevel(own)


def log_as_worker() -> None:
    """Log to stderr as a process does that a command started."""
    log_to(sys.stderr, level=logging.WARNING, own=logging.INFO)
