"""Pages as files of one folder that any web server serves: who may write there, and what is kept.

`marin site` and `marin speedrun site` write into the same folder, if they are asked to: each has its own places in it, and
``site.json`` says of each page what it was drawn from, and which bytes were written. A page is kept where both are still so, and
removed where the site has it no longer, such as that of a run that was archived.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ledger import canonical_digest, digest_bytes
from marin.errors import UsageError
from marin.process.files import write_whole
from marin.process.waiting import waiting

STATE = "site.json"


@dataclass(frozen=True)
class Page:
    """A page that belongs to a site: where it lies, what it follows from, and how it is drawn."""

    path: str
    source: str
    draw: Callable[[], bytes]


@dataclass(frozen=True)
class Part:
    """What a plugin adds to the site of a root: pages, and what the index lists of experiments (name, question, conclusion) and
    of sweeps (path, name, when, what it is of); ``tracks``: there are pages of tracks."""

    pages: tuple[Page, ...]
    experiments: tuple[tuple[str, str, str], ...] = ()
    tracks: bool = False
    sweeps: tuple[tuple[str, str, str, str], ...] = ()


@dataclass(frozen=True)
class Drawn:
    """What a page that lies there was drawn from, and the digest of its bytes."""

    source: str
    content: str


@dataclass(frozen=True)
class PageCounts:
    """How many pages were drawn, and how many were there and still right."""

    drawn: int
    kept: int


def write_pages(
    pages: Iterable[Page], folder: Path, told: Callable[[str], None] = lambda _: None, *, whole: bool
) -> PageCounts:
    """Pages below ``folder``, each replaced whole. ``told`` hears the path of one that is drawn. ``whole``: they are all
    that the site has, and others that were drawn before are removed; otherwise those stay.

    Raises:
        UsageError: ``folder`` has files and is not a site.
    """
    before = _before(folder)
    known: dict[str, Drawn] = {}
    drawn = 0
    for page in pages:
        path, last = folder / page.path, before.get(page.path)
        if last is not None and last.source == page.source and _holds(path, last.content):
            known[page.path] = last
            continue
        told(page.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with waiting("drawing a page"):
            content = page.draw()
            write_whole(path, content)
        known[page.path] = Drawn(page.source, digest_bytes(content))
        drawn += 1
    if whole:
        for name, last in before.items():
            if name not in known and _holds(path := folder / name, last.content) and _is_below(path, folder):
                path.unlink()
    said = msgspec.to_builtins(known if whole else {**before, **known})
    write_whole(folder / STATE, json.dumps(said, indent=1).encode() + b"\n")
    return PageCounts(drawn, len(known) - drawn)


def pages_in(folder: Path) -> Mapping[str, str]:
    """The digest of each page that was written into a folder, by path."""
    return {path: drawn.content for path, drawn in _before(folder).items()}


def software() -> str:
    """Digest of what draws pages: with another, all are drawn again."""
    here = Path(__file__).parents[1]
    return canonical_digest(
        {
            path.relative_to(here).as_posix(): digest_bytes(path.read_bytes())
            for room in ("plugins", "reporting")
            for path in sorted((here / room).rglob("*"))
            if path.suffix in (".py", ".j2", ".css", ".js")
        }
    )


def _holds(path: Path, content: str) -> bool:
    """Whether the bytes are there: somebody else may have written another file into their place."""
    return path.is_file() and digest_bytes(path.read_bytes()) == content


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a page that ``site.json`` names is one of the site: that file lies among what others can write."""
    return path.resolve().is_relative_to(folder.resolve())


def _before(folder: Path) -> Mapping[str, Drawn]:
    state = folder / STATE
    if not state.exists():
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(
                "the folder has files, and no site was written there",
                where=str(folder),
                expected=f"a new folder, or one with {STATE}",
                found=f"none of that name, and {next(folder.iterdir()).name}",
                cure="name another folder",
            )
        write_whole(state, b"{}\n")  # anyone who is killed after the first page may go on
        return {}
    try:
        return msgspec.json.decode(state.read_bytes(), type=dict[str, Drawn])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}  # it only saves work
