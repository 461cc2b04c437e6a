"""How fast the log is, beside what the same disk can do at all, in one run.

    python -m bench.ledger.append [--events 100000] [--folder DIR] [--keep DIR] [--json]

The raw limit is a plain file that gets the same bytes in the same batches, each followed by fdatasync; the neighbour is
SQLite (WAL, synchronous FULL). Batches of ours and of the raw file alternate, so that a disk that slows down
slows both. Absolute times move with the machine: the ratios are what to quote.

A disk whose fdatasync takes a tenth of a millisecond hides what group commit is for. So the clients are measured a
second time with 4 ms added to every sync, ours and the plain file's alike, as a disk has that really waits for its
medium. Both times also at an offered load of 10,000 events a second: the share is then what the plain file needs for
the same commits of the time for which the log was at work.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.figure import Figure, seconds
from ledger import (
    Draft,
    LedgerError,
    Log,
    LogCheckpoint,
    LogClient,
    LogReader,
    LogService,
    PosixStorage,
    Projection,
    Receipt,
    Signer,
    check,
)
from ledger.log.batch import Entered

SIGNER = Signer("bench.example/log", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
BODY = {"digest": "sha256:" + "0" * 64, "loss": "0x1.8p+1", "note": "x" * 40}
"""Makes an entry of about 350 bytes."""
SINGLES = 400
BATCH = 1000
BATCHES = 20
CLIENTS = 8
CLIENT_EVENTS = 6_400
CLIENT_BATCHES = (1, 32, 50)
"""Events in one request of a client."""
SLOW_SYNC_SECONDS = 0.004
OFFERED, OFFERED_BATCH = 10_000, 32
"""Events a second that all clients together offer, in requests of so many."""


def drafts(start: int, count: int) -> list[Draft]:
    return [
        Draft("bench.made/v1", "bench/1", {**BODY, "step": n}, id=f"bench-event-{n:012d}", actor="bench@example")
        for n in range(start, start + count)
    ]


class RawFile:
    """The limit: the same bytes, written and synced."""

    def __init__(self, path: Path, slower: float = 0.0) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        self._slower = slower

    def append(self, data: bytes) -> None:
        os.write(self._descriptor, data)
        os.fdatasync(self._descriptor)
        if self._slower:
            time.sleep(self._slower)


class Database:
    """The neighbour: one row for an event, one transaction for a batch."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE events (idx INTEGER PRIMARY KEY, id TEXT UNIQUE, entry BLOB)")

    def append(self, rows: list[tuple[str, bytes]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO events (id, entry) VALUES (?, ?)", rows)
        self._db.execute("COMMIT")


def measure(folder: Path, events: int, keep: Path | None = None, only: str | None = None) -> Iterator[Figure]:
    """Every figure, as it is measured, or those of one part."""
    if only in (None, "single"):
        entry = bytes(350)
        yield from _appends(folder / "singles", "one event at a time", 1, SINGLES, entry)
        yield from _appends(folder / "batches", f"batches of {BATCH}", BATCH, BATCHES, entry)
    if only in (None, "clients"):
        yield from _all_clients(folder)
    if only in (None, "large"):
        yield from _large(keep or folder / "large", events)


def _all_clients(folder: Path) -> Iterator[Figure]:
    for slower in (0.0, SLOW_SYNC_SECONDS):
        for batch in CLIENT_BATCHES:
            count = CLIENT_EVENTS // 8 if batch == 1 else CLIENT_EVENTS
            yield from _clients(folder / f"clients-{batch}-{slower}", batch, count, slower)
        yield from _clients(folder / f"offered-{slower}", OFFERED_BATCH, CLIENT_EVENTS, slower, OFFERED)


def _appends(folder: Path, name: str, batch: int, rounds: int, entry: bytes) -> Iterator[Figure]:
    folder.mkdir()
    storage = PosixStorage(folder / "root")
    Log.create(storage, SIGNER)
    raw, database = RawFile(folder / "raw"), Database(folder / "sqlite")
    times: dict[str, list[float]] = {"ours": [], "raw": [], "sqlite": []}
    busy: dict[str, list[float]] = {who: [] for who in times}
    with Log.open(storage, SIGNER) as log:
        for number in range(rounds):
            made = drafts(number * batch, batch)
            rows = [(str(draft.id), entry) for draft in made]
            acts: list[tuple[str, Callable[[], object]]] = [
                ("ours", partial(log.append, made)),
                ("raw", partial(raw.append, entry * batch)),
                ("sqlite", partial(database.append, rows)),
            ]
            for who, act in acts[number % 3 :] + acts[: number % 3]:
                before = time.process_time()
                times[who].append(seconds(act))
                busy[who].append(time.process_time() - before)
        closing = seconds(log.close)
    ours = sum(times["ours"]) + closing
    yield Figure(f"{name}: events a second", rounds * batch / ours, "/s")
    yield Figure(f"{name}: median of an append", statistics.median(times["ours"]) * 1000, "ms")
    yield Figure(f"{name}: share of plain write+fdatasync (by medians)", _ratio(times, "raw"), "of 1")
    yield Figure(f"{name}: share of plain write+fdatasync (by totals)", sum(times["raw"]) / ours, "of 1")
    yield Figure(f"{name}: share of SQLite, WAL, FULL (by medians)", _ratio(times, "sqlite"), "of 1")
    for who, shown in (("ours", "an append"), ("raw", "plain write+fdatasync"), ("sqlite", "SQLite")):
        yield Figure(f"{name}: processor time of {shown}, median", statistics.median(busy[who]) * 1000, "ms")


class Disk(PosixStorage):
    """The same files, each sync of a commit slower by so much; notes how many events each commit took."""

    def __init__(self, root: Path, slower: float) -> None:
        super().__init__(root)
        self._slower = slower
        self.commits: list[int] = []

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        super().write_at(name, offset, data)
        if self._slower:
            time.sleep(self._slower)
        self.commits.append(int.from_bytes(data[16:20]))  # as SPEC.md has the head of a record


class Watched:
    """An open log that notes when it was at work: from the first look at a request to its acknowledgement."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._times: list[tuple[float, float]] = []

    @property
    def checkpoint(self) -> LogCheckpoint:
        return self._log.checkpoint

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        return self._log.append_each(requests)

    def enter(self, requests: Sequence[Sequence[Draft]]) -> WatchedRequests:
        started = time.perf_counter()
        return WatchedRequests(self._log.enter(requests), lambda: self._times.append((started, time.perf_counter())))

    def seconds(self) -> float:
        """How long anything was at work."""
        total, until = 0.0, 0.0
        for start, end in sorted(self._times):
            total += max(0.0, end - max(start, until))
            until = max(until, end)
        return total


class WatchedRequests:
    def __init__(self, entered: Entered, done: Callable[[], None]) -> None:
        self._entered, self._done = entered, done

    @property
    def waiting(self) -> int:
        return self._entered.waiting

    def outcomes(self) -> list[list[Receipt] | LedgerError]:
        found = self._entered.outcomes()
        self._done()
        return found


def client(
    number: int, count: int, batch: int, rate: float, endpoint: Path, gate: Barrier, answers: Queue[list[float]]
) -> None:
    """Append `count` events, `batch` at a time, and tell how long each request took.

    With a `rate`, in events a second, each request has its time, and is late from then on; else the next follows the
    answer to the one before.
    """
    made = drafts(number * count, count)
    requests = [made[at : at + batch] for at in range(0, count, batch)]
    delays = []
    gate.wait()
    began = time.perf_counter()
    with LogClient(endpoint) as connection:
        for turn, request in enumerate(requests):
            started = time.perf_counter()
            if rate:
                started = began + (turn + number / CLIENTS) * batch / rate
                time.sleep(max(0.0, started - time.perf_counter()))
            connection.append(request)
            delays.append(time.perf_counter() - started)
    answers.put(delays)


def _clients(folder: Path, batch: int, count: int, slower: float, offered: int = 0) -> Iterator[Figure]:
    """Eight processes, each with one request under way at any time, or together offering so many events a second."""
    folder.mkdir()
    storage, endpoint = Disk(folder / "root", slower), folder / "service.json"
    Log.create(storage, SIGNER)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    gate = spawn.Barrier(CLIENTS + 1)
    workers = [
        spawn.Process(target=client, args=(number, count, batch, offered / CLIENTS, endpoint, gate, answers))
        for number in range(CLIENTS)
    ]
    for worker in workers:
        worker.start()
    with Log.open(storage, SIGNER) as log:
        watched = Watched(log)
        with LogService(watched, endpoint):
            gate.wait()
            started, before = time.perf_counter(), time.process_time()
            delays = sorted(delay for _ in workers for delay in answers.get())
            spent, busy = time.perf_counter() - started, time.process_time() - before
            for worker in workers:
                worker.join()
    raw = RawFile(folder / "raw", slower)
    limit = sum(seconds(partial(raw.append, bytes(350 * size))) for size in storage.commits)
    total = CLIENTS * count
    disk = f", sync +{slower * 1000:.0f} ms" if slower else ""
    name = f"{CLIENTS} clients, {batch} event{'s' * (batch > 1)} a request{disk}"
    if offered:
        name += f", {offered:,} events/s offered"
    yield Figure(f"{name}: events a second", total / spent, "/s")
    yield Figure(f"{name}: events in a commit, mean", total / len(storage.commits), "")
    yield Figure(f"{name}: processor time of the service for an event", busy / total * 1e6, "us")
    yield Figure(f"{name}: p99 of an acknowledgement", delays[len(delays) * 99 // 100] * 1000, "ms")
    yield Figure(f"{name}: share of plain write+fdatasync", limit / (watched.seconds() if offered else spent), "of 1")


def _ratio(times: dict[str, list[float]], other: str) -> float:
    return statistics.median(times[other]) / statistics.median(times["ours"])


def _large(folder: Path, events: int) -> Iterator[Figure]:
    storage = PosixStorage(folder / "root")
    if not (folder / "root").exists():
        Log.create(storage, SIGNER)
        with Log.open(storage, SIGNER) as log:
            for start in range(0, events, BATCH):
                log.append(drafts(start, min(BATCH, events - start)))
    events = LogReader(storage, [SIGNER.verifier]).checkpoint().size
    size = f"a log of {events:,} events"
    yield Figure(f"{size}: opening it to append", seconds(lambda: Log.open(storage, SIGNER).close()), "s")
    keys = [SIGNER.verifier]
    proofs = []
    for number in range(50):
        reader = LogReader(storage, keys)
        reader.refresh()
        started = time.perf_counter()
        reader.inclusion_proof(number * events // 50)
        proofs.append(time.perf_counter() - started)
    yield Figure(f"{size}: an inclusion proof", statistics.median(proofs) * 1000, "ms")
    spent = seconds(lambda: sum(1 for _ in LogReader(storage, keys).events()))
    yield Figure(f"{size}: verified reads", events / spent, "/s")
    for workers in (1, 2):
        findings: list[object] = []
        spent = seconds(partial(_audit, storage, findings, workers))
        if findings:
            raise SystemExit(f"the audit of the benchmark's log has findings: {findings[0]}")
        yield Figure(f"{size}: audit, {workers} process{'es' * (workers > 1)}", events / spent, "/s")
    rebuilt = folder / "rebuilt.sqlite"
    rebuilt.unlink(missing_ok=True)
    with Projection(rebuilt, LogReader(storage, keys)) as projection:
        yield Figure(f"{size}: rebuilding the projection", events / seconds(projection.catch_up), "/s")
    acts = (
        ("reading it", _read),
        ("its audit", _audit_all),
        ("its projection", _project),
        ("appending to it", _append),
    )
    for what, act in acts:
        yield Figure(f"{size}: most memory of a process for {what}", _memory_of(act, folder), "MiB")


def _memory_of(act: Callable[[Path], object], folder: Path) -> float:
    """The most memory in MiB that a fresh process takes for `act`."""
    spawn = multiprocessing.get_context("spawn")
    answers: Queue[float] = spawn.Queue()
    process = spawn.Process(target=_measured, args=(act, folder, answers))
    process.start()
    found = answers.get()
    process.join()
    return found


def _measured(act: Callable[[Path], object], folder: Path, answers: Queue[float]) -> None:
    act(folder)
    # Not ru_maxrss, which a process has from the one that started it.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    answers.put(int(peak.split()[1]) / 1024)


def _read(folder: Path) -> None:
    for _ in LogReader(PosixStorage(folder / "root"), [SIGNER.verifier]).events():
        pass


def _audit_all(folder: Path) -> None:
    _audit(PosixStorage(folder / "root"), [], 1)


def _project(folder: Path) -> None:
    path = folder / "again.sqlite"
    with Projection(path, LogReader(PosixStorage(folder / "root"), [SIGNER.verifier])) as projection:
        projection.catch_up()
    path.unlink()


def _append(folder: Path) -> None:
    with Log.open(PosixStorage(folder / "root"), SIGNER) as log:
        start = log.checkpoint.size
        for at in range(start, start + 20 * BATCH, BATCH):
            log.append(drafts(at, BATCH))


def _audit(storage: PosixStorage, findings: list[object], workers: int) -> None:
    findings += check(storage, [SIGNER.verifier], workers=workers)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledger.append", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="size of the large log")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; a folder is made in it and removed")
    parser.add_argument("--keep", type=Path, help="a folder whose large log is kept, and used again")
    parser.add_argument("--only", choices=("single", "clients", "large"), help="measure only this part")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-ledger-") as folder:
        for row in measure(Path(folder), options.events, options.keep, options.only):
            line = json.dumps({"what": row.what, "value": row.value, "unit": row.unit}) if options.json else str(row)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
