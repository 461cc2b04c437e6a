"""`marin ui` over a real root of synthetic runs: the process, its address, and what tests ask of it."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from marin.history.projection.identity import Ids
from marin.record.root import Root

START_SECONDS = 600.0
MANY = 50_000
"""Train steps of a long run: 100,000 points, loss and tokens."""
STOP_SECONDS = 600.0


def helper(name: str) -> ModuleType:
    """A module of tests/plugins/mlflow: synthetic logs and real roots."""
    path = Path(__file__).parents[1] / "plugins" / "mlflow"
    package = "tracking_helpers"
    if package not in sys.modules:
        spec = importlib.util.spec_from_loader(package, loader=None, is_package=True)
        assert spec is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
        sys.modules[package].__path__ = [str(path)]
    return importlib.import_module(f"{package}.{name}")


story, roots = helper("story"), helper("roots")
RUN = Ids(story.ORIGIN).run("abcd2345")
NAMED = "llama-4x128-seed0 · "
"""What stands before the id in the name of a run."""


@dataclass(frozen=True)
class Served:
    """A running `marin ui` over a real root."""

    process: subprocess.Popen[str]
    printed: str
    root: Root
    folder: Path
    log: Any

    @property
    def address(self) -> str:
        return self.printed.partition("/?token=")[0]

    @property
    def token(self) -> str:
        return self.printed.partition("/?token=")[2]

    @cached_property
    def room(self) -> str:
        """Where a browser is led that opens the printed address."""
        asked = http.client.HTTPConnection(urllib.parse.urlsplit(self.address).netloc, timeout=600)
        with contextlib.closing(asked):
            asked.request("GET", f"/?token={self.token}")
            return self.address + asked.getresponse().headers["location"].rstrip("/")

    def open(self, path: str, data: bytes | None = None) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.token}"}
        return urllib.request.urlopen(urllib.request.Request(self.address + path, data, headers), timeout=600)

    def ask(self, path: str, body: object = None) -> Any:
        with self.open(path, None if body is None else json.dumps(body).encode()) as answer:
            return json.load(answer)

    def refused(self, path: str, data: bytes | None = None, **headers: str) -> int:
        """The status of a request that is as given, without the token."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(self.address + path, data, named), timeout=600)
        refused.value.close()
        return refused.value.code


def started(environment: dict[str, str], *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "marin.cli.main", "ui", *options],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        if ready.select(START_SECONDS):
            line = process.stdout.readline().strip()
            if line:
                return line
    process.kill()
    pytest.fail(f"no address: {process.communicate()[1][-3000:]}")


def left_behind(session: int) -> list[int]:
    """Processes of the session that the command was started in."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def ended(process: subprocess.Popen[str], how: signal.Signals) -> tuple[int, str]:
    process.send_signal(how)
    try:
        _, complaint = process.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"still there {STOP_SECONDS} s after {how.name}")
    return process.returncode, complaint


def pages_in(served: Served) -> dict[str, str]:
    """Our own pages, saved as somebody would mail them."""
    found = {}
    for name in ("lineage", "report", "data_order", "verification"):
        path = served.folder / f"{name}.html"
        with served.open(f"/get-artifact?run_uuid={RUN}&path={name}.html") as answer:
            path.write_bytes(answer.read())
        found[name] = path.as_uri()
    return found
