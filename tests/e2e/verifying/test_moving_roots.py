"""A root that shows one log to anyone who reads it, and another to anyone who reads it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tests.adversary.forgeries.kinds as kinds
from tests.adversary.forgeries.bench import judged
from tests.e2e.verifying.test_forgeries import base_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Project


@pytest.mark.parametrize("name", ["another log for anyone who looks twice", "another log for anyone who audits it"])
def test_what_is_judged_is_what_was_read(trained: Project, tmp_path: Path, name: str) -> None:
    (row,) = judged(base_of(trained, tmp_path), [kinds.KINDS[name]], alone=True)
    assert row.how == "refused", row
