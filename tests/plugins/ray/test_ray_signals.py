"""A real signal to a process with a real Ray: it means the same before, while and after Ray runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from marin.plugins.ray.cluster import descendants
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import open_root

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 600
"""A busy machine is slow: this only ends a test that hangs."""

DRIVER = """
import ctypes, signal, sys, threading
OUT = sys.stdout  # while a Ray is there, it is stderr
from marin.process.interruption import Interruption
from marin.plugins.ray.cluster import connect, descendants

def say(word):
    print(word, file=OUT, flush=True)

def ask(word):
    say(word)
    return sys.stdin.readline().strip()

def raised(word):
    try:
        ask(word)
    except KeyboardInterrupt as asked:
        say(f"{word}: {asked}")

LIBC, SEEN, ENDED = ctypes.CDLL(None), set(), threading.Event()

def below():
    # what the system does with SIGTERM, whatever Python believes: the first field of struct sigaction
    action = (ctypes.c_void_p * 32)()
    LIBC.sigaction(int(signal.SIGTERM), None, action)
    return action[0]

def watch():
    while not ENDED.wait(0.0005):
        SEEN.add(below())

with Interruption() as interruption:
    begun = below()
    watching = threading.Thread(target=watch)
    watching.start()
    raised("before")
    with connect(None, cpus=1):
        raised("while")
        try:
            with interruption.shield():
                word = ask("shielded")
                say(f"committed {word}")
        except KeyboardInterrupt as asked:
            say(f"shielded: {asked}")
    raised("after")
    ENDED.set()
    watching.join()
    assert SEEN == {begun}, "it was somebody else's for a moment"
before = signal.getsignal(signal.SIGTERM)
assert before is signal.SIG_DFL
try:
    with connect(None, cpus=1):
        ask("unattended")
except KeyboardInterrupt as asked:
    say(f"unattended: {asked}, {len(descendants())} left")
assert signal.getsignal(signal.SIGTERM) is before
"""


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY", "MARIN"))}
    return kept | {"PYTHONPATH": str(REPOSITORY), "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}


@pytest.mark.long(seconds=25)
def test_a_signal_means_the_same_before_while_and_after(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if line.strip() in {"before", "while", "after", "unattended"}:
                process.send_signal(signal.SIGTERM)
            elif line.strip() == "shielded":
                process.send_signal(signal.SIGTERM)
                process.stdin.write("under the signal\n")
                process.stdin.flush()
        told = process.stderr.read()
    assert process.returncode == 0, told
    assert said == [
        "before",
        "before: SIGTERM",
        "while",
        "while: SIGTERM",
        "shielded",
        "committed under the signal",
        "shielded: SIGTERM",
        "after",
        "after: SIGTERM",
        "unattended",
        "unattended: SIGTERM, 0 left",
    ]
    assert "SIGTERM received" not in told, "Ray's own handler below Python prints a stack"


JOB = """
import pathlib, time

def hang(payload):
    place = pathlib.Path(payload.decode())
    place.write_text("begun")
    try:
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        place.write_text("asked")
        raise
"""
CANCELS = """
import pathlib, sys, time
import hanging
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job

place = pathlib.Path(sys.argv[1])
with open_jobs("ray", cpus=1) as jobs:
    future = jobs.submit(Job("hang", hanging.hang, str(place).encode()))
    while not place.exists():
        time.sleep(0.02)
assert future.exception() is not None
"""


@pytest.mark.long(seconds=25)
def test_a_job_on_ray_is_asked_before_it_is_ended(tmp_path: Path) -> None:
    """So that a step of a graph, or one that `marin stage` has executed there, records that it was stopped."""
    (tmp_path / "hanging.py").write_text(JOB)
    own = environment(tmp_path) | {"PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
    command = [sys.executable, "-c", CANCELS, str(tmp_path / "place")]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "place").read_text() == "asked"


STAGE = """
import sys
from marin.cli.main import main
from marin.training.tokens import encoding
encoding.SHARD_BYTES = 4096  # so that a small text has work for two workers
sys.argv[0] = "marin"
main()
"""
SMALL = "dataset: {kind: grammar, train_bytes: 20000, validation_bytes: 2000, minimal_pairs: 3}\ntokenizer: {vocab_size: 400}\n"


@pytest.mark.long(seconds=40)
def test_a_stage_on_ray_that_is_asked_to_stop_says_so(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without Ray: exit status 130, and an event. The signal comes when its workers are there."""
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / ".marin"))
    create_root(str(tmp_path / ".marin"), origin="marin.test/signals")
    (tmp_path / "params.yaml").write_text(SMALL)
    (tmp_path / "stderr").touch()
    with (
        (tmp_path / "stderr").open("w") as told,
        subprocess.Popen(
            [sys.executable, "-c", STAGE, "stage", "tokens", "--runner", "ray", "--processes", "2", "--devices", "2"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=told,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        ) as process,
    ):
        until(process, lambda: "tokens" in [body["step"] for body in bodies(tmp_path, events.STEP_STARTED)])
        until(process, lambda: any("raylet" in line for line in started()))
        process.send_signal(signal.SIGTERM)
        status = process.wait(PATIENCE_SECONDS)
    assert status == 130, (tmp_path / "stderr").read_text()
    assert "interrupted: step tokens: found SIGTERM" in (tmp_path / "stderr").read_text()
    (failed,) = bodies(tmp_path, events.STEP_FAILED)
    assert failed["step"] == "tokens" and "SIGTERM" in failed["error"]


def until(process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert process.poll() is None and time.monotonic() < deadline, f"status {process.poll()}"
        time.sleep(0.05)


def bodies(folder: Path, kind: str) -> list[Mapping[str, Any]]:
    return [event.body for _, event in open_root(str(folder / ".marin")).reader().events() if event.type == kind]


def started() -> list[str]:
    """The command lines of all processes below this one."""
    lines = []
    for number in descendants():
        with suppress(OSError):
            lines.append(Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return lines
