"""Fixtures for all tests: buckets and a published folder on the loopback interface, and the part of dear tables and
long tests that a change is tested with; where tests write, and in which order they come (tests/services).

Signals have their usual meaning here, also where the suite was started in the background, by `nohup` or a service.
"""

import os
import re
import signal
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
from logs import own_logging
from order import longest_first
from scratch import on_disk, use_memory, use_own_cache, use_own_state
from warm import pytest_sessionstart

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


_PLUGIN = re.compile(rb"marin[./]plugins[./]([a-z]+)")
PROJECT = Path(__file__).resolve().parent.parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Tests of several rooms that take a plugin which is not in this tree (docs/plugins.md: a folder that can be deleted)."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    named = set(_PLUGIN.findall(collection_path.read_bytes()))
    return True if any(not (PROJECT / "marin" / "plugins" / name.decode()).is_dir() for name in named) else None


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
