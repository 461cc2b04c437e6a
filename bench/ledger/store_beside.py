"""The store beside DVC and restic, each by its own command, in one run: what each takes by the clock, of a processor, and
in memory.

    python -m bench.ledger.store_beside [--size-mib 1024] [--files 20000] [--rounds 3] [--only large,small] [--put-only]
                                        [--restic PROGRAM] [--folder DIR] [--json]

Whole commands are compared, from the start of the process to its end, by turns, on files that were written just before
(so they are in the page cache). DVC has its own defaults and no Git; restic a repository of its own on the same disk, of
version 2, with a password in its environment. In each round: put, put again after one file in a hundred was changed (of
one large file a hundredth of its bytes, in one piece), verify (`marin store verify --all`, `restic check --read-data`; DVC
has no command that hashes all that it keeps), collect what only the first put needs (`marin store gc --min-age 0`, which sets
it aside, `dvc gc -w`, `restic forget --prune`), and get into an empty folder. What is printed are medians, and the highest peak.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.ledger.store_put import copy_synced, hash_serial, hash_threads, timed
from ledger import Store, open_storage

MIB = 1024 * 1024
BIN = Path(sys.executable).parent
MEMORY = Path("/dev/shm")  # noqa: S108 - where memory is
"""With `--folder` in it no disk is measured."""


@dataclass(frozen=True)
class Cost:
    """What one command took: seconds by the clock, seconds of a processor, and MB of memory at its peak."""

    seconds: float
    processor: float
    peak: int


_STARTED = """
import json, os, subprocess, sys, time
begun = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
took = time.perf_counter() - begun
print(json.dumps([took, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024]))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Starts a command from a small process: of a child's memory its parent's counts until it is another program."""


def called(command: list[str | Path], folder: Path, variables: Mapping[str, str]) -> Cost:
    """Call it in ``folder``; what it cost.

    Raises:
        SystemExit: it failed.
    """
    started = [sys.executable, "-ISc", _STARTED, *command]
    done = subprocess.run(started, cwd=folder, env={**os.environ, **variables}, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: exit status {done.returncode}: {done.stderr.decode()[-2000:]}")
    return Cost(*json.loads(done.stdout))


class Marin:
    """A root of its own."""

    name = "marin"

    def __init__(self, folder: Path, restic: str) -> None:
        folder.mkdir()
        self.folder, self.digest = folder, ""
        homes = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("config", "state", "cache")}
        self.variables = {"MARIN_ROOT": str(folder / "root"), **homes}
        self._call("init")

    def _call(self, *arguments: str) -> Cost:
        return called([BIN / "marin", "-q", *arguments], self.folder, self.variables)

    def put(self, path: Path) -> Cost:
        cost = self._call("store", "put", str(path))
        store = Store(open_storage(self.folder / "root"))
        self.digest = (store.put_tree(path) if path.is_dir() else store.put_file(path)).digest
        return cost

    def verify(self) -> Cost:
        return self._call("store", "verify", "--all")

    def collect(self) -> Cost:
        self._call("store", "pin", self.digest)
        return self._call("store", "gc", "--min-age", "0")

    def get(self, path: Path) -> Cost:
        return self._call("store", "get", self.digest, str(self.folder / "out"))


class Dvc:
    """A project of its own, into which what is added is moved first."""

    name = "DVC"

    def __init__(self, folder: Path, restic: str) -> None:
        folder.mkdir()
        self.folder, self.variables = folder, {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(folder / "site")}
        self._call("init", "--no-scm", "-q")
        self._call("config", "core.check_update", "false")

    def _call(self, *arguments: str) -> Cost:
        return called([BIN / "dvc", *arguments], self.folder, self.variables)

    def put(self, path: Path) -> Cost:
        here = self.folder / path.name
        if here.is_dir():
            shutil.rmtree(here)
        here.unlink(missing_ok=True)
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, here)
        settle(path)
        return self._call("add", path.name)

    def verify(self) -> None:
        """It has no command that hashes what it keeps."""

    def collect(self) -> Cost:
        return self._call("gc", "-w", "-f")

    def get(self, path: Path) -> Cost:
        here = self.folder / path.name
        if here.is_dir():
            shutil.rmtree(here)
        here.unlink(missing_ok=True)
        settle(path)
        return self._call("checkout", f"{path.name}.dvc")


class Restic:
    """A repository of its own."""

    name = "restic"

    def __init__(self, folder: Path, restic: str) -> None:
        folder.mkdir()
        self.folder, self.program = folder, restic
        self.variables = {
            "RESTIC_REPOSITORY": str(folder / "repository"),
            "RESTIC_PASSWORD": "of a bench",
            "RESTIC_CACHE_DIR": str(folder / "cache"),
        }
        self._call("init", "--repository-version", "2")

    def _call(self, *arguments: str) -> Cost:
        return called([self.program, "--quiet", *arguments], self.folder, self.variables)

    def put(self, path: Path) -> Cost:
        return self._call("backup", str(path))

    def verify(self) -> Cost:
        return self._call("check", "--read-data")

    def collect(self) -> Cost:
        return self._call("forget", "--keep-last", "1", "--prune", "--max-unused", "0")

    def get(self, path: Path) -> Cost:
        return self._call("restore", "latest", "--target", str(self.folder / "out"))


def settle(path: Path) -> None:
    """Begin even: what was written is on the disk, where there is one, and nothing is younger than the stat cache takes."""
    if MEMORY not in path.resolve().parents:
        os.sync()
    time.sleep(3)


def write_large(base: Path, mib: int) -> Path:
    path = base / "large"
    with open(path, "wb") as stream:
        for _ in range(mib // 16):
            stream.write(os.urandom(16 * MIB))  # all of it other bytes: restic keeps a piece once
        os.fsync(stream.fileno())
    return path


def change_large(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as stream:
        stream.seek(size // 2)
        stream.write(os.urandom(size // 100))


def write_small(base: Path, count: int) -> Path:
    folder = base / "small"
    for index in range(count):
        (folder / f"{index % 100:02d}").mkdir(parents=True, exist_ok=True)
        (folder / f"{index % 100:02d}" / f"{index}.bin").write_bytes(os.urandom(4096))
    return folder


def change_small(path: Path) -> None:
    for file in sorted(path.rglob("*.bin"))[::100]:
        file.write_bytes(os.urandom(4096))


def measured(
    base: Path, what: str, path: Path, change: Callable[[Path], None], restic: str, first: int, put_only: bool
) -> dict[str, dict[str, Cost]]:
    """One round: what each operation cost each of them. ``first`` begins."""
    order: list[type[Marin | Dvc | Restic]] = [Marin, Dvc, *([Restic] if restic else [])]
    order = order[first % len(order) :] + order[: first % len(order)]
    kept: list[Marin | Dvc | Restic] = [tool(base / tool.name, restic) for tool in order]
    found: dict[str, dict[str, Cost]] = {}

    def note(operation: str, tool: str, work: Callable[[], Cost | None]) -> None:
        settle(path)
        cost = work()
        if cost is not None:
            found.setdefault(operation, {})[tool] = cost

    for tool in kept:
        note("put", tool.name, partial(tool.put, path))
    if not put_only:
        change(path)
        for tool in kept:
            note("put again, a hundredth changed", tool.name, partial(tool.put, path))
        for tool in kept:
            note("verify", tool.name, tool.verify)
        for tool in kept:
            note("collect", tool.name, tool.collect)
        for tool in kept:
            note("get", tool.name, partial(tool.get, path))
    for tool in kept:
        shutil.rmtree(tool.folder)
    sys.stderr.write(
        f"{what}: { ({o: {t: round(c.seconds, 2) for t, c in costs.items()} for o, costs in found.items()}) }\n"
    )
    return found


KINDS: dict[str, tuple[Callable[[Path, int], Path], Callable[[Path], None]]] = {
    "large": (write_large, change_large),
    "small": (write_small, change_small),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="large,small", help="which, with commas")
    parser.add_argument(
        "--restic", default=shutil.which("restic") or "", help="the program; without one, beside DVC alone"
    )
    parser.add_argument("--put-only", action="store_true", help="no more than the first put of each round")
    parser.add_argument("--folder", type=Path, help="where to work; default: the folder for temporary files")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for what in asked.only.split(","):
        write, change = KINDS[what]
        rounds = []
        for number in range(asked.rounds):
            with tempfile.TemporaryDirectory(prefix="store-beside-", dir=asked.folder) as folder:
                base = Path(folder)
                path = write(base, asked.size_mib if what == "large" else asked.files)
                if what == "large" and not number:
                    settle(path)
                    limits(path)
                rounds.append(measured(base, what, path, change, asked.restic, number, asked.put_only))
        for operation in rounds[0]:
            for tool in rounds[0][operation]:
                costs = [one[operation][tool] for one in rounds]
                show(what, operation, tool, costs, asked.json)


def limits(path: Path) -> None:
    """What the machine does with the same bytes, and nothing else."""
    mib = path.stat().st_size / MIB
    for name, work in (
        ("sha256, one thread", lambda: hash_serial(path)),
        ("sha256, two threads", lambda: hash_threads(path)),
        ("copied and synced", lambda: copy_synced(path, path.with_name("copy"))),
    ):
        took = timed(work)
        sys.stdout.write(f"{name:24} {took:8.2f} s   {mib / took:.0f} MiB/s\n")
    path.with_name("copy").unlink()


def show(what: str, operation: str, tool: str, costs: list[Cost], as_json: bool) -> None:
    middle = Cost(
        statistics.median(one.seconds for one in costs),
        statistics.median(one.processor for one in costs),
        max(one.peak for one in costs),
    )
    if as_json:
        line = json.dumps({"what": what, "operation": operation, "tool": tool, "median": asdict(middle)})
    else:
        times = f"{middle.seconds:8.2f} s {middle.processor:8.2f} s of a processor"
        line = f"{what:6} {operation:32} {tool:7} {times} {middle.peak:6} MB"
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
