"""How fast the artifact store is, beside plain sha256 and beside DVC, in one run on one machine.

    python -m bench.ledger.store_put [--size-mib 1024] [--files 20000] [--many 100000] [--only large,small,many,state]
                              [--without-dvc] [--folder DIR] [--json]

Absolute times move with the machine; the ratios are what bench/RESULTS.md quotes. Every figure is taken once on files
written just before (so they are in the page cache, as after a step has produced them); the folder and everything in it
is removed at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ledger import Store, describe_state, open_storage

MIB = 1024 * 1024
DVC = Path(sys.executable).with_name("dvc")


@dataclass(frozen=True)
class Figure:
    """One measured thing: how long it took, and how it stands to another."""

    what: str
    seconds: float
    ratio: str = ""


def settle() -> None:
    """Begin even: what was written before is on the disk, and nothing is younger than the stat cache takes."""
    os.sync()
    time.sleep(3)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def hash_serial(path: Path) -> None:
    hasher = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(8 * MIB):
            hasher.update(chunk)


def hash_threads(path: Path, threads: int = 2) -> None:
    """The machine's rate for hashing with two threads: each takes a half of the file."""
    size = path.stat().st_size

    def part(index: int) -> None:
        hasher, buffer = hashlib.sha256(), memoryview(bytearray(MIB // 4))  # of the sizes that were tried the fastest
        with open(path, "rb", buffering=0) as stream:
            stream.seek(index * size // threads)
            left = size // threads
            while left and (count := stream.readinto(buffer[: min(len(buffer), left)])):
                hasher.update(buffer[:count])
                left -= count

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, range(threads)))


def copy_synced(path: Path, target: Path) -> None:
    """The disk's limit for a copy: the bytes read, written and synced, and nothing else."""
    shutil.copyfile(path, target)
    with open(target, "rb") as stream:
        os.fsync(stream.fileno())


def plain_processes(tree: Path, target: Path, *, link: bool, processes: int = 2) -> None:
    """The file system's limit for a put: each file read, hashed, and linked or written under its hash; nothing is
    synced, renamed or listed."""
    folders = sorted(tree.iterdir())
    for byte in range(256):
        (target / f"{byte:02x}").mkdir(parents=True)

    def work(part: int) -> None:
        for folder in folders[part::processes]:
            for entry in os.scandir(folder):
                descriptor = os.open(entry.path, os.O_RDONLY)
                data = os.read(descriptor, 4096)
                os.close(descriptor)
                digest = hashlib.sha256(data).hexdigest()
                name = f"{target}/{digest[:2]}/{digest[2:]}"
                if link:
                    os.link(entry.path, name)
                    continue
                descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
                os.write(descriptor, data)
                os.close(descriptor)

    in_processes(work, processes)


def plain_writes(tree: Path, target: Path, *, processes: int = 2) -> None:
    """The file system's limit for a checkout: as many files of that size written from memory, in as many folders."""
    folders = sorted(tree.iterdir())
    for folder in folders:
        (target / folder.name).mkdir(parents=True)
    data = b"x" * 1020

    def work(part: int) -> None:
        for folder in folders[part::processes]:
            for name in os.listdir(folder):
                descriptor = os.open(f"{target}/{folder.name}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                os.write(descriptor, data)
                os.close(descriptor)

    in_processes(work, processes)


def in_processes(work: Callable[[int], None], processes: int) -> None:
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=work, args=(part,)) for part in range(processes)]
    for process in running:
        process.start()
    for process in running:
        process.join()


class Dvc:
    """A DVC project beside the store, with DVC's own defaults (reflink where there is one, else copy)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.run("init", "--no-scm", "-q")
        self.run("config", "core.analytics", "false")
        self.run("config", "core.check_update", "false")

    def run(self, *arguments: str) -> None:
        subprocess.run(
            [DVC, *arguments], cwd=self.folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )


def large_file(base: Path, mib: int, dvc: Dvc | None) -> list[Figure]:
    path = base / "large"
    block = os.urandom(16 * MIB)
    with open(path, "wb") as stream:
        for index in range(mib // 16):
            stream.write(index.to_bytes(8) + block[8:])
        os.fsync(stream.fileno())
    settle()
    one, two = timed(lambda: hash_serial(path)), timed(lambda: hash_threads(path))
    disk = timed(lambda: copy_synced(path, base / "large-copy"))
    (base / "large-copy").unlink()
    settle()
    store = Store(open_storage(base / "large-root"))
    copied = timed(lambda: store.put_file(path))
    settle()
    linking = Store(open_storage(base / "large-link"))
    linked = timed(lambda: linking.put_file(path, link=True))
    digest = linking.put_file(path, link=True).digest
    verified = timed(lambda: linking.verify(digest))
    out = timed(lambda: store.checkout(digest, base / "large-out"))
    ranged = timed(lambda: store.open_range(digest, mib * MIB // 2, 4096))
    figures = [
        Figure(f"sha256 of {mib} MiB, one thread", one, f"{mib / 1024 / one:.2f} GiB/s"),
        Figure("sha256, two threads", two, f"{mib / 1024 / two:.2f} GiB/s"),
        Figure("put, linked", linked, f"{two / linked:.2f} of two threads"),
        Figure("the bytes copied and synced, not hashed", disk, f"{mib / 1024 / disk:.2f} GiB/s"),
        Figure("put, copied and synced", copied, f"{disk / copied:.2f} of the copy alone"),
        Figure("verify", verified, f"{two / verified:.2f} of two threads"),
        Figure("checkout, hard link or reflink, verified", out, f"{two / out:.2f} of two threads"),
        Figure("verified range of 4 KiB", ranged),
    ]
    shutil.rmtree(base / "large-root")  # in memory the copies would not have room beside each other
    shutil.rmtree(base / "large-link")
    (base / "large-out").unlink()
    if dvc is not None:
        path.chmod(0o644)
        path.rename(dvc.folder / "large")
        settle()
        added = timed(lambda: dvc.run("add", "large"))
        figures.append(
            Figure("dvc add", added, f"put linked {added / linked:.1f}x, copied {added / copied:.1f}x faster")
        )
        shutil.rmtree(dvc.folder / ".dvc" / "cache")
        (dvc.folder / "large").unlink()
    return figures


def small_files(base: Path, count: int, dvc: Dvc | None) -> list[Figure]:
    write_tree(base / "tree", count)
    settle()
    store = Store(open_storage(base / "tree-root"))
    put = timed(lambda: store.put_tree(base / "tree"))
    digest = store.put_tree(base / "tree").digest
    shutil.copytree(base / "tree", base / "tree-shared")
    settle()
    linked = timed(lambda: Store(open_storage(base / "tree-link")).put_tree(base / "tree-shared", link=True))
    settle()
    links = timed(lambda: plain_processes(base / "tree", base / "plain-links", link=True))
    settle()
    copies = timed(lambda: plain_processes(base / "tree", base / "plain-copies", link=False))
    settle()
    out = timed(lambda: store.checkout(digest, base / "tree-out"))
    again = timed(lambda: store.checkout(digest, base / "tree-out"))
    settle()
    copied = timed(lambda: store.checkout(digest, base / "tree-copy", how="copy"))
    verified = timed(lambda: store.verify(digest))
    settle()
    written = timed(lambda: plain_writes(base / "tree", base / "plain-writes"))
    figures = [
        Figure(f"put of {count} files of 1 KB", put, f"{count / put:.0f} files/s"),
        Figure("put of them, linked", linked, f"{count / linked:.0f} files/s"),
        Figure("hashed and copied by two plain processes", copies, f"{copies / put:.2f} of the put"),
        Figure("hashed and linked by two plain processes", links, f"{links / linked:.2f} of the put"),
        Figure("checkout", out, f"{count / out:.0f} files/s"),
        Figure("checkout again, nothing to do", again),
        Figure("checkout, copies", copied, f"{count / copied:.0f} files/s"),
        Figure("as many written by two plain processes", written, f"{written / copied:.2f} of the checkout"),
        Figure("verify", verified, f"{count / verified:.0f} files/s"),
    ]
    if dvc is not None:
        shutil.copytree(base / "tree", dvc.folder / "tree")
        settle()
        added = timed(lambda: dvc.run("add", "tree"))
        shutil.rmtree(dvc.folder / "tree")
        settle()
        checked = timed(lambda: dvc.run("checkout", "tree.dvc"))
        figures.append(Figure("dvc add", added, f"put {added / put:.1f}x, linked {added / linked:.1f}x faster"))
        figures.append(
            Figure("dvc checkout", checked, f"checkout {checked / out:.1f}x faster, copies {checked / copied:.1f}x")
        )
    return figures


def unchanged_files(base: Path, count: int) -> list[Figure]:
    write_tree(base / "many", count)
    store = Store(open_storage(base / "many-root"))
    settle()
    first = timed(lambda: store.put_tree(base / "many"))
    second = timed(lambda: store.put_tree(base / "many"))
    return [
        Figure(f"put of {count} files of 1 KB", first, f"{count / first:.0f} files/s"),
        Figure("put again, nothing changed", second, f"{first / second:.1f}x faster"),
    ]


def state_in_memory(mib: int) -> list[Figure]:
    rng = np.random.default_rng(0)
    arrays = {f"layer/{index}": rng.integers(0, 2**32, 16 * MIB // 4, dtype=np.uint32) for index in range(mib // 16)}

    def both() -> None:
        def half(index: int) -> None:
            hasher = hashlib.sha256()
            for array in list(arrays.values())[index::2]:
                hasher.update(memoryview(array).cast("B"))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(half, range(2)))

    plain = timed(both)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = timed(lambda: describe_state(arrays))
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return [
        Figure(f"sha256 of {mib} MiB in memory, two threads", plain, f"{mib / 1024 / plain:.2f} GiB/s"),
        Figure(
            "digest of it as a state", state, f"{plain / state:.2f} of two threads, {more:.1f} MiB of memory above it"
        ),
    ]


def write_tree(folder: Path, count: int) -> None:
    for index in range(count):
        path = folder / f"{index % 100:02d}"
        if index < 100:
            path.mkdir(parents=True)
        (path / f"{index}.txt").write_bytes(f"{index}:".encode() + b"x" * 1016)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--only", default="large,small,many,state", help="which parts, with commas")
    parser.add_argument("--folder", type=Path, help="where to work; default: the folder for temporary files")
    parser.add_argument("--without-dvc", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="store-bench-", dir=options.folder))
    try:
        dvc = None if options.without_dvc else Dvc(base / "dvc")
        parts: dict[str, Callable[[], list[Figure]]] = {
            "large": lambda: large_file(base, options.size_mib, dvc),
            "small": lambda: small_files(base, options.files, dvc),
            "many": lambda: unchanged_files(base, options.many),
            "state": lambda: state_in_memory(min(1024, options.size_mib)),
        }
        for part in options.only.split(","):
            for figure in parts[part]():
                show(figure, options.json)
    finally:
        shutil.rmtree(base)


def show(figure: Figure, as_json: bool) -> None:
    line = json.dumps(asdict(figure)) if as_json else f"{figure.what:48} {figure.seconds:8.3f} s   {figure.ratio}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
