"""What a publisher signs of pages: their digests, and of each from which state of the log it was drawn, and by which software.

The statement lies beside the pages, as ``pages.intoto.jsonl``, signed by the log's key. A signature says who wrote a page and not
that it is true: that is found by drawing it again (:mod:`marin.plugins.sharing.pages.judge`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

import ledger
import marin
from ledger import Malformed, Signer, VerifierKey, canonical_digest, digest_bytes
from marin.record.attestation import PAGES, attestation, attested

PREDICATE = "urn:marin:pages:v1"
LIBRARIES = ("jinja2", "markupsafe", "matplotlib", "mpld3", "numpy", "pillow", "tokenizers", "jax", "scipy")
"""What pages are drawn with besides: another version may draw them otherwise."""
NOBODY = ""
"""What drew a page that may come out otherwise here too, since something that it asks had no answer in time."""
_CODE = (".py", ".j2", ".css", ".js", ".mjs", ".html")


class SignedPage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page as it was written: its digest, the size of the log that it was drawn from (in digits), and what drew it."""

    sha256: str
    at: str
    by: str

    @property
    def size(self) -> int:
        """The size of the log."""
        return int(self.at)


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page of a published run says that no event does: where its dossier lies, where it is served, and the name and
    digest of the wheel beside it."""

    dossier: str = ""
    address: str = ""
    wheel: str = ""
    wheel_digest: str = ""


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    log: str
    address: str
    authors: tuple[str, ...]
    runs: dict[str, Published]
    drawn: dict[str, tuple[str, str]]
    before: dict[str, SignedPage]


@dataclass(frozen=True)
class Statement:
    """``log``: the origin. ``runs``: those of a publication; a site has none, and an ``address`` of its own. ``authors``: the
    publisher's keys as an author, whose verdicts pages call the publisher's. ``before``: pages that may still lie there, while
    those in ``pages`` take their places."""

    log: str
    pages: Mapping[str, SignedPage]
    runs: Mapping[str, Published] = field(default_factory=dict)
    authors: tuple[str, ...] = ()
    address: str = ""
    before: Mapping[str, SignedPage] = field(default_factory=dict)

    def signed(self, signer: Signer) -> bytes:
        """The file."""
        said = {
            "log": self.log,
            "address": self.address,
            "authors": list(self.authors),
            "runs": msgspec.to_builtins(dict(self.runs)),
            "drawn": {path: [entry.at, entry.by] for path, entry in self.pages.items()},
            "before": msgspec.to_builtins(dict(self.before)),
        }
        return attestation(
            {path: f"sha256:{entry.sha256}" for path, entry in self.pages.items()}, PREDICATE, said, signer
        )

    def replacing(self, old: Statement | None) -> Statement:
        """This one as it is signed before its pages are written: those of ``old`` that it replaces may still lie there."""
        changed = {} if old is None else {p: e for p, e in old.pages.items() if self.pages.get(p) != e}
        return replace(self, before=dict(self.before) | changed)


def read_statement(data: bytes, keys: Sequence[VerifierKey]) -> Statement:
    """What was signed of the pages of a log, by one of its ``keys``.

    Raises:
        Malformed: it is not a statement, says more than this form has, is about another log than the key's, or none of these keys
            signed it.
    """
    found = attested(data, keys, PREDICATE, where=PAGES)
    origin = VerifierKey.parse(found.key).name
    try:
        said = msgspec.convert(dict(found.said), type=_Said)
        pages = {p: SignedPage(found.files[p].removeprefix("sha256:"), *said.drawn[p]) for p in found.files}
        sizes = [entry.size for entry in (*pages.values(), *said.before.values())]
    except (msgspec.ValidationError, KeyError, ValueError, TypeError) as error:
        raise Malformed(
            "not a list of pages", where=PAGES, expected="pages, and what each was drawn from", found=str(error)[:200]
        ) from None
    if said.drawn.keys() != pages.keys() or min(sizes, default=0) < 0 or said.log != origin:
        raise Malformed(
            "a list of other pages",
            where=PAGES,
            expected=f"pages of the log {origin}",
            found=f"pages of {said.log}"[:200],
        )
    return Statement(said.log, pages, said.runs, said.authors, said.address, said.before)


def entry(content: bytes, size: int, *, is_sure: bool = True) -> SignedPage:
    """Of a page that is drawn here, from the log as it is with this size; not ``is_sure`` where it may come out otherwise."""
    return SignedPage(digest_bytes(content).removeprefix("sha256:"), str(size), drawer() if is_sure else NOBODY)


@cache
def drawer() -> str:
    """Digest of all that a page follows from beside the log and the store: Marin's own code, and the versions of libraries."""
    here = Path(marin.__file__).parent
    files: dict[str, Any] = {
        f"{package.name}/{path.relative_to(package).as_posix()}": digest_bytes(path.read_bytes())
        for package in (here, Path(ledger.__file__).parent)
        for path in sorted(package.rglob("*"))
        if path.suffix in _CODE
    }
    return canonical_digest(files | {name: _version(name) for name in LIBRARIES})


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
