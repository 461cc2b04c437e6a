"""Two builds of one collection on one root, by two machines: one makes it, the other takes it.

Another machine is a process with a local folder of its own, so no lock excludes it, that names itself otherwise, so nobody
here can see whether it lives.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marin.record import events
from marin.record.bodies.collections import COLLECTION_COMPLETED, COLLECTION_SHARD, COLLECTION_STARTED
from tests.marin.collection.making import root_of

MACHINE = """
import logging, os, sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
name, project, term = sys.argv[1:]
from marin.collection import build as building
from marin.execution.leases import lease
from marin.record.root import open_root

real, make = lease.birth, building.make
lease.birth = lambda pid: f"{name}/{real(pid)}"
lease.Claimant.of_process = classmethod(lambda cls: cls(f"{name}-{os.getpid()}", timedelta(seconds=float(term))))

def making(*given):
    print("inside", flush=True)
    assert sys.stdin.readline() == "go on\\n"
    return make(*given)

building.make = making
root = replace(open_root(f"{project}/.marin"), local=Path(project) / name)
built = building.build(root, building.Asked((f"{project}/raw/*.jsonl",)))
print("taken" if built.again else "made", built.artifact)
"""


def write(project: Path, files: int) -> None:
    (project / "raw").mkdir()
    for number in range(files):
        lines = (json.dumps({"text": f"text {place} of file {number}"}) + "\n" for place in range(20))
        (project / "raw" / f"{number}.jsonl").write_text("".join(lines))


@contextmanager
def machine(name: str, project: Path, term: float = 120) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", MACHINE, name, project, str(term)], text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def is_inside(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "inside\n"


def ended(process: subprocess.Popen[str], told: str = "") -> list[str]:
    out, err = process.communicate(told, timeout=120)
    assert process.returncode == 0, err
    return out.split()


def test_of_two_machines_that_build_one_collection_one_does(project: Path) -> None:
    write(project, 2)
    root = root_of(project)
    with machine("one", project) as first:
        assert is_inside(first)
        with machine("two", project) as second:
            assert second.stderr is not None
            waiting = next(line for line in second.stderr if "waiting for its end" in line)
            assert f"collection is being executed by executor one-{first.pid}" in waiting
            (made, artifact), taken = ended(first, "go on\n"), ended(second)
    assert (made, taken) == ("made", ["taken", artifact])
    told = [event for _, event in root.reader().events()]
    counts = Counter(event.type for event in told)
    assert (counts[COLLECTION_STARTED], counts[COLLECTION_COMPLETED]) == (1, 1)
    shards = [event.body["identity"] for event in told if event.type == COLLECTION_SHARD]
    assert len(shards) == len(set(shards)) > 2
    assert (counts[events.LEASE_TAKEN], counts[events.LEASE_RELEASED]) == (1, 1)


def test_a_build_that_died_on_another_machine_is_taken_over_after_its_term(project: Path) -> None:
    write(project, 1)
    with machine("one", project, term=1.5) as first:
        assert is_inside(first)
        first.kill()
        first.wait()
        with machine("two", project) as second:
            assert ended(second, "go on\n")[:2] == ["inside", "made"]
    taken = [event for _, event in root_of(project).reader().events() if event.type == events.LEASE_TAKEN]
    assert [event.body["over"] for event in taken] == [[], [f"one-{first.pid}"]]


def test_a_build_that_failed_leaves_no_lease(project: Path) -> None:
    write(project, 1)
    root = root_of(project)
    with machine("one", project) as first:
        assert is_inside(first)
        assert first.communicate("no\n", timeout=120) and first.returncode != 0
    last = [event for _, event in root.reader().events()][-1]
    assert last.type == events.LEASE_RELEASED
