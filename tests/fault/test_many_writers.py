"""Many processes append through the service, each resends what it is not sure of, and the service is killed again and
again.

Afterwards every event is in the log once, each stream is gapless and in its client's order, and the audit finds
nothing.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, Log, LogReader, PosixStorage, Signer, Unavailable, check
from ledger.service.client import LogClient, Spool
from ledger.service.server import LogService

SIGNER = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
CLIENTS = 6
EVENTS = 60
BATCH = 3
KILLS = 5


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
    with Log.open(PosixStorage(root), SIGNER, wait=30, publish_seconds=0.01) as log, LogService(log, endpoint):
        signal.pause()


def client(number: int, folder: Path, endpoint: Path):
    """Spool everything, then send; every third batch is spooled twice, as by a client that forgot."""
    spool = Spool(folder, lambda: LogClient(endpoint))
    for start in range(0, EVENTS, BATCH):
        batch = [Draft("t/v1", f"client/{number}", {"n": n}, id=f"{number}-{n}") for n in range(start, start + BATCH)]
        for _ in range(2 if start % 9 == 0 else 1):
            spool.put(batch)
    spool.drain(seconds=120)


def events_in(root):
    return LogReader(PosixStorage(root, readonly=True), [SIGNER.verifier]).checkpoint().size


@pytest.mark.long
def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path):
    # In a process of its own: forking is only safe where nothing else of the test run has started threads.
    run = subprocess.run(
        [sys.executable, __file__, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr.splitlines()[-1:]) == (0, [])


def many_writers(tmp_path):
    root, endpoint = tmp_path / "root", tmp_path / "service.json"
    Log.create(PosixStorage(root), SIGNER)
    clients = [
        forked(lambda number=number: client(number, tmp_path / f"spool-{number}", endpoint))
        for number in range(CLIENTS)
    ]
    total = CLIENTS * EVENTS
    for kill in range(KILLS):
        server = forked(lambda: serve(root, endpoint))
        wanted = total * (kill + 1) // (KILLS + 1)
        while events_in(root) < wanted:
            time.sleep(0.005)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    server = forked(lambda: serve(root, endpoint))
    statuses = [os.waitpid(child, 0)[1] for child in clients]
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    assert statuses == [0] * CLIENTS

    storage = PosixStorage(root)
    with Log.open(storage, SIGNER) as log:
        assert log.checkpoint.size == total
    assert check(storage, [SIGNER.verifier]) == []
    streams = {}
    for _, event in LogReader(storage, [SIGNER.verifier]).events():
        streams.setdefault(event.stream, []).append((event.seq, event.body["n"]))
    assert streams == {f"client/{c}": [(n, n) for n in range(EVENTS)] for c in range(CLIENTS)}


def test_the_endpoint_of_a_killed_service_is_no_service(tmp_path):
    endpoint = tmp_path / "service.json"
    endpoint.write_text(json.dumps({"port": 1, "token": "x", "pid": 1}))
    endpoint.chmod(0o600)
    spool = Spool(tmp_path / "spool", lambda: LogClient(endpoint))
    spool.put([Draft("t/v1", "s", {})])
    try:
        spool.drain(seconds=0)
    except Unavailable as error:
        assert "gone" in str(error)
    assert len(spool) == 1


if __name__ == "__main__":
    many_writers(Path(sys.argv[1]))
