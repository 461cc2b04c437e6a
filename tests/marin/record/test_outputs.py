"""An output's bytes are its digest, or they are not handed out; a train step's fingerprint follows from its record."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
import tensorstore
from hypothesis import given
from hypothesis import strategies as st

from ledger import (
    LedgerError,
    NotFound,
    PosixStorage,
    StateManifest,
    Store,
    Tampered,
    describe_state,
    state_digest,
    tensor_digest,
    write_slices,
)
from marin.errors import DataError
from marin.record import outputs
from marin.record.events import Output, TrainSegment
from marin.record.fingerprint import step_fingerprint
from marin.tensors.checkpoints import checkpoint_state
from marin.tensors.token_caches import cache_content
from marin.verify.derivation.fingerprints import underivable_steps


@dataclass(frozen=True)
class Shelf:
    """A store, and folders to fill for it."""

    store: Store
    base: Path

    def output(self, folder: Path, kind: str, digest: str = "", size: int = -1) -> Output:
        tree = self.store.put_tree(folder)
        return Output(
            kind=kind, digest=digest or tree.digest, size=tree.size if size < 0 else size, artifact=tree.digest
        )

    def files(self, name: str, **contents: bytes) -> Path:
        for path, data in contents.items():
            (self.base / name / path).parent.mkdir(parents=True, exist_ok=True)
            (self.base / name / path).write_bytes(data)
        return self.base / name

    def taken(self, output: Output, **options: str) -> Path:
        return outputs.checkout(self.store, output, self.base / f"taken-{len(list(self.base.iterdir()))}", **options)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(Store(PosixStorage(tmp_path / "root")), tmp_path)


MODEL = {"model.safetensors": b"\x02weights", "config.json": b"{}"}


def test_a_tree_is_its_digest(shelf: Shelf) -> None:
    honest = shelf.output(shelf.files("honest", **MODEL), "model")
    assert (shelf.taken(honest, kind="model") / "config.json").read_bytes() == b"{}"
    other = shelf.output(shelf.files("other", **MODEL | {"config.json": b"{ }"}), "model")
    swapped = msgspec.structs.replace(honest, artifact=other.artifact, size=other.size)
    with pytest.raises(Tampered, match="its own digest"):
        shelf.taken(swapped)
    assert outputs.bytes_of(swapped) == honest.digest, "anyone who only shows files shows those of the digest"
    with pytest.raises(Tampered, match="size"):
        shelf.taken(msgspec.structs.replace(honest, size=honest.size + 1))
    with pytest.raises(Tampered, match="kind"):
        shelf.taken(msgspec.structs.replace(honest, kind="words"), kind="model")


@pytest.mark.parametrize("extra", ["modeling_evil.py", "deep/config.json", "model.safetensors.index.json", ".hidden"])
def test_files_that_a_kind_does_not_have_are_refused(shelf: Shelf, extra: str) -> None:
    with pytest.raises(Tampered, match="the files of a model"):
        shelf.taken(shelf.output(shelf.files("model", **MODEL, **{extra: b"import os"}), "model"))
    assert shelf.taken(shelf.output(shelf.files("mine", **{extra: b"import os"}), "words")), "of a step of one's own"


def test_an_executable_model_is_refused(shelf: Shelf) -> None:
    folder = shelf.files("model", **MODEL)
    (folder / "config.json").chmod(0o755)
    with pytest.raises(Tampered, match="executable"):
        shelf.taken(shelf.output(folder, "model"))


def written(folder: Path, name: str, values: np.ndarray) -> None:
    store = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/checkpoint/"}, "path": f"{name}/"}
    metadata = {"shape": list(values.shape), "data_type": values.dtype.name}
    spec = {"driver": "zarr3", "kvstore": store, "metadata": metadata}
    tensorstore.open(spec, create=True).result().write(values).result()


def state(shelf: Shelf, arrays: dict[str, np.ndarray], listed: dict[str, np.ndarray] | None = None) -> Output:
    """A state in the store; ``listed`` is what its list and its output say that it is."""
    folder = shelf.base / f"state-{len(list(shelf.base.iterdir()))}"
    (folder / "checkpoint").mkdir(parents=True)
    for name, values in arrays.items():
        written(folder, name, values)
    manifest = describe_state(listed if listed is not None else arrays)
    (folder / "state.json").write_bytes(manifest.encode())
    return shelf.output(folder, "state", manifest.digest, sum(tensor.nbytes for tensor in manifest.tensors))


TENSORS = {
    "step": np.asarray(3, dtype=np.int32),
    "model/c_attn/weight": np.arange(4000, dtype=np.float32).reshape(40, 100),
    "moments/nu": np.zeros((7, 3), dtype=np.float32),
}


def test_a_state_is_its_tensors(shelf: Shelf) -> None:
    shelf.taken(state(shelf, TENSORS), kind="state")
    flipped = TENSORS | {"moments/nu": TENSORS["moments/nu"] + np.float32(1e-9)}
    with pytest.raises(Tampered, match="moments/nu"):
        shelf.taken(state(shelf, flipped, listed=TENSORS))
    with pytest.raises(DataError, match=r"a tensor that its state has not.*planted"):
        shelf.taken(state(shelf, TENSORS | {"planted": np.zeros(3)}, listed=TENSORS))
    lacking = {name: values for name, values in TENSORS.items() if name != "step"}
    with pytest.raises(Tampered, match="step"):
        shelf.taken(state(shelf, lacking, listed=TENSORS))
    reshaped = TENSORS | {"moments/nu": TENSORS["moments/nu"].reshape(3, 7)}
    with pytest.raises(Tampered, match="moments/nu"):
        shelf.taken(state(shelf, reshaped, listed=TENSORS))


def test_a_checkpoint_lists_the_tensors_that_it_has(tmp_path: Path) -> None:
    folder, recorded = tmp_path / "checkpoint", describe_state(TENSORS)
    write_slices(folder, TENSORS, slices=2)
    assert not list(outputs.checkpoint_mismatches(recorded.digest, recorded.encode(), folder))
    another = describe_state(TENSORS | {"moments/nu": TENSORS["moments/nu"] + 1})
    (folder / "state.json").write_bytes(another.encode())
    (mismatch,) = outputs.checkpoint_mismatches(recorded.digest, recorded.encode(), folder)
    assert mismatch.found == "another state.json"


def changed(shelf: Shelf, **files: bytes | None) -> str:
    """The tree of a checkpoint in slices, with these files in it, or without them."""
    folder = shelf.base / f"checkpoint-{len(list(shelf.base.iterdir()))}"
    write_slices(folder, TENSORS, slices=2)
    for name, data in files.items():
        (folder / name).unlink() if data is None else (folder / name).write_bytes(data)
    return shelf.store.put_tree(folder).digest


def test_a_small_state_says_in_memory_what_it_says_in_a_folder(shelf: Shelf) -> None:
    recorded = describe_state(TENSORS)
    slices = shelf.base / "slices"  # what slice 0 honestly is
    write_slices(slices, TENSORS, slices=2)
    flipped = bytearray((slices / "slices/00000").read_bytes())
    flipped[-1] ^= 1
    another = describe_state(TENSORS | {"moments/nu": TENSORS["moments/nu"] + 1}).encode()
    cases: tuple[dict[str, bytes | None], ...] = (
        {},
        {"slices/00000": bytes(flipped)},
        {"slices/00001": b""},
        {"slices/00001": None},
        {"slices/00002": b"a slice that the form does not have"},
        {"slices/09999": b""},
        {"state.json": another},
        {"state.json": None},
        {"planted": b"x"},
    )
    for number, files in enumerate(cases):
        tree, said = changed(shelf, **files), []
        kept = outputs.in_memory(shelf.store, tree)
        assert kept is not None
        shelf.store.checkout(tree, shelf.base / f"out-{number}")
        for place in (kept, shelf.base / f"out-{number}"):
            try:
                said.append([*map(str, outputs.checkpoint_mismatches(recorded.digest, recorded.encode(), place))])
            except DataError as error:
                said.append([error.what, error.found])
        assert said[0] == said[1] and bool(said[0]) == bool(files), files


def test_what_is_kept_in_memory_was_hashed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = changed(shelf)
    entry = shelf.store.manifest(tree).entry("slices/00001")
    (found,) = [path for path in (shelf.base / "root").rglob("*") if path.is_file() and entry.digest[9:] in path.name]
    honest = found.read_bytes()
    found.chmod(0o644)
    found.write_bytes(honest[:-1] + b"?")
    with pytest.raises(Tampered):
        outputs.in_memory(shelf.store, tree)
    found.unlink()
    with pytest.raises(NotFound):
        outputs.in_memory(shelf.store, tree)
    found.write_bytes(honest)
    monkeypatch.setattr(outputs, "MOST_IN_MEMORY", sum(one.size for one in shelf.store.manifest(tree)) - 1)
    assert outputs.in_memory(shelf.store, tree) is None, "a large one is copied to a folder"
    assert outputs.in_memory(shelf.store, state(shelf, TENSORS).artifact) is None, "one of another form too"


def test_a_state_of_zeros_without_end_is_not_read(shelf: Shelf) -> None:
    """Chunks that are not there stand for zeros: a few bytes say that they are terabytes."""
    folder = shelf.base / "endless"
    (folder / "checkpoint").mkdir(parents=True)
    store = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/checkpoint/"}, "path": "step/"}
    metadata = {"shape": [1 << 40], "data_type": "float32"}
    tensorstore.open({"driver": "zarr3", "kvstore": store, "metadata": metadata}, create=True).result()
    honest = describe_state({"step": np.zeros(4, dtype=np.float32)})
    with pytest.raises(DataError, match="larger than it may be"):
        checkpoint_state(folder / "checkpoint", honest)
    (tensor,) = honest.tensors
    listed = msgspec.json.decode(honest.encode())
    listed["tensors"][0] |= {"shape": [1 << 40], "nbytes": 4 << 40}
    endless = StateManifest.parse(msgspec.json.encode(listed, order="sorted"))
    assert endless.tensors[0].digest == tensor.digest
    with pytest.raises(DataError, match="does not hold what is recorded of it"):
        checkpoint_state(folder / "checkpoint", endless)


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 9}}]}, "codecs .*gzip"),
        ({"codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 9}}]}, "codecs .*zstd"),
        ({"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}, "codecs .*big"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5]}}}, "chunks larger"),
    ],
)
def test_a_tensor_behind_another_codec_is_not_read(shelf: Shelf, other: dict[str, Any], found: str) -> None:
    """A few megabytes of gzip become as many bytes as somebody likes before anything compares their number."""
    folder = shelf.base / "packed"
    (folder / "checkpoint").mkdir(parents=True)
    store = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/checkpoint/"}, "path": "step/"}
    metadata = {"shape": [4], "data_type": "float32"} | other
    array = tensorstore.open({"driver": "zarr3", "kvstore": store, "metadata": metadata}, create=True).result()
    array.write(np.zeros(4, np.float32)).result()
    with pytest.raises(DataError, match=found):
        checkpoint_state(folder / "checkpoint", describe_state({"step": np.zeros(4, np.float32)}))


def test_another_file_in_a_checkpoint_is_refused(shelf: Shelf) -> None:
    taken = shelf.taken(state(shelf, TENSORS))
    copied = shelf.base / "copied"
    for path in taken.rglob("*"):
        if path.is_file():
            (copied / path.relative_to(taken)).parent.mkdir(parents=True, exist_ok=True)
            (copied / path.relative_to(taken)).write_bytes(path.read_bytes())
    (copied / "checkpoint" / "load.py").write_bytes(b"import os")
    output = shelf.output(copied, "state", describe_state(TENSORS).digest, 16088)
    with pytest.raises(Tampered, match=r"a file checkpoint/load\.py"):
        shelf.taken(output)


def test_tokens_are_their_content(shelf: Shelf, token_folder: Callable[[Path, list[np.ndarray]], None]) -> None:
    documents = [np.arange(size, dtype=np.int32) for size in (9, 0, 400)]
    honest, poisoned = shelf.base / "honest", shelf.base / "poisoned"
    token_folder(honest, documents)
    token_folder(poisoned, [*documents[:2], documents[2] ^ 1])
    flat = np.concatenate(documents)
    offsets = np.asarray([0, 9, 9, 409], dtype=np.int64)
    digests = {
        f"{split}/{name}": tensor_digest(values)
        for split in ("train", "validation")
        for name, values in (("tokens", flat), ("offsets", offsets))
    }
    digest, size = state_digest(digests), 2 * (4 * 409 + 8 * 4)
    shelf.taken(shelf.output(honest, "tokens", digest, size), kind="tokens")
    with pytest.raises(Tampered, match="digest"):
        shelf.taken(shelf.output(poisoned, "tokens", digest, size))
    (honest / "train" / "input_ids" / "evil.py").write_bytes(b"import os")
    with pytest.raises(Tampered, match=r"evil\.py"):
        shelf.taken(shelf.output(honest, "tokens", digest, size))


@pytest.fixture
def token_folder() -> Callable[[Path, list[np.ndarray]], None]:
    """Both splits of these documents, by Levanter's own writer."""
    from marin.training.tokens.building import write_cache

    def make(folder: Path, documents: list[np.ndarray]) -> None:
        for split in ("train", "validation"):
            write_cache(folder / split, iter(documents))

    return make


@pytest.mark.parametrize("rows", ["-1", "99999999999999", '"3"', "null", "true"])
def test_a_cache_that_lies_about_its_size_is_refused(
    tmp_path: Path, token_folder: Callable[[Path, list[np.ndarray]], None], rows: str
) -> None:
    token_folder(tmp_path, [np.arange(5, dtype=np.int32)])
    ledger = tmp_path / "train" / "shard_ledger.json"
    ledger.write_text(ledger.read_text().replace('"total_num_rows": 1', f'"total_num_rows": {rows}'))
    with pytest.raises(DataError):
        cache_content(tmp_path / "train")


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FINITE, FINITE, st.binary(min_size=16, max_size=16)), min_size=1, max_size=5), st.data())
def test_a_changed_loss_norm_or_trace_has_another_fingerprint(
    steps: list[tuple[float, float, bytes]], data: st.DataObject
) -> None:
    losses, norms, rows = (list(column) for column in zip(*steps, strict=True))
    digest = "sha256:" + "0" * 64
    segment = TrainSegment(
        run="r",
        start=4,
        end=4 + len(steps),
        losses=[loss.hex() for loss in losses],
        batches=["b"] * len(steps),
        fingerprints=[step_fingerprint(*step) for step in steps],
        start_state=digest,
        end_state=digest,
        trace=digest,
    )
    known = {4 + i: norm.hex() for i, norm in enumerate(norms)}
    assert underivable_steps(segment, known, b"".join(rows)) == []
    at = data.draw(st.integers(0, len(steps) - 1))
    other = struct.unpack("<f", bytes([struct.pack("<f", losses[at])[0] ^ 1]) + struct.pack("<f", losses[at])[1:])[0]
    changed = [*segment.losses[:at], other.hex(), *segment.losses[at + 1 :]]
    (found,) = underivable_steps(msgspec.structs.replace(segment, losses=changed), known, b"".join(rows))
    assert found.step == 4 + at
    rows[at] = bytes([rows[at][0] ^ 1]) + rows[at][1:]
    (found,) = underivable_steps(segment, known, b"".join(rows))
    assert found.step == 4 + at
    assert underivable_steps(msgspec.structs.replace(segment, losses=changed), {}, b"".join(rows)) == [], (
        "nothing to go by"
    )


def test_an_output_that_is_not_here(shelf: Shelf) -> None:
    output = shelf.output(shelf.files("model", **MODEL), "model")
    gone = "sha256:" + "9" * 64
    with pytest.raises(LedgerError, match="no such artifact"):
        shelf.taken(msgspec.structs.replace(output, digest=gone, artifact=gone))


def test_a_tiny_state_is_read_as_the_executor_stores_it(tiny: ModuleType, shelf: Shelf) -> None:
    folder = shelf.base / "made"
    folder.mkdir()
    digest = tiny.as_state("SOME TEXT", folder)
    taken = shelf.taken(shelf.output(folder, "state", digest, len("SOME TEXT")), kind="state")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert files and files == sorted(path.relative_to(taken) for path in taken.rglob("*") if path.is_file())
    assert all((taken / name).read_bytes() == (folder / name).read_bytes() for name in files)
