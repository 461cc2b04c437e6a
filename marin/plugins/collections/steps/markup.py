"""Markup in which resiliparse finds the text that a browser shows, where it does not find it in a page as it is.

Resiliparse 2.0.1 takes a text node of three bytes, of which the last two are not ASCII, for an icon, and leaves it out of
the main content: every letter of Chinese, Japanese and Korean in an element of its own (``<ruby>漢<rt>kan</rt></ruby>``), ``où``,
``€``. So such a text is given a sign more, which is taken out of the result. Icons of fonts, which are characters of private use,
are left to it.

It also reads everything by HTML's rules. What a server called XHTML is XML: there ``<title/>`` is closed, and a CDATA section is
text.
"""

from __future__ import annotations

import html
import re

SIGNS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Code points that are not characters, of which one stands in no page that says something."""
VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"))
"""Elements that have no content."""
_SPACE, _BLANK = r"[\t\n\f\r ]*+", "\t\n\f\r "
_LETTER = re.compile(rf">{_SPACE}([!-%'-;=-~]?+[^\x00-\x7f])(?={_SPACE}<)")
"""A text node of one letter outside of ASCII, perhaps behind one of ASCII."""
_NAMED = re.compile(rf"&[#0-9A-Za-z]{{2,31}}+;?(?={_SPACE}<)")
"""A letter by its name at the end of a text node."""
_LOOKED_BACK = 256
_EMPTY = re.compile(r"""<([A-Za-z][^\s/<>"']*+)((?:[^<>"'/]|/(?!>)|"[^"<]*+"|'[^'<]*+')*+)/>""")


def with_sign(markup: str) -> tuple[str, str]:
    """``markup`` whose texts of three bytes are longer by a sign, and the sign; an empty one where nothing is longer."""
    sign = ""

    def longer(found: re.Match[str], text: str) -> str:
        nonlocal sign
        if not _is_of_three_bytes(text):
            return found[0]
        sign = sign or next((one for one in SIGNS if one not in markup), "")
        return found[0] + sign

    def named(found: re.Match[str]) -> str:
        before = found.string[max(0, found.start() - _LOOKED_BACK) : found.start()]
        alone, behind = before.rstrip(_BLANK).endswith(">"), before[:-1].rstrip(_BLANK).endswith(">")
        return longer(found, html.unescape(found[0] if alone else before[-1:] + found[0] if behind else ""))

    markup = _LETTER.sub(lambda found: longer(found, found[1]), markup)
    return _NAMED.sub(named, markup), sign


def _is_of_three_bytes(text: str) -> bool:
    size = len(text.encode("utf-8", "replace"))
    return size == 3 and not text.isascii() and not any("\ue000" <= one <= "\uf8ff" for one in text)


def as_html(xml: str) -> str:
    """XHTML in HTML's own writing: no processing instructions, CDATA as text, elements without content closed by a tag."""
    first, *others = xml.split("<?")
    xml = first + "".join(other.partition("?>")[2] if "?>" in other else other for other in others)
    first, *others = xml.split("<![CDATA[")
    sections = (other.partition("]]>") for other in others)
    xml = first + "".join(html.escape(text, quote=False) + rest for text, _, rest in sections)
    return _EMPTY.sub(lambda tag: tag[0] if tag[1].lower() in VOID else f"<{tag[1]}{tag[2]}></{tag[1]}>", xml)
