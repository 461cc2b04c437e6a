"""What one change is tested with, where all would take too long: a tenth of each dear table of cases (faults, architectures,
seeds) and a minute of the long tests. The rest is drawn at other changes; `make faults` and `make long` leave nothing out.

    @pytest.mark.table                            of the cases of a parametrized test, a tenth, and one at least
    @pytest.mark.table(together=NAME)             the same cases in every test of this name
    def test(tenth): for step in tenth(range(400))    of what a test goes through itself, a tenth, in order
    @pytest.mark.long                             of all tests that are marked so, as many as `BUDGET` has room for
    @pytest.mark.long(seconds=40)                 it takes so long, where that is not about five seconds
    @pytest.mark.long(together=NAME)              all tests of this name or none: they share what is dear, and the seconds

A test is long whose call takes three seconds and more (`pytest --durations`; what fixtures take that others share does not
count). Long tests of what was changed come first: those of a file, of the folder that it is about (:func:`subjects`), or of
what all stand on; `make touched` executes them all. Changed is what the last commit and the tree since then differ in from
the commit before; ``MARIN_SINCE=COMMIT`` names another one, where several commits are one change.

The seed is the commit that is tested, so that every change draws others; pytest's first lines say it, and
``MARIN_DRAWN=SEED`` draws the same again. ``--whole`` leaves nothing out. Who names files or tests (``-k`` too) gets their
long ones. A case that is named by itself is never left out, nor is, with ``--lf`` or ``--ff``, what failed before.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

SEED = "MARIN_DRAWN"
SINCE = "MARIN_SINCE"
ABOUT = {
    "tests/test_gpu.py": ("bench/gpu/", "marin/plugins/exact/"),
    "tests/test_packaging.py": ("pyproject.toml", "ledger/__init__.pyi", "conf/"),
    "tests/adversary": ("tests/adversary/forgeries/", "marin/verify/", "marin/history/"),
    "tests/e2e": ("dvc.yaml", "params.yaml", "marin/pipeline/", "marin/execution/"),
    "tests/e2e/clusters": ("marin/runners/", "marin/plugins/ray/"),
    "tests/e2e/models": ("marin/evaluation/", "marin/plugins/evaluation/", "marin/plugins/serve/", "marin/export/"),
    "tests/e2e/pages": ("marin/plugins/mlflow/", "marin/reporting/"),
    "tests/e2e/training": (
        "marin/training/",
        "marin/pipeline/",
        "marin/execution/",
        "marin/verify/",
        "marin/plugins/unlearning/attribution/",
        "marin/plugins/unlearning/",
    ),
    "tests/e2e/verifying": ("marin/verify/",),
    "tests/fault": ("ledger/log/", "ledger/service/", "ledger/storage/", "ledger/store/"),
    "tests/golden": ("ledger/", "marin/kinds/"),
    "tests/marin/execution": ("marin/execution/", "ledger/log/"),
    "tests/marin/training/step": ("marin/training/", "marin/plugins/exact/"),
    "tests/marin/verify": ("marin/verify/", "marin/graph/"),
}
"""What the tests of a folder, or of a file, are about, where the folder's name does not say so or does not say all."""
ALL_STAND_ON = ("requirements.lock", "tests/conftest.py", "tests/services/")
BUDGET = 60.0
"""Seconds of one process for the long tests of a change; one of them at least is executed, whatever it takes."""
Tenth = Callable[[Iterable[int]], list[int]]


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="all cases of all tables and all long tests, not a part")
    parser.addoption("--touched", action="store_true", help="all long tests of what was changed, and no other ones")


def pytest_configure(config: pytest.Config) -> None:
    if SEED not in os.environ:  # set here once: anyone who is started from here draws the same
        os.environ[SEED] = (_git(config, "rev-parse", "--short=12", "HEAD") or "0").strip()


def pytest_report_header(config: pytest.Config) -> str:
    if config.getoption("whole"):
        return "tables of cases and long tests: all of them"
    tables = f"a tenth of each table of cases, drawn by {SEED}={os.environ[SEED]}"
    if _are_named(config):
        return f"{tables}; all long tests of what is named"
    since, files = changed(config)
    if files is None:
        return f"{tables}; long tests: {BUDGET:.0f} seconds (what changed since {since} is not known)"
    about = f"of what changed since {since} ({len(files)} files)"
    if config.getoption("touched"):
        return f"{tables}; long tests: all {about}"
    return f"{tables}; long tests: {BUDGET:.0f} seconds, first {about} (make touched: all of those)"


def _are_named(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.ARGS or bool(config.getoption("keyword"))


def _git(config: pytest.Config, *arguments: str) -> str | None:
    """What git prints, of this repository though a hook names another one; None where it fails or is not there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        command = ["git", "-C", str(config.rootpath), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def changed(config: pytest.Config) -> tuple[str, list[str] | None]:
    """Since when, and the files that were changed, made, moved or removed since; None: nobody knows."""
    since = os.environ.get(SINCE) or "HEAD^"
    differ = _git(config, "diff", "-z", "--name-only", "--no-renames", "--relative", since, "--")
    new = _git(config, "ls-files", "-z", "--others", "--exclude-standard")
    return since, None if differ is None or new is None else [name for name in (differ + new).split("\0") if name]


def subjects(test: str) -> tuple[str, ...]:
    """Files, and folders with a slash, whose change is one of what a test file is about: ``marin/graph/`` for all of
    ``tests/marin/graph``."""
    *folders, _, _ = (path.as_posix() for path in Path(test).parents)  # from its own up to below tests/
    folder = Path(test).parent.as_posix()
    same = (folder.removeprefix("tests/") + "/",) if folders else ()
    plugin = (f"marin/plugins/{folder.split('/')[2]}/",) if folder.startswith("tests/plugins/") else ()
    return (
        test,
        *ABOUT.get(test, ABOUT.get(folder, plugin or same)),
        *(f"{above}/conftest.py" for above in folders),
        *ALL_STAND_ON,
    )


def places(count: int, name: str) -> list[int]:
    """Places of a tenth of ``count`` things, at least one."""
    return sorted(random.Random(f"{os.environ[SEED]} {name}").sample(range(count), -(-count // 10)))


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not drawn, when items were collected."""
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    names: dict[str, str] = {}
    long: dict[str, list[pytest.Item]] = defaultdict(list)
    named, asked = _are_named(config), _asked_for(config)
    for item in items:
        if "tenth" in getattr(item, "fixturenames", ()):
            item.add_marker("table")  # so that `make faults` finds it
        elif marker := item.get_closest_marker("table"):
            test = item.nodeid.partition("[")[0]
            tables[test].append(item)
            names[test] = marker.kwargs.get("together", test)
        if (marker := item.get_closest_marker("long")) and not named:
            long[marker.kwargs.get("together", item.nodeid)].append(item)
    if config.getoption("whole"):
        return
    left = {
        item
        for name, cases in tables.items()
        for item in {*cases}.difference(cases[place] for place in places(len(cases), names[name]))
    }
    touched = _touched(config, long)
    drawn = touched if config.getoption("touched") else affordable(long, first=touched)
    left |= {item for name, together in long.items() if name not in drawn for item in together}
    left = {item for item in left if item.nodeid not in asked}
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def affordable(long: Mapping[str, Iterable[pytest.Item]], first: Collection[str]) -> set[str]:
    """Names of long tests for which there is time, drawn by the seed: of ``first`` before others."""
    order = random.Random(f"{os.environ[SEED]} long tests").sample(list(long), len(long))
    drawn, left = set[str](), BUDGET
    for name in sorted(order, key=lambda name: name not in first):
        seconds = max(item.get_closest_marker("long").kwargs.get("seconds", 5.0) for item in long[name])  # type: ignore[union-attr]
        if not drawn or seconds <= left:
            left -= seconds
            drawn.add(name)
    return drawn


def _touched(config: pytest.Config, long: Mapping[str, Iterable[pytest.Item]]) -> set[str]:
    """Names of long tests, one of which at least is about what was changed."""
    since, files = changed(config)
    if files is None and config.getoption("touched"):
        raise pytest.UsageError(
            f"what changed since {since} is not known: name a commit by {SINCE}=COMMIT, or run `make long`"
        )

    @cache
    def touched(test: str) -> bool:
        named, folders = {*subjects(test)}, tuple(one for one in subjects(test) if one.endswith("/"))
        return any(name in named or name.startswith(folders) for name in files or ())

    return {name for name, items in long.items() if any(touched(item.nodeid.partition("::")[0]) for item in items)}


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
