"""The honest run that forgeries begin with: that of the session (tests/e2e/conftest.py), which nobody changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from warm import warm

from marin.history.runs import run_ids
from tests.adversary.forgeries.brought import brought
from tests.adversary.forgeries.doors.register import Stall
from tests.adversary.forgeries.workshop import Base
from tests.e2e.conftest import Project, trained

__all__ = ["trained", "warm"]


@pytest.fixture(scope="session")
def base(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Base:
    (key,) = (trained.home / "config" / "marin").rglob("*.key")
    found = Base(tmp_path_factory.mktemp("adversary"), trained.root, key, "")
    (run,) = run_ids(found.root.history())
    return Base(found.folder, trained.root, key, run)


@pytest.fixture
def stall(base: Base, tmp_path: Path) -> Iterator[Stall]:
    made = Stall(base, tmp_path / "stall", lambda: brought(base))
    made.folder.mkdir()
    yield made
    made.discard()
