"""One run as the pages see it, read from the ledger: its own events, the replays of it, and what it took over.

The pages of a run are drawn when somebody opens them. So the whole log is not folded for it: a run's stream holds its
events, and a result that was taken over names the event that first recorded it.
"""

from __future__ import annotations

import re

from ledger import Event
from marin.history.projection.fold import Fold
from marin.history.projection.record import RunRecord
from marin.history.runs import resolve, stream_of
from marin.record import events as types
from marin.record.root import Root


def run_record(root: Root, name: str) -> RunRecord:
    """The run that ``name`` means (an id, a unique beginning of one, or ``latest``), or the graph with this id.

    Raises:
        UsageError: no run or several answer to the name.
    """
    history = root.history()
    graph = f"graph/{name}" if re.fullmatch(r"[a-z0-9]+", name) else ""
    events: dict[int, Event] = dict(history.events(stream=graph)) if graph else {}
    run = name if events else resolve(history, name)
    own = graph if events else stream_of(run)
    events = events or dict(history.events(stream=own))
    reader = root.reader()
    sources = {own}
    for event in list(events.values()):
        origin = event.body.get("completed_at") if event.type == types.STEP_CACHED else None
        if isinstance(origin, int) and (stream := reader.event(origin).stream) not in sources:
            sources.add(stream)
            events |= dict(history.events(stream=stream))
    events |= {
        index: event for index, event in history.events(type=types.REPLAY_COMPLETED) if event.body.get("run") == run
    }
    fold = Fold(root.verifier.name, own=reader if root.is_own() else None)
    for index in sorted(events):
        fold.apply(index, events[index])
    return fold.runs[run]


def all_records(root: Root) -> list[RunRecord]:
    """Every run and graph of a root, in the order in which they began."""
    reader = root.reader()
    fold = Fold(root.verifier.name, own=reader if root.is_own() else None)
    for index, event in reader.events():
        fold.apply(index, event)
    return list(fold.runs.values())
