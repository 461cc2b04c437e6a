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

from ledger.format.tlog import Tile

LOG = "log"
PROJECTIONS = "projections"


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
