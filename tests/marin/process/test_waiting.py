"""What is said of a wait on a terminal: once in words, then the seconds, counted in place."""

from __future__ import annotations

import logging
import os
import pty
import re
import sys
from collections.abc import Iterator
from multiprocessing.connection import wait as ready

import pytest

from marin.process import text
from marin.process import waiting as waits
from marin.process.logs import log_to
from marin.process.progress import bar
from marin.process.waiting import waiting


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[None]:
    """Waits of a hundredth of a second, and no estimate of another test."""
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path))
    for name in ("SOON", "COUNTED"):
        monkeypatch.setattr(waits, name, 0.01)
    before = logging.getLogger().handlers[:]
    yield
    logging.basicConfig(handlers=before, force=True)


def until(descriptor: int, wanted: bytes) -> bytes:
    """What comes from ``descriptor`` up to what is wanted."""
    found = b""
    while wanted not in found:
        assert len(found) < 1 << 16, found[:1000]
        assert ready([descriptor], 30), found
        found += os.read(descriptor, 4096)
    return found


def test_on_a_terminal_the_seconds_are_counted_in_place(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        log_to(terminal, level=logging.INFO, own=logging.INFO)
        with waiting("compiling the train step"):
            found = until(master, b"s so far\r\r\x1b[K  0 s so far")
        logging.getLogger("marin").info("train steps 0 to 2 recorded")
        found += until(master, b"recorded")
    os.close(master)
    assert found.count(b"compiling the train step (a first time here)") == 1
    assert re.search(rb"\r\x1b\[K\r\r\x1b\[Ktrain steps 0 to 2", found), "what was counted is gone before the next line"


def test_elsewhere_it_is_said_again_in_lines(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "AGAIN", 0.01)
    reader, writer = os.pipe()
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        log_to(stream, level=logging.INFO, own=logging.INFO)
        with waiting("compiling the train step"):
            found = until(reader, b"\ncompiling the train step")
    os.close(reader)
    assert b"\x1b" not in found and b"\r" not in found


def test_beside_a_bar_the_bar_counts(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        log_to(terminal, level=logging.INFO, own=logging.INFO)
        with bar("verify", 3):
            found = until(master, b"0 s so far")
            with waiting("loading what judges"):
                found += until(master, b"loading what judges (a first time here)")
                found += until(master, b"1 s so far")
    os.close(master)
    assert found.count(b"loading what judges") == 1, "each second were a line of its own"
    lines = [line for line in found.split(b"\n") if b"s so far" in line]
    assert lines and all(b"verify" in line for line in lines), "the seconds stand in the bar"


@pytest.mark.long
def test_waits_one_behind_the_other_make_no_silence(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is over before its own moment; together nothing was said for longer than that."""
    monkeypatch.setattr(waits, "SOON", 60.0)
    reader, writer = os.pipe()
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        log_to(stream, level=logging.INFO, own=logging.INFO)
        logging.getLogger("marin").info("verifying ledger")
        until(reader, b"ledger\n")
        monkeypatch.setattr(text, "_last_output", [text._last_output[0] - 59.99])
        with waiting("loading what judges"):
            found = until(reader, b"loading what judges")
        monkeypatch.setattr(text, "_last_output", [text._last_output[0] - 50.0])
        assert text.seconds_silent() < 60.0, "what was announced was said"
    os.close(reader)
    assert found.startswith(b"loading what judges (a first time here")
