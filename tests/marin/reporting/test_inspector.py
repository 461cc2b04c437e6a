"""The process that finds again what train steps saw, asked by a server that has many files open."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from marin.reporting.lineage.samples import Inspector

ANSWERS = "import sys\nfor line in sys.stdin: print('{\"found\": [1]}', flush=True)"
MANY = 1024
"""Numbers that select(2) has no room for begin here."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """Every descriptor below :data:`MANY` is taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MANY:
        pytest.skip(f"a process may have {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * MANY), hard))
    with ExitStack() as stack:
        while (number := os.open(os.devnull, os.O_RDONLY)) < MANY:
            stack.callback(os.close, number)
        stack.callback(os.close, number)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_answer_is_read_whatever_number_its_pipe_has(many_files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inspector, "COMMAND", (sys.executable, "-c", ANSWERS))
    with Inspector() as inspector:
        assert inspector.ask({}, Path("cache"), [0]) == [1]


def test_its_process_begins_before_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inspector, "COMMAND", (sys.executable, "-c", ANSWERS))
    with Inspector() as inspector:
        process = inspector.begin()
        assert inspector.begin() is process and inspector.ask({}, Path("cache"), [0]) == [1]
    assert process.returncode is not None, "it ends with the context, asked or not"
