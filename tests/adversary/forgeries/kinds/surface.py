"""Classes 10 to 12: text that is executed by eyes, reach into the verifier's machine, services."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from marin.recipe import schema
from marin.record import events as kinds
from tests.adversary.forgeries.kinds.binding import _json, _kind
from tests.adversary.forgeries.registry import kind
from tests.adversary.forgeries.stranger import Asked
from tests.adversary.forgeries.workshop import Shop

ESCAPES = {
    "an escape of the terminal": "\x1b[2J\x1b[1;1Hledger PASS",
    "lines of a verdict": "x\nledger     PASS\nartifacts  PASS",
    "letters from right to left": "abc\u202eSSAP\u202c",
    "a carriage return": "FAIL\rPASS",
    "a link of the terminal": "\x1b]8;;http://evil\x07x\x1b]8;;\x07",
    "nothing that is seen": "a\u200b\u2060\ufeffb",
    "C1 controls": "\x9b2J",
}


def _everywhere(text: str) -> Callable[[Shop], None]:
    def forge(shop: Shop) -> None:
        started = shop.one(kinds.RUN_STARTED).body
        started["code"] |= {"commit": text, "dirty": True}
        started["environment"] |= {"processor": {"model": text}, "system": {"name": text}, "versions": {text: text}}
        identity = shop.one(kinds.STEP_STARTED, "train").body["identity"]
        shop.add(kinds.STEP_FAILED, {"run": shop.run, "step": "train", "identity": identity, "error": text})
        shop.add(kinds.STEP_PAUSED, {"run": shop.run, "step": "train", "identity": identity, "where": text})
        shop.one(kinds.TRAIN_STARTED).body["program"]["functions"] = {text: text}
        shop.one(kinds.STEP_STARTED, "train").body["address"] = text

    return forge


for _name, _text in ESCAPES.items():
    kind(10, f"{_name} in every free field", claimed="failed:")(_everywhere(_text))


def _judged_text(text: str) -> Callable[[Shop], None]:
    def forge(shop: Shop) -> None:
        shop.one(kinds.STEP_COMPLETED, "evaluate").body["metrics"][text] = (0.5).hex()
        shop.one(kinds.RUN_COMPLETED).body["outputs"][text] = shop.output("export")
        shop.add(
            kinds.METRICS_RECORDED, {"run": shop.run, "step": "", "series": [{"key": text, "steps": [], "values": []}]}
        )

    return forge


for _name, _text in ESCAPES.items():
    kind(10, f"{_name} in a name that is judged")(_judged_text(_text))


@kind(10, "an escape in the name of a stored file", verdict="artifacts")
def file_name(shop: Shop) -> None:
    made = shop.altered(shop.output("export")["artifact"], lambda folder: (folder / "a\u202eb.py").write_bytes(b""))
    shop.output("export").update(digest=made.digest, artifact=made.digest, size=made.size)
    shop.follow()


# 11


def _dataset(dataset: dict[str, Any]) -> Callable[[Shop], None]:
    def forge(shop: Shop) -> None:
        shop.one(kinds.RUN_STARTED).body["recipe"]["dataset"] = dataset
        shop.one(kinds.STEP_STARTED, "corpus").body["config"]["dataset"] = dataset
        shop.follow()

    return forge


FILES = {
    "kind": "files",
    "name": "files",
    "split": "lines",
    "paragraphs_per_document": 8,
    "validation_fraction": (0.05).hex(),
    "text_field": "text",
    "minimal_pairs": None,
}
kind(11, "a glob of the verifier's own keys", verdict="data", unsaid="id_")(
    _dataset(FILES | {"globs": ["~/.ssh/*", "/etc/passwd"]})
)
kind(11, "a glob of everything", verdict="data", unsaid="/etc/hostname")(_dataset(FILES | {"globs": ["/etc/**/*"]}))
kind(11, "data from the verifier's own machine", verdict="data")(
    _dataset(
        {
            "kind": "url",
            "name": "x",
            "url": "https://127.0.0.1:9/x",
            "sha256": "1" * 64,
            "mirror": "x",
            "size": 10,
            "split": "lines",
            "paragraphs_per_document": 8,
            "validation_fraction": (0.1).hex(),
            "minimal_pairs": None,
        }
    )
)


@kind(11, "flags that name files to the compiler", says="no setting of arithmetic")
def compiler_flags(shop: Shop) -> None:
    """As a version of the product would have recorded them that lets every flag pass."""
    flags = shop.one(kinds.RUN_STARTED).body["recipe"]["arithmetic"]["xla_flags"]
    wanted = [*flags, "--xla_dump_to=/var/tmp/reached", "--xla_backend_extra_options=-pass-remarks-output=reached"]
    shop.one(kinds.RUN_STARTED).body["recipe"]["arithmetic"]["xla_flags"] = wanted
    for entry in shop.all(kinds.STEP_STARTED):
        if "arithmetic" in entry.body["config"]:
            entry.body["config"]["arithmetic"]["xla_flags"] = wanted
    shop.one(kinds.TRAIN_STARTED).body["program"]["xla_flags"] = wanted
    with patch.object(schema, "check_contract"):
        shop.follow()


def _instead(shop: Shop, name: str, make: Callable[[Path], object]) -> None:
    path = shop.path / name
    path.unlink()
    make(path)


@kind(11, "a FIFO for the log's checkpoint", by="publisher")
def fifo(shop: Shop) -> None:
    _instead(shop, "log/checkpoint", os.mkfifo)


@kind(11, "a link for the log's checkpoint", by="publisher")
def linked(shop: Shop) -> None:
    _instead(shop, "log/checkpoint", lambda path: path.symlink_to("/etc/hostname"))


@kind(11, "a link for the key", by="publisher")
def linked_key(shop: Shop) -> None:
    _instead(shop, "vkey", lambda path: path.symlink_to("/etc/hostname"))


@kind(11, "an endless checkpoint", by="publisher")
def endless(shop: Shop) -> None:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(1 << 36)

    _instead(shop, "log/checkpoint", make)


@kind(11, "a device for the log's checkpoint", by="publisher")
def device(shop: Shop) -> None:
    _instead(shop, "log/checkpoint", lambda path: path.symlink_to("/dev/zero"))


def _blob(shop: Shop, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return next(
        path
        for path in (shop.path / "store").rglob("*")
        if path.is_file() and name[8:] in path.as_posix().replace("/", "")
    )


def _trace(shop: Shop) -> str:
    return str(shop.all(kinds.TRAIN_SEGMENT)[0].body["trace"])


@kind(11, "a FIFO in the store", by="publisher", verdict="artifacts")
def fifo_in_store(shop: Shop) -> None:
    path = _blob(shop, _trace(shop))
    path.unlink()
    os.mkfifo(path)


@kind(11, "a link out of the store", by="publisher", verdict="artifacts")
def link_in_store(shop: Shop) -> None:
    path = _blob(shop, _trace(shop))
    path.unlink()
    path.symlink_to("/etc/hostname")


@kind(11, "an endless file in the store", by="publisher", verdict="artifacts")
def endless_in_store(shop: Shop) -> None:
    path = _blob(shop, _trace(shop))
    path.unlink()
    with path.open("wb") as file:
        file.truncate(1 << 33)


_kind(
    "an array of 2^60 elements", "tokens", _json("train/shard_ledger.json", total_num_rows=1 << 60), number=11, says=""
)
_kind(
    "a chunk of 2^40 elements",
    "tokens",
    _json(
        "train/input_ids/offsets/zarr.json", chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1 << 40]}}
    ),
    number=11,
    says="",
)


@kind(11, "a state of 2^50 bytes", verdict="artifacts")
def large_state(shop: Shop) -> None:
    def change(folder: Path) -> None:
        path = folder / "state.json"
        told = json.loads(path.read_bytes())
        tensors = told["tensors"] if isinstance(told, dict) and "tensors" in told else told
        for tensor in tensors:
            if isinstance(tensor, dict) and tensor.get("shape"):
                tensor["shape"][0] = 1 << 40
        path.write_text(json.dumps(told))

    shop.output("train")["artifact"] = shop.altered(shop.output("train")["artifact"], change).digest
    shop.follow()


@kind(11, "a table of losses that is nested without end", verdict="artifacts", says="table loss")
def nested(shop: Shop) -> None:
    made = shop.store.put_bytes(b"[" * 100_000)
    shop.one(kinds.STEP_COMPLETED, "train").body["tables"]["loss"] = made.digest


@kind(11, "pin files that are damaged", asked=Asked(before=True))
def pins(shop: Shop) -> None:
    for path in (shop.folder / "stranger" / "pins").rglob("*"):
        if path.is_file():
            path.write_text("{")


# 12


def _service(shop: Shop) -> bool:
    return not (shop.folder / "reached").exists()


@kind(12, "an append service that the root names", harmless=True, proof=_service)
def service(shop: Shop) -> None:
    """Anyone who verifies speaks to no service: what the root says of one leads nowhere."""
    import socket
    import threading

    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(600)

    def accept() -> None:
        try:
            listening.accept()
            (shop.folder / "reached").touch()
        except OSError:
            pass
        finally:
            listening.close()

    threading.Thread(target=accept, daemon=True).start()
    told = {"port": listening.getsockname()[1], "token": "x", "pid": os.getpid(), "time": time.time()}
    shop.replace_file("service.json", json.dumps(told).encode())
