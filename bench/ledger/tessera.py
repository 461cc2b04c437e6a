"""Durable appends a second beside Tessera's on the same disk, in one run.

    python -m bench.ledger.tessera [--rounds 3] [--events 8000] [--folder DIR] [--json]

Tessera (transparency-dev, Go) is the log that others would take; its POSIX driver keeps the same format in the same
kind of folder. Like is compared with like. Service: its own hammer over HTTP against its own POSIX server, as it ships, and our
clients in processes of their own against our append service. Library: its driver and our log, each within one process. All
have the same number of entries of the same size under way at once, every one acknowledged when it is durable. The
rounds alternate, so that a disk or machine that slows down slows all; the medians are compared.

The programs come from package registries, pinned (tests/foreign/judges.py); nothing else is fetched.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import ModuleType

from bench.figure import Figure
from bench.ledger.append import SIGNER, drafts
from ledger import Log, LogClient, LogService, PosixStorage, check

ENTRY_BYTES = 350
CLIENTS = 8
UNDER_WAY = 256
"""Entries that wait for an answer at once, in all clients together."""
TESSERA = "github.com/transparency-dev/tessera"


def judges() -> ModuleType:
    """The module that fetches what others wrote; it belongs to the tests."""
    path = Path(__file__).parents[2] / "tests" / "foreign" / "judges.py"
    spec = importlib.util.spec_from_file_location("judges", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["judges"] = module
    spec.loader.exec_module(module)
    return module


def ours(folder: Path, events: int) -> float:
    """Events a second through the append service: eight processes, each with 32 requests of one event under way."""
    storage = PosixStorage(folder)
    Log.create(storage, SIGNER)
    endpoint = folder / "endpoint"
    with Log.open(storage, SIGNER) as log, LogService(log, endpoint):
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(CLIENTS + 1)
        each = events // CLIENTS
        workers = [context.Process(target=_client, args=(endpoint, barrier, n, each)) for n in range(CLIENTS)]
        for worker in workers:
            worker.start()
        barrier.wait()
        began = time.perf_counter()
        barrier.wait()
        took = time.perf_counter() - began
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
    assert check(storage, [SIGNER.verifier]) == []
    return CLIENTS * each / took


def _client(endpoint: Path, barrier: Barrier, number: int, events: int) -> None:
    per_turn = UNDER_WAY // CLIENTS
    made = drafts(number * events, events)
    # Streams of their own: otherwise their places in one stream would be refused or wait for each other.
    made = [type(draft)(draft.type, f"bench/{number}", draft.body, id=draft.id, actor=draft.actor) for draft in made]
    with LogClient(endpoint) as client:
        barrier.wait()
        for start in range(0, events, per_turn):
            answers = client.append_each([[draft] for draft in made[start : start + per_turn]])
            assert all(isinstance(answer, list) for answer in answers), answers
        barrier.wait()


def library(folder: Path, events: int) -> float:
    """Events a second of our log in this process: as many appends of one event at once as entries are under way."""
    storage = PosixStorage(folder)
    Log.create(storage, SIGNER)
    made = drafts(0, events)
    with Log.open(storage, SIGNER) as log:
        began = time.perf_counter()
        for start in range(0, events, UNDER_WAY):
            answers = log.append_each([[draft] for draft in made[start : start + UNDER_WAY]])
            assert all(isinstance(answer, list) for answer in answers), answers
        return events / (time.perf_counter() - began)


def driver(folder: Path, program: Path, events: int) -> float:
    """Entries a second of Tessera's POSIX driver, without HTTP: as many adders as entries under way."""
    numbers = [str(number) for number in (events, ENTRY_BYTES, UNDER_WAY, UNDER_WAY)]
    said = subprocess.run([program, folder, *numbers], capture_output=True, text=True, check=True, timeout=300)
    return events / float(said.stdout.split()[0])


def hammer(folder: Path, server: Path, program: Path, events: int) -> float:
    """Entries a second of Tessera's hammer against its POSIX server over HTTP, both as they ship."""
    folder.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = "bench.example/tessera"
    key = subprocess.run([judges().go_program("notekey"), name], capture_output=True, text=True, check=True, timeout=60)
    secret, public = key.stdout.split()
    (folder / "key").write_text(secret)
    command = [
        str(server),
        "--storage_dir",
        str(folder / "log"),
        "--private_key",
        str(folder / "key"),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with (folder / "said").open("wb") as said:
        # Built without module files, a program gets the routing of an older Go unless told.
        today = os.environ | {"GODEBUG": "httpmuxgo121=0"}
        serving = subprocess.Popen(command, stdout=said, stderr=said, env=today)
    try:
        address = f"http://127.0.0.1:{port}/"
        _until_served(port, folder / "log" / "checkpoint", serving)
        options = {
            "log_url": address,
            "log_public_key": public,
            "max_read_ops": 0,
            "num_readers_random": 0,
            "num_readers_full": 0,
            "num_writers": UNDER_WAY,
            "max_write_ops": 100_000,
            "leaf_min_size": ENTRY_BYTES,
            "leaf_write_goal": events,
            "dup_chance": 0,
            "max_runtime": "120s",
            "show_ui": "false",
        }
        began = time.perf_counter()
        told = subprocess.run(
            [program, *(f"--{name}={value}" for name, value in options.items())],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        took = time.perf_counter() - began
        size = int((folder / "log" / "checkpoint").read_text().split("\n")[1])
        assert told.returncode == 0, told.stderr[-800:]
        assert size >= events * 9 // 10, (size, told.stderr[-800:])
        return max(size, events) / took
    finally:
        serving.terminate()
        serving.wait(60)


def _until_served(port: int, checkpoint: Path, serving: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and serving.poll() is None:
        with socket.socket() as connection:
            if checkpoint.exists() and connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("Tessera's server does not answer")


def measure(folder: Path, rounds: int, events: int) -> list[Figure]:
    """The medians of all, and ours as multiples of theirs."""
    fetched = judges()
    load = fetched.go_program("tesseraload")
    server = fetched.go_program(f"{TESSERA}/cmd/conformance/posix")
    striker = fetched.go_program(f"{TESSERA}/internal/hammer")
    measured: dict[str, Callable[[Path], float]] = {
        "ours": lambda at: ours(at, 4 * events),
        "hammer": lambda at: hammer(at, server, striker, events),
        "library": lambda at: library(at, 4 * events),
        "driver": lambda at: driver(at, load, 4 * events),
    }
    rates: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(rounds):
        for name, rate in measured.items():
            rates[name].append(rate(folder / f"{name}-{number}"))
        sys.stderr.write(f"round {number + 1}: { ({name: round(found[-1]) for name, found in rates.items()}) }\n")
    middle = {name: statistics.median(found) for name, found in rates.items()}
    theirs = f"Tessera {fetched.version('go-sources', 'golang-github-transparency-dev-tessera-dev')}"
    return [
        Figure(f"append service, {CLIENTS} client processes", middle["ours"], "events/s"),
        Figure(f"{theirs}, hammer and POSIX server", middle["hammer"], "entries/s"),
        Figure("our service as a multiple of theirs", middle["ours"] / middle["hammer"], "x"),
        Figure("log within one process", middle["library"], "events/s"),
        Figure(f"{theirs}, POSIX driver within one process", middle["driver"], "entries/s"),
        Figure("our log as a multiple of their driver", middle["library"] / middle["driver"], "x"),
        Figure("our service as a multiple of their driver", middle["ours"] / middle["driver"], "x"),
    ]


def machine() -> str:
    """The machine, as far as a reader needs it."""
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return f"{model[1] if model else 'unknown processor'}, {os.cpu_count()} cores, {os.getloadavg()[0]:.0f} processes at work"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledger.tessera", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--events",
        type=int,
        default=8_000,
        help="of the hammer in a round; the others, which are quicker, get four times as many",
    )
    parser.add_argument("--folder", type=Path, help="where both logs are written; default: a temporary folder")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    sys.stderr.write(machine() + "\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for row in measure(Path(folder), options.rounds, options.events):
            line = json.dumps({"what": row.what, "value": row.value, "unit": row.unit}) if options.json else str(row)
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
