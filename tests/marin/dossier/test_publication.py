"""A published run is a root that a stranger reads; what breaks off leaves readers what they had, and goes on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from recorded import RUN

from ledger import LogReader, Store, copy_artifacts, open_storage
from marin.cli import main
from marin.dossier.judge import judge_dossier
from marin.dossier.publication import needed, publish_pages
from marin.history.runs import load
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
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def sent(root: Root, site: Path) -> int:
    source = root.store()
    return copy_artifacts(source, Store(open_storage(site)), needed(root, load(root.history(), RUN), source)).blobs


def test_a_published_run_is_read_over_http_by_a_stranger(root: Root, site: Path, address: str) -> None:
    assert sent(root, site) == 5, "corpus and model share one of their six files"
    done = publish_pages(root, load(root.history(), RUN), open_storage(site))
    reader = LogReader(open_storage(address, readonly=True), [root.verifier])
    assert reader.checkpoint() == root.reader().checkpoint()
    model = load(root.history(), RUN).output("export").artifact
    assert Store(open_storage(address, readonly=True)).manifest(model).digest == model
    assert judge_dossier(site / done.dossier, [root.verifier]).verdicts["fields"].outcome == "PASS"
    assert done.dossier in (site / done.page).read_text()


def test_verify_takes_the_address(root: Root, site: Path, address: str, capsysbinary: Any, monkeypatch: Any) -> None:
    sent(root, site)
    publish_pages(root, load(root.history(), RUN), open_storage(site))
    monkeypatch.setenv("MARIN_ROOT", "elsewhere")
    monkeypatch.delenv("MARIN_KEY", raising=False)
    command = ["verify", f"{address}/{RUN}", "--vkey", str(root.verifier), "--only", "artifacts", "--no-record"]
    main.run([*command, "--allow", "unconfined", "--json"])
    said = capsysbinary.readouterr().out
    assert RUN.encode() in said
    assert root.reader().checkpoint().root.hex().encode() in said


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
            assert (site / "runs" / RUN / "index.html").read_bytes() == page
    assert writes > 5
    assert LogReader(open_storage(site), [root.verifier]).checkpoint().size == old.size + 1
    assert judge_dossier(site / done.dossier, [root.verifier]).verdicts["files"].outcome == "PASS"
    assert (site / "runs" / RUN / "index.html").read_bytes() != page
