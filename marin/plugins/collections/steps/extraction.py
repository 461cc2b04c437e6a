"""Text from HTML by resiliparse (Bevendorff et al. 2018): paragraphs and lists of the main content, a line each.

Resiliparse parses as browsers do (lexbor), in C, and needs no second extractor to fall back on; its result follows from the
page and its version, which the lock pins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from marin.plugins.collections.document import MARKUP, XML, Document, Judgement
from marin.plugins.collections.steps.deciding import changed, removed
from marin.plugins.collections.steps.markup import VOID, as_html, with_sign

TAG = re.compile(r"<(/?)([A-Za-z][^\t\n\f\r />]*)")
FLAT = VOID | {"p", "li", "dt", "dd", "tr", "td", "th", "tbody", "thead", "tfoot", "option"}
"""Elements that have no content, or that the next of their kind ends: they do not nest by themselves."""
FEW_TAGS = 2048
"""Tags that a page may have without being looked at for depth: a parser's time grows with the square of it, and so many cost
less than a second however they lie."""


class Html(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Documents that are pages become their text. ``main_content``: without navigation, headers and footers. ``letters``: one of
    three bytes in an element of its own stays (:mod:`marin.plugins.collections.steps.markup`). Pages of more than
    ``most_characters`` are removed, and those of many tags with more than ``most_depth`` elements inside each other."""

    main_content: bool = True
    letters: bool = True
    most_characters: Annotated[int, Meta(ge=1)] = 8 << 20
    most_depth: Annotated[int, Meta(ge=1, le=1024)] = 256

    def make(self) -> Extract:
        """The step."""
        from resiliparse.extract.html2text import extract_plain_text

        return Extract(self, extract_plain_text)


def depth(html: str) -> int:
    """At least as deep as elements lie inside each other in ``html``: an end counts only where an element of its name is open,
    and takes one away, while a parser ends with it all that lies inside."""
    opened: Counter[str] = Counter()
    deepest = now = 0
    for closing, name in TAG.findall(html):
        name = name.lower()
        if name in FLAT or (closing and not opened[name]):
            continue
        change = -1 if closing else 1
        opened[name] += change
        now += change
        deepest = max(deepest, now)
    return deepest


class Extract:
    """The :class:`marin.plugins.collections.document.Step` ``html``."""

    def __init__(self, settings: Html, extract: Any) -> None:
        self._settings, self._extract = settings, extract

    def judge(self, document: Document) -> Judgement:
        if document.metadata.get("content_type") not in ("text/html", "application/xhtml+xml"):
            return Judgement(document)
        html, most = document.text, self._settings
        if len(html) > most.most_characters:
            return removed(document, "html", "html_size", value=len(html), threshold=most.most_characters)
        many = html.count("<") - html.count("</") > FEW_TAGS
        if many and (deep := depth(html)) > most.most_depth:
            return removed(document, "html", "html_depth", value=deep, threshold=most.most_depth)
        markup = as_html(html) if document.metadata.get(MARKUP) == XML else html
        markup, sign = with_sign(markup) if most.main_content and most.letters else (markup, "")
        text = self._extract(markup, preserve_formatting=True, main_content=most.main_content, list_bullets=False)
        text = (text.replace(sign, "") if sign else text).strip()
        if not text:
            return removed(document, "html", "html_empty", value=0, threshold=1)
        return changed(document, text, "html", "html_text", before=len(html), after=len(text))

    def measured(self, document: Document) -> Mapping[str, Any]:
        return {"content_type": document.metadata.get("content_type")}
