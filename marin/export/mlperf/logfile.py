"""The file: lines as MLPerf's own ``mllogger`` writes them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import marin
from marin.errors import MarinError, MissingEvidence
from marin.export.mlperf.lines import Line
from marin.process.files import write_whole

LOCK = "docker/requirements-mlperf.lock"


def write_log(lines: Sequence[Line], path: Path) -> bytes:
    """Write ``lines`` to ``path``, whole or not at all; returns what it holds.

    Raises:
        MissingEvidence: mlperf-logging is not installed.
    """
    said, mllog = _Said(), _mllog()
    logger = logging.Logger("marin.mlperf", logging.INFO)
    logger.addHandler(said)
    root = re.escape(str(Path(marin.__file__).parents[1]))  # mllogger takes it for a pattern
    writer = mllog.mllog.MLLogger(logger=logger, root_dir=root)
    for line in lines:
        write = {"event": writer.event, "start": writer.start, "end": writer.end}[line.kind]
        write(key=line.key, value=line.value, metadata=line.metadata, time_ms=line.time)
    data = "".join(f"{line}\n" for line in said.lines).encode()
    write_whole(path, data)
    return data


class _Said(logging.Handler):
    """What mllogger says. It answers a line that it cannot write with an error in the log instead of an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno != logging.INFO:
            raise MarinError("mllogger could not write a line", where="--mlperf", found=record.getMessage()[:200])
        self.lines.append(record.getMessage())


def _mllog() -> ModuleType:
    try:
        from mlperf_logging import mllog
    except ImportError:
        raise MissingEvidence(
            "MLPerf's logger is not installed",
            where="--mlperf",
            expected="mlperf-logging",
            found="no such package",
            cure=f"pip install --no-deps --require-hashes -r {LOCK}",
        ) from None
    assert isinstance(mllog, ModuleType)
    return mllog
