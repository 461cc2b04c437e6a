"""Texts of pages beside html5lib's tree (of XHTML beside Python's expat): every letter that stands in the body, in its order.

Which part of a page is its main content is resiliparse's to say, and no row asks it; each page here is main content alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import html5lib
import pytest

from marin.errors import DataError
from marin.plugins.collections.document import Document, document_id
from marin.plugins.collections.sources.page import page
from marin.plugins.collections.steps.extraction import Html
from tests.fidelity.conftest import Compare

NOT_SHOWN = ("script", "style", "template", "noscript")
PAGES = {
    "furigana of each letter": "<p><ruby>漢<rt>かん</rt></ruby><ruby>字<rt>じ</rt></ruby>を読む。</p>",
    "furigana in brackets": "<p><ruby>漢<rp>（</rp><rt>かん</rt><rp>）</rp></ruby>を読む。</p>",
    "a letter in bold": "<p>我<b>爱</b>你们大家</p>",
    "a letter in each element": "<p><span>我</span><span>爱</span><span>你</span></p>",
    "cells of a letter": "<table><tr><td>是</td><td>否</td></tr><tr><td>a</td><td>b</td></tr></table>",
    "a heading of a letter": "<h1>あ</h1><p>いろは</p>",
    "Hangul": "<p><em>나</em>는 학생이다</p>",
    "Thai": "<p><b>ก</b>ไก่</p>",
    "Devanagari": "<p><b>क</b>मल</p>",
    "words of three bytes": "<p><b>où</b> est-il? <i>Là</i>, <i>né</i> ici. <b>él</b> <u>ça</u></p>",
    "words by names": "<p><b>o&ugrave;</b> <i>&eacute;</i> <i>L&agrave;</i> <b>&agrave;a</b></p>",
    "signs by names": "<p>try<i>&hellip;</i>except <b>&mdash;</b> <b>&#8364;</b>5 <b>&#x2192;</b> <i>&copy;</i> <i>&amp;</i></p>",
    "quotes and dashes": "<p>he said <span>“</span>hello<span>”</span> <b>–</b> <b>…</b> <b>№</b>5, <b>€</b>5, <b>²</b></p>",
    "white space around": "<p>x <b>\n 漢\t</b> y <b> &mdash;\n</b> <b>\r\n o&ugrave; </b></p>",
    "behind a comment": "<p>x<!-- a -->漢<!-- b -->y</p>",
    "before an element": "<p>漢<b>字</b></p>",
    "in an attribute": '<p title="a>漢<b">x<b title=">€<">漢</b></p>',
    "letters of four bytes": "<p><b>𠀀</b> <i>🙂</i> <b>ж</b> <b>жж</b></p>",
    "noncharacters": "<p>\ufdd0a <b>漢</b></p>",
    "sub and sup": "<p>H<sub>2</sub>O at 10<sup>th</sup> x<sup>²</sup></p>",
    "pre": "<p>Before.</p><pre>\nif a:\n    b  c\n</pre><p>After.</p>",
    "definitions": "<dl><dt>Term<dd>Its meaning<dt>另<dd>又</dl>",
    "a table without ends": "<table><caption>数<thead><tr><th>N<th>A<tbody><tr><td>Ann<td>三</table>",
    "CDATA in svg": "<p>A</p><svg><text><![CDATA[x <b> 漢]]></text></svg><p>B</p>",
    "entities": "<p>a &amp b &copy 2020 &lt;tag&gt; &notit; &#x20AC; &#128; fish&chips=1</p>",
    "misnested": "<b><p>One</b>two</p><i>three<b>四</i>five</b>",
    "template, noscript, script, style": (
        "<p>A<script>'<b>漢</b>'</script>B</p><template><p>no</p></template><noscript>no</noscript><style>b>漢<b</style><p>C</p>"
    ),
}
XHTML = {
    "title and script that end at once": '<head><title/><script src="a.js"/></head><body><p>Text</p></body>',
    "elements without content": '<body><p>X</p><div class="a>b"/><br/><a id="x"/>Y<p/>Z</body>',
    "CDATA": "<body><p>A <![CDATA[raw & <b> text]]> B<![CDATA[]]></p></body>",
    "CDATA in a script": "<body><p>A</p><script>//<![CDATA[\nif (a < b && c > d) {}\n//]]></script><p>B</p></body>",
    "instructions": '<body><?php echo "<p>no</p>" ?><p>A</p><?a?></body>',
    "a comment": "<body><!-- <p>no</p> <x/> --><p>A</p></body>",
    "a letter": "<body><p><b>漢</b>字</p></body>",
}


def letters(texts: Iterator[str]) -> str:
    return "".join("".join(texts).split())


def shown(element: ElementTree.Element) -> Iterator[str]:
    """Its texts, but for elements that nobody sees."""
    name = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
    if name and name not in NOT_SHOWN:
        yield element.text or ""
        for inner in element:
            yield from shown(inner)
            yield inner.tail or ""


def ours(found: object, **settings: bool) -> str:
    assert isinstance(found, Document)
    document = Html(**settings).make().judge(found).document
    if document is None:
        raise DataError("no text", where="a page", expected="a text", found="none", cure="-")
    return letters(iter(document.text))


@pytest.mark.parametrize("main", [True, False], ids=["main content", "all"])
@pytest.mark.parametrize("name", PAGES)
def test_every_letter_of_a_page(compare: Compare, name: str, main: bool) -> None:
    tree = html5lib.parse(f"<!DOCTYPE html><body>{PAGES[name]}", namespaceHTMLElements=False)
    body = tree.find("body")
    data = f"<!DOCTYPE html><html><meta charset=utf-8><body>{PAGES[name]}</body></html>".encode()
    compare(
        "texts",
        f"{name}, main content: {main}",
        lambda: ours(page("s", 1, data), main_content=main),
        letters(shown(body)),
    )


@pytest.mark.parametrize("name", XHTML)
def test_every_letter_of_xhtml(compare: Compare, name: str) -> None:
    data = f'<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml">{XHTML[name]}</html>'
    body = ElementTree.fromstring(data).find("{*}body")
    assert body is not None
    found = page("s", 1, data.encode(), mime="application/xhtml+xml", rules="xml")
    compare("texts", f"XHTML: {name}", lambda: ours(found), letters(shown(body)))


def test_icons_are_no_text() -> None:
    """Characters of private use are pictures of a font, which resiliparse leaves out of the main content."""
    data = "<body><p>a<i>\ue000</i><i>&#xf0c9;</i>b</p></body>"
    document = Document(document_id("s", 1, data), data, "s", metadata={"content_type": "text/html", "position": 1})
    assert ours(document) == "ab"
