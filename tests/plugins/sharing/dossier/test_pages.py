"""Pages of a publication are what the verified log says, or do not pass."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import RUN, record_run

from ledger import Draft, Store, copy_artifacts, create_key, open_storage, sign_drafts
from marin.cli import main
from marin.history.runs import load
from marin.plugins.sharing.pages import statement
from marin.plugins.sharing.pages.judge import judge_publication, judge_site
from marin.plugins.sharing.pages.publish import needed_artifacts, publish_pages
from marin.plugins.sharing.pages.site import drawn_surely, write_site
from marin.plugins.sharing.pages.statement import SignedPage, read_statement
from marin.record.attestation import PAGES
from marin.record.keys import enrol, new_author_key, request_of
from marin.record.root import Root, open_root
from marin.reporting.lineage.samples import Inspector
from marin.verify.verdict import Verdict, judge_safely
from tests.plugins.sharing.judge.node import checked, needs_node

PAGE = f"runs/{RUN}/report.html"


def publish(root: Root, site: Path, run: str = RUN) -> None:
    view, source = load(root.history(), run), root.store()
    copy_artifacts(source, Store(open_storage(site)), needed_artifacts(root, view, source))
    publish_pages(root, view, open_storage(site))


@pytest.fixture
def site(root: Root, tmp_path: Path) -> Path:
    publish(root, tmp_path / "site")
    return tmp_path / "site"


def pages(root: Root, site: Path, page: str = "", run: str = RUN) -> Verdict:
    """As somebody who has the key and the folder."""
    there = open_root(str(site))
    reader = there.reader([root.verifier])
    found = judge_safely(
        lambda: (
            judge_publication(there, run, reader, there.history_as_read(reader, [root.verifier]), page)
            or Verdict("NOT_RUN")
        )
    )
    assert found.lines or found.outcome == "NOT_RUN"
    return found


def test_pages_of_an_honest_publisher_are_drawn_again_byte_for_byte(
    root: Root, site: Path, drawings: dict[str, bytes]
) -> None:
    drawings.clear()
    found = pages(root, site, PAGE)
    assert (found.outcome, len(found.lines)) == ("PASS", 1), found.lines
    signed = read_statement((site / PAGES).read_bytes(), [root.verifier])
    lying = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.suffix in (".html", ".png", ".mjs")}
    dossier = signed.runs[RUN].dossier
    assert {name for name in lying if not name.startswith(dossier)} <= signed.pages.keys()
    assert int(found.lines[0].split()[0]) == len(signed.pages) + 1, "every page that lies there, and the dossier"


def changed(old: bytes, new: bytes) -> Callable[[Path], None]:
    def forge(path: Path) -> None:
        data = path.read_bytes()
        assert old in data
        path.write_bytes(data.replace(old, new, 1))

    return forge


FORGED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a number of a table": (PAGE, changed(b"5.25", b"5.15")),
    "a number where a stranger arrives": (f"runs/{RUN}/index.html", changed(b"5.2500", b"4.2500")),
    "a verdict's word": (f"runs/{RUN}/verification.html", changed(b"PASS", b"FAIL")),
    "an added sentence": (PAGE, changed(b"</h1>", b"</h1><p>The best of all.</p>")),
    "a point of a picture": (
        f"runs/{RUN}/verification.png",
        lambda path: path.write_bytes(bytes(path.read_bytes()[:-9]) + b"\0" * 9),
    ),
    "a digest of the record": (f"runs/{RUN}/record.json", changed(b'"status": "completed"', b'"status": "verified!"')),
    "a run in the list": ("index.html", changed(b"</h1>", b"</h1><p>and another</p>")),
    "the browser's judge": ("check.mjs", changed(b"FAIL", b"PASS")),
}


def test_a_page_that_somebody_changed_fails_and_is_named(root: Root, site: Path, tmp_path: Path) -> None:
    for number, (name, (path, forge)) in enumerate(FORGED.items()):
        copy = shutil.copytree(site, tmp_path / str(number))
        forge(copy / path)
        found = pages(root, copy)
        assert found.outcome == "FAIL" and found.lines[0].startswith(f"{path}: expected sha256:"), (name, found.lines)


def test_a_page_that_nobody_signed_is_not_one_of_them(root: Root, site: Path) -> None:
    second = f"runs/{RUN}/results.html"
    (site / second).write_text("<p>perplexity 1.02</p>")
    assert pages(root, site).lines[0] == f"{second}: its publisher did not sign such a page"
    (site / second).unlink()
    assert pages(root, site, "results.html").outcome == "FAIL", "and none was shown at an address"


def test_what_is_missing_is_not_passed_over(root: Root, site: Path) -> None:
    (site / PAGE).unlink()
    assert pages(root, site).lines[0] == f"{PAGE}: its publisher signed it, and it is not here"
    (site / PAGES).unlink()
    found = pages(root, site)
    assert found.outcome == "UNAVAILABLE" and "nobody signed" in found.lines[0]


def test_the_dossier_is_judged_with_them(root: Root, site: Path) -> None:
    (fields,) = site.glob("dossiers/*/index.html")
    fields.write_bytes(fields.read_bytes().replace(b"5.25", b"5.15"))
    found = pages(root, site)
    assert found.outcome == "FAIL" and found.lines[0].startswith("dossiers/"), found.lines


def resigned(root: Root, site: Path, path: str, content: bytes, **other: str) -> None:
    """What the operator signs, who has the key: the page as it likes."""
    (site / path).write_bytes(content)
    said = read_statement((site / PAGES).read_bytes(), [root.verifier])
    entry = SignedPage(
        statement.entry(content, 0).sha256, other.get("at", said.pages[path].at), other.get("by", said.pages[path].by)
    )
    (site / PAGES).write_bytes(replace(said, pages=dict(said.pages) | {path: entry}).signed(root.signer()))


def test_a_page_that_its_publisher_signed_and_the_log_contradicts_fails(root: Root, site: Path) -> None:
    forged = (site / PAGE).read_bytes().replace(b"5.25", b"5.15")
    resigned(root, site, PAGE, forged)
    found = pages(root, site)
    assert found.outcome == "FAIL" and f"{PAGE}: not what the log says" in found.lines[0]
    assert "expected '25</dd>" in found.lines[0] and "found '15</dd>" in found.lines[0]
    resigned(root, site, PAGE, forged, by="sha256:" + "0" * 64)
    found = pages(root, site)
    assert found.outcome == "PARTIAL" and any(PAGE in line and "not drawn again" in line for line in found.lines)
    resigned(root, site, PAGE, forged, at="100000")
    assert pages(root, site).outcome == "UNAVAILABLE", "drawn from a log that nobody has"


def test_the_front_names_who_trained_and_who_verified_as_show_does(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Ada trains and publishes, Bob verifies too, and of a third nobody's signature is there."""
    monkeypatch.chdir(project)
    root = open_root()
    enrol(root, new_author_key(root.verifier.name, "ada@desk").request)
    bob = create_key(tmp_path / "bob.key", "bob@gpu")
    enrol(root, request_of(bob))
    record_run(root, project, trained={})
    (event,) = [event for _, event in root.history().events(type="replay.completed/v1")]
    bobs, carols = (Draft(event.type, event.stream, event.body, actor=name) for name in (None, "carol"))
    with root.log() as log:
        log.append([*sign_drafts(root.verifier.name, bob, [bobs]), carols])
    publish(root, tmp_path / "site")
    front = f"runs/{RUN}/index.html"
    rows = ("<td>trained by</td><td>ada@desk</td>", "<td>verified by</td><td>ada@desk, carol (claimed), bob@gpu</td>")
    assert all(row in (tmp_path / "site" / front).read_text() for row in rows)
    assert main.run(["show", RUN]) == 0
    told = dict(re.findall(r"^(trained by|verified by) +(.+?) *$", capsysbinary.readouterr().out.decode(), re.M))
    assert told == {"trained by": "ada@desk", "verified by": "ada@desk, carol (claimed), bob@gpu"}
    assert pages(root, tmp_path / "site").outcome == "PASS", "by a stranger, who has none of these keys"
    honest = (tmp_path / "site" / front).read_bytes()
    changed(b"<td>ada@desk</td>", b"<td>eve@desk</td>")(tmp_path / "site" / front)
    assert pages(root, tmp_path / "site").lines[0].startswith(f"{front}: expected sha256:")
    resigned(root, tmp_path / "site", front, (tmp_path / "site" / front).read_bytes())
    found = pages(root, tmp_path / "site")
    assert found.outcome == "FAIL" and "expected 'ada@desk" in found.lines[0] and "found 'eve@desk" in found.lines[0]
    unnamed = re.sub(rb"<td>(trained|verified) by</td><td>[^<]*</td>", b"", honest)
    resigned(root, tmp_path / "site", front, unnamed, by="sha256:" + "0" * 64)
    found = pages(root, tmp_path / "site")
    assert found.outcome == "PARTIAL" and any(
        line == f"signed by their publisher, and not drawn again, as other software than this drew them: {front}"
        for line in found.lines
    ), "what an earlier release published, which named nobody, accuses nobody"


def test_what_had_no_answer_when_it_was_published_accuses_nobody(root: Root, site: Path) -> None:
    """Such a page may come out otherwise, here and there: it is named."""
    resigned(root, site, PAGE, (site / PAGE).read_bytes().replace(b"5.25", b"5.15"), by=statement.NOBODY)
    found = pages(root, site)
    assert found.outcome == "PARTIAL" and any(f"publish again: {PAGE}" in line for line in found.lines), found.lines
    silent = Inspector()
    silent.COMMAND = (sys.executable, "-c", "pass")  # type: ignore[misc]
    content, is_sure = drawn_surely(lambda: str(_inspected(silent)).encode(), silent)
    assert content == b"no answer" and not is_sure and drawn_surely(lambda: b"", silent) == (b"", True)
    assert statement.entry(content, 1, is_sure=is_sure).by == statement.NOBODY


def _inspected(inspector: Inspector) -> str:
    with inspector, pytest.raises(ValueError):
        inspector.ask({}, Path(), [0])
    return "no answer"


def test_another_key_signs_nothing(root: Root, site: Path, tmp_path: Path) -> None:
    from ledger import create_key

    said = read_statement((site / PAGES).read_bytes(), [root.verifier])
    (site / PAGES).write_bytes(said.signed(create_key(tmp_path / "other.key", root.verifier.name)))
    assert pages(root, site).outcome == "FAIL"


def test_pages_of_two_runs_lie_side_by_side(root: Root, site: Path, project: Path) -> None:
    """The second is published later, from a longer log: the first one's pages stay true."""
    (project / "other").mkdir()
    record_run(root, project / "other", "3khr7ocq", trained={})
    publish(root, site, "3khr7ocq")
    assert pages(root, site, run="3khr7ocq").outcome == "PASS"
    found = pages(root, site)
    assert found.outcome == "PASS", found.lines
    assert re.search(r"^\d+ pages", found.lines[0])


def test_a_site_is_judged_by_its_signature_and_by_the_log_where_that_is_at_hand(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_site(root, tmp_path / "site")
    storage = open_storage(tmp_path / "site")

    def judge(page: str = "") -> Verdict:
        return judge_site(storage, [root.verifier], page).verdicts["pages"]

    assert judge("index.html").outcome == "PASS", judge().lines
    assert judge("other.html").outcome == "FAIL"
    with monkeypatch.context() as elsewhere:
        (tmp_path / "elsewhere").mkdir()
        elsewhere.chdir(tmp_path / "elsewhere")
        found = judge()
        assert found.outcome == "PARTIAL" and "the log is not at hand" in found.lines[0]
        changed(b"5.25", b"5.15")(tmp_path / "site" / PAGE)
        assert judge().outcome == "FAIL", "that the publisher did not write it is seen without the log"
    assert judge().lines[0].startswith(f"{PAGE}: expected")
    (tmp_path / "site" / PAGES).unlink()
    assert judge().outcome == "UNAVAILABLE"


def test_a_page_that_says_less_than_the_log_is_named(root: Root, site: Path) -> None:
    """The log goes on, with a verdict that fails, and the pages stay as they were."""
    from ledger import mirror_log
    from marin.history.runs import stream_of
    from marin.record.events import ReplayCompleted, draft

    (last,) = [event for _, event in root.history().events(type="replay.completed/v1")]
    body = dict(last.body) | {"verdicts": {"ledger": "PASS", "training": "FAIL"}}
    from marin.record.events import read

    root.append([draft(read(ReplayCompleted, body, where="test"), stream_of(RUN))])
    with root.log() as log:
        log.publish()
    mirror_log(root.storage, open_storage(site), [root.verifier])
    found = pages(root, site)
    assert found.outcome == "PARTIAL"
    assert any(line.startswith("true of the first") and PAGE in line for line in found.lines), found.lines


@needs_node
def test_the_browsers_judge_takes_no_other_statement_for_one_of_pages(
    root: Root, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = read_statement((site / PAGES).read_bytes(), [root.verifier])
    monkeypatch.setattr(statement, "PREDICATE", "urn:marin:pages:v2")
    (site / PAGES).write_bytes(said.signed(root.signer()))
    found = checked(site, root.verifier, execute="none").report["pages"]
    assert found["outcome"] == "not judged" and "not a list of this log's pages" in " ".join(found["lines"])


@needs_node
def test_the_browsers_judge_says_what_it_knows_of_pages(root: Root, site: Path, tmp_path: Path) -> None:
    def pages_of(folder: Path, key: object = root.verifier) -> tuple[str, str]:
        found = checked(folder, key, execute="none").report["pages"]
        return found["outcome"], " ".join(found["lines"])

    signed = read_statement((site / PAGES).read_bytes(), [root.verifier])
    outcome, said = pages_of(site)
    assert outcome == "not judged" and said.startswith(
        f"{len(signed.pages)} pages beside the log, each the one that its key signed"
    )
    assert "`marin verify` of the address draws each of them again" in said
    altered = shutil.copytree(site, tmp_path / "altered")
    changed(b"5.25", b"5.15")(altered / PAGE)
    assert pages_of(altered)[0] == "FAIL" and f"{PAGE}: not the page that its publisher signed" in pages_of(altered)[1]
    assert checked(altered, root.verifier, execute="none").status == 1
    (altered / PAGE).unlink()
    assert "it is not here" in pages_of(altered)[1]
    other = shutil.copytree(site, tmp_path / "other")
    changed(b'"sig": "', b'"sig": "AAAA')(other / PAGES)
    assert pages_of(other)[0] == "not judged" and "no key of this log, as you gave it, signed" in pages_of(other)[1]
    (other / PAGES).write_bytes(b"{")
    assert "not a signed list of pages" in pages_of(other)[1]
    (other / PAGES).unlink()
    assert "nobody signed pages here" in pages_of(other)[1]
