"""Pages from the templates beside this file, and from those of plugins, by Jinja2.

What pages show comes from documents, file names and configurations that anybody may have written. So every value is
escaped (``autoescape``), and before that passes ``marin.process.text.visible``; a name that a template does not get is an error
(``StrictUndefined``). Only this file makes markup out of text, and only of our own scripts.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from marin.history.run import plan_of
from marin.process.text import SEEN_DIGITS, number_text, visible
from marin.recipe.units import duration, human_size

_DIGEST = re.compile(r"(sha256:[0-9a-f]{64})")
TEMPLATES = Path(__file__).with_name("templates")
OF_PLUGINS = sorted((TEMPLATES.parents[1] / "plugins").glob("*/templates"))
"""Folders with the templates of Marin's own plugins, whose names are the plugins' own."""


def render(template: str, /, *, scripts: Sequence[str] = (), **values: object) -> bytes:
    """The page of ``template``: one document that loads nothing. ``scripts`` are our own text or an installed
    library's, never data; no others may run in it.

    Raises:
        jinja2.UndefinedError: the template names a value that it was not given.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    if scripts:
        assert not any("</" in script or "\r" in script for script in scripts)
        policy += f"; script-src {' '.join(map(_script_source, scripts))}"
    own = {"policy": Markup(policy), "scripts": [Markup(script) for script in scripts]}  # noqa: S704 (never data)
    page = templates().get_template(template).render(values, **own)
    return page.encode()


@cache
def templates() -> Environment:
    """The environment in which every template is read."""
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, *OF_PLUGINS]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "moment": _moment,
        "duration": duration,
        "size": human_size,
        "plan": plan_of,
        "number": number_text,
        "digest": _digest,
        "digests": _digests,
    }
    return environment


@cache
def copying() -> str:
    """The script that puts a button behind each digest."""
    return (TEMPLATES / "copy.js").read_text(encoding="utf-8")


@cache
def finding() -> str:
    """The script that leaves of tables what somebody types."""
    return (TEMPLATES / "find.js").read_text(encoding="utf-8")


def style() -> str:
    """What all pages look like, for one that is not a template."""
    return (TEMPLATES / "page.css").read_text(encoding="utf-8")


def _digest(value: object) -> Markup:
    """A digest of which twelve digits are seen and all are there, to be selected, found and copied."""
    text = visible(str(value))
    begin = len("sha256:") if text.startswith("sha256:") else 0
    end = begin + SEEN_DIGITS
    parts = f"<span>{escape(text[:begin])}</span>{escape(text[begin:end])}<span>{escape(text[end:])}</span>"
    return Markup(f'<code class="digest" title="{escape(text)}">{parts}</code>')  # noqa: S704 (each part is escaped)


def _digests(value: object) -> Markup:
    """A sentence, with its digests as :func:`_digest` shows them."""
    text = visible(str(value), keep="\n\t")
    parts = _DIGEST.split(text)
    return Markup("").join(_digest(part) if n % 2 else escape(part) for n, part in enumerate(parts))


def _seen(value: object) -> object:
    """What is written of a value: text of others with everything unseen in escapes, numbers and markup as they are."""
    if isinstance(value, Markup | int | float):
        return value
    return visible(str(value), keep="\n\t")


def _moment(time: str) -> str:
    return f"{time[:19].replace('T', ' ')} UTC"


def _script_source(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def in_markdown(text: str) -> str:
    """``text`` inside a line of Markdown: visible, one line, and nothing of it a link, an image, a tag, a code span or
    the border of a cell."""
    return re.sub(r"[\\`<\[|]", r"\\\g<0>", visible(" ".join(text.split())))
