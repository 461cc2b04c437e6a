"""`check.html` in a browser before forged runs (``pytest -m browser``): it refuses each and says where, in the words of node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin.history.runs import run_ids
from marin.plugins.sharing.judge.files import judge_files
from marin.reporting.template import style
from tests.adversary.forgeries.workshop import Base
from tests.adversary.test_browser_judge import REFUSED, forged
from tests.e2e.conftest import Project
from tests.e2e.pages.test_check_page import found, served
from tests.plugins.sharing.judge.node import checked, needs_node

pytestmark = [pytest.mark.browser, needs_node]

KINDS = list(REFUSED)[::4]
"""Every fourth: the page is the same program that answers in node, where all of them are asked."""


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) >= 40


@pytest.fixture(scope="module")
def base(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Base:
    (key,) = (trained.home / "config" / "marin").rglob("*.key")
    found = Base(tmp_path_factory.mktemp("forgeries"), trained.root, key, "")
    (run,) = run_ids(found.root.history())
    return Base(found.folder, trained.root, key, run)


@pytest.fixture(scope="module")
def page(chromium: Any) -> Iterator[Any]:
    page = chromium.new_page()
    yield page
    page.close()


@pytest.mark.parametrize("name", KINDS)
def test_the_page_refuses_what_node_refuses(base: Base, page: Any, tmp_path: Path, name: str) -> None:
    with forged(base, REFUSED[name], tmp_path / "shop") as shop:
        keys = [str(key) for key in shop.told or (base.root.verifier,)]
        for file, data in judge_files(style()).items():
            (shop.path / file).write_bytes(data)
        with served(shop.path) as address:
            page.goto(f"{address}/check.html#{shop.run}")
            page.reload()  # the same page with another name behind the # is not opened again
            page.fill("#key", "\n".join(keys))
            page.locator("summary").first.click()
            page.select_option("#execute", "none")
            page.click("#start")
            told = found(page)
            assert told == checked(address, *keys, run=shop.run, execute="none").report, "node and Chromium agree"
    assert told["outcome"] != "PASS"
    assert any(
        line for verdict in told["verdicts"].values() if verdict["outcome"] != "PASS" for line in verdict["lines"]
    )
