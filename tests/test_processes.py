"""`pytest --processes N` runs every test once, says of each what pytest says, and survives a test that kills its process. No
test waits for less than a busy machine takes."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from forked import following
from order import LONGEST, TESTS
from warm import environment, warmed

SERVICES = Path(__file__).with_name("services")
CONFTEST = "from forked import add_option as pytest_addoption, pytest_runtestloop\n"
SESSION = """
import os, pathlib, pytest

@pytest.fixture(scope="session")
def own(tmp_path_factory):
    (tmp_path_factory.mktemp("own") / "begun").touch()
    yield os.getpid()
    pathlib.Path(f"ended-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(4))
def test_of_one_process(own, number, tmp_path):
    assert own == os.getpid() != int(os.environ["PARENT"])

def test_fails(own):
    print("what it printed")
    assert "found" == "expected"
"""
DEATH = """
import os

def test_before():
    pass

def test_dies():
    os._exit(7)

def test_after():
    pass
"""


def pytest_in(folder: Path, *arguments: str) -> tuple[int, str]:
    program = "import os, sys, pytest; os.environ['PARENT'] = str(os.getpid()); sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-p", "no:cacheprovider", "-p", "no:schemathesis", "-q", "-rA"]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "--basetemp", str(folder / "temporary"), *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(SERVICES), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_each_test_is_run_once_in_one_of_the_processes(tmp_path: Path) -> None:
    for name, text in (("conftest", CONFTEST), ("test_one", SESSION), ("test_two", SESSION), ("test_death", DEATH)):
        (tmp_path / f"{name}.py").write_text(text)
    status, told = pytest_in(tmp_path, "--processes", "2")
    outcomes = sorted(re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", told, re.M))
    passed = {f"test_{name}.py::test_of_one_process[{n}]" for name in ("one", "two") for n in range(4)}
    passed |= {"test_death.py::test_before", "test_death.py::test_after"}
    failed = {"test_one.py::test_fails", "test_two.py::test_fails", "test_death.py::test_dies"}
    assert outcomes == sorted([*(("PASSED", name) for name in passed), *(("FAILED", name) for name in failed)]), told
    assert status == 1 and "the process of this test ended with 7" in told
    assert told.count("Captured stdout call") == 2 and "'found' == 'expected'" in told
    assert 1 <= len(list(tmp_path.glob("ended-*"))) <= 2, "what a session made is unmade"


def test_files_go_to_the_process_that_was_near() -> None:
    """Those that begin early first; then the own folder, a near one where nobody is, and at last any."""
    rooms = TESTS / "marin"
    own, other, near, far = rooms / "graph/b.py", rooms / "data/a.py", rooms / "exact/c.py", TESTS / "ledger/d.py"
    early, pipeline = TESTS / LONGEST[3], TESTS / "e2e/test_other.py"
    at, others = own.parent, {other.parent}
    assert following([other, own, pipeline, early], at, others) == 2
    assert following([other, far, near, own], at, others) == 3
    assert following([other, far, near], at, others) == 2
    assert following([other, far], at, others) == 1
    assert following([other], at, others) == 0
    assert following([other, own], None, others) == 1


def test_a_limit_of_failures_holds(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text("def test():\n    assert False\n")
    status, told = pytest_in(tmp_path, "--processes", "2", "--maxfail", "1")
    assert status == 1 and "stopping after" in told
    assert len(set(re.findall(r"^FAILED (\S+)", told, re.M))) <= 4, "each has one file, and was given the next"


ENDING = """
import forked, os

def full(child):
    raise OSError("no space")

def ends(child, tell=forked.Child._tell, **what):
    if what.get("at") == 0 and not os.path.exists("ended"):
        open("ended", "w").close()
        os._exit(9)
    tell(child, **what)
"""


@pytest.mark.long
def test_what_no_process_began_fails_the_session(tmp_path: Path) -> None:
    """All processes end before they ask for a test; one ends between a file that it was given and the file's first test."""
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text("def test():\n    pass\n")
    (tmp_path / "conftest.py").write_text(f"{CONFTEST}{ENDING}\nforked.Child._become = full\n")
    status, told = pytest_in(tmp_path, "--processes", "2")
    assert status == 1 and "4 tests were never begun" in told and "no space" in told, told
    (tmp_path / "conftest.py").write_text(f"{CONFTEST}{ENDING}\nforked.Child._tell = ends\n")
    status, told = pytest_in(tmp_path, "--processes", "2")
    assert status == 1 and "a process that was at no test ended with 9" in told, told
    assert "4 passed" in told or ("3 passed" in told and "1 tests were never begun" in told), told  # who is there still


def test_programs_are_forked_beside_each_other_and_end_as_they_say(tmp_path: Path) -> None:
    """By the process of tests/services/warm.py."""
    os.mkfifo(gate := tmp_path / "gate")
    with warmed(environment(), ["json"]) as warm, ThreadPoolExecutor() as pool:

        def run(program: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
            return warm.run(program, arguments, cwd=tmp_path, environment=environment(), timeout=timeout)

        waits = pool.submit(run, "import sys; print(open(sys.argv[1]).read()); sys.exit(3)", str(gate))
        opens = run("import sys; print('opened', file=open(sys.argv[1], 'w'))", "gate")
        assert (opens.returncode, waits.result().returncode, waits.result().stdout.strip()) == (0, 3, "opened")
        raises = run("raise ValueError('in its words')")
        assert raises.returncode == 1 and "ValueError: in its words" in raises.stderr
        assert run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -signal.SIGKILL
        with pytest.raises(subprocess.TimeoutExpired):
            run("import signal; signal.pause()", timeout=0.1)
        with socket.socket(socket.AF_UNIX) as leaves:
            leaves.connect(str(warm.address))
        assert run("print(1)").stdout == "1\n", "the next ones are forked all the same"


WAITS = {"join", "wait", "acquire", "select", "communicate", "settimeout", "poll"}
LIMIT = re.compile(rf"timeout ?= ?\d|\.(?:{'|'.join(sorted(WAITS))})\(\d")
OWN_TIME = {
    "foreign/programs.py": "a server that does not answer yet is asked again",
    "ledger/test_remote.py": "a service that says nothing",
    "services/remote/http_faults.py": "an answer that hangs",
}
"""What a test waits for no longer than so, though it comes no more."""


def short_waits(source: str) -> Iterator[str]:
    """Seconds for which something is waited that is to come: from five on they are no look at what is there, and below three
    hundred a machine with much else to do has not imported jax."""
    for node in ast.walk(ast.parse(source)) if LIMIT.search(source) else ():
        if isinstance(node, ast.Call):
            limits = [named.value for named in node.keywords if named.arg == "timeout"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in WAITS and len(node.args) == 1:
                limits += node.args
            for limit in limits:
                if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float) and 5 <= limit.value < 300:
                    yield f"{limit.lineno}: {limit.value}"


def test_nothing_is_waited_for_by_the_clock_of_an_idle_machine() -> None:
    names = {file.relative_to(TESTS).as_posix(): file for file in sorted(TESTS.rglob("*.py"))}
    found = {name: [*short_waits(file.read_text("utf-8"))] for name, file in names.items()}
    assert {name: waits for name, waits in found.items() if waits and name not in OWN_TIME} == {}
    assert all(found[name] for name in OWN_TIME)
    assert [*short_waits("a.wait(60)\nb.join(0.2)\nrun(c, timeout=600)\nrun(c, timeout=299)\n','.join('a')")] == [
        "1: 60",
        "4: 299",
    ]
