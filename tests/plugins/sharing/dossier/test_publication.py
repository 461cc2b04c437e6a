"""A published run is a root that a stranger reads; what breaks off leaves readers what they had, and goes on."""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from recorded import FILES, RUN, record_run

from ledger import Draft, LogReader, Store, copy_artifacts, open_storage
from marin.cli import main
from marin.cli.verifying.places import run_address
from marin.history.runs import load, stream_of
from marin.plugins.sharing.dossier.judge import judge_dossier
from marin.plugins.sharing.pages.publish import needed_artifacts, publish_pages
from marin.record.attestation import digests
from marin.record.root import Root


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def sent(root: Root, site: Path) -> int:
    source = root.store()
    return copy_artifacts(
        source, Store(open_storage(site)), needed_artifacts(root, load(root.history(), RUN), source)
    ).blobs


def test_a_published_run_is_read_over_http_by_a_stranger(root: Root, site: Path, address: str) -> None:
    assert sent(root, site) == 5, "corpus and model share one of their six files"
    done = publish_pages(root, load(root.history(), RUN), open_storage(site))
    reader = LogReader(open_storage(address, readonly=True), [root.verifier])
    assert reader.checkpoint() == root.reader().checkpoint()
    model = load(root.history(), RUN).output("export").artifact
    assert Store(open_storage(address, readonly=True)).manifest(model).digest == model
    assert judge_dossier(site / done.dossier, [root.verifier]).verdicts["fields"].outcome == "PASS"
    page = (site / done.page).read_text()
    assert done.dossier in page and "Check it below." in page and f"check.html#{RUN}" in page
    assert f"marin verify ADDRESS --vkey &#39;{root.verifier}&#39;" in page, "a script puts in what the browser has"
    publish_pages(root, load(root.history(), RUN), open_storage(site), address=f"{address}/")
    page = (site / done.page).read_text()
    assert f"marin verify {address}/runs/{RUN}/ --vkey" in page and "a verification reads" in page


def test_a_dossier_is_judged_at_its_address(
    root: Root, site: Path, address: str, capsysbinary: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    """As a browser shows it, by who has the address and the key; a changed digit is found there as in a folder."""
    sent(root, site)
    done = publish_pages(root, load(root.history(), RUN), open_storage(site))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARIN_ROOT", raising=False)
    there = f"{address}/{done.dossier}"
    for place in (there, f"{there}/", f"{there}/index.html#numbers", str(site / done.dossier / "index.html")):
        assert main.run(["verify", "--dossier", place, "--vkey", str(root.verifier)]) == 4, (
            "the provider stated nothing"
        )
        said = capsysbinary.readouterr().out.decode()
        assert re.findall(r"^(\w+) +PASS", said, re.M) == ["files", "events", "fields", "model"], place
    card = site / done.dossier / "README.md"
    card.write_text(re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), card.read_text(), count=1))
    assert main.run(["verify", "--dossier", there, "--vkey", str(root.verifier)]) == 1
    assert re.search(r"^files +FAIL.*README\.md", capsysbinary.readouterr().out.decode(), re.M)
    assert main.run(["verify", "--dossier", f"{address}/nowhere", "--vkey", str(root.verifier)]) == 3


def test_verify_takes_the_address(root: Root, site: Path, address: str, capsysbinary: Any, monkeypatch: Any) -> None:
    sent(root, site)
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    monkeypatch.setenv("MARIN_ROOT", "elsewhere")
    monkeypatch.delenv("MARIN_KEY", raising=False)
    command = [
        "verify",
        f"{address}/runs/{RUN}/index.html#loss",
        "--vkey",
        str(root.verifier),
        "--only",
        "artifacts",
        "--no-record",
    ]
    main.run([*command, "--allow", "unconfined", "--json"])
    said = capsysbinary.readouterr().out
    assert RUN.encode() in said
    assert root.reader().checkpoint().root.hex().encode() in said


@pytest.mark.parametrize("shown", ["", "index.html", "?from=mail", "#top", f"check.html#{RUN}", "{dossier}/"])
def test_what_a_browser_shows_of_all_runs_means_the_newest_that_is_published(
    root: Root, site: Path, address: str, capsysbinary: Any, monkeypatch: Any, shown: str
) -> None:
    """Of a newer run of the log, which is not published, no file is there."""
    sent(root, site)
    done = publish_pages(root, load(root.history(), RUN), open_storage(site))
    begun = next(event for _, event in root.history().events(stream=stream_of(RUN)))
    root.append([Draft(begun.type, stream_of("zzzz2345"), {**begun.body, "run": "zzzz2345"})])
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    monkeypatch.setenv("MARIN_ROOT", "elsewhere")
    monkeypatch.delenv("MARIN_KEY", raising=False)
    place = f"{address}/{shown.format(dossier=done.dossier)}"
    command = ["verify", place, "--vkey", str(root.verifier), "--only", "ledger", "--no-record", "--json"]
    main.run([*command, "--allow", "unconfined"])
    assert json.loads(capsysbinary.readouterr().out)["run"] == RUN


@pytest.mark.parametrize("shown", [f"check.html#{RUN}", f"runs/{RUN}/", ""])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_confined_process_is_asked_for_the_run_and_the_page_that_were_named(
    root: Root, site: Path, address: str, monkeypatch: Any, shown: str, on_disk: bool
) -> None:
    """It has the page from its parent, and reads it again: at an address, and in a folder."""
    sent(root, site)
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    monkeypatch.setenv("MARIN_ROOT", "elsewhere")
    monkeypatch.delenv("MARIN_KEY", raising=False)
    monkeypatch.setattr("marin.verify.sealed.opened_own", lambda _: None)  # somebody else's log
    asked: list[str] = []
    monkeypatch.setattr("marin.verify.sealed.verify", lambda *_, **named: asked.append(named["asked"]) or 0)
    page = f"{site if on_disk else address}/{shown}"
    assert main.run(["verify", page, "--vkey", str(root.verifier), "--no-record"]) == 0
    assert run_address(asked[0]) == run_address(page) and run_address(page).place == str(site if on_disk else address)


def test_a_second_time_sends_nothing_and_changes_nothing(root: Root, site: Path) -> None:
    sent(root, site)
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    before = digests(site, "")
    assert sent(root, site) == 0
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    assert digests(site, "") == before


class CutOff(Exception):
    """The connection is gone."""


class Cutting:
    """A storage whose connection ends at the N-th write."""

    def __init__(self, storage: Any, writes: int) -> None:
        self.storage, self.left = storage, writes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.storage, name)
        if name not in ("ensure", "ensure_many", "replace"):
            return found

        def write(*arguments: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise CutOff
            found(*arguments)

        return write


class Looking:
    """A storage on which a reader looks around after every write: whatever a page leads to is whole."""

    def __init__(self, storage: Any, look: Callable[[], None]) -> None:
        self.storage, self.look = storage, look

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.storage, name)
        if name not in ("ensure", "ensure_many", "replace"):
            return found

        def write(*arguments: Any) -> None:
            found(*arguments)
            self.look()

        return write


def test_readers_see_one_publication_or_the_next(root: Root, site: Path, tmp_path: Path) -> None:
    """After each single write: the page of the run leads to a whole dossier, and the log proves its events."""
    sent(root, site)
    run, seen = load(root.history(), RUN), []

    def look() -> None:
        page = site / "runs" / RUN / "index.html"
        if not page.exists():
            return
        (dossier,) = re.findall(r"dossiers/[0-9a-f]{64}", page.read_text())
        verdicts = judge_dossier(site / dossier, [root.verifier]).verdicts
        assert {verdicts[name].outcome for name in ("files", "events", "fields", "model")} == {"PASS"}
        reader = LogReader(open_storage(site), [root.verifier])
        for index, _ in reader.events():
            assert index < reader.checkpoint().size
        seen.append((dossier, reader.checkpoint().size))

    for name in ("Nano 1", "Nano 2"):
        (tmp_path / "card.yaml").write_text(f"model.name: {name}\n")
        target: Any = Looking(open_storage(site), look)
        publish_pages(root, run, target, card=tmp_path / "card.yaml")
    assert len(seen) > 10 and len(set(seen)) == 3, "the first, the first with the longer log, and the second"


def test_what_runs_share_lies_there_once(root: Root, site: Path, project: Path) -> None:
    """A second run with the same corpus and another model: only the model goes over; the front lists both."""
    sent(root, site)
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    other = FILES | {"export": {"model.safetensors": b"other weights"}}
    (project / "other").mkdir()
    record_run(root, project / "other", "3khr7ocq", other, trained={})
    second, source = load(root.history(), "3khr7ocq"), root.store()
    copied = copy_artifacts(source, Store(open_storage(site)), needed_artifacts(root, second, source))
    assert (copied.blobs, copied.there) == (1, 3)
    publish_pages(root, second, open_storage(site))
    front = (site / "index.html").read_text()
    assert front.index("runs/3khr7ocq/index.html") < front.index(f"runs/{RUN}/index.html")
    for page in (site / "index.html", site / "runs" / RUN / "index.html", site / "runs" / "3khr7ocq" / "index.html"):
        links = re.findall(r'href="([^"#:]+)"', page.read_text())
        assert links and all((page.parent / link).resolve().is_file() for link in links), (page, links)


@pytest.mark.long
def test_cut_off_at_every_write_readers_keep_what_they_had_and_it_goes_on(
    root: Root, site: Path, tmp_path: Path
) -> None:
    sent(root, site)
    run = load(root.history(), RUN)
    publish_pages(root, run, open_storage(site))
    old = LogReader(open_storage(site), [root.verifier]).checkpoint()
    page = (site / "runs" / RUN / "index.html").read_bytes()
    (tmp_path / "card.yaml").write_text("model.name: Nano 2\n")
    for writes in range(100):
        try:
            done = publish_pages(root, run, Cutting(open_storage(site), writes), card=tmp_path / "card.yaml")  # type: ignore[arg-type]
            break
        except CutOff:
            seen = LogReader(open_storage(site), [root.verifier]).checkpoint()
            assert seen.size in (old.size, old.size + 1)
            now = (site / "runs" / RUN / "index.html").read_bytes()
            assert now == page or seen.size == old.size + 1, "the page is the last but for the front"
    assert writes > 5
    assert LogReader(open_storage(site), [root.verifier]).checkpoint().size == old.size + 1
    assert judge_dossier(site / done.dossier, [root.verifier]).verdicts["files"].outcome == "PASS"
    assert (site / "runs" / RUN / "index.html").read_bytes() != page


@pytest.mark.browser
def test_a_stranger_finds_claim_numbers_and_the_command_with_the_address(
    root: Root, site: Path, address: str, chromium: Any, tmp_path: Path
) -> None:
    """The command on the page has the address under which a browser shows it, and the key."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shots = Path(os.environ.get("MARIN_SCREENSHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    sent(root, site)
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    page = chromium.new_page()
    for scheme, width in (("light", 1400), ("dark", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 850})
        page.goto(f"{address}/runs/{RUN}/index.html#top")
        found = axe.run(page).response["violations"]
        assert [item["id"] for item in found if item["impact"] in ("serious", "critical")] == [], (scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
        *installed, command = page.locator("[data-here]").all_inner_texts()
        assert all(f" @ {address}/wheels/" in line and "#sha256=" in line for line in installed), installed
        assert command == f"marin verify {address}/runs/{RUN}/ --vkey '{root.verifier}'"
        assert not page.get_by_text("ADDRESS stands for").count(), "there is nothing left to fill in"
        page.screenshot(path=shots / f"published-{scheme}-{width}.png", full_page=True)
    plain = chromium.new_context(java_script_enabled=False)
    without = plain.new_page()
    without.goto(f"{address}/runs/{RUN}/index.html")
    assert "marin verify ADDRESS " in without.locator("[data-here]").all_inner_texts()[-1]
    assert without.get_by_text("ADDRESS stands for the address of this page").is_visible()
    plain.close()
    page.get_by_role("link", name="the page that checks").click()
    assert page.url.endswith(f"check.html#{RUN}")
    page.close()
