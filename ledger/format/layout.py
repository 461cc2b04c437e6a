"""Every path of a root, in one place (C2SP tlog-tiles below ``log/``).

    log/checkpoint                    the signed log checkpoint
    log/tile/<L>/<N>[.p/<W>]          tiles of hashes
    log/tile/entries/<N>[.p/<W>]      bundles of entries
    log/journal                       committed, not yet published (ours; see SPEC.md)
    log/.lock                         held by the writer
    store/…                           artifacts (store.py)
    projections/…                     whatever can be rebuilt

``<N>`` is written in groups of three digits, all but the last with an ``x``: 1234067 is ``x001/x234/067``.
The functions take the folder of the log, for foreign logs lie elsewhere: "" is a log at the root itself.
"""

from __future__ import annotations

import re

from ledger.errors import Malformed
from ledger.format.tlog import TILE_WIDTH, Tile

LOG = "log"
PROJECTIONS = "projections"
ENTRIES = -1
"""The level under which entry bundles are addressed by ``parse_tile_path``."""

_TILE = re.compile(
    r"tile/(?P<level>entries|0|[1-9]|[1-5][0-9]|6[0-3])/(?P<index>(?:x[0-9]{3}/)*[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?\Z"
)


def checkpoint_path(log: str = LOG) -> str:
    """Where the signed checkpoint lies."""
    return _below(log, "checkpoint")


def journal_path(log: str = LOG) -> str:
    """Where an append becomes durable."""
    return _below(log, "journal")


def lock_path(log: str = LOG) -> str:
    """What a writer holds."""
    return _below(log, ".lock")


def tile_path(tile: Tile, log: str = LOG) -> str:
    """Where the hashes of a tile lie."""
    return _below(log, f"tile/{tile.level}/{_position(tile)}")


def entries_path(tile: Tile, log: str = LOG) -> str:
    """The bundle that holds the entries of a tile of level 0."""
    return _below(log, f"tile/entries/{_position(tile)}")


def partial_prefix(tile: Tile, log: str = LOG) -> tuple[str, str]:
    """What the names of all partial widths of this tile, and of its bundle of entries, begin with."""
    whole = Tile(tile.level, tile.index)
    return f"{tile_path(whole, log)}.p/", f"{entries_path(whole, log)}.p/"


def parse_tile_path(path: str) -> Tile:
    """The tile that a path below the log's folder names; the level is ``ENTRIES`` for a bundle.

    Raises:
        Malformed: not a path of a tile.
    """
    match = _TILE.match(path)
    if match is None or int(match["width"] or 1) >= TILE_WIDTH:
        raise Malformed("not a path of a tile", where=path)
    digits = match["index"].replace("x", "").replace("/", "")
    if match["index"].startswith("x000"):
        raise Malformed("not a path of a tile", where=path, found="leading zero groups")
    level = ENTRIES if match["level"] == "entries" else int(match["level"])
    return Tile(level, int(digits), int(match["width"] or TILE_WIDTH))


def index_path() -> str:
    """The writer's index of ids and streams."""
    return f"{PROJECTIONS}/index.sqlite"


def _position(tile: Tile) -> str:
    digits = f"{tile.index:03d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "/".join([f"x{group}" for group in groups[:-1]] + groups[-1:])
    return f"{path}.p/{tile.width}" if tile.partial else path


def _below(log: str, path: str) -> str:
    return f"{log}/{path}" if log else path
