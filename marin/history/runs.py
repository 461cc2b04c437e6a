"""Reading runs back: a run is what its events say, folded; nothing else remembers it.

A step that was taken over from an earlier run (``step.cached``) is resolved to the event that first recorded it, and
the facts of that execution (segments, checkpoints, evaluation) are read from the stream of the run that executed it.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ledger import Event
from marin.errors import MissingEvidence, UsageError
from marin.history.executions import History as History
from marin.history.executions import evaluation_stream as evaluation_stream
from marin.history.executions import facts as facts
from marin.history.executions import fold_stream
from marin.history.executions import is_a as is_a
from marin.history.executions import read_fact as read_fact
from marin.history.executions import replay_stream as replay_stream
from marin.history.executions import started_runs as started_runs
from marin.history.executions import stream_of as stream_of
from marin.history.executions import withdrawn_from as withdrawn_from
from marin.history.labels import label_stream, labelled
from marin.history.run import JudgedFold, Run, age_in_words, record_digest, unverified
from marin.kinds.known import type_of
from marin.record.events import ReplayCompleted, ReplaySegment, RunLabelled

log = logging.getLogger(__name__)

LATEST = "latest"


def stream_of_graph(graph: str) -> str:
    """The stream that holds the events of one execution of a graph."""
    return f"graph/{graph}"


def stands_in_stream(event: Event, run: str) -> bool:
    """Whether an event stands in the stream of ``run`` itself, or of that execution of a graph: what names a run elsewhere
    says nothing of what it is, and no verdict looks at it."""
    return event.stream in (stream_of(run), stream_of_graph(run))


def run_ids(history: History) -> list[str]:
    """All runs, in the order in which they started."""
    return [fact.body.run for fact in started_runs(history)]


def resolve(history: History, name: str) -> str:
    """The id that ``name`` means: a whole id, a unique beginning of one, or ``latest`` (of the runs that lists show, the one
    started last).

    Raises:
        UsageError: no run or several runs answer to it; the message lists those that come near.
    """
    known = run_ids(history)
    if name == LATEST:
        hidden = archived(history)
        return pick([run for run in known if run not in hidden] or known, name)
    return pick(known, name)


def pick(known: Sequence[str], name: str) -> str:
    """As :func:`resolve`, among these ids, the oldest first.

    Raises:
        UsageError: there is no such run, or several begin like that.
    """
    if not known:
        raise UsageError(
            "there are no runs",
            where=name,
            expected="a run in this root",
            found="an empty ledger",
            cure="make one with `marin train` or `dvc repro`",
        )
    if name == LATEST:
        return known[-1]
    if name in known:
        return name
    matching = [run for run in known if name and run.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(
            "ambiguous run",
            where=name,
            expected="a beginning that only one run has",
            found=", ".join(matching[:8]),
            cure="give more of its letters",
        )
    near = difflib.get_close_matches(name, (LATEST, *known), n=1)
    raise UsageError(
        "unknown run",
        where=name,
        expected="a run id, a unique beginning of one, or latest",
        found=f"none so called among {len(known)}; the newest is {known[-1]}",
        cure=f"did you mean {near[0]}?" if near else "see `marin ls runs`",
    )


def followed(history: History, run: Run, is_mine: Callable[[int], bool]) -> str:
    """How far this user, who executed segments of a run again, is behind it, in words; "" where that never was. ``is_mine``:
    whether this user wrote the event at an index."""
    told = facts(history, ReplaySegment, stream=replay_stream(run.run))
    held = {fact.body.segment for fact in told if is_mine(fact.index)}
    if not any(record_digest(fact.body) in held for fact in run.segments[:1]):
        return ""
    return age_in_words(unverified(run, held))


def archived(history: History) -> set[str]:
    """The runs that lists leave out."""
    found: dict[str, bool] = {}
    for body in labelled(history.events(type=type_of(RunLabelled))):
        found[body.run] = found.get(body.run, False) if body.archived is None else body.archived
    return {run for run, hidden in found.items() if hidden}


def load(history: History, run: str) -> Run:
    """The run with exactly this id; :class:`MissingEvidence` when the ledger has no ``run.started`` for it."""
    return _folded(history, run, stream_of(run))


def load_graph(history: History, graph: str) -> Run:
    """The execution of a graph with exactly this id, read as a run; :class:`MissingEvidence` where there is none."""
    return _folded(history, graph, stream_of_graph(graph))


def load_named(history: History, name: str) -> Run:
    """The run that ``name`` means (as :func:`resolve`), or the execution of a graph with this id.

    Raises:
        UsageError: no run or several answer to the name.
    """
    if re.fullmatch(r"[a-z0-9]+", name) and any(True for _ in history.events(stream=stream_of_graph(name))):
        return load_graph(history, name)
    return load(history, resolve(history, name))


def load_all(history: History) -> Iterator[Run]:
    """Every run, in the order in which they started; one that does not hold together is named and left out."""
    return load_each(history, run_ids(history))


def load_each(history: History, ids: Iterable[str], one: Callable[[History, str], Run] = load) -> Iterator[Run]:
    """These, each as ``one`` loads it; what does not hold together is named and left out."""
    for run in ids:
        try:
            yield one(history, run)
        except MissingEvidence as error:
            log.warning("run %s is left out: %s", run, error)


def _folded(history: History, run: str, stream: str) -> Run:
    fold = JudgedFold(run)
    fold_stream(fold, history, stream)
    for fact in facts(history, ReplayCompleted, run=run):
        fold.judge(fact, counts=history.counts(fact))
    fold.evaluated = history.newest(evaluation_stream(run))
    for body in labelled(history.events(stream=label_stream(run), type=type_of(RunLabelled))):
        fold.label(body)
    return fold.view()
