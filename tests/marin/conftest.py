"""Fixtures of the product's tests: a project folder with a root and a key of its own, and the tiny plan."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from sessions import new_cache

from marin.process.running import RUN_VARIABLE, STEP_VARIABLE


@pytest.fixture(scope="session")
def tiny_module() -> ModuleType:
    """tests/marin/tiny.py, loaded once."""
    path = Path(__file__).with_name("tiny.py")
    spec = importlib.util.spec_from_file_location("tiny_plan", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tiny_plan"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tiny(tiny_module: ModuleType) -> Iterator[ModuleType]:
    """The tiny plan, with nothing remembered of other tests."""
    tiny_module.executed.clear()
    tiny_module.before_upper.clear()
    yield tiny_module
    tiny_module.before_upper.clear()


def own_folders(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Configuration, state and cache folders below ``folder``, so that no test touches the user's. Returns that of the
    configuration. Compiled programs alone are shared."""
    patch.setenv("MARIN_CACHE", str(new_cache(folder / "cache")))
    config = folder / "config"
    patch.setenv("XDG_CONFIG_HOME", str(config))
    patch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for name in ("MARIN_ROOT", "MARIN_KEY", "MARIN_KEY_PASSPHRASE", "MARIN_FORCE", "MARIN_PINS", "MARIN_TRUST"):
        patch.delenv(name, raising=False)
    for name in (RUN_VARIABLE, STEP_VARIABLE):  # steps in threads of one process leave each other's behind
        patch.setenv(name, "")
        patch.delenv(name)
    return config


@pytest.fixture
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configuration, state and cache folders of the test's own."""
    return own_folders(tmp_path, monkeypatch)


@pytest.fixture
def project(tmp_path: Path, own_keys: Path) -> Path:
    """An empty project with a root."""
    from marin.record.creation import create_root

    folder = tmp_path / "project"
    folder.mkdir()
    create_root(str(folder / ".marin"), origin="marin.test/tiny")
    return folder
