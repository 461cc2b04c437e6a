"""A mixture whose operator signs another series of its router than its train steps gave: only a replay shows it, and it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.history.runs import run_ids
from marin.record import events as kinds
from tests.adversary.forgeries.workshop import Base, Shop
from tests.e2e.conftest import Project
from tests.e2e.models.mixture import judged, mixture

__all__ = ["mixture"]

pytestmark = pytest.mark.long(together="mixtures")


def _a_unit_away(values: list[str]) -> list[str]:
    return [*values[:-1], (float.fromhex(values[-1]) + 2.0**-30).hex()]


def _one_more(values: list[str]) -> list[str]:
    return [*values[:-1], (float.fromhex(values[-1]) + 1.0).hex()]


@pytest.mark.parametrize(
    ("key", "change"),
    [("router/entropy", _a_unit_away), ("router/largest_share", _a_unit_away), ("router/idle_experts", _one_more)],
)
def test_a_forged_series_of_the_router_is_replayed_and_refused(
    mixture: Project, tmp_path: Path, key: str, change: Callable[[list[str]], list[str]]
) -> None:
    """By the operator, who has the key: only a replay of the train steps shows it."""
    shop = shop_of(mixture, tmp_path)
    changed = [
        series
        for event in shop.all(kinds.METRICS_RECORDED, "train")
        for series in event.body["series"]
        if series["key"] == key
    ]
    changed[-1]["values"] = change(changed[-1]["values"])
    shop.sign()
    status, report = refused(mixture, shop)
    assert (status, report["verdicts"]["training"]) == (1, "FAIL"), report["details"]
    assert key in "\n".join(report["details"]["training"])


def shop_of(mixture: Project, folder: Path) -> Shop:
    (key,) = (mixture.home / "config" / "marin").rglob("*.key")
    base = Base(folder, mixture.root, key, "")
    (run,) = run_ids(base.root.history())
    return Shop(Base(folder, mixture.root, key, run), run, folder)


def refused(mixture: Project, shop: Shop) -> tuple[int, dict[str, Any]]:
    """What a stranger says of the forged root."""
    vkey = (mixture.root / "vkey").read_text().strip()
    published = Project(shop.path.parent, shop.folder / "home", mixture.warm)
    published.home.mkdir()
    (published.home / "cache").symlink_to((mixture.home / "cache").resolve())
    return judged(published, "--only", "training", "--vkey", vkey)
