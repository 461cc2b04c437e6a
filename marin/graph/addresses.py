"""From a readable address to a recorded result: what the newest graph that had a step of this name made of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from ledger import LedgerError
from marin.kinds.families.graph import GRAPH_COMPLETED
from marin.record.root import Root

NEWEST = 100
"""Executions of graphs that are looked through, the newest first."""


def at_address(root: Root, address: str) -> Mapping[str, Any] | None:
    """The row of graph.completed for ``address`` (see ``GraphCompleted``); None where no graph had it."""
    store = root.store()
    for _, event in reversed(deque(root.history().events(type=GRAPH_COMPLETED), maxlen=NEWEST)):
        try:
            rows = json.loads(store.read(str(event.body.get("results"))))
        except LedgerError:
            continue  # collected, or not fetched: an older one may be here
        for row in rows:
            if row.get("address") == address:
                return dict(row)
    return None
