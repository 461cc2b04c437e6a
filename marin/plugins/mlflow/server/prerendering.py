"""Pages of finished runs, drawn before somebody opens them: none waits, and none shows what another left on the screen."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import urllib.parse
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from ledger import LedgerError
from marin.record.root import Root

if TYPE_CHECKING:
    from marin.reporting.lineage.samples import Inspector

NEWEST = 12
"""Runs whose pages are drawn ahead; those of older ones are drawn when they are opened."""

_log = logging.getLogger(__name__)


class Prerendering(threading.Thread):
    """Draws the pages of the newest finished runs and of those that finish, one after the other, until told to stop."""

    def __init__(self, root: Root, *, interval: float = 2.0) -> None:
        super().__init__(name="marin-pages", daemon=True)
        self._root = root
        self._interval = interval
        self._ended = threading.Event()
        self._turn = threading.Lock()
        self._inspector: Inspector | None = None

    def start(self) -> None:
        """Begin, unless the end came first."""
        with self._turn:
            if not self._ended.is_set():
                super().start()

    def run(self) -> None:
        # Here: MLflow, while it is imported, looks for this module by its entry point.
        from marin.plugins.mlflow.stores.repository import ShelfView
        from marin.reporting.lineage.samples import Inspector

        done: set[tuple[str, int]] = set()
        while not self._ended.is_set():
            with Inspector() as inspector:
                self._inspector = inspector
                for identity, at in self._wanted():
                    if (identity, at) in done or self._ended.is_set():
                        continue
                    done.add((identity, at))
                    try:
                        ShelfView(self._root, identity).draw_pages(inspector, self._ended)
                    except CancelledError:
                        return
                    except (LedgerError, OSError) as error:
                        _log.debug("a page of %s is drawn when it is opened: %s", identity, error)
            self._ended.wait(self._interval)

    def _wanted(self) -> list[tuple[str, int]]:
        database = self._root.views() / "mlflow" / "mlflow.db"
        uri = f"file:{urllib.parse.quote(str(database))}?mode=ro"
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as found:
            return [
                (str(identity), int(at))
                for identity, at in found.execute(
                    "SELECT id, at FROM marin_shelf JOIN runs ON run_uuid = id WHERE status <> 'RUNNING' "
                    "AND pages LIKE '%report.html%' ORDER BY start_time DESC LIMIT ?",
                    (NEWEST,),
                )
            ]
        return []

    def stop(self) -> None:
        """Begin no other page, let go of what waits for an answer, and end. A thread that draws while the interpreter ends
        may crash it."""
        with self._turn:
            self._ended.set()
        if self._inspector is not None:
            self._inspector.stop()
        if self.is_alive():
            self.join()
