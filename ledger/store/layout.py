"""Where the artifact store keeps what: every name below ``store/``, in one place.

    store/blobs/sha256/ab/cdef…        the bytes whose digest is abcdef… (``ledger.store.parts``)
    store/parts/sha256/ab/cdef…        the part hashes of that blob, when it is above 8 MiB (``ledger.store.parts``)
    store/packed/sha256/ab/cdef…       how to make that blob from others, where it is not kept as it is (``packs.packing``)
    store/packfiles/<64 hex>           many small blobs in one file (``packs.packfile``)
    store/packfiles.txt                the names of those files
    store/trees/sha256/ab/cdef…        a manifest whose sha256 is abcdef…
    store/leases/<id>.json             a writer at work, whose puts are kept
    store/pins/<64 hex>.json           an artifact that is kept although nothing names it
    store/quarantine/<seconds>/…       what garbage collection set aside at that time, below its old name
    store/incoming/<64 hex>            a large blob on its way here, resumed after a break
    store/gc.lock                      held while garbage is collected
    projections/store-stat-3.sqlite    stat cache; may be deleted at any time
    projections/scrub.json             how far the last scrub came; may be deleted at any time

Blobs and trees are apart, so that the kind of a digest is known without reading it, and a file that happens
to hold the bytes of a manifest stays a file.
"""

from __future__ import annotations

from typing import Final

from ledger.errors import Malformed
from ledger.format.digest import parse_digest

STORE: Final = "store/"
BLOBS: Final = "store/blobs/sha256/"
PARTS: Final = "store/parts/sha256/"
PACKED: Final = "store/packed/sha256/"
PACKFILES: Final = "store/packfiles/"
PACKFILE_LIST: Final = "store/packfiles.txt"
TREES: Final = "store/trees/sha256/"
LEASES: Final = "store/leases/"
PINS: Final = "store/pins/"
QUARANTINE: Final = "store/quarantine/"
INCOMING: Final = "store/incoming/"
GC_LOCK: Final = "store/gc.lock"
SETTLED: Final = (BLOBS, PARTS, PACKFILES, TREES)
"""Beginnings of names that say by digest what they hold, which therefore never changes."""
STAT_CACHE: Final = "projections/store-stat-3.sqlite"
SCRUB_CURSOR: Final = "projections/scrub.json"


def blob_name(digest: str) -> str:
    """Where the bytes of a blob lie."""
    return BLOBS + _spread(digest)


def parts_name(digest: str) -> str:
    """Where the part hashes of a blob lie."""
    return PARTS + _spread(digest)


def packed_name(digest: str) -> str:
    """Where the record of a packed blob lies."""
    return PACKED + _spread(digest)


def tree_name(digest: str) -> str:
    """Where the manifest of a tree lies."""
    return TREES + _spread(digest)


def packfile_name(digest: str) -> str:
    """Where the packfile lies whose index has this digest."""
    parse_digest(digest)
    return PACKFILES + digest.removeprefix("sha256:")


def packfile_digest(name: str) -> str:
    """The digest of the index of the packfile of this name; Malformed for a name of something else."""
    digest = f"sha256:{name.removeprefix(PACKFILES)}"
    try:
        parse_digest(digest)
    except Malformed:
        digest = ""
    if not digest or packfile_name(digest) != name:
        raise Malformed("name of a packfile", where=name, expected=f"{PACKFILES}<64 hex>", found="another shape")
    return digest


def digest_of(name: str, prefix: str) -> str:
    """The digest that a name below ``prefix`` stands for; Malformed for a file that does not belong there."""
    spread = name.removeprefix(prefix)
    digest = "sha256:" + spread.replace("/", "", 1)
    try:
        parse_digest(digest)
    except Malformed:
        spread = ""
    if not spread or prefix + _spread(digest) != name:
        raise Malformed("name in the store", where=name, expected=f"{prefix}<2 hex>/<62 hex>", found="another shape")
    return digest


def _spread(digest: str) -> str:
    parse_digest(digest)
    return f"{digest[7:9]}/{digest[9:]}"
