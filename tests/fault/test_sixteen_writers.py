"""Sixteen processes append for a minute, with duplicates; they and the service are killed again and again (`make
faults`).

Each client spools its batches and sends them until they are acknowledged. It is killed at any moment and started again,
and then spools once more what it is not sure of. Afterwards every stream is gapless and in order, nothing that was
spooled is missing, nothing is there twice, and the audit finds nothing.
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, Log, LogReader, PosixStorage, Signer, Unavailable, check
from ledger.service.client import LogClient, Spool
from ledger.service.server import LogService

SIGNER = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
CLIENTS = 16
BATCH = 5
SECONDS = float(os.environ.get("MARIN_FAULT_SECONDS", "60"))


def forked(act):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return child


def serve(root: Path, endpoint: Path):
    with Log.open(PosixStorage(root), SIGNER, wait=60, publish_seconds=0.2) as log, LogService(log, endpoint):
        signal.pause()


def client(number: int, folder: Path, endpoint: Path):
    """Make batch after batch until told to stop, and leave when all are acknowledged."""
    made, stop = folder / f"made-{number}", folder / "stop"
    start = int(made.read_text() or "0") if made.exists() else 0
    random.seed(number)
    spool = Spool(folder / f"spool-{number}", lambda: LogClient(endpoint))
    while True:
        stopping = stop.exists()
        if not stopping:
            batch = [
                Draft("t/v1", f"client/{number}", {"n": n}, id=f"{number}-{n}") for n in range(start, start + BATCH)
            ]
            for _ in range(random.choice((1, 1, 2))):
                spool.put(batch)
            start += BATCH
            # Told after it was spooled: killed in between, the same batch is spooled again, which makes one of each
            # event.
            temporary = made.with_suffix(".new")
            temporary.write_text(str(start))
            temporary.replace(made)
        try:
            spool.drain(seconds=120 if stopping else 0.5)
        except Unavailable:
            if stopping:
                raise
        if stopping:
            return


def killed(child):
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def sixteen_writers(folder: Path):
    root, endpoint = folder / "root", folder / "service.json"
    Log.create(PosixStorage(root), SIGNER)
    clients = {n: forked(lambda n=n: client(n, folder, endpoint)) for n in range(CLIENTS)}
    server = forked(lambda: serve(root, endpoint))
    deadline, chance, kills = time.monotonic() + SECONDS, random.Random(1), 0
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.2, 1.0))
        kills += 1
        if chance.random() < 0.4:
            killed(server)
            server = forked(lambda: serve(root, endpoint))
        else:
            number = chance.randrange(CLIENTS)
            killed(clients[number])
            clients[number] = forked(lambda number=number: client(number, folder, endpoint))
    (folder / "stop").touch()
    statuses = [os.waitpid(child, 0)[1] for child in clients.values()]
    killed(server)
    assert statuses == [0] * CLIENTS

    storage = PosixStorage(root)
    Log.open(storage, SIGNER).close()
    assert check(storage, [SIGNER.verifier]) == []
    streams = {}
    for _, event in LogReader(storage, [SIGNER.verifier]).events():
        streams.setdefault(event.stream, []).append((event.seq, event.body["n"]))
    assert len(streams) == CLIENTS
    for number in range(CLIENTS):
        found = streams[f"client/{number}"]
        assert found == [(n, n) for n in range(len(found))]
        assert len(found) >= int((folder / f"made-{number}").read_text())
    sys.stdout.write(f"{sum(map(len, streams.values()))} events, {kills} kills\n")


@pytest.mark.faults
def test_sixteen_processes_for_a_minute(tmp_path):
    run = subprocess.run(
        [sys.executable, __file__, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]


if __name__ == "__main__":
    sixteen_writers(Path(sys.argv[1]))
