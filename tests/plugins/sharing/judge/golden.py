"""The run under profile exact that is kept (tests/golden), in a folder of its own, as an operator changes and signs it."""

from __future__ import annotations

import json
import shutil
import struct
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import (
    Draft,
    Log,
    LogReader,
    PosixStorage,
    Signer,
    Sliced,
    Store,
    VerifierKey,
    describe_state,
    digest_bytes,
    put_slices,
)
from marin.execution.plan import identity_of
from tests.plugins.sharing.judge.node import Checked, checked

KEPT = Path(__file__).parents[3] / "golden" / "exact.tar.gz"
SIGNER = Signer("log.example/forged", Ed25519PrivateKey.from_private_bytes(bytes(32)))
NORM = "train/grad_norm"
Events = list[tuple[str, dict[str, Any]]]


class GoldenFolder:
    """The run in a folder, as an operator changes and signs it."""

    def __init__(self, folder: Path) -> None:
        with tarfile.open(KEPT) as archive:
            archive.extractall(folder, filter="data")
        self.folder = folder / "exact"
        self.key = (self.folder / "vkey").read_text().strip()
        reader = LogReader(PosixStorage(self.folder), [VerifierKey.parse(self.key)])
        self.events = [event for _, event in reader.events()]
        self.store = Store(PosixStorage(self.folder))
        self.bodies: Events = [(event.type, json.loads(json.dumps(dict(event.body)))) for event in self.events]

    def body(self, type_: str, **has: Any) -> dict[str, Any]:
        return next(body for kind, body in self.bodies if kind == type_ and has.items() <= body.items())

    def signed(self) -> None:
        """The events as they are now, under the operator's own key."""
        shutil.rmtree(self.folder / "log")
        storage = PosixStorage(self.folder)
        Log.create(storage, SIGNER)
        drafts = [
            Draft(kind, event.stream, body, id=event.id, actor=event.actor, time=event.time)
            for event, (kind, body) in zip(self.events, self.bodies, strict=True)
            if body
        ]
        with Log.open(storage, SIGNER) as log:
            log.append(drafts)
        self.key = str(SIGNER.verifier)

    def checked(self, execute: str = "all") -> Checked:
        return checked(self.folder, self.key, execute=execute)

    def step(self, step: int, *, loss: str = "", norm: str = "", tensor: bool = False) -> None:
        """Another record of a train step, from which its fingerprint, the trace and the table follow."""
        segment = next(
            body for kind, body in self.bodies if kind == "train.segment/v1" and body["start"] <= step < body["end"]
        )
        at = step - segment["start"]
        norms = self.body("metrics.recorded/v1", step="train") if not segment["start"] else self.bodies[28][1]
        (series,) = [one for one in norms["series"] if one["key"] == NORM]
        segment["losses"][at] = loss or segment["losses"][at]
        series["values"][at] = norm or series["values"][at]
        trace = bytearray(self.store.read(segment["trace"]))
        width = len(trace) // (segment["end"] - segment["start"])
        trace[at * width + 8 * 7] ^= tensor
        segment["trace"] = self.store.put_bytes(bytes(trace)).digest
        row = bytes(trace[at * width : (at + 1) * width])
        head = struct.pack("<ff", *map(float.fromhex, (segment["losses"][at], series["values"][at])))
        segment["fingerprints"][at] = digest_bytes(head + row)
        losses = [loss for kind, body in self.bodies if kind == "train.segment/v1" for loss in body["losses"]]
        table = "step,loss\n" + "".join(f"{n},{float.fromhex(loss)}\n" for n, loss in enumerate(losses))
        self.body("step.completed/v1", step="train")["tables"]["loss"] = self.store.put_bytes(table.encode()).digest

    @property
    def functions(self) -> dict[str, str]:
        found: dict[str, str] = self.body("train.started/v1")["program"]["functions"]
        return found

    def program(self, name: str) -> Path:
        return self.folder / "programs" / f"{self.functions[name].removeprefix('sha256:')}.json"

    @property
    def hints(self) -> Path:
        (found,) = [file for file in (self.folder / "programs").glob("*.json") if len(file.stem) < 64]
        return found

    def state(self, change: Callable[[dict[str, np.ndarray]], object]) -> None:
        """Another state after train step 1, as stored and as recorded: checkpoint, segments, trace and fingerprint agree."""
        from marin.training.step import fingerprint

        saved = self.body("checkpoint.saved/v1", step=2)
        held = Sliced.of_store(self.store, saved["artifact"])
        tensors = {one.path: held.whole(one.path).copy() for one in held.state.tensors}
        change(tensors)
        made, described = put_slices(self.store, tensors, held.form.slices, held.form.leads), describe_state(tensors)
        stored = self.store.put_bytes(described.encode()).digest
        saved |= {"artifact": made.digest, "manifest": stored, "size": made.size, "state": described.digest}
        before, after = (self.body("train.segment/v1", start=start) for start in (0, 2))
        hints = json.loads(self.hints.read_text())
        order = ["step", "cursor", "key", *hints["parameters"], *hints["moments"]]
        row = np.stack([fingerprint.of(tensors[path]) for path in order]).astype("<u4").tobytes()
        before["trace"] = self.store.put_bytes(self.store.read(before["trace"])[: -len(row)] + row).digest
        (norms,) = [one for one in self.body("metrics.recorded/v1", step="train")["series"] if one["key"] == NORM]
        head = struct.pack("<ff", *map(float.fromhex, (before["losses"][1], norms["values"][1])))
        before["fingerprints"][1] = digest_bytes(head + row)
        before["end_state"] = after["start_state"] = described.digest

    def token(self, step: int) -> None:
        """Another token in what a train step reads, under all that follows from it: the list of files, the digest of the tokens,
        identities of steps, and the digests of the batches."""
        from marin.tensors.token_caches import tokens_content
        from marin.training.data import batch_digest
        from marin.training.tokens.building import write_cache
        from marin.training.tokens.cache import read_tokens

        numbers = {int(at): found for at, found in json.loads(self.hints.read_text())["sequences"].items()}
        width = self.body("run.started/v1")["recipe"]["model"]["seq_len"]
        output = dict(self.body("step.completed/v1", step="tokens")["output"])
        with TemporaryDirectory() as folder:
            place = Path(folder) / "tokens"
            self.store.checkout(output["artifact"], place, how="copy")
            stream, offsets = read_tokens(place / "train")
            stream[numbers[step][0] * width + 3] ^= 1
            shutil.rmtree(place / "train")
            write_cache(place / "train", iter(stream[a:b] for a, b in pairwise(offsets.tolist())))
            artifact = self.store.put_tree(place)
            digest, size = tokens_content(place)
        changed = {output["artifact"]: artifact.digest, output["digest"]: digest}
        for kind, body in self.bodies:
            body |= replaced(body, changed)
            if kind == "step.started/v1":
                lock = body["lock"]
                changed[body["identity"]] = identity_of(
                    body["step"], body["config"], body["inputs"], body["code"], lock
                )
                body["identity"] = changed[body["identity"]]
            elif kind == "step.completed/v1" and body["step"] == "tokens":
                body["output"]["size"] = size
            elif kind == "train.segment/v1":
                rows = stream[: len(stream) // width * width].reshape(-1, width)
                asked = [numbers[at] for at in range(body["start"], body["end"])]
                body["batches"] = [batch_digest(np.array(one), rows[one]) for one in asked]


def replaced(body: dict[str, Any], changed: dict[str, str]) -> dict[str, Any]:
    """The same with other digests in the places of some, wherever they stand."""
    text = json.dumps(body)
    for old, new in changed.items():
        text = text.replace(old, new)
    found: dict[str, Any] = json.loads(text)
    return found


def a_weight(kept: GoldenFolder) -> None:
    """The least change of one number of one parameter, after train step 1."""

    def change(state: dict[str, np.ndarray]) -> None:
        weights = state["model/transformer/layers/stacked/self_attn/q_proj/weight"].reshape(-1)
        weights[5] = np.nextafter(weights[5], np.float32(9))

    kept.state(change)


def a_moment(kept: GoldenFolder) -> None:
    """One number of one moment, after train step 1."""

    def change(state: dict[str, np.ndarray]) -> None:
        path = next(path for path in state if path.endswith("mu/transformer/layers/stacked/self_attn/q_proj/weight"))
        state[path].reshape(-1)[5] *= np.float32(2)

    kept.state(change)


def a_loss(kept: GoldenFolder) -> None:
    """One loss; no later number follows from it."""
    kept.step(1, loss="0x1.69a89e0000000p+2")


def a_token(kept: GoldenFolder) -> None:
    """One token that train step 2 reads."""
    kept.token(2)


FORGED: dict[str, tuple[Callable[[GoldenFolder], None], str]] = {
    "a loss": (a_loss, "train step 1, executed again, has another loss"),
    "a weight": (
        a_weight,
        "train step 1, executed again, has another tensor model/transformer/layers/stacked/self_attn/q_proj",
    ),
    "a moment": (a_moment, "train step 1, executed again, has another tensor moments/"),
    "a token": (a_token, "train step 2, executed again, has another loss"),
}
"""Copies in which log, record and files agree with one number that is another, and what execution says of each."""
