"""Faults put into the system calls of a real writer by strace: each call that changes the disk fails, or is the last.

A process appends under strace, which makes the n-th pwrite64, fsync, link, … fail with EIO or ENOSPC (the kernel never
sees it), or kills the process there. What it had acknowledged it wrote down. Then the log is opened as anybody would,
and the same batches are appended again: nothing acknowledged is missing, nothing is there twice, the audit finds
nothing.

`make test` takes a sample; `make faults` takes every call.
"""

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, LedgerError, Log, LogReader, PosixStorage, Signer, check

SIGNER = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
CALLS = ("pwrite64", "fsync", "fdatasync", "rename", "link", "linkat", "unlink", "mkdir", "ftruncate")
FAULTS = ("error=EIO", "error=ENOSPC", "signal=SIGKILL")
START, BATCHES = 254, (1, 2, 1)
SAMPLE = 8

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


def batches():
    start = START
    for size in BATCHES:
        yield [Draft("t/v1", "s", {"n": n}, id=f"event-{n}") for n in range(start, start + size)]
        start += size


def work(root: Path, acknowledged: Path):
    """What is done under strace. A batch that failed is handed in once more, as a client does."""
    descriptor = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Log.open(PosixStorage(root), SIGNER, publish_seconds=0.0) as log:
        for batch in batches():
            try:
                receipts = log.append(batch)
            except LedgerError:
                receipts = log.append(batch)
            os.write(descriptor, b"%d\n" % (receipts[-1].index + 1))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A log that is about to complete its first tile."""
    root = tmp_path_factory.mktemp("begun") / "root"
    Log.create(PosixStorage(root), SIGNER)
    with Log.open(PosixStorage(root), SIGNER) as log:
        log.append([Draft("t/v1", "s", {"n": n}, id=f"event-{n}") for n in range(START)])
    return root


def traced(begun, folder, *options: str):
    """Run the work on a copy under strace; the root, the size that was acknowledged, the trace, and how it ended."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(begun, folder / "root")
    names = ",".join(CALLS)
    done = subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-e",
            f"trace={names}",
            *options,
            "-o",
            folder / "trace",
            sys.executable,
            __file__,
            folder / "root",
            folder / "acknowledged",
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    told = folder / "acknowledged"
    sizes = [int(line) for line in told.read_text().split()] if told.exists() else []
    ended = f"ended by signal {-done.returncode}" if done.returncode < 0 else done.stderr
    return folder / "root", max([START, *sizes]), (folder / "trace").read_text(), ended


def recover(root, acknowledged):
    storage = PosixStorage(root)
    assert LogReader(storage, [SIGNER.verifier]).checkpoint().size >= acknowledged
    with Log.open(storage, SIGNER) as log:
        assert log.checkpoint.size >= acknowledged
        for batch in batches():
            log.append(batch)
    found = [event.body["n"] for _, event in LogReader(storage, [SIGNER.verifier]).events()]
    assert found == list(range(START + sum(BATCHES)))
    assert check(storage, [SIGNER.verifier]) == []


def every_fault(begun, folder):
    """(call, number, fault) for each call that an undisturbed writer makes; strace counts by thread, and so does
    this."""
    root, acknowledged, trace, errors = traced(begun, folder)
    assert acknowledged == START + sum(BATCHES), errors
    recover(root, acknowledged)
    by_thread = Counter(match.groups() for match in re.finditer(r"^(\d+) +(\w+)\(", trace, re.MULTILINE))
    counts: dict[str, int] = {}
    for (_, call), count in by_thread.items():
        counts[call] = max(count, counts.get(call, 0))
    assert {"pwrite64", "fsync", "fdatasync"} <= set(counts), counts
    return [
        (call, number, fault)
        for call, count in sorted(counts.items())
        for number in range(1, count + 1)
        for fault in FAULTS
    ]


def injected(begun, folder, call, number, fault):
    # The filter in the kernel saves time, and loses signals that are injected.
    filtered = [] if fault.startswith("signal") else ["--seccomp-bpf"]
    root, acknowledged, trace, ended = traced(begun, folder, *filtered, "-e", f"inject={call}:{fault}:when={number}")
    recover(root, acknowledged)
    return (
        "INJECTED" in trace or ended == "ended by signal 9"
    )  # which thread makes which call is not the same each time


@needs_strace
@pytest.mark.long
def test_a_sample_of_system_calls_that_fail_or_kill(begun, tmp_path):
    plan = every_fault(begun, tmp_path / "plain")
    hit = sum(injected(begun, tmp_path / "run", *item) for item in random.Random(3).sample(plan, SAMPLE))
    assert hit >= SAMPLE // 2


@needs_strace
@pytest.mark.faults
def test_every_system_call_that_fails_or_kills(begun, tmp_path):
    plan = every_fault(begun, tmp_path / "plain")
    hit = sum(injected(begun, tmp_path / "run", *item) for item in plan)
    assert hit > 100


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]))
