"""What one change is tested with, where all would take too long: a tenth of each dear table of cases (faults, architectures,
seeds) and of the long tests. The rest is drawn at other changes; `make faults` and `make long` leave nothing out.

    @pytest.mark.table                            of the cases of a parametrized test, a tenth, and one at least
    @pytest.mark.table(together=NAME)             the same cases in every test of this name
    def test(tenth): for step in tenth(range(400))    of what a test goes through itself, a tenth, in order
    @pytest.mark.long                             of all tests that are marked so, a tenth
    @pytest.mark.long(together=NAME)              all tests of this name or none: they share what is dear

A test is long that takes three seconds and more. What a change is about is not drawn: long tests are executed where the
last commit, or the tree since then, changed them, or what their folder is about (:func:`about`).

The seed is the commit that is tested, so that every change draws others; pytest's first lines say it, and
``MARIN_DRAWN=SEED`` draws the same again. ``--whole`` leaves nothing out. Who names files or tests (``-k`` too) gets their
long ones. A case that is named by itself is never left out, nor is, with ``--lf`` or ``--ff``, what failed before.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

SEED = "MARIN_DRAWN"
ABOUT = {
    "tests/determinism": "marin/training",
    "tests/e2e/clusters": "marin/runners",
    "tests/e2e/models": "marin/evaluation",
    "tests/e2e/pages": "marin/tracking",
    "tests/e2e/training": "marin/training",
    "tests/e2e/verifying": "marin/verify",
    "tests/fault": "ledger",
}
"""What the tests of a folder are about, where its name does not say so."""
Tenth = Callable[[Iterable[int]], list[int]]


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="all cases of all tables and all long tests, not a part")


def pytest_configure(config: pytest.Config) -> None:
    if SEED not in os.environ:  # set here once: whoever is started from here draws the same
        os.environ[SEED] = _git(config, "rev-parse", "--short=12", "HEAD").strip() or "0"


def pytest_report_header(config: pytest.Config) -> str:
    if config.getoption("whole"):
        return "tables of cases and long tests: all of them"
    part = "a tenth of the tables of cases, and of the long tests with those of what was changed"
    return f"{part}, drawn by {SEED}={os.environ[SEED]}"


def _git(config: pytest.Config, *arguments: str) -> str:
    """What git prints; nothing where there is no git, or no such commit."""
    try:
        command = ["git", "-C", str(config.rootpath), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def about(test: str) -> str:
    """The folder that a test file is about: ``marin/graph/`` for all of ``tests/marin/graph``, none for ``tests``."""
    folder = Path(test).parent.as_posix()
    return ABOUT.get(folder, folder.removeprefix("tests").removeprefix("/")) + "/"


def places(count: int, name: str) -> list[int]:
    """Places of a tenth of ``count`` things, at least one."""
    return sorted(random.Random(f"{os.environ[SEED]} {name}").sample(range(count), -(-count // 10)))


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not drawn, when items were collected."""
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    names: dict[str, str] = {}
    long: dict[str, list[pytest.Item]] = defaultdict(list)
    named = config.args_source is pytest.Config.ArgsSource.ARGS or config.getoption("keyword")
    asked = _asked_for(config)
    changed = _git(config, "diff", "--name-only", "HEAD^").splitlines()
    touched: dict[str, bool] = {}
    for item in items:
        if "tenth" in getattr(item, "fixturenames", ()):
            item.add_marker("table")  # so that `make faults` finds it
        elif marker := item.get_closest_marker("table"):
            test = item.nodeid.partition("[")[0]
            tables[test].append(item)
            names[test] = marker.kwargs.get("together", test)
        if (marker := item.get_closest_marker("long")) and not named:
            file = item.nodeid.partition("::")[0]
            if file not in touched:
                touched[file] = any(name == file or name.startswith(about(file)) for name in changed)
            if not touched[file]:
                long[marker.kwargs.get("together", item.nodeid)].append(item)
    if config.getoption("whole"):
        return
    left = {
        item
        for name, cases in tables.items()
        for item in {*cases}.difference(cases[place] for place in places(len(cases), names[name]))
    }
    drawn = {list(long)[place] for place in places(len(long), "long tests")}
    left |= {item for name, together in long.items() if name not in drawn for item in together}
    left = {item for item in left if item.nodeid not in asked}
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def _asked_for(config: pytest.Config) -> set[str]:
    """Ids of single cases that were named, and of what failed before where that is asked for."""
    here, cases = config.invocation_params.dir, [one for one in config.args if one.endswith("]")]
    asked = set()
    for path, separator, test in (one.partition("::") for one in cases):
        asked.add(Path(os.path.relpath(here / path, config.rootpath)).as_posix() + separator + test)
    if config.getoption("lf", False) or config.getoption("failedfirst", False):
        asked |= set(config.cache.get("cache/lastfailed", {}))  # type: ignore[union-attr]  # whose options these are
    return asked


@pytest.fixture
def tenth(request: pytest.FixtureRequest) -> Tenth:
    """A tenth of what it is given, in order, drawn by the seed; all of it with ``--whole``."""

    def of(things: Iterable[int]) -> list[int]:
        every = list(things)
        if request.config.getoption("whole"):
            return every
        return [every[place] for place in places(len(every), request.node.nodeid)]

    return of
