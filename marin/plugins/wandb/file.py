"""What the offline runs of W&B in a folder already hold, read from W&B's own files.

A ``.wandb`` file is seven bytes of head (``:W&B``, a magic number, a version) and a LevelDB log
(github.com/google/leveldb, ``doc/log_format.md``): blocks of 32 KiB, in them records of crc32, length (uint16), kind
(whole, first, middle, last) and bytes; each whole one is a protocol buffer ``wandb_internal.Record``. A file that ends
in the middle of a record is that of a process that was killed: what stands before counts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD = 7
BLOCK = 32768
RECORD = struct.Struct("<IHB")
WHOLE, LAST = 1, 4
STEP, TRAINING = "train_step", "marin.training"
EVALUATED = "evaluated_step"
"""The axis of what was evaluated: the train step before which the state was."""


@dataclass
class Logged:
    """What W&B was told of a run: the last train step (-1: none), the keys of what was evaluated with the steps, and the
    names of artifacts with their aliases."""

    folders: int = 0
    step: int = -1
    evaluated: set[tuple[str, int]] = field(default_factory=set)
    artifacts: set[tuple[str, str]] = field(default_factory=set)


def logged_points(folder: Path, run: str, training: str, mode: str = "offline") -> Logged:
    """What the runs ``wandb/offline-run-…-<run>`` (online: ``wandb/run-…-<run>``) below ``folder`` hold together of the training
    with this identity. A run whose inputs changed trains anew: what was told of the training before is not counted."""
    found, kind = Logged(), "run" if mode == "online" else "offline-run"
    for path in sorted((folder / "wandb").glob(f"{kind}-*-{run}/run-{run}.wandb")):
        one = _logged_in(path, training)
        found = Logged(
            found.folders + 1,
            max(found.step, one.step),
            found.evaluated | one.evaluated,
            found.artifacts | one.artifacts,
        )
    return found


def _logged_in(path: Path, training: str) -> Logged:
    found = Logged()
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            config = {item.key: item.value_json for item in record.run.config.update}
            if json.loads(config.get(TRAINING, '""')) != training:
                return Logged()
        elif kind == "history":
            _points(found, record.history.item)
        elif kind == "request" and record.request.WhichOneof("request_type") == "partial_history":
            _points(found, record.request.partial_history.item)
        elif (artifact := artifact_in(record)) is not None:
            found.artifacts.add((artifact.name, json.loads(artifact.metadata or "{}").get("marin.artifact", "")))
    return found


def records(path: Path) -> Iterator[Any]:
    """The records of a file, as far as it is whole."""
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    data, at, part = path.read_bytes(), HEAD, b""
    while at + RECORD.size <= len(data):
        if (room := BLOCK - at % BLOCK) < RECORD.size:
            at += room
            continue
        _, length, kind = RECORD.unpack_from(data, at)
        at += RECORD.size
        if kind == 0 or at + length > len(data):
            return
        part += data[at : at + length]
        at += length
        if kind in (WHOLE, LAST):
            found = wandb_internal_pb2.Record()
            try:
                found.ParseFromString(part)
            except DecodeError:
                return
            part = b""
            yield found


def _points(found: Logged, items: Any) -> None:
    """Take in a row of history."""
    found.step = max([found.step, *steps_in(items)])
    keys = {item.key or "/".join(item.nested_key) for item in items}
    found.evaluated |= {(key, step) for step in steps_in(items, EVALUATED) for key in keys}


def steps_in(items: Any, axis: str = STEP) -> list[int]:
    """The train steps that a row of history speaks of."""
    return [int(json.loads(item.value_json)) for item in items if (item.key or "/".join(item.nested_key)) == axis]


def artifact_in(record: Any) -> Any:
    """The artifact that a record logs, or None."""
    if record.WhichOneof("record_type") == "artifact":
        return record.artifact
    if record.WhichOneof("record_type") == "request" and record.request.WhichOneof("request_type") == "log_artifact":
        return record.request.log_artifact.artifact
    return None
