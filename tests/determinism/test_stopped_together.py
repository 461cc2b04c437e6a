"""SIGTERM to one of two processes that train as one: both end after the same train step, saved, and nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from marin.training.tokens.building import write_cache

PROGRAM = Path(__file__).with_name("segments.py")


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), "--folder", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.determinism
def test_one_of_two_processes_is_told_to_stop(matrix: ModuleType, tmp_path: Path) -> None:
    generator = np.random.default_rng(9)
    write_cache(tmp_path / "train", (generator.integers(0, 64, 30 + n, dtype=np.int32) for n in range(40)))
    port = str(matrix.free_port())
    both = [started(tmp_path, "--process", str(number), "--port", port) for number in (0, 1)]
    stdout = both[1].stdout
    assert stdout is not None
    seen = next(line for line in stdout if line.startswith('{"step"'))  # it trains
    both[1].send_signal(signal.SIGTERM)
    outputs = [process.communicate(timeout=600) for process in both]
    assert [process.returncode for process in both] == [0, 0], [messages[-2000:] for _, messages in outputs]
    first, second = (lines(output)[-1] for output, _ in outputs)
    assert first == second, "they stopped after the same step, and digested the same state"
    assert first["signal"] == signal.SIGTERM and first["end"] > json.loads(seen)["step"]
    assert first["state"] == first["gathered"], "the digest of slices in two processes is that of the whole"
    again = started(tmp_path, "--until", str(first["end"]))
    output, messages = again.communicate(timeout=600)
    assert again.returncode == 0, messages[-2000:]
    straight, further, resumed = lines(output)
    assert straight == {key: first[key] for key in straight}, "the same bits as one process with one device"
    assert further == resumed, "what was saved goes on as the straight one does"
