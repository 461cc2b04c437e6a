"""What makes the repository's own Markdown the pages of a site: pages from outside of docs/, and links that hold there.

In the repository a link is a path from one file to another. On the site a page stands elsewhere, and files that are no
pages (code, tests) are not there: a link to one becomes its text. A link to nothing stays as it is, so that
`mkdocs build --strict` fails on it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PROJECT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "ledger/SPEC.md": "spec.md",
    "bench/RESULTS.md": "results.md",
}
"""Pages that do not lie below docs/, and where they stand on the site."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"(!\[[^\]]*\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"(^```.*?^```$|^    .*?$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """mkdocs asks which files there are."""
    for source, target in ELSEWHERE.items():
        files.append(File.generated(config, target, content=(PROJECT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """mkdocs has read a page."""
    here = source_of(page.file.src_uri)
    parts = _FENCE.split(markdown)
    return "".join(part if n % 2 else _linked(part, here, page.file.src_uri) for n, part in enumerate(parts))


def source_of(page: str) -> str:
    """The file of the repository that a page of the site is made of."""
    return next((source for source, target in ELSEWHERE.items() if target == page), f"docs/{page}")


def _linked(text: str, here: str, page: str) -> str:
    def link(found: re.Match[str]) -> str:
        target = moved(found[2], here, page)
        return found[1] if target is None else f"[{found[1]}]({target})"

    def image(found: re.Match[str]) -> str:
        return f"{found[1]}{moved(found[2], here, page) or found[2]}{found[3]}"

    return _IMAGE.sub(image, _LINK.sub(link, text))


def moved(target: str, here: str, page: str) -> str | None:
    """Where a link of the file ``here``, which is ``page`` of the site, leads there; None where it leads to a file that is no
    page."""
    if "://" in target or target.startswith(("#", "mailto:")):
        return target
    path, _, anchor = target.partition("#")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    if file in ELSEWHERE:
        place = ELSEWHERE[file]
    elif file.startswith("docs/") and (PROJECT / file).is_file():
        place = file.removeprefix("docs/")
    else:
        return None if (PROJECT / file).exists() else target
    return posixpath.relpath(place, posixpath.dirname(page) or ".") + (f"#{anchor}" if anchor else "")
