"""What a user has seen of a log before: the newest verified log checkpoint of each origin, kept outside every root.

A log that was rolled back, or that shows another history to somebody who has seen it, can not be consistent with the
pin. Trust on first use: the first verification of an origin only remembers.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from ledger import LogCheckpoint, LogReader
from marin.files import write_whole


def default_pins() -> Path:
    """``MARIN_PINS``, or ``marin/pins`` in the user's state folder (XDG base directory specification)."""
    chosen = os.environ.get("MARIN_PINS")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "marin" / "pins"


@dataclass(frozen=True)
class Pins:
    """A folder with one small JSON file per origin."""

    folder: Path

    def path(self, checkpoint: LogCheckpoint) -> Path:
        return self.folder / (hashlib.sha256(checkpoint.origin.encode()).hexdigest()[:32] + ".json")

    def check(self, checkpoint: LogCheckpoint, reader: LogReader) -> str:
        """Compare ``checkpoint`` with the pin of its origin and move the pin forward; a line that says how it went.

        Raises:
            Tampered: the log is shorter than what was pinned, or not an extension of it.
        """
        path = self.path(checkpoint)
        if path.exists():
            pin = json.loads(path.read_text(encoding="utf-8"))
            older = LogCheckpoint(checkpoint.origin, int(pin["size"]), bytes.fromhex(pin["root"]))
            reader.check_continues(older)
            line = f"consistent with the log checkpoint of size {older.size} seen before"
        else:
            line = "first time that this log is seen here: its log checkpoint is pinned now"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {"origin": checkpoint.origin, "root": checkpoint.root.hex(), "size": checkpoint.size}
        write_whole(path, (json.dumps(content, sort_keys=True) + "\n").encode())
        return line
