"""What is drawn live on a terminal never stands in one line with what is said meanwhile."""

from __future__ import annotations

import logging
import os
import pty
import re
import sys

import pytest

from marin.process.logs import log_to
from marin.process.progress import bar
from tests.marin.process.test_waiting import until


def test_what_is_said_takes_the_place_of_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    before = logging.getLogger().handlers[:]
    master, slave = pty.openpty()
    with open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        log_to(terminal, level=logging.INFO, own=logging.INFO)  # as another process does that draws no bar
        with bar("generate train", 10):
            found = until(master, b"0/10")
            logging.getLogger("marin").info("tokenizer: run 3f9c")
            found += until(master, b"3f9c")
    os.close(master)
    logging.basicConfig(handlers=before, force=True)
    assert re.search(rb"\r\x1b\[Ktokenizer: run 3f9c", found), found
