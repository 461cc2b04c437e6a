"""What is in an offline run of W&B, by a reader of its file format that shares nothing with the product's."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def records_of(folder: Path) -> Iterator[Any]:
    """The records of the ``.wandb`` file in a folder: seven bytes of head, then a LevelDB log (blocks of 32 KiB; a
    record is crc32, length, kind) of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("*.wandb")
    data, at, part = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            found = wandb_internal_pb2.Record()
            found.ParseFromString(part)
            part = b""
            yield found


@dataclass
class OfflineRun:
    """One folder as W&B would upload it."""

    run_id: str
    project: str
    config: dict[str, Any]
    points: list[dict[str, Any]]
    summary: dict[str, Any]
    artifacts: list[tuple[str, dict[str, Any], list[str]]]
    complete: bool


def read_offline_run(folder: Path) -> OfflineRun:
    """Id, config, history, summary and artifacts (name, metadata, references) of an offline run."""
    found = list(records_of(folder))
    (run,) = [item.run for item in found if item.WhichOneof("record_type") == "run"]
    artifacts = [
        item.request.log_artifact.artifact if item.WhichOneof("record_type") == "request" else item.artifact
        for item in found
        if item.WhichOneof("record_type") == "artifact"
        or (item.WhichOneof("record_type") == "request" and item.request.WhichOneof("request_type") == "log_artifact")
    ]
    summary: dict[str, Any] = {}
    for item in found:
        if item.WhichOneof("record_type") == "summary":
            summary |= {
                entry.key or "/".join(entry.nested_key): json.loads(entry.value_json) for entry in item.summary.update
            }
    return OfflineRun(
        run.run_id,
        run.project,
        {item.key: json.loads(item.value_json) for item in run.config.update},
        [
            {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in entry.history.item}
            for entry in found
            if entry.WhichOneof("record_type") == "history"
        ],
        summary,
        [(item.name, json.loads(item.metadata), [entry.ref for entry in item.manifest.contents]) for item in artifacts],
        any(item.WhichOneof("record_type") == "exit" for item in found),
    )
