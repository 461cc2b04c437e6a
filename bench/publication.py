"""What a stranger fetches of a publication: requests and bytes for the log alone, for a sample, and for everything; and how long
the judge takes that needs a browser alone.

    python -m bench.publication [--run RUN] [--only KIND ...]

The run (newest, by default) is published into a folder, which a web server of Python's standard library serves on the
loopback interface, counting what it sends. Each verification is a process of its own, confined, with a cache of its own
and the address and the key, and nothing else. The judge is timed in node from its start, and in a headless Chromium (playwright)
from the press of its button; the folder is in the page cache.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from marin.history.runs import resolve
from marin.record.root import open_root

KINDS = {
    "--only ledger": ["--only", "ledger"],
    "--only ledger,artifacts": ["--only", "ledger,artifacts"],
    "--only training --sample 3": ["--only", "training", "--sample", "3"],
    "--sample 3": ["--sample", "3"],
    "full": [],
}
JUDGES = ("check.mjs", "check.html")


class Counting(SimpleHTTPRequestHandler):
    """Files of a folder; what was sent is counted by the server."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        self.server.requests += 1  # type: ignore[attr-defined]

    def copyfile(self, source: Any, outputfile: Any) -> None:
        data = source.read()
        self.server.sent += len(data)  # type: ignore[attr-defined]
        outputfile.write(data)


@contextmanager
def serving(folder: Path) -> Iterator[Any]:
    """The server, with ``requests`` and ``sent``."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Counting, directory=str(folder)))
    server.requests = server.sent = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def marin(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, as anyone who has this environment calls it."""
    command = [sys.executable, "-m", "marin.cli.main", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


def in_node(address: str, key: str) -> tuple[str, float]:
    """What `node check.mjs` says of the publication at an address, and its seconds."""
    program = Path(__file__).parents[1] / "marin/plugins/sharing/judge/check.mjs"
    began = time.perf_counter()
    command = [shutil.which("node") or "node", str(program), address, "--vkey", key, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["outcome"] if done.stdout else done.stderr, time.perf_counter() - began


def in_chromium(address: str, key: str) -> tuple[str, float]:
    """What the page says, and its seconds."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"{address}/check.html")
        page.fill("#key", key)
        began = time.perf_counter()
        page.click("#start")
        page.wait_for_selector("#report[data-found]")
        seconds = time.perf_counter() - began
        outcome = json.loads(page.get_attribute("#report", "data-found") or "{}")["outcome"]
        browser.close()
    return outcome, seconds


def main() -> int:
    """Print a row for each kind of verification."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="latest")
    parser.add_argument("--only", nargs="*", metavar="KIND", help=f"of {', '.join((*KINDS, *JUDGES))}")
    asked = parser.parse_args()
    root = open_root()
    run = resolve(root.history(), asked.run)
    with tempfile.TemporaryDirectory(prefix="marin-publication-") as base:
        site = Path(base) / "site"
        for again in ("first", "again"):
            done = marin("publish", run, "--to", str(site), "--json")
            assert done.returncode == 0, done.stderr
            files = [path for path in site.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files)
            sys.stdout.write(f"{again:<6} {done.stdout.strip()}\n       {len(files)} files, {size:,} bytes there\n")
        with serving(site) as server:
            address = f"http://127.0.0.1:{server.server_address[1]}/{run}"
            for number, (name, options) in enumerate(KINDS.items()):
                if asked.only and name not in asked.only:
                    continue
                home = Path(base) / f"stranger-{number}"
                home.mkdir()
                server.requests = server.sent = 0
                found = marin(
                    "verify",
                    address,
                    "--vkey",
                    str(root.verifier),
                    "--no-record",
                    *options,
                    HOME=str(home),
                    XDG_CACHE_HOME=str(home / "cache"),
                    XDG_CONFIG_HOME=str(home / "config"),
                    MARIN_ROOT=str(home / "nothing"),
                )
                said = next((line for line in found.stderr.splitlines() if line.startswith("reads about")), "")
                sys.stdout.write(
                    f"{name:<28} exit {found.returncode}  {server.requests:>5} requests  {server.sent:>12,} bytes  "
                    f"({said.partition(' at ')[0]})\n"
                )
                sys.stdout.flush()
                if found.returncode not in (0, 3, 4):
                    sys.stdout.write(found.stdout + found.stderr)
            for name, judge in zip(JUDGES, (in_node, in_chromium), strict=True):
                if asked.only and name not in asked.only:
                    continue
                server.requests = server.sent = 0
                outcome, seconds = judge(address.rpartition("/")[0], str(root.verifier))
                sys.stdout.write(
                    f"{name:<28} {outcome:<6}  {server.requests:>5} requests  {server.sent:>12,} bytes  {seconds:.2f} s\n"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
