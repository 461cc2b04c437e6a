"""The figures beside a state's own: of the bytes that are named, all are hashed."""

from __future__ import annotations

import hashlib
import os
from types import SimpleNamespace

import pytest

from bench.training import state


@pytest.mark.parametrize("size", [0, 5, 3 * state.CHUNK - 1, 7 * state.CHUNK + 3])
def test_every_byte_is_hashed_that_the_rate_counts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(hashlib, "sha256", lambda: SimpleNamespace(update=lambda data: counted.append(len(data))))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    state.hashed(size)
    assert sum(counted) == size
