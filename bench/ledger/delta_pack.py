"""Bytes of a training run's consecutive checkpoints: as Levanter writes them, plain, by zstd, and packed.

    python -m bench.ledger.delta_pack [--root R] [--run RUN] [--json]

Takes the checkpoints of a run that the root has (`dvc repro` or `marin train` made it), reads each as tensors, and
keeps them in a store of its own, which is removed at the end. Every packed state is read back and its digest compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tensorstore
import zstandard

from ledger import PosixStorage, StateManifest, Store, describe_state, load_slices, packed_size, put_slices
from ledger.store.packs.packing import ZSTD_LEVEL
from marin.history.runs import load, resolve
from marin.record.root import open_root


@dataclass(frozen=True)
class Row:
    """One checkpoint: bytes in each form, and seconds to pack and to read back."""

    step: int
    levanter: int
    plain: int
    zstd: int
    planes: int
    packed: int
    put_seconds: float
    read_seconds: float


def read_checkpoint(folder: Path, manifest: StateManifest) -> dict[str, np.ndarray]:
    """The tensors of a Levanter checkpoint (zarr3 in OCDBT), each by its path, by TensorStore alone."""
    arrays = {}
    for tensor in manifest.tensors:
        store = {"driver": "ocdbt", "base": f"file://{folder}/", "path": f"{tensor.path}/"}
        arrays[tensor.path] = tensorstore.open({"driver": "zarr3", "kvstore": store}).result().read().result()
    return arrays


def measure(root: str | None, run: str) -> Iterator[Row]:
    opened = open_root(root)
    history = opened.history()
    view = load(history, resolve(history, run))
    with tempfile.TemporaryDirectory() as private:
        base = Path(private)
        store = Store(PosixStorage(base / "packed"))
        previous: str | None = None
        for fact in view.checkpoints:
            saved = fact.body
            folder = base / f"{saved.step}"
            opened.store().checkout(saved.artifact, folder)
            manifest = StateManifest.parse(opened.store().read(saved.manifest))
            arrays = read_checkpoint(folder, manifest)
            assert describe_state(arrays).digest == saved.state, "the files hold the state that the ledger names"
            files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
            started = time.perf_counter()
            tree = put_slices(store, arrays, pack=True, base=previous).digest
            put_seconds = time.perf_counter() - started
            started = time.perf_counter()
            back = load_slices(store, tree)
            read_seconds = time.perf_counter() - started
            assert describe_state(back).digest == manifest.digest, "packed and read back, a state is the same bits"
            alone = Store(PosixStorage(base / f"alone-{saved.step}"))
            zstd = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
            yield Row(
                saved.step,
                sum(files),
                sum(array.nbytes for array in arrays.values()),
                sum(len(zstd.compress(array.tobytes())) for array in arrays.values()),
                packed_size(alone, put_slices(alone, arrays, pack=True).digest),
                packed_size(store, tree),
                put_seconds,
                read_seconds,
            )
            previous = tree


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ledger.delta_pack", description=__doc__)
    parser.add_argument("--root")
    parser.add_argument("--run", default="latest")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    for row in measure(options.root, options.run):
        if options.json:
            line = json.dumps(asdict(row))
        else:
            line = (
                f"step {row.step:>6}  Levanter {row.levanter:>10}  plain {row.plain:>10}  zstd {row.zstd / row.plain:.3f}  "
                f"planes {row.planes / row.plain:.3f}  packed {row.packed / row.plain:.3f}  "
                f"put {row.put_seconds:.2f} s  read {row.read_seconds:.2f} s"
            )
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
