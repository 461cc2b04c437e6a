"""`check.html` of a published run in a browser (``pytest -m browser``): who has never heard of a log finds out that a run is
whole, and that a forged copy is not; node says the same of both."""

from __future__ import annotations

import functools
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from marin.plugins.sharing.judge.files import judge_files
from marin.reporting.template import style
from tests.e2e.conftest import Project
from tests.plugins.sharing.judge.golden import FORGED, GoldenFolder
from tests.plugins.sharing.judge.node import checked, needs_node

pytestmark = [pytest.mark.browser, needs_node]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def site(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "site"
    done = trained.marin("publish", "latest", "--to", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    page = chromium.new_page()
    yield page
    page.close()


def key_of(folder: Path) -> str:
    return (folder / "vkey").read_text().strip()


def found(page: Any) -> dict[str, Any]:
    page.wait_for_selector("#report[data-found]")
    told: dict[str, Any] = json.loads(page.get_attribute("#report", "data-found"))
    return told


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def a_weight(site: Path) -> None:
    """One bit of the exported weights."""
    (tree,) = [
        path
        for path in (site / "store/trees").rglob("*")
        if path.is_file() and b"model.safetensors" in path.read_bytes()
    ]
    entries = json.loads(tree.read_bytes())["entries"]
    digest = next(one["digest"] for one in entries if one["path"] == "model.safetensors").removeprefix("sha256:")
    flip(site / "store/blobs/sha256" / digest[:2] / digest[2:], -3)


def an_entry(site: Path) -> None:
    flip(next(path for path in sorted((site / "log/tile/entries").rglob("*")) if path.is_file()), 200)


def test_somebody_new_to_it_checks_a_run_and_finds_the_forged_copies(site: Path, page: Any, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shots = Path(os.environ.get("MARIN_SCREENSHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console", lambda told: errors.append(told.text) if told.type == "error" and "404" not in told.text else None
    )
    with served(site) as address:
        page.goto(f"{address}/index.html")
        page.get_by_role("link", name="Check them").click()
        page.wait_for_url("**/check.html*")  # a key that is pressed before the page is there is pressed in none
        page.keyboard.press("Tab")
        page.keyboard.type(key_of(site))
        page.get_by_role("button", name="Check").press("Enter")
        told = found(page)
        assert told["outcome"] == "PASS", told["verdicts"]
        assert page.evaluate("document.activeElement.id") == "found", "a screen reader begins with what was found"
        assert "It holds" in page.locator("#found").inner_text()
        here = checked(site, key_of(site))
        assert told == here.report, "node and Chromium agree"
        for scheme, width in (("light", 1400), ("dark", 1400), ("light", 390), ("dark", 390)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 850})
            wrong = [
                one["id"] for one in axe.run(page).response["violations"] if one["impact"] in ("serious", "critical")
            ]
            assert wrong == [], (scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
            page.screenshot(path=shots / f"check-{scheme}-{width}.png", full_page=True)
        program = page.locator("#program").inner_text()
        assert program == "sha256:" + _sha256(site / "check.mjs"), "what `sha256sum check.mjs` says"
    assert errors == []


def _sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("damage", "verdict", "place"), [(a_weight, "hash", "model.safetensors"), (an_entry, "signature", "entry 0")]
)
def test_a_forged_copy_is_refused_with_its_place(
    site: Path, page: Any, tmp_path: Path, damage: Callable[[Path], None], verdict: str, place: str
) -> None:
    copy = Path(shutil.copytree(site, tmp_path / "copy"))
    damage(copy)
    with served(copy) as address:
        page.goto(f"{address}/check.html")
        page.fill("#key", key_of(site))
        page.click("#start")
        told = found(page)
    assert told["outcome"] == "FAIL" and told["verdicts"][verdict]["outcome"] == "FAIL"
    assert place in told["verdicts"][verdict]["lines"][0]
    assert "does not hold" in page.locator("#found").inner_text()
    assert told == checked(copy, key_of(site)).report, "node and Chromium agree"


def test_a_published_run_under_exact_and_its_forged_copies_are_told_apart_by_hand(page: Any, tmp_path: Path) -> None:
    """As docs/verify.md says it, by keyboard: one key for all folders, of which some have one number that is another, and all
    else agrees with it. Only executing every train step tells them apart."""
    copies = {name: forge for name, (forge, _) in FORGED.items()} | {"as it was": GoldenFolder.signed}
    found_at: dict[str, str] = {}
    for number, (name, forge) in enumerate(copies.items()):
        kept = GoldenFolder(tmp_path / str(number))
        forge(kept)
        kept.signed()
        for file, data in judge_files(style()).items():
            (kept.folder / file).write_bytes(data)
        with served(kept.folder) as address:
            page.goto(f"{address}/check.html")
            page.locator("#key").focus()
            page.keyboard.type(kept.key)
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")  # More
            page.get_by_label("Execute again").focus()
            page.keyboard.type("all")
            page.get_by_role("button", name="Check").press("Enter")
            told = found(page)
            found_at[name] = page.locator("#report").inner_text()
            assert told == kept.checked().report, "node and Chromium agree"
        if os.environ.get("MARIN_SCREENSHOTS"):
            page.screenshot(path=Path(os.environ["MARIN_SCREENSHOTS"]) / f"copy-{number}.png", full_page=True)
        assert [one["outcome"] for one in told["verdicts"].values()] == ["PASS"] * 3, name
        execution = told["execution"]["outcome"]
        assert (told["outcome"], execution) == (("PASS", "PARTIAL") if name == "as it was" else ("FAIL", "FAIL")), name
    for name, (_, says) in FORGED.items():
        assert says in found_at[name], name
    assert "all 4 train steps of the run were executed here" in found_at["as it was"]


def test_a_folder_of_the_disk_without_any_server(site: Path, page: Any, tmp_path: Path) -> None:
    """The page from a release, opened from a disk; the folder is chosen, and nothing is asked of a network."""
    release = tmp_path / "release"
    release.mkdir()
    for name, data in judge_files(style()).items():
        (release / name).write_bytes(data)
    page.goto((release / "check.html").as_uri())
    page.fill("#key", key_of(site))
    page.locator("summary").first.click()
    page.set_input_files("#folder", str(site))
    page.click("#start")
    assert found(page)["outcome"] == "PASS"


def test_another_key_and_no_key(site: Path, page: Any) -> None:
    with served(site) as address:
        page.goto(f"{address}/check.html")
        page.click("#start")
        assert page.evaluate("document.getElementById('key').validity.valueMissing"), "the page asks for it"
        page.fill("#key", "example.org/log+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
        page.click("#start")
        page.wait_for_selector("#report h2")
        assert "not checked" in page.locator("#report h2").inner_text(), "its digits are not its own"
        page.fill("#key", "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
        page.click("#start")
        told = found(page)
        assert told["verdicts"]["signature"]["outcome"] == "FAIL"
        assert "no key that you gave signed this log" in told["verdicts"]["signature"]["lines"][0]
