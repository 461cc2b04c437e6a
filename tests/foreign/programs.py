"""Programs of others as the tests start them: their answer to a question, or a server on the loopback interface."""

import os
import socket
import subprocess
import time
from contextlib import contextmanager

SECONDS = 60


def ask(*command: object, stdin=b"", env=None, cwd=None, seconds=SECONDS):
    """What a program answers: its exit status, and stdout and stderr as one text."""
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
        env=os.environ | (env or {}),
        cwd=cwd,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextmanager
def serving(command, port, *, log, env=None):
    """A server that answers on `port`; ended at the end. What it says goes to the file `log`."""
    with log.open("ab") as said:
        server = subprocess.Popen(
            [str(word) for word in command],
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            env=os.environ | (env or {}),
        )
    try:
        deadline = time.monotonic() + SECONDS
        while not _answers(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"nobody listens on {port}: {log.read_text()}"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(SECONDS)


def _answers(port):
    with socket.socket() as connection:
        connection.settimeout(5)
        return connection.connect_ex(("127.0.0.1", port)) == 0
