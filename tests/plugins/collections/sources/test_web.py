"""Web pages: files read as fastwarc reads them, damage named by place, rules at their thresholds, steps that say why."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from marin.plugins.collections.document import Document, Problem
from marin.plugins.collections.settings import KINDS, load_settings, reader_of, step_settings
from marin.plugins.collections.sources import page as page_reader
from marin.plugins.collections.sources.page import read_html
from marin.plugins.collections.sources.warc import read_warc
from marin.plugins.collections.steps.extraction import Html, depth
from marin.plugins.collections.steps.language import Language
from marin.plugins.collections.steps.rewriting import Mask, Repair
from marin.plugins.collections.steps.rules import C4, fineweb, gopher_quality, gopher_repetition

PROJECT = Path(__file__).parents[4]
PAGES, MORE_PAGES = PROJECT / "data" / "pages.warc.gz", PROJECT / "data" / "pages-2.warc.gz"
PAGE = b"<html><head><title>t</title></head><body><p>Some words that are read by somebody.</p></body></html>"


def record(
    body: bytes, *, head: bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/html", kind: str = "response"
) -> bytes:
    block = head + b"\r\n\r\n" + body if kind == "response" else body
    fields = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: https://a.example/\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
    )
    return fields.encode() + f"Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n"


def read(folder: Path, data: bytes, name: str = "a.warc") -> list[Document | Problem]:
    path = folder / name
    path.write_bytes(data)
    reader = reader_of(name)
    assert reader is not None
    return list(reader(path, name))


def document(text: str, mime: str = "text/plain") -> Document:
    return Document("0" * 32, text, "s", metadata={"position": 1, "content_type": mime})


def reasons(found: list[Document | Problem]) -> list[str]:
    return [item.reason if isinstance(item, Problem) else "document" for item in found]


@pytest.mark.parametrize("pages", [PAGES, MORE_PAGES])
def test_the_shipped_pages_are_read_as_fastwarc_reads_them(pages: Path) -> None:
    ours = [item for item in read_warc(pages, "pages") if isinstance(item, Document)]
    with pages.open("rb") as file:
        theirs = [
            (one.headers["WARC-Target-URI"], one.reader.read().decode())
            for one in ArchiveIterator(file, record_types=WarcRecordType.response, parse_http=True)
        ]
    assert len(ours) >= 150
    assert [(item.metadata["url"], item.text) for item in ours] == theirs
    assert all("rel=license" in str(item.metadata["link_header"]) and item.created and item.added for item in ours)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_anywhere_keeps_what_was_whole_and_names_the_place(tmp_path: Path, packed: bool) -> None:
    parts = [record(PAGE + str(number).encode()) for number in range(3)]
    parts = [gzip.compress(part, mtime=0) for part in parts] if packed else parts
    whole, name = b"".join(parts), "a.warc.gz" if packed else "a.warc"
    assert reasons(read(tmp_path, whole, name)) == ["document"] * 3
    for cut in range(len(parts[0]) + len(parts[1]) + 1, len(whole) - (0 if packed else 4), 7):
        found = read(tmp_path, whole[:cut], name)
        assert reasons(found)[:2] == ["document"] * 2
        last = found[-1]
        assert isinstance(last, Problem)
        assert (last.reason, last.position) in {("damaged file", 3), ("damaged file", 4)}


def test_bodies_that_are_no_text_are_problems_by_reason(tmp_path: Path) -> None:
    ok = b"HTTP/1.1 200 OK\r\n"
    bomb = gzip.compress(b"a" * (page_reader.MOST_PAGE + 100), 9, mtime=0)
    data = [
        record(bomb, head=ok + b"Content-Encoding: gzip"),
        record(gzip.compress(PAGE)[:-20], head=ok + b"Content-Encoding: gzip"),
        record(PAGE, head=b"HTTP/1.1 404 Not Found"),
        record(b"\x89PNG", head=ok + b"Content-Type: image/png"),
        record(b"\x80\xff", head=ok + b"Content-Type: text/html; charset=utf-8"),
        record(
            "\u043a\u043e\u0444\u0435".encode("cp1251") + PAGE, head=ok + b"Content-Type: text/html; charset=no-such"
        ),
        record(b"  ", head=ok + b"Content-Type: text/html"),
        record(PAGE, head=b"nothing"),
        record(b"5\r\nabc", head=ok + b"Transfer-Encoding: chunked"),
        record(b"x" * (page_reader.MOST_PAGE + (1 << 17))),
        record(b"3\r\nab \r\n2\r\ncd\r\n0\r\n\r\n", head=ok + b"Transfer-Encoding: chunked"),
        record(b"caf\xe9", head=ok + b"Content-Type: text/plain; charset=iso-8859-1"),
        record("plain text é".encode(), kind="conversion"),
        record(b"q", kind="request"),
    ]
    found = read(tmp_path, b"".join(data))
    assert reasons(found) == [
        "too large",
        "damaged body",
        "status not 200",
        "not text",
        "not in its encoding",
        "not in its encoding",
        "empty text",
        "not HTTP",
        "damaged body",
        "too large",
        *["document"] * 3,
    ]
    assert [item.text for item in found if isinstance(item, Document)] == ["ab cd", "café", "plain text é"]


def test_a_page_of_200_megabytes_and_one_of_100_000_tags_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    with path.open("wb") as file:
        file.truncate(200 << 20)
    assert reasons(list(read_html(path, "a.html"))) == ["too large"]
    judged = Html().make().judge(document("<b>" * 100_000 + "x", "text/html"))
    assert judged.document is None
    assert judged.decisions[0].reason == "rule:html_depth"
    assert judged.decisions[0].evidence == {"value": 100_000, "threshold": 256}
    assert depth("<ul><li><p>a<li><p>b</ul><br><br>" * 50) == 1
    assert depth("<div></b>" * 300) == 300, "an end of something that is not open ends nothing"
    assert Html().make().judge(document("<div></b>" * 100_000, "text/html")).document is None


def test_what_a_page_says_of_its_use_is_kept(tmp_path: Path) -> None:
    html = b'<meta name="robots" content="noai, noindex"><a rel="license" href="https://l.example/by">x</a>'
    (found,) = read(tmp_path, record(html, head=b"HTTP/1.1 200 OK\r\nX-Robots-Tag: noai\r\nTDM-Reservation: 1"))
    assert isinstance(found, Document)
    said = {"robots": "noai, noindex", "robots_header": "noai", "tdm_header": "1", "licence": "https://l.example/by"}
    assert {key: found.metadata[key] for key in said} == said


@pytest.mark.long
def test_every_kind_is_made_and_judges_the_shipped_pages_the_same_twice() -> None:
    settings = load_settings("web", PROJECT / "conf")
    assert {step["kind"] for step in settings.steps} == set(KINDS) - {"quality"}
    first = [made.make() for _, made in step_settings(settings.steps, where="web")]
    again = [made.make() for _, made in step_settings(settings.steps, where="web")]
    kept = 0
    for number, item in enumerate(read_warc(PAGES, "pages")):
        if number % 8:
            continue
        assert isinstance(item, Document)
        one: Document | None = item
        for step, other in zip(first, again, strict=True):
            judgement = step.judge(one)
            assert judgement == other.judge(one)
            assert judgement.document is one or judgement.decisions
            one = judgement.document
            if one is None:
                break
        kept += one is not None
    assert kept > 3


def test_language_by_integers_agrees_with_the_library() -> None:
    from py3langid.langid import classify

    step = Language().make()
    texts = [
        "The quick brown fox jumps over the lazy dog.",
        "Der schnelle Fuchs springt über den Hund.",
        "Привет, мир, как дела",
    ]
    texts += [text * 20 for text in texts]
    assert [step.language(text) for text in texts] == [classify(text)[0] for text in texts]
    assert [step.judge(document(text)).document is not None for text in texts[:3]] == [True, False, False]
    assert step.language("") == "und"


SENTENCE = "the cat and a dog of that house have come here to be with some people "
ENDLESS = [f"another {number} line that ends nowhere at all" for number in range(7)]


@pytest.mark.parametrize(
    ("rules", "text", "broken"),
    [
        (gopher_quality, SENTENCE * 4, set()),
        (gopher_quality, " ".join((SENTENCE * 4).split()[:49]), {"gopher_too_few_words"}),
        (gopher_quality, " ".join((SENTENCE * 4).split()[:50]), set()),
        (gopher_quality, "abc " * 50, {"gopher_stop_words"}),
        (gopher_quality, "the be to " * 20, {"gopher_short_words"}),
        (gopher_quality, SENTENCE * 4 + "#" * 6, set()),
        (gopher_quality, SENTENCE * 4 + "#" * 7, {"gopher_hashes"}),
        (gopher_quality, "\n".join("- " + SENTENCE for _ in range(10)), {"gopher_bullets"}),
        (fineweb, "\n".join(["A line that is long enough to be no short one.", *ENDLESS]), set()),
        (fineweb, "\n".join(ENDLESS), {"fineweb_line_ends"}),
        (fineweb, "a.\nb.\nc.", {"fineweb_short_lines"}),
    ],
)
def test_rules_hold_to_their_thresholds(rules: object, text: str, broken: set[str]) -> None:
    assert callable(rules)
    assert {found.rule for found in rules(text) if found.broken} == broken


def test_repetition_names_lines_and_n_grams() -> None:
    assert {found.rule for found in gopher_repetition("one line\n" * 10) if found.broken} >= {
        "gopher_duplicate_lines",
        "gopher_duplicate_lines_characters",
        "gopher_top_2_gram",
        "gopher_duplicate_5_gram",
    }
    found = list(gopher_repetition(" ".join(f"word{number}" for number in range(200))))
    assert len(found) == 13 and not any(one.broken for one in found)


def test_c4_drops_lines_and_judges_what_is_left() -> None:
    step, body = C4().make(), "One two three four five. " * 3
    judged = step.judge(document(f"menu\n{body}\nPlease turn on JavaScript in your browser."))
    assert judged.document is not None
    assert judged.document.text == body.strip()
    assert judged.decisions[0].evidence == {"few_words": 1, "javascript": 1}
    assert step.judge(document(body + "{")).decisions[0].reason == "rule:c4_curly_bracket"
    assert step.judge(document("One two three four five.")).decisions[0].reason == "rule:c4_sentences"
    long = step.judge(document(f"{body}\nfour words and a {'w' * 1001}\nfour words and a {'w' * 1000}"))
    assert long.decisions[0].evidence == {"long_word": 1}
    cited = "One [1] two[edit] three four [citation needed] five. " * 3
    left = C4(citations=True).make().judge(document(cited)).document
    assert left is not None and "[" not in left.text and "[1]" in step.judge(document(cited)).document.text  # type: ignore[union-attr]


def test_masking_and_repair_change_what_they_should() -> None:
    masked = Mask().make().judge(document("a@b.example, 8.8.8.8, 10.0.0.1, 1.2.3.4.5, (555) 234-5678, version 3.11.2"))
    assert masked.document is not None
    assert masked.document.text == (
        "|||EMAIL_ADDRESS|||, |||IP_ADDRESS|||, 10.0.0.1, 1.2.3.4.5, |||PHONE_NUMBER|||, version 3.11.2"
    )
    assert masked.decisions[0].evidence == {"emails": 1, "phones": 1, "addresses": 1}
    repaired = Repair().make().judge(document("cafÃ© schön"))
    assert repaired.document is not None
    assert repaired.document.text == "café schön"
