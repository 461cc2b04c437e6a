"""What a large state costs: memory while it is made, trained, saved and loaded, and how near disk and sha256 come to it.

    python -m bench.training.state MODEL... [--devices 2] [--steps 2] [--folder DIR]

MODEL are words of `marin train` (`model=llama-135m arithmetic.gather=layer`). In one process, as a training does it: the
initial state, train steps, a save into a store below DIR, and that state read back and proven. Of each the seconds by the
clock and the most memory that the process had (VmHWM). Beside them, on the same disk and the same bytes: written and
synced, read, hashed once by every processor; files leave the page cache before they are read. A save hashes what it
writes as a file and as tensors, and so does a load.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.figure import Figure, seconds
from bench.training.train_step import VOCABULARY, numbers
from marin.process import interpreter
from marin.process.arithmetic import apply
from marin.recipe.composition import compose
from marin.recipe.schema import Execution

CHUNK = 1 << 24


def most_memory() -> int:
    """Bytes that this process had at most since it was asked last."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def measured(what: str, call: Callable[[], object], size: int) -> Iterator[Figure]:
    """How long ``call`` takes, how many of ``size`` bytes that is a second, what the system did meanwhile (of it and of
    all threads: giving memory, moving files), and its memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_stime
    took = seconds(call)
    yield Figure(what, took, "s")
    yield Figure(f"  {what}: in the system", resource.getrusage(resource.RUSAGE_SELF).ru_stime - before, "s")
    if size:
        yield Figure(f"  {what}", size / took / 1e9, "GB/s")
    yield Figure(f"  {what}: most memory", most_memory() / 2**30, "GiB")


def written(path: Path, size: int) -> None:
    """``size`` bytes that no disk can compress, on the disk."""
    chunk = os.urandom(CHUNK)
    with path.open("wb") as file:
        for start in range(0, size, CHUNK):
            file.write(chunk[: size - start])
        file.flush()
        os.fsync(file.fileno())


def forgotten(folder: Path) -> None:
    """Nothing of the files below ``folder`` is in the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> None:
    """Every byte of a file."""
    with path.open("rb") as file:
        while file.read(CHUNK):
            pass


def hashed(size: int) -> None:
    """``size`` bytes by sha256, by as many threads as there are processors."""
    chunk, count = memoryview(bytes(CHUNK)), os.cpu_count() or 1

    def share(number: int) -> int:
        digest, first, last = hashlib.sha256(), size * number // count, size * (number + 1) // count
        for start in range(first, last, CHUNK):
            digest.update(chunk[: last - start])
        return last - first

    with ThreadPoolExecutor(count) as pool:
        assert sum(pool.map(share, range(count))) == size, "what is divided by the time"


def measure(words: list[str], devices: int, steps: int, base: Path) -> Iterator[Figure]:
    """Everything, in the order in which a training does it."""
    recipe = compose(words).recipe
    apply(recipe.arithmetic, Execution(devices=devices))
    import jax

    from ledger import Store, open_storage
    from marin.training.checkpoints.loading import load_slices
    from marin.training.checkpoints.saving import Saved, Saver
    from marin.training.initial import initial_slices
    from marin.training.loop import step_of, training_mesh
    from marin.training.runtime.compilation import give_back_memory
    from marin.training.state import state_like
    from marin.training.step.slices import SlicedState

    train = step_of(recipe, training_mesh(recipe, Execution(devices=devices)), state_like(recipe, VOCABULARY))
    layout, sharding = train.layout, train.by_slice
    yield Figure("parameters", sum(x.size for x in jax.tree.leaves(layout.named)), "")
    yield Figure("compiled: most memory", most_memory() / 2**30, "GiB")
    last: list[SlicedState] = []  # one at a time, and none beside it

    def made() -> None:
        last.append(initial_slices(recipe, VOCABULARY, layout, sharding))
        give_back_memory()

    yield from measured("initial state", made, 0)
    batch = [train.batch(values) for values in numbers(recipe, VOCABULARY)]

    def trained() -> None:
        for _ in range(steps):
            state, _ = train.run(last.pop(), batch[0], batch[1])
            jax.block_until_ready((state.params, state.moments))
            last.append(state)

    yield from measured(f"{steps} train steps", trained, 0)
    size = sum(run.nbytes for runs in layout.held(last[0]).values() for run in runs.values())
    yield Figure("state", size / 1e9, "GB")
    store, found = Store(open_storage(base / "store")), list[Saved]()

    def saved() -> None:
        with Saver(store, layout, base / "work") as saver:
            saver.save(last[0], found.append)
            saver.settle(wait=True)

    yield from measured("saved", saved, size)
    tree, digest = found[0].artifact.digest, found[0].manifest.digest
    last.clear()
    forgotten(base)
    yield from measured(
        "loaded and proven",
        lambda: load_slices((store, tree), layout, sharding, recipe, VOCABULARY, digest, where="bench"),
        size,
    )
    yield from measured("written and synced", lambda: written(base / "beside", size), size)
    forgotten(base)
    yield from measured("read", lambda: read(base / "beside"), size)
    yield from measured("hashed once", lambda: hashed(size), size)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.training.state", description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="+", metavar="MODEL")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the store is made, and removed afterwards; a real disk")
    options = parser.parse_args()
    interpreter.begin_again(["train"])  # as `marin train` does
    logging.basicConfig(level=logging.WARNING)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="marin-state-", dir=options.folder) as base:
        for figure in measure(options.words, options.devices, options.steps, Path(base)):
            sys.stdout.write(f"{figure}\n")
            sys.stdout.flush()
    sys.stderr.write(f"{time.perf_counter() - began:.0f} s in all\n")


if __name__ == "__main__":
    main()
