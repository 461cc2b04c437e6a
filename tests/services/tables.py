"""Large tables of faults: a tenth of each at a change, drawn by a seed, and the whole in `make faults`.

    @pytest.mark.table                            of the cases of a parametrized test, a tenth
    @pytest.mark.table(together=NAME)             the same cases in every test of this name
    def test(tenth): for step in tenth(range(400))    of what a test goes through itself, a tenth, in order

The seed is the commit that is tested, so that every change draws other cases; pytest's first lines say it, and
``MARIN_TABLES=SEED`` draws the same again. ``--whole-tables`` leaves nothing out.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

SEED = "MARIN_TABLES"
Tenth = Callable[[Iterable[int]], list[int]]


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--whole-tables", action="store_true", help="large tables of faults: all cases, not a tenth")


def pytest_configure(config: pytest.Config) -> None:
    if SEED not in os.environ:  # set here once: whoever is started from here draws the same
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        os.environ[SEED] = found.stdout.strip() or "0"


def pytest_report_header(config: pytest.Config) -> str:
    whole = config.getoption("whole_tables")
    return f"fault tables: {'whole' if whole else f'a tenth, drawn by {SEED}={os.environ[SEED]}'}"


def drawn(count: int, name: str) -> list[int]:
    """Places of a tenth of ``count`` things, at least one."""
    return sorted(random.Random(f"{os.environ[SEED]} {name}").sample(range(count), min(count, (count + 9) // 10)))


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not drawn, when items were collected."""
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    names: dict[str, str] = {}
    for item in items:
        if "tenth" in getattr(item, "fixturenames", ()):
            item.add_marker("table")  # so that `make faults` finds it
        elif marker := item.get_closest_marker("table"):
            test = item.nodeid.partition("[")[0]
            tables[test].append(item)
            names[test] = marker.kwargs.get("together", test)
    if config.getoption("whole_tables"):
        return
    left = {
        case
        for name, cases in tables.items()
        for case in {*cases}.difference(cases[place] for place in drawn(len(cases), names[name]))
    }
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


@pytest.fixture
def tenth(request: pytest.FixtureRequest) -> Tenth:
    """A tenth of what it is given, in order, drawn by the seed; all of it with ``--whole-tables``."""

    def of(things: Iterable[int]) -> list[int]:
        every = list(things)
        if request.config.getoption("whole_tables"):
            return every
        return [every[place] for place in drawn(len(every), request.node.nodeid)]

    return of
