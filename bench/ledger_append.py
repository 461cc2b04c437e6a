"""How fast the log is, beside what the same disk can do at all, in one run.

    python -m bench.ledger_append [--events 100000] [--folder DIR] [--json]

The raw limit is a plain file that gets the same bytes in the same batches, each followed by fdatasync; the neighbour is
SQLite (WAL, synchronous FULL). Batches of ours and of the raw file alternate, so that a disk that slows down
slows both. Absolute times move with the machine: the ratios are what to quote.
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

SIGNER = Signer("bench.example/log", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
BODY = {"digest": "sha256:" + "0" * 64, "loss": "0x1.8p+1", "note": "x" * 40}
"""Makes an entry of about 350 bytes."""
SINGLES = 400
BATCH = 1000
BATCHES = 20
CLIENTS = 8
CLIENT_EVENTS = 10_000
CLIENT_BATCH = 50


def drafts(start: int, count: int) -> list[Draft]:
    return [
        Draft(
            "bench.made/v1", "bench/1", {**BODY, "step": n}, id=f"bench-event-{n:012d}", actor="bench@example"
        )
        for n in range(start, start + count)
    ]


class RawFile:
    """The limit: the same bytes, written and synced."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def append(self, data: bytes) -> None:
        os.write(self._descriptor, data)
        os.fdatasync(self._descriptor)


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


def measure(folder: Path, events: int) -> Iterator[Figure]:
    """Every figure, as it is measured."""
    entry = bytes(350)
    yield from _appends(folder / "singles", "one event at a time", 1, SINGLES, entry)
    yield from _appends(folder / "batches", f"batches of {BATCH}", BATCH, BATCHES, entry)
    yield from _clients(folder / "clients")
    yield from _large(folder / "large", events)


def _appends(folder: Path, name: str, batch: int, rounds: int, entry: bytes) -> Iterator[Figure]:
    folder.mkdir()
    storage = PosixStorage(folder / "root")
    Log.create(storage, SIGNER)
    raw, database = RawFile(folder / "raw"), Database(folder / "sqlite")
    times: dict[str, list[float]] = {"ours": [], "raw": [], "sqlite": []}
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
                times[who].append(seconds(act))
        closing = seconds(log.close)
    ours = sum(times["ours"]) + closing
    yield Figure(f"{name}: events a second", rounds * batch / ours, "/s")
    yield Figure(f"{name}: median of an append", statistics.median(times["ours"]) * 1000, "ms")
    yield Figure(f"{name}: share of plain write+fdatasync (by medians)", _ratio(times, "raw"), "of 1")
    yield Figure(f"{name}: share of plain write+fdatasync (by totals)", sum(times["raw"]) / ours, "of 1")
    yield Figure(f"{name}: share of SQLite, WAL, FULL (by medians)", _ratio(times, "sqlite"), "of 1")


class _Noted:
    """An open log that notes how much each commit took, so that the raw file can be given the same batches."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.sizes: list[int] = []

    @property
    def checkpoint(self) -> LogCheckpoint:
        return self._log.checkpoint

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        self.sizes.append(sum(map(len, requests)))
        return self._log.append_each(requests)


def client(number: int, endpoint: Path, gate: Barrier, answers: Queue[list[float]]) -> None:
    """Append `CLIENT_EVENTS` events, and tell how long each request took."""
    made = drafts(number * CLIENT_EVENTS, CLIENT_EVENTS)
    requests = [made[at : at + CLIENT_BATCH] for at in range(0, CLIENT_EVENTS, CLIENT_BATCH)]
    delays = []
    gate.wait()
    with LogClient(endpoint) as connection:
        for request in requests:
            started = time.perf_counter()
            connection.append(request)
            delays.append(time.perf_counter() - started)
    answers.put(delays)


def _clients(folder: Path) -> Iterator[Figure]:
    """Eight processes, each with some requests under way at any time."""
    folder.mkdir()
    storage, endpoint = PosixStorage(folder / "root"), folder / "service.json"
    Log.create(storage, SIGNER)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    gate = spawn.Barrier(CLIENTS + 1)
    workers = [
        spawn.Process(target=client, args=(number, endpoint, gate, answers)) for number in range(CLIENTS)
    ]
    for worker in workers:
        worker.start()
    with Log.open(storage, SIGNER) as log:
        noted = _Noted(log)
        with LogService(noted, endpoint):
            gate.wait()
            started = time.perf_counter()
            delays = sorted(delay for _ in workers for delay in answers.get())
            spent = time.perf_counter() - started
            for worker in workers:
                worker.join()
    raw = RawFile(folder / "raw")
    limit = sum(seconds(partial(raw.append, bytes(350 * size))) for size in noted.sizes)
    total = CLIENTS * CLIENT_EVENTS
    name = f"{CLIENTS} client processes"
    yield Figure(f"{name}: events a second", total / spent, "/s")
    yield Figure(f"{name}: events in a commit, mean", total / len(noted.sizes), "")
    yield Figure(f"{name}: p99 of an acknowledgement", delays[len(delays) * 99 // 100] * 1000, "ms")
    yield Figure(f"{name}: share of plain write+fdatasync", limit / spent, "of 1")


def _ratio(times: dict[str, list[float]], other: str) -> float:
    return statistics.median(times[other]) / statistics.median(times["ours"])


def _large(folder: Path, events: int) -> Iterator[Figure]:
    storage = PosixStorage(folder / "root")
    Log.create(storage, SIGNER)
    with Log.open(storage, SIGNER) as log:
        for start in range(0, events, BATCH):
            log.append(drafts(start, min(BATCH, events - start)))
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
    with Projection(folder / "events.sqlite", LogReader(storage, keys)) as projection:
        yield Figure(f"{size}: rebuilding the projection", events / seconds(projection.catch_up), "/s")


def _audit(storage: PosixStorage, findings: list[object], workers: int) -> None:
    findings += check(storage, [SIGNER.verifier], workers=workers)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledger_append", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="size of the large log")
    parser.add_argument(
        "--folder", type=Path, help="on the disk to measure; a folder is made in it and removed"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-ledger-") as folder:
        for row in measure(Path(folder), options.events):
            line = (
                json.dumps({"what": row.what, "value": row.value, "unit": row.unit})
                if options.json
                else str(row)
            )
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
