"""A confined process does not reach what it is kept from, and neither does what it starts; what a kernel lacks is said."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin.process import confinement, landlock
from marin.process.confinement import Confined

PROJECT = Path(__file__).resolve().parents[3]

ATTEMPTS = r"""
import json, os, resource, signal, socket, subprocess, sys
from pathlib import Path
from marin.process.confinement import Limits, confine

given = json.loads(sys.argv[1])
held = confine(read=given["read"], write=given["write"], network=given["network"],
               limits=Limits(1 << 30, 600, file=1 << 20))

def tried(call):
    try:
        return str(call())
    except MemoryError:
        return "MemoryError"
    except OSError as error:
        return os.strerror(error.errno) if error.errno else type(error).__name__

def dialled(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        one.connect(address)
        return one.send(b"x")

secret, open_, work = given["secret"], given["open"], given["work"]
print(json.dumps({
    "lines": held.lines(),
    "secret": tried(lambda: Path(secret).read_text()),
    "secret by a child": subprocess.run(["cat", secret], capture_output=True, text=True).stdout,
    "secret by a link": tried(lambda: (os.symlink(secret, work + "/link"), Path(work, "link").read_text())[1]),
    "secret by a hard link": tried(lambda: (os.link(secret, work + "/hard"), Path(work, "hard").read_text())[1]),
    "secret by /proc": tried(lambda: Path("/proc/%d/environ" % given["parent"]).read_bytes()),
    "listing": tried(lambda: os.listdir(os.path.dirname(secret))),
    "open": tried(lambda: Path(open_).read_text()),
    "write open": tried(lambda: Path(open_).write_text("changed")),
    "write outside": tried(lambda: Path(secret + ".new").write_text("x")),
    "write inside": tried(lambda: Path(work, "new").write_text("x")),
    "long file": tried(lambda: Path(work, "long").write_bytes(bytes(2 << 20))),
    "tcp": tried(lambda: dialled(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", given["port"]))),
    "udp": tried(lambda: dialled(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9))),
    "signal": tried(lambda: os.kill(given["parent"], 0)),
    "memory": tried(lambda: len(bytearray(3 << 30))),
    "fonts": subprocess.run([given["fonts"]], capture_output=True, text=True).stderr,
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "user": os.getuid(),
}))
"""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Any]:
    for name in ("home", "root", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "id_ed25519").write_text("SECRET")
    (tmp_path / "root" / "checkpoint").write_text("public")
    return {
        "secret": str(tmp_path / "home" / "id_ed25519"),
        "open": str(tmp_path / "root" / "checkpoint"),
        "work": str(tmp_path / "work"),
        "read": [str(PROJECT), str(tmp_path / "root")],
        "write": [str(tmp_path / "work")],
        "network": False,
        "parent": os.getpid(),
        "fonts": shutil.which("fc-list") or "true",
    }


def tried(places: dict[str, Any]) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asked = json.dumps(places | {"port": listening.getsockname()[1]})
        done = subprocess.run(
            [sys.executable, "-P", "-c", ATTEMPTS, asked],
            env={"PYTHONPATH": str(PROJECT), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock, or a container keeps it away")
def test_only_what_was_opened_is_reached(places: dict[str, Any]) -> None:
    found = tried(places)
    for way in ("secret", "secret by a link", "secret by a hard link", "listing", "write open", "write outside"):
        assert found[way] in ("Permission denied", "Operation not permitted", "Invalid cross-device link"), (way, found)
    assert found["secret by a child"] == ""
    assert found["fonts"] == "", "what draws pages looks for fonts, as the system's settings have them"
    assert "Permission denied" in found["secret by /proc"]
    assert Path(places["secret"]).read_text() == "SECRET" and Path(places["open"]).read_text() == "public"
    assert (found["open"], found["write inside"], found["long file"]) == ("public", "1", "File too large")
    assert (found["memory"], found["core"], found["user"]) == ("MemoryError", 0, os.getuid())
    if landlock.version() >= landlock.SCOPES_SINCE:
        assert found["signal"] == "Operation not permitted"


def test_no_network_or_the_report_says_that_there_is(places: dict[str, Any]) -> None:
    found = tried(places)
    if "no network" in found["lines"][0]:
        assert found["tcp"] == "Connection refused", "in a network of its own nobody listens"
        assert found["udp"] == "Network is unreachable"
    elif "no TCP" in found["lines"][0]:
        assert found["tcp"] == "Permission denied"
    else:
        assert any(line.startswith("NOT CONFINED") and "network is open" in line for line in found["lines"])


def test_an_open_network_is_said(places: dict[str, Any]) -> None:
    found = tried(places | {"network": True})
    assert found["tcp"] == "1"
    assert "NOT CONFINED: the network is open, as asked" in found["lines"]


def test_what_a_kernel_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "_limit", lambda *_: None)
    monkeypatch.setattr(confinement, "_leave_network", lambda: False)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    held = confinement.confine(read=[], write=[], network=False, limits=confinement.Limits(1 << 30, 60))
    assert held.lines()[1:] == (
        "NOT CONFINED: this kernel has no Landlock: every file that you may read can be read",
        "NOT CONFINED: this system allows no network namespace: the network is open",
    )
    assert Confined((), ("x",)).lines() == ("NOT CONFINED: x",)


CHILD = """
import os, sys, time
from marin.process.confinement import Limits, confine, end_with
confine(read=[{project!r}], write=[], network=False, limits=Limits(1 << 30, 600))
end_with(int(sys.argv[1]))
os.write(1, b"up")
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], str(os.getpid())])
"""


def test_a_confined_process_ends_with_its_parent() -> None:
    """Anyone who kills `marin verify` outright has no stranger's root executed unnoticed."""
    reading, writing = os.pipe()
    child = CHILD.format(project=str(PROJECT))
    with subprocess.Popen([sys.executable, "-c", PARENT, child], stdout=writing, cwd=PROJECT) as parent:
        os.close(writing)
        assert os.read(reading, 2) == b"up"
        parent.kill()
    try:
        waiting = select.poll()  # a descriptor may have any number here
        waiting.register(reading, select.POLLIN)
        assert waiting.poll(60_000), "the child lives on"
        assert os.read(reading, 1) == b"", "nobody has the pipe any more"
    finally:
        os.close(reading)
