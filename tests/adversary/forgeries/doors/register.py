"""The register of what is forged at each door: a kind has a door, a name, what is done, and a word of the answer.

A door is where somebody is told PASS, or is shown a number as if it were known: a root (at hand, or at an address), a
bundle, a dossier, a certificate, a board of speedruns, MLflow's view, lists, pages and exports, the library. ``ask`` of a door
gives its answer; a kind is refused where the door does not believe it and says why.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger import LedgerError
from tests.adversary.forgeries.workshop import Base, Shop


@dataclass(frozen=True)
class Answer:
    """What a door said. ``believed``: it passed, or showed what was forged as if it were so."""

    believed: bool
    said: str


@dataclass
class Stall:
    """Where one forgery is made: a folder of its own, and the honest run that it begins with. ``held``: what the forger has
    made for the door, by name. ``brought``: makes the honest bundle and its model, once for all."""

    base: Base
    folder: Path
    brought: Callable[[], Path]
    held: dict[str, Any] = field(default_factory=dict)
    _shop: Shop | None = None

    @property
    def shop(self) -> Shop:
        """A copy of the honest root, of which the forger holds the key."""
        if self._shop is None:
            self._shop = Shop(self.base, self.base.run, self.folder)
        return self._shop

    def discard(self) -> None:
        """Remove the folder, of which trees may be read-only."""
        for path in (self.folder, *self.folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(self.folder, ignore_errors=True)


Forge = Callable[[Stall], object]
Ask = Callable[[Stall], Answer]


@dataclass(frozen=True)
class Kind:
    """One way to forge. ``says``: part of what the door has to answer. ``honest``: nothing is forged, and the door must
    believe it. ``executes``: the door does not answer before it has executed the model."""

    door: str
    name: str
    forge: Forge
    says: str
    honest: bool = False
    executes: bool = False

    @property
    def id(self) -> str:
        """Door and name."""
        return f"{self.door}: {self.name}"


DOORS: dict[str, Ask] = {}
KINDS: dict[str, Kind] = {}


def door(name: str) -> Callable[[Ask], Ask]:
    """Enter a door by the function that asks it."""

    def enter(ask: Ask) -> Ask:
        DOORS[name] = ask
        return ask

    return enter


def kind(door: str, name: str, says: str, *, honest: bool = False, executes: bool = False) -> Callable[[Forge], Forge]:
    """Enter a kind."""

    def enter(forge: Forge) -> Forge:
        found = Kind(door, name, forge, says, honest, executes)
        assert found.id not in KINDS, f"two kinds {found.id}"
        KINDS[found.id] = found
        return forge

    return enter


@dataclass(frozen=True)
class Row:
    """A kind and what came of it: ``refused``, ``honest``, refused with ``other words``, or it ``passes``."""

    kind: Kind
    how: str
    said: str

    @property
    def good(self) -> bool:
        """Nobody would believe it, and the door says why; an honest one is believed."""
        return self.how in ("refused", "honest")


def tried(kind: Kind, stall: Stall) -> Row:
    """Forge, ask the door, and say what came of it."""
    kind.forge(stall)
    try:
        answer = DOORS[kind.door](stall)
    except LedgerError as error:
        answer = Answer(False, str(error))
    said = answer.said.replace(str(stall.folder), "FOLDER")
    if kind.honest:
        return Row(kind, "honest" if answer.believed else "refused though honest", said)
    if answer.believed:
        return Row(kind, "passes", said)
    return Row(kind, "refused" if kind.says in said else "other words", said)


def at(*doors: str) -> Iterator[Kind]:
    """The kinds of these doors, in the order in which they were entered."""
    return (kind for kind in KINDS.values() if not doors or kind.door in doors)
