"""A program ends as Python ends one, but for taking its objects apart."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit, sys, threading
from marin.process.collector import leave

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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert sorted(done.stdout.splitlines()) == ["a thread", "registered", "said"]


def test_a_stream_that_nobody_reads_changes_nothing() -> None:
    program = """
import sys
from marin.process.collector import leave

class Gone:
    def flush(self):
        raise BrokenPipeError

sys.stdout = Gone()
leave(3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "")
