"""How fast the record is: appends, puts, digests of tensors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, best_seconds, seconds
from ledger import Draft, Log, Signer, Storage, Store, create_key, open_storage, tensor_digest

MEGABYTE = 1 << 20


def measure() -> Iterator[Figure]:
    """Rates of the ledger and of the store."""
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as folder:
        storage = open_storage(folder)
        signer = create_key(Path(folder) / "key", "bench.local/log")
        Log.create(storage, signer)
        yield from _appends(storage, signer)
        yield from _puts(storage, Path(folder))
    yield from _digests()


def _appends(storage: Storage, signer: Signer) -> Iterator[Figure]:
    for size, batches in ((1, 100), (1000, 10)):
        with Log.open(storage, signer) as log:
            def append(log: Log = log, size: int = size, batches: int = batches) -> None:
                for _ in range(batches):
                    log.append([Draft("bench.event/v1", "bench", {"n": n}) for n in range(size)])

            yield Figure(f"durable events, {size} an append", size * batches / seconds(append), "events/s")


def _puts(storage: Storage, folder: Path) -> Iterator[Figure]:
    store, file = Store(storage), folder / "large"
    file.write_bytes(os.urandom(256 * MEGABYTE))
    taken = seconds(lambda: store.put_file(file))
    yield Figure("put a file of 256 MiB, hashed and durable", 256 * MEGABYTE / taken / 1e9, "GB/s")
    digest = store.put_file(file).digest
    yield Figure("verify it", 256 * MEGABYTE / seconds(lambda: store.verify(digest)) / 1e9, "GB/s")
    small = folder / "small"
    small.mkdir()
    for n in range(2000):
        (small / f"{n}.txt").write_text(f"file {n}\n" * 50)
    yield Figure("put a folder of 2,000 small files", 2000 / seconds(lambda: store.put_tree(small)), "files/s")


def _digests() -> Iterator[Figure]:
    import numpy as np

    array = np.random.default_rng(0).standard_normal(64 * MEGABYTE, dtype=np.float32)
    yield Figure("digest of a tensor of 256 MiB", array.nbytes / best_seconds(lambda: tensor_digest(array), rounds=3) / 1e9,
                 "GB/s")
