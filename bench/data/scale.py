"""Collections that are large: time and memory over the number of documents, and one digest whatever is killed on the way.

    python -m bench.data curve --documents 100000,1000000,3000000 --folder SPACE
    python -m bench.data digest --documents 1000000 --workers 1,2,8 --kills 20 --folder SPACE

``curve`` builds in one process, with near-duplicates, and prints seconds, documents a second, the greatest resident memory and
the greatest part of it that is not a mapped file. ``digest`` calls `marin data build` for each number of workers in a root of its
own, with the sources named in a drawn order; at drawn moments it kills (SIGKILL) one of the workers or, every fourth time and
always where there are none, the command itself, which is then called again. It fails where two digests differ.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.data.corpus import write
from bench.data.watching import workers_of

BUILD = """
import json, sys, threading, time
from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.settings import settings_of
from marin.record.creation import create_root
peaks, ended = {}, threading.Event()
def look():
    while not ended.wait(0.2):
        for line in open("/proc/self/status"):
            name, _, rest = line.partition(":")
            if name in ("RssAnon", "RssFile", "VmRSS"):
                peaks[name] = max(peaks.get(name, 0), int(rest.split()[0]) << 10)
looking = threading.Thread(target=look)
looking.start()
root, begun, cpu = create_root(sys.argv[1]), time.perf_counter(), time.process_time()
made = build(root, BuildRequest((sys.argv[2],), settings_of(json.loads(sys.argv[3]), where="bench")))
seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
ended.set()
looking.join()
print(json.dumps({"read": made.read, "kept": made.kept, "removed": dict(made.removed), "artifact": made.artifact,
                  "seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "memory": peaks}))
"""


def environment(folder: Path) -> dict[str, str]:
    """Keys and caches of the benchmark's own."""
    own = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    return os.environ | own | {"MARIN_CACHE": str(folder / "cache")}


def build(folder: Path, sources: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A build in a process of its own, in the empty ``folder``."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder / "root"), sources, json.dumps(settings)],
        env=environment(folder),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def curve(counts: list[int], folder: Path) -> Iterator[dict[str, Any]]:
    """One line for each number of documents."""
    for count in counts:
        raw = folder / f"raw-{count}"
        size = write(raw, count)
        found = build(folder / f"build-{count}-{time.time_ns()}", f"{raw}/*.jsonl", {})
        rate = round(count / found["cpu_seconds"])
        yield {"what": "curve", "documents": count, "bytes": size, "documents_per_cpu_second": rate, **found}


def surviving(folder: Path, sources: list[str], workers: int, kills: int, pause: float, seed: int) -> dict[str, Any]:
    """Build, kill, call again, until it is whole."""
    draw = random.Random(seed)  # noqa: S311 - for moments, not for secrets
    own = environment(folder)
    marin = [sys.executable, "-m", "marin.cli.main"]
    folder.mkdir(parents=True)
    subprocess.run(
        [*marin, "init"], cwd=folder, env=own, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    draw.shuffle(sources)
    named = [argument for source in sources for argument in ("--source", source)]
    command = [*marin, "data", "build", *named, "--workers", str(workers), "--json"]
    of_workers = of_commands = calls = 0
    begun = time.monotonic()
    while True:
        calls += 1
        running = subprocess.Popen(command, cwd=folder, env=own, stdout=subprocess.PIPE, text=True)
        while running.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                running.wait(draw.uniform(0.2, 2.0) * pause)
            if running.poll() is None and of_workers + of_commands < kills:
                alive = workers_of(running.pid)
                if workers == 1 or (of_workers + of_commands) % 4 == 3:
                    running.kill()
                    of_commands += 1
                elif alive:
                    with suppress(ProcessLookupError):
                        os.kill(draw.choice(alive), signal.SIGKILL)
                        of_workers += 1
        said = running.stdout.read() if running.stdout is not None else ""
        if running.returncode == 0:
            told = json.loads(said)
            return {
                "workers": workers,
                "artifact": told["artifact"],
                "documents": told["documents"],
                "removed": told["removed"],
                "killed_workers": of_workers,
                "killed_commands": of_commands,
                "calls": calls,
                "seconds": round(time.monotonic() - begun, 1),
            }
        if calls > kills + 20:
            raise SystemExit(f"it does not go on: {running.returncode} {said[-500:]}")


def digest(count: int, workers: list[int], kills: int, pause: float, folder: Path) -> Iterator[dict[str, Any]]:
    """One line for each number of workers."""
    raw = folder / f"raw-{count}"
    write(raw, count)
    sources = [str(path) for path in sorted(raw.glob("*.jsonl"))]
    artifacts = set()
    for number in workers:
        place = folder / f"digest-{count}-{number}-{time.time_ns()}"
        found = surviving(place, list(sources), number, kills, pause, seed=number)
        artifacts.add(found["artifact"])
        yield {"what": "digest", "documents": count, **found}
    if len(artifacts) != 1:
        raise SystemExit(f"{len(artifacts)} digests: {sorted(artifacts)}")
