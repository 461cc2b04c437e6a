"""Experiment files of a test's own, a root for them, and a count of what was really executed."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin.graph.execution.loop import Options, Outcome, execute_graph
from marin.graph.execution.work import graph_of
from marin.graph.files import load_graph
from marin.graph.graph import Graph
from marin.record.creation import create_root
from marin.record.root import Root

HEAD = """
import os
from pathlib import Path
from marin.graph import Context, Resources, Result, Step, adopt, override_output, unidentified

HERE = Resources(in_process=True)
TALLY = Path(os.environ["TALLY"])

def tally(name):
    with TALLY.open("a") as file:
        file.write(name + "\\n")

"""


@pytest.fixture
def tally(tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What was executed, in order; kept in the cache folder, where a step may write."""
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "cache" / "tally"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch()
    monkeypatch.setenv("TALLY", str(path))
    return lambda: path.read_text().split()


@pytest.fixture
def root(tmp_path: Path, own_keys: Path) -> Root:
    """An empty root."""
    return create_root(str(tmp_path / "root"), origin="marin.test/graph")


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, tally: object) -> Iterator[Write]:
    """An experiment file of this text, below a head that all of them share; loaded anew after every change."""
    folder = tmp_path / "experiments_of_a_test"
    folder.mkdir()
    before = set(sys.modules)

    def make(text: str, name: str = "exp_test", head: str = HEAD) -> Path:
        path = folder / f"{name}.py"
        path.write_text(head + textwrap.dedent(text))
        forget()
        return path

    def forget() -> None:
        for module in set(sys.modules) - before:
            if str(getattr(sys.modules[module], "__file__", "")).startswith(str(folder)):
                del sys.modules[module]
        graph_of.cache_clear()

    yield make
    forget()
    sys.path[:] = [entry for entry in sys.path if entry != str(folder)]


@pytest.fixture
def graph(write: Write) -> Callable[..., Graph]:
    """The graph of an experiment file of this text."""
    return lambda text, **more: load_graph(write(text, **more))


@pytest.fixture
def execute(write: Write, root: Root) -> Callable[..., Outcome]:
    """`marin run` of an experiment file of this text."""

    def run(text: str, **options: object) -> Outcome:
        path = write(text)
        return execute_graph(load_graph(path), root, file=path, options=Options(**options))  # type: ignore[arg-type]

    return run
