"""A run as an offline run of W&B, read back by W&B's own reader of its files. No network: the export runs without one."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import Draft
from marin import events as types
from marin.meter import Meter, recorded
from marin.tracking.wandb_export import export_wandb

from .roots import make_artifacts, make_root, record
from .story import Log, loss, replay, whole_run


def records_of(folder: Path) -> Iterator[Any]:
    """What is in a .wandb file: seven bytes of head, then a LevelDB log (blocks of 32 KiB; a record is crc32, length, kind)
    of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("*.wandb")
    data, at, part = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at:at + 7])
        part += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            found = wandb_internal_pb2.Record()
            found.ParseFromString(part)
            part = b""
            yield found


def test_an_offline_run_has_id_config_metrics_and_artifacts_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("MARIN_ROOT", "MARIN_KEY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "https://192.0.2.1")
    root = make_root(tmp_path)
    log = Log()
    made = make_artifacts(root, tmp_path / "made")
    whole_run(log, "abcd2345", steps=30, artifacts=made)
    replay(log, "abcd2345")
    record(root, log)
    body = recorded("abcd2345", "train", 0, {"train/grad_norm": [0.5] * 30}, Meter().lap(30, 900))
    root.append([Draft(types.METRICS_RECORDED, "run/abcd2345", types.write(body))])
    real = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> Any:
        assert isinstance(address, str) or address[0] in ("127.0.0.1", "::1", "localhost"), address
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)
    folder = export_wandb(root, "abcd", tmp_path / "out")
    found = list(records_of(folder))
    (run,) = [item.run for item in found if item.WhichOneof("record_type") == "run"]
    assert run.run_id == "abcd2345"
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["model.seq_len"] == "128"
    assert config["marin.verified"].startswith("PASS")
    points = [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in entry.history.item}
              for entry in found if entry.WhichOneof("record_type") == "history"]
    assert [point["train/loss"] for point in points] == [loss(step) for step in range(30)]
    assert points[3]["train/grad_norm"] == 0.5
    assert points[-1]["train/tokens"] == 30 * 16 * 128
    assert points[-1]["system/tokens_per_second"] > 0
    uses = [json.loads(item.request.log_artifact.artifact.metadata) if item.WhichOneof("record_type") == "request"
            else json.loads(item.artifact.metadata) for item in found
            if item.WhichOneof("record_type") == "artifact"
            or (item.WhichOneof("record_type") == "request" and item.request.WhichOneof("request_type") == "log_artifact")]
    assert {item["marin.artifact"] for item in uses} >= {made["corpus"], made["export"]}
