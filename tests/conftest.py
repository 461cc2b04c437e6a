"""Fixtures for all tests: buckets and a published folder on the loopback interface, and the part of dear tables and
long tests that a change is tested with; where tests write, and in which order they come (tests/services).

Signals have their usual meaning here, also where the suite was started in the background, by `nohup` or a service. Compiled
modules are kept, as by the Makefile, also where a user's PYTHONDONTWRITEBYTECODE says otherwise: every process of a test
would compile what it imports anew, jax and the rest in nine seconds of a processor.
"""

import os
import re
import signal
import sys
from collections.abc import Generator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import drawn
import forked
import hypothesis
import pytest
from buckets import bucket, gcs, gcs_service, mirror, s3, s3_service
from chromium import chromium, skip_without
from drawn import draw, pytest_configure, pytest_report_header, tenth
from forked import pytest_collection, pytest_runtestloop
from hashed_once import hash_code_once
from logs import own_logging
from order import longest_first
from scratch import on_disk, use_memory, use_own_cache, use_own_state
from warm import pytest_sessionstart

from bench.house import gauges

__all__ = [
    "bucket",
    "chromium",
    "gcs",
    "gcs_service",
    "mirror",
    "on_disk",
    "own_logging",
    "pytest_collection",
    "pytest_configure",
    "pytest_report_header",
    "pytest_runtestloop",
    "pytest_sessionstart",
    "s3",
    "s3_service",
    "tenth",
]

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# How long an example takes, to draw or to test, is the load of the machine. `make fuzz` says how many inputs each parser gets
# (MARIN_FUZZ): a property gets a tenth of that. Hypothesis by itself draws the same examples each time where CI is set.
hypothesis.settings.register_profile(
    "marin",
    max_examples=max(50, int(os.environ.get("MARIN_FUZZ", "0")) // 10),
    derandomize=False,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("marin")
use_memory()
use_own_cache()
use_own_state()
hash_code_once()


_PLUGIN = re.compile(r"(?:marin|tests)[./]plugins[./]([a-z]+)")
_IMPORTED = re.compile(r"(?:from|import) marin\.plugins\.([a-z]+)")
_IMPORT = re.compile(
    r"^[ \t]*(?:from ((?:tests|bench)[\w.]*) import|import ((?:tests|bench)[\w.]*)|from (\w+) import)", re.M
)
PROJECT = Path(__file__).resolve().parent.parent
SHARED = [
    PROJECT / "tests" / name for name in ("services", "services/remote", "foreign", "foreign/suites", "determinism")
]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Tests that take a plugin which is not in this tree, themselves or by what they share with others (docs/plugins.md: a folder
    that can be deleted); and all tests of a plugin that imports one."""
    lacking = gauges.lacking()
    if not lacking or not collection_path.is_relative_to(PROJECT):
        return None
    place = collection_path.relative_to(PROJECT).parts
    if place[:2] == ("tests", "plugins") and len(place) > 2 and place[2] in lacking:
        return True
    shared = collection_path / "conftest.py"
    if shared.is_file():
        return True if _plugins_of(shared) & lacking else None
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    return True if _plugins_of(collection_path) & lacking else None


@cache
def _plugins_of(file: Path) -> frozenset[str]:
    """The plugins that a file of tests names, and those that files of tests and of bench name which it imports."""
    found, seen, waiting = set[str](), set[Path](), [file]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        text = here.read_text("utf-8")
        rules = here.parent == PROJECT / "tests"  # of the tree: they name plugins, and hold it without them too
        found |= {*(_IMPORTED if rules else _PLUGIN).findall(text)}
        for dotted, other, beside in _IMPORT.findall(text):
            name = dotted or other
            places = (
                [PROJECT.joinpath(*name.split("."))] if name else [folder / beside for folder in (here.parent, *SHARED)]
            )
            waiting += [
                path for place in places for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()
            ]
    return frozenset(found)


_REFUSED = re.compile(r"(?:an installation without marin\.|dependency 'marin/)plugins[./]([a-z]+)")
"""By Marin, or by DVC, to which dvc.yaml names the files of what the default recipe asks for."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that was refused a plugin which is not in this tree is skipped, by the name that the refusal has: the default recipe
    names one too (`dataset=grammar`)."""
    report = yield
    lacking = gauges.lacking() if report.failed else frozenset()
    told = "\n".join([report.longreprtext, *(text for _, text in report.sections)]) if lacking else ""
    if refused := [name for name in _REFUSED.findall(told) if name in lacking]:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: without the plugin {refused[0]}")
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    drawn.add_option(parser)
    forked.add_option(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    draw(config, items)
    longest_first(items)
    skip_without(items)
    if not all(map(find_spec, ("lm_eval", "tenacity"))):
        for item in items:
            if item.get_closest_marker("evaluation"):
                item.add_marker(pytest.mark.skip(reason="the extra `evaluation` (make evaluation)"))
