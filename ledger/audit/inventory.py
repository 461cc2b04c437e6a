"""Which files of a log are there, and which of them nothing has explained yet. A byte for each complete tile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ledger.errors import Malformed
from ledger.format.tlog import TILE_WIDTH, Tile


class Inventory:
    """The tiles and bundles of a log that has ``tiles`` of them at a level, at most; others are remembered one by
    one."""

    def __init__(self, tiles: int) -> None:
        self._tiles = tiles
        self._complete: dict[int, bytearray] = {}
        self._odd: dict[tuple[int, int], set[int]] = {}

    def add(self, tile: Tile) -> None:
        """This one is there."""
        if tile.width == TILE_WIDTH and tile.index < self._tiles:
            self._complete.setdefault(tile.level, bytearray(self._tiles))[tile.index] = 1
        else:
            self._odd.setdefault((tile.level, tile.index), set()).add(tile.width)

    def is_alone(self, tile: Tile) -> bool:
        """Whether this complete tile is there, and no partial one beside it."""
        return self._is_complete(tile.level, tile.index) and (tile.level, tile.index) not in self._odd

    def explain(self, tile: Tile) -> None:
        """This one belongs there."""
        if self._is_complete(tile.level, tile.index) and tile.width == TILE_WIDTH:
            self._complete[tile.level][tile.index] = 0
        else:
            self._forget(tile.level, tile.index, {tile.width})

    def take(self, tile: Tile, most: int) -> list[int]:
        """The widths up to ``most`` in which a tile is there; they count as explained."""
        widths = {width for width in self._odd.get((tile.level, tile.index), ()) if width <= most}
        self._forget(tile.level, tile.index, widths)
        if most >= TILE_WIDTH and self._is_complete(tile.level, tile.index):
            self._complete[tile.level][tile.index] = 0
            widths.add(TILE_WIDTH)
        return sorted(widths)

    def left(self) -> Iterator[Tile]:
        """What nothing explained."""
        complete = (Tile(level, at) for level, there in self._complete.items() for at, one in enumerate(there) if one)
        odd = (Tile(level, index, width) for (level, index), widths in self._odd.items() for width in widths)
        yield from sorted([*complete, *odd], key=lambda tile: (tile.level, tile.index, tile.width))

    def _is_complete(self, level: int, index: int) -> bool:
        return index < self._tiles and level in self._complete and self._complete[level][index] == 1

    def _forget(self, level: int, index: int, widths: set[int]) -> None:
        left = self._odd.get((level, index), set()) - widths
        if left:
            self._odd[level, index] = left
        else:
            self._odd.pop((level, index), None)


ENTRIES = -1
"""The level under which entry bundles are addressed by ``parse_tile_path``."""


_TILE = re.compile(
    r"tile/(?P<level>entries|0|[1-9]|[1-5][0-9]|6[0-3])/(?P<index>(?:x[0-9]{3}/)*[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?\Z"
)


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
