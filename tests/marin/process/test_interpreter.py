"""A program ends as Python ends one, but for taking its objects apart; its frames have room."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marin.process.interpreter import experiment_path, with_room

PROGRAM = """
import atexit, sys, threading
from marin.process.interpreter import leave

class Kept:
    def __del__(self):
        sys.__stdout__.write("taken apart\\n")
        sys.__stdout__.flush()

kept = Kept()
kept.itself = kept
begun = threading.Event()
say = sys.stdout.write  # a line at once: threads may meet
atexit.register(say, "registered\\n")
threading.Thread(target=lambda: (begun.wait(), say("a thread\\n"))).start()
threading.Thread(target=begun.set).start()
say("said\\n")
leave(7)
"""


def test_all_but_the_objects() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert sorted(done.stdout.splitlines()) == ["a thread", "registered", "said"]


def test_a_stream_that_nobody_reads_changes_nothing() -> None:
    program = """
import sys
from marin.process.interpreter import leave

class Gone:
    def flush(self):
        raise BrokenPipeError

sys.stdout = Gone()
leave(3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (3, "")


INTERRUPTED = """
import atexit, os, signal, sys, threading
from marin.process.interpreter import leave

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()  # for nothing: this thread ends with the process

atexit.register(print, "registered")
waited = threading.Thread(target=interrupt)
threading._shutdown = lambda ends=threading._shutdown: (waited.start(), ends())
leave(7)
"""


def test_an_interruption_at_the_end_keeps_the_status() -> None:
    """Threads are waited for no more; what was registered is called, and no traceback is shown."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "registered\n", "")


ASKED = """
import resource, sys
from marin.process.interpreter import with_room

def nothing():
    pass

def called(depth):
    for _ in range(100):
        nothing()
    if depth:
        called(depth - 1)

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    called(500)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(pages(), with_room(pages))
"""


def test_frames_in_one_piece_ask_for_each_page_of_memory_once() -> None:
    """Counted as faults: a page that was given back is another one when it is asked for again. Without room a chunk ends
    several times on the way down, and each of a hundred calls there asks for the next."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, timeout=600, check=True)
    plain, roomy = (int(number) for number in done.stdout.split())
    assert roomy < 100 < plain, done.stdout


def test_what_is_given_and_returned_and_raised_is_the_functions() -> None:
    assert with_room(sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError) as raised:
        with_room(divmod, 1, 0)
    assert "with_room" in {entry.name for entry in raised.traceback}


@pytest.mark.parametrize("place", ["tmpq1", "standalone/tmpq1"], ids=["queued", "temp"])
def test_a_copy_that_dvc_made_executes_its_own_code(tmp_path: Path, place: str) -> None:
    """DVC 3 puts what is queued into one folder, and what `dvc exp run --temp` executes into one below it."""
    copy = tmp_path / ".dvc" / "tmp" / "exps" / place
    (copy / "marin").mkdir(parents=True)
    inside, other = copy / "a" / "b", tmp_path / ".dvc" / "tmp" / "exps" / "celery"
    inside.mkdir(parents=True)
    other.mkdir()
    assert experiment_path(copy, tmp_path, {}) == experiment_path(inside, tmp_path, {}) == {"PYTHONPATH": str(copy)}
    before = {"PYTHONPATH": f"{copy}x"}  # of another experiment, whose name begins so
    assert experiment_path(copy, tmp_path, before) == {"PYTHONPATH": f"{copy}{os.pathsep}{copy}x"}
    assert experiment_path(copy, tmp_path, {"PYTHONPATH": f"first{os.pathsep}{copy}"}) == {}
    assert experiment_path(copy, copy, {}) == experiment_path(other, tmp_path, {}) == {}
    assert experiment_path(tmp_path, tmp_path, {}) == experiment_path(copy, tmp_path / "elsewhere", {}) == {}
