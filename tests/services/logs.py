"""Logging that a command set up in the tests' own process ends with its test: its stream is closed then, and the next test
would find "Logging error" on its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from marin.process.logs import OneLine


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What :func:`marin.process.logs.log_to` left is taken away."""
    root = logging.getLogger()
    loggers = (root, logging.getLogger("ledger"), logging.getLogger("marin"))
    levels = [logger.level for logger in loggers]
    yield
    for handler in root.handlers[:]:
        if isinstance(handler.formatter, OneLine):
            root.removeHandler(handler)
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
