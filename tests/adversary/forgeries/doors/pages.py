"""Pages of a publication: what somebody without a key changes in them, and what a publisher signs against its own log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from msgspec import structs

from ledger import Log, Store, copy_artifacts, mirror_log, open_storage
from marin.history.runs import load, stream_of
from marin.plugins.sharing.pages.judge import judge_publication
from marin.plugins.sharing.pages.publish import needed_artifacts, publish_pages
from marin.plugins.sharing.pages.statement import Statement, entry, read_statement
from marin.record.attestation import PAGES
from marin.record.events import ReplayCompleted, draft
from marin.record.root import open_root
from marin.reporting.lineage.samples import Inspector
from marin.verify.verdict import NOT_RUN, judge_safely
from tests.adversary.forgeries.doors.events import stranger
from tests.adversary.forgeries.doors.published import replaced
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.workshop import Base, as_operator, variable

SIGNED, OTHERS, AGAIN = "as its publisher signed it", "its publisher did not sign such a page", "not what the log says"


@cache
def inspector() -> Inspector:
    """One for all kinds, which ends with this process: it takes jax."""
    return Inspector()


def published(base: Base) -> Path:
    """The honest run, published once for all kinds; nobody may change it."""
    site = base.folder / "site"
    if not (site / PAGES).is_file():
        shutil.copytree(
            base.location, base.folder / "publisher" / ".marin", ignore=shutil.ignore_patterns("projections", "work")
        )
        root = open_root(str(base.folder / "publisher" / ".marin"))
        run, source = load(root.history(), base.run), root.store()
        copy_artifacts(source, Store(open_storage(site)), needed_artifacts(root, run, source))
        with (
            as_operator(base),
            variable("MARIN_PINS", str(base.folder / "publisher" / "pins")),
        ):  # to whom this is the log
            publish_pages(root, run, open_storage(site))
    return site


def site_of(stall: Stall) -> Path:
    """The forger's copy."""
    place = stall.folder / "site"
    if not place.exists():
        shutil.copytree(published(stall.base), place, symlinks=True)
    return place


@door("pages")
def pages(stall: Stall) -> Answer:
    site, key = site_of(stall), stall.base.root.verifier
    with stranger(stall):
        root = open_root(str(site))
        reader = root.reader([key])
        history = root.history_as_read(reader, [key])
        page = str(stall.held.get("page", ""))
        found = judge_safely(
            lambda: judge_publication(root, stall.base.run, reader, history, page, inspector()) or NOT_RUN
        )
    return Answer(found.outcome == "PASS", "\n".join(found.lines))


kind("pages", "the honest pages", "", honest=True)(site_of)


def _put(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data, old
        return data.replace(old, new, 1)

    return change


def _page(stall: Stall, name: str) -> Path:
    return site_of(stall) / name.replace("RUN", stall.base.run)


for _name, _path, _change in (
    ("a number of a table", "runs/RUN/report.html", _put(b"<dd>", b"<dd>1.02 ")),
    ("a verdict's word", "runs/RUN/index.html", _put(b"<strong>", b"<strong>Reproduced, bit for bit; ")),
    ("a point of the curve", "runs/RUN/report.html", _put(b'points="', b'points="0,0 ')),
    ("an added sentence", "runs/RUN/index.html", _put(b"</h1>", b"</h1><p>Judged by all.</p>")),
    ("a removed warning", "runs/RUN/index.html", _put(b"Check it below.", b"")),
    ("a digest of the record", "runs/RUN/record.json", _put(b"sha256:", b"sha256:0")),
    ("a script in the data browser", "runs/RUN/lineage.html", _put(b"</main>", b"<script>alert(1)</script></main>")),
    ("a run in the list of runs", "index.html", _put(b"</h1>", b"</h1><p>and another</p>")),
    ("the browser's judge that passes all", "check.mjs", _put(b"FAIL", b"PASS")),
):

    @kind("pages", _name, SIGNED)
    def _changed(stall: Stall, path: str = _path, change: Callable[[bytes], bytes] = _change) -> None:
        replaced(stall, _page(stall, path), change)


@kind("pages", "a second page of the run", OTHERS)
def _second(stall: Stall) -> None:
    _page(stall, "runs/RUN/results.html").write_text("<h1>perplexity 1.02</h1>")


@kind("pages", "a page beside them whose address is given", OTHERS)
def _beside(stall: Stall) -> None:
    _page(stall, "results.html").write_text("<h1>perplexity 1.02</h1>")
    stall.held["page"] = "results.html"


@kind("pages", "the page of a verification less", "it is not here")
def _less(stall: Stall) -> None:
    _page(stall, "runs/RUN/report.html").unlink()


@kind("pages", "what is signed of them less", "nobody signed the pages here")
def _unsigned(stall: Stall) -> None:
    (site_of(stall) / PAGES).unlink()


@kind("pages", "a field of the dossier's page", "dossiers/")
def _dossier(stall: Stall) -> None:
    (page,) = site_of(stall).glob("dossiers/*/index.html")
    replaced(stall, page, _put(b"</h1>", b"</h1><p>the best</p>"))


def _signs(stall: Stall, change: Callable[[Statement], Statement]) -> None:
    """The publisher signs something else of its pages."""
    path = site_of(stall) / PAGES
    with as_operator(stall.base):
        signer = stall.base.root.signer()
    path.write_bytes(change(read_statement(path.read_bytes(), [signer.verifier])).signed(signer))


def _contradiction(stall: Stall, **other: str) -> None:
    name = f"runs/{stall.base.run}/report.html"
    replaced(stall, site_of(stall) / name, _put(b"<dd>", b"<dd>1.02 "))
    content = (site_of(stall) / name).read_bytes()

    def change(said: Statement) -> Statement:
        mine = structs.replace(entry(content, said.pages[name].size), **other)
        return replace(said, pages=dict(said.pages) | {name: mine})

    _signs(stall, change)


kind("pages", "a page that is signed and contradicts the log", AGAIN)(_contradiction)


@kind("pages", "a page that is signed as another program's", "not drawn again")
def _of_another(stall: Stall) -> None:
    _contradiction(stall, by="sha256:" + "0" * 64)


@kind("pages", "a page that is signed as of a log that nobody has", "of which the log here has")
def _of_a_later(stall: Stall) -> None:
    _contradiction(stall, at="100000")


@kind("pages", "pages that keep back a verdict of the log", "says more now")
def _kept_back(stall: Stall) -> None:
    site, base = site_of(stall), stall.base
    place = stall.folder / "operator" / ".marin"
    shutil.copytree(base.folder / "publisher" / ".marin", place)
    with as_operator(base):
        root = open_root(str(place))
        checkpoint, signer = root.reader().checkpoint(), root.signer()
    about = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    body = ReplayCompleted(base.run, {"training": "FAIL"}, {"mode": "full"}, None, about, {}, {})
    with Log.open(root.storage, signer) as log:
        log.append([draft(body, stream_of(base.run))])
        log.publish()
    mirror_log(root.storage, open_storage(site), [signer.verifier])
