"""HTML that is escaped by construction: text becomes markup only by passing through :func:`element`.

What the pages show comes from documents, file names and configurations that anybody may have written. So there is no
way to put a string into a page unescaped, except :class:`Html` itself, which only this file makes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence

from marin.process.text import visible

_NAME = re.compile(r"^[a-z][a-z0-9-]*$")
_VOID = frozenset({"meta", "img", "br", "hr", "link", "path", "line", "rect", "circle", "input"})


class Html:
    """A piece of finished markup."""

    __slots__ = ("markup",)

    def __init__(self, markup: str) -> None:
        self.markup = markup


Child = Html | str | int | float | None


def element(name: str, /, *children: Child | Iterable[Child], **attributes: str | int | float | bool | None) -> Html:
    """``<name attribute="…">children</name>``, all text escaped. ``class_`` gives ``class``, ``a_b`` gives ``a-b``; an
    attribute that is None or False is left out, one that is True stands alone."""
    assert _NAME.match(name.lower()), name
    written = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if name in _VOID and not children:
        return Html(
            f"<{name}{written}>" if name in {"meta", "img", "br", "hr", "link", "input"} else f"<{name}{written}/>"
        )
    return Html(f"<{name}{written}>{join(*children).markup}</{name}>")


def join(*children: Child | Iterable[Child]) -> Html:
    """Children one after the other."""
    return Html("".join(_written(child) for child in children))


def page(title: str, style: str, *body: Child | Iterable[Child], scripts: Sequence[str] = ()) -> bytes:
    """A whole self-contained document. ``style`` and ``scripts`` are our own text or an installed library's, never
    data; no other scripts than these, named by their digests, are allowed to run in it, and nothing is loaded."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    if scripts:
        assert not any("</" in script or "\r" in script for script in scripts)
        policy += f"; script-src {' '.join(map(_named, scripts))}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        Html(f"<style>{style}</style>"),
    )
    last = [Html(f"<script>{script}</script>") for script in scripts]
    return ("<!DOCTYPE html>\n" + element("html", head, element("body", *body, last), lang="en").markup + "\n").encode()


def _named(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _written(child: Child | Iterable[Child]) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child.markup
    if isinstance(child, str):
        return html.escape(visible(child, keep="\n\t"))
    if isinstance(child, int | float):
        return str(child)
    return "".join(_written(item) for item in child)


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{html.escape(visible(str(value), keep="\n\t"))}"'
