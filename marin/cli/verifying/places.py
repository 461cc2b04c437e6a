"""What `marin verify` is asked by a place: what a browser shows of a publication or a site is what is taken, at an address or on
a disk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from marin.history.runs import LATEST
from marin.record.attestation import PAGES
from marin.record.trust.homes import VKEY
from marin.reporting.folder import STATE

OF_A_SITE = (PAGES, STATE)
"""What lies in the folder of a site: what is signed of its pages, and what it was drawn from."""
RUNS, FRONT, JUDGE = "runs", "index.html", "check.html"
"""Where the pages of runs lie in a publication, and the pages that are of all of it; a fragment of the judge's names a run."""
SHARED = ("outputs", "dossiers", "sweeps", "experiments", "speedruns")
"""Where other pages lie; all of these end in ``.html``."""


class RunAddress(NamedTuple):
    """A run, by the name that somebody gave; the page that was shown of it, and where: both "" where no place was named."""

    run: str
    page: str = ""
    place: str = ""


def run_address(text: str) -> RunAddress:
    """What a name, an address or a path means.

    ``https://HOST/PATH/RUN``, or the address of any page, with a fragment, a query, ``index.html`` or a slash at the end; the
    front of a publication, and pages that several runs share, mean its newest run. A path means what its address would.
    """
    if _is_on_disk(text):
        return _on_disk(text)
    scheme, _, place = _shown(text).partition("://")
    host, *parts = [part for part in place.split("/") if part]
    at, run, page = _meant(parts, is_folder=place.endswith("/"))
    return RunAddress(unquote(_run_of(text, run, page)), unquote(page), f"{scheme}://{'/'.join([host, *parts[:at]])}")


def folder_of(text: str) -> Path | str:
    """The folder or the address that shows what ``text`` names, ``index.html`` or a fragment at its end or not."""
    if _is_on_disk(text):
        path = _path(text)
        return path.parent if path.name == FRONT else path
    return _shown(text).removesuffix(FRONT).rstrip("/")


def _is_on_disk(text: str) -> bool:
    return "://" not in text or text.startswith("file://")


def _shown(text: str) -> str:
    return re.split(r"[?#]", text, maxsplit=1)[0]


def _path(text: str) -> Path:
    """Where on the disk: as a person writes it, or as a browser that shows it does; a name may hold what begins a fragment."""
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    return Path(text) if Path(text).exists() else Path(_shown(text))


def _run_of(text: str, run: str, page: str) -> str:
    named = re.search(r"#([a-z2-7]{8})$", text) if page == JUDGE else None
    return named[1] if named else run


def _on_disk(text: str) -> RunAddress:
    """A path below a folder that was published, or is a site; anything else is a name."""
    path = _path(text).absolute()
    if not path.exists():
        return RunAddress(text)
    for folder in (path, *path.parents):
        is_root = (folder / VKEY).is_file() and (folder / "log").is_dir()
        if is_root or any((folder / name).is_file() for name in OF_A_SITE):
            parts = path.relative_to(folder).parts
            _, run, page = _meant(parts, is_folder=path.is_dir())
            return RunAddress(_run_of(text, run, page), page, str(folder))
    return RunAddress(text)


def _meant(parts: Sequence[str], *, is_folder: bool) -> tuple[int, str, str]:
    """How many of these parts lead to the root, the run, and the page below the root."""
    if re.search(r"(^|/)(dossiers/[0-9a-f]{64}|speedruns)$", "/".join(parts)):
        parts = [*parts, FRONT]  # folders below a root that a browser shows
    named = [at for at, part in enumerate(parts[:-1]) if part == RUNS]
    shared = [at for at, part in enumerate(parts[:-1]) if part in SHARED and parts[-1].endswith(".html")]
    if named and named[-1] > max(shared, default=-1):
        at = named[-1]
        page = parts[at + 2 :] or (FRONT,)
        return at, parts[at + 1], "/".join((*parts[at : at + 2], *page))
    if shared:
        return shared[-1], LATEST, "/".join(parts[shared[-1] :])
    if parts and parts[-1] in (FRONT, JUDGE):
        return len(parts) - 1, LATEST, parts[-1]
    if parts and (not is_folder or re.fullmatch(r"[a-z2-7]{8}", parts[-1])):
        return len(parts) - 1, parts[-1], ""
    return len(parts), LATEST, FRONT
