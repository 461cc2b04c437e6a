"""What a ledger holds, by every name that a user may have of it: runs, results, artifacts, numbers.

A fold of the read model of events into a second small SQLite file, so that a question about one number does not read a
million events. It is folded forwards only, remembers how far it has come and under which root, and begins anew where
that is not the log's beginning any more; the file may be deleted at any time. What it says is for finding: anyone who
needs evidence follows the index to the event and verifies that.

    runs(run, idx, ...)               one row a run
    replays(run, idx)                 its verifications
    results(run, step, idx, ...)      one row for every output that a run has, taken over or made
    metrics(name, value, run, idx)    one row for every number, as step.name
    checkpoints(run, step, ...)       training checkpoints
    labels(run, ...)                  whether lists show a run, its description and tags
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger import DoesNotFit, FoldedDatabase, LogReader, Projection
from marin.history.catalog_rows import FOLDS, SCHEMA, VERSION, ArtifactView, CheckpointView, labels_in, readable
from marin.history.executed import status
from marin.history.labels import Labels
from marin.history.run import Fact, Run
from marin.history.runs import LATEST, evaluation_stream, pick, stream_of
from marin.kinds.known import type_of
from marin.record import events as kinds
from marin.record.events import LoopSegment, ReplayCompleted, TrainSegment
from marin.record.root import Root, catch_up
from marin.record.trust.authorship import Authorship, of_this_log
from marin.record.verdicts import answerable, bytes_of, counting, overall, same_numbers, standing, twins

_WAIT = 10.0
_WITH_LOSSES: tuple[type[TrainSegment | LoopSegment], ...] = (TrainSegment, LoopSegment)
_RUN = (
    "run, idx, started, pipeline, plan, recipe_digest, dataset, model, num_steps, seed, experiment, "
    "completed, failed, interrupted"
)


@dataclass(frozen=True)
class RunSummary:
    """One run as lists show it. ``verdicts``: what this user's verifications say together; ``claimed``: what others say in the
    log, and ``claimed_by`` who; ``by``: the author who began it. Both are "" in a log that enrolled nobody."""

    run: str
    index: int
    started: str
    pipeline: str
    plan: str
    recipe_digest: str
    dataset: str
    model: str
    num_steps: str
    seed: str
    experiment: str
    status: str
    verdicts: Mapping[str, str] | None
    claimed: Mapping[str, str] | None
    answerable: tuple[str, ...]
    labels: Labels
    by: str = ""
    claimed_by: str = ""


@dataclass(frozen=True)
class Number:
    """One number that a run ended with."""

    run: str
    name: str
    value: float
    index: int
    completed_at: int


class Catalog(AbstractContextManager["Catalog"]):
    """The file, caught up with the projection when it is opened. ``path`` None keeps it in memory."""

    def __init__(self, path: Path | None, projection: Projection, reader: LogReader, written: Authorship) -> None:
        """``written``: who wrote which event, and so which verdicts are this user's."""
        self._written = written
        self._projection, self._reader = projection, reader
        self._file = FoldedDatabase(path, "the catalog of runs", SCHEMA, version=VERSION, wait=_WAIT)
        try:
            try:
                self._catch_up()
            except (sqlite3.DatabaseError, DoesNotFit) as error:
                if self._file.is_busy(error):
                    self._file.leave(error)
                else:
                    self._file.discard()
                self._catch_up()
        except (sqlite3.Error, DoesNotFit) as error:
            raise self._file.failed(error) from error

    def __exit__(self, *_: object) -> None:
        self._file.close()

    # Questions

    def runs(self, run: str | None = None) -> list[RunSummary]:
        """All runs in the order in which they started, or the one with this id."""
        rows = self._all(f"SELECT {_RUN} FROM runs {_of(run)} ORDER BY idx", *_arguments(run))  # noqa: S608
        return [self._run(row) for row in rows]

    def recipe(self, run: RunSummary) -> Mapping[str, object]:
        """The recipe as the run's first event has it; empty where that has none."""
        event = self._projection.event(run.index)
        found = event.body.get("recipe") if event is not None else None
        return found if isinstance(found, Mapping) else {}

    def twins(self, listed: Sequence[RunSummary]) -> dict[str, str]:
        """Of these runs the complete ones without a verdict, each with one of equal bytes that was verified."""
        complete = [run for run in listed if run.status == "completed"]
        if all(run.verdicts for run in complete):
            return {}
        outputs: dict[str, dict[str, str]] = {}
        for run, step, digest in self._all("SELECT run, step, digest FROM results"):
            outputs.setdefault(run, {})[step] = digest
        found = twins(
            (
                (run.run, bytes_of(run.recipe_digest, outputs.get(run.run, {})))
                for run in complete
                if not run.verdicts or overall(run.verdicts, run.answerable) == "PASS"
            ),
            (run.run for run in complete if run.verdicts),
        )
        return {run: twin for run, twin in found.items() if self._shows_no_more(run, twin)}

    def _shows_no_more(self, run: str, twin: str) -> bool:
        """Whether every loss and every number of a step that is shown of ``run`` is one of ``twin``."""
        return same_numbers(self.metrics(run), self.metrics(twin)) and self._losses(run) <= self._losses(twin)

    def _losses(self, run: str) -> set[tuple[int, str]]:
        """The losses of train steps that were recorded of a run, or of those whose results it took over."""
        made = [
            at for (at,) in self._all("SELECT completed_at FROM results WHERE run = ? AND completed_at != idx", run)
        ]
        streams = {stream_of(run), *(event.stream for event in map(self._projection.event, made) if event is not None)}
        told: list[TrainSegment | LoopSegment] = [
            body
            for kind in _WITH_LOSSES
            for stream in sorted(streams)
            for found in [self._projection.events(stream=stream, type=type_of(kind))]
            for body in (fact.body for fact in readable(kind, found))
        ]
        return {(body.start + place, loss) for body in told for place, loss in enumerate(body.losses)}

    def _run(self, row: Sequence[Any]) -> RunSummary:
        *shown, completed, failed, interrupted = row
        run = shown[0]
        last = self._projection.latest(stream=stream_of(run)) if completed is None and failed is not None else None
        replays = [index for (index,) in self._all("SELECT idx FROM replays WHERE run = ? ORDER BY idx", run)]
        mine, others = self._standing(run, replays, mine=True), self._standing(run, replays, mine=False)
        began = self._projection.event(shown[1])
        values = [
            *shown,
            status(completed is not None, failed, last[0] if last is not None else -1, interrupted=bool(interrupted)),
            mine,
            others,
            answerable(shown[3], [step for (step,) in self._all("SELECT step FROM results WHERE run = ?", run)]),
            labels_in(self._file.connection, run),
            "" if began is None else self._written.name(shown[1], began),
            ", ".join(self._claimants(replays)) if others else "",
        ]
        return RunSummary(*values)

    def _claimants(self, replays: Sequence[int]) -> list[str]:
        """The authors of those of these verdicts that are not this user's."""
        others = {index: self._projection.event(index) for index in replays if not self._written.is_mine(index)}
        return sorted({self._written.name(index, event) for index, event in others.items() if event is not None} - {""})

    def _standing(self, run: str, replays: Sequence[int], *, mine: bool) -> Mapping[str, str] | None:
        chosen = (index for index in replays if self._written.is_mine(index) is mine)
        return standing(filter(None, (self._counting(run, index) for index in chosen))) or None

    def _counting(self, run: str, replayed: int) -> Mapping[str, str] | None:
        """The verdicts of one verification, as they count for the run as it is by now."""
        event = self._projection.event(replayed)
        if event is None:
            return None
        body = kinds.read(ReplayCompleted, event.body, where=f"event {replayed}")
        size = body.log_checkpoint.get("size")
        start = size if isinstance(size, int) and 0 <= size <= replayed else 0
        later = self._projection.events(stream=stream_of(run), start=start)
        last = max((index for index, event in later if event.type != type_of(ReplayCompleted)), default=-1)
        evaluated = self._projection.latest(stream=evaluation_stream(run)) or (-1, None)
        return counting(body, last, evaluated[0])

    def run_ids(self, beginning: str = "") -> list[str]:
        """The ids that begin so, in the order in which they started."""
        return [
            row[0]
            for row in self._all(
                "SELECT run FROM runs WHERE run >= ? AND run < ? ORDER BY idx", beginning, f"{beginning}\U0010ffff"
            )
        ]

    def resolve(self, name: str) -> str:
        """As :func:`marin.history.runs.resolve`."""
        if name == LATEST:
            rows = self._all(
                "SELECT run FROM runs LEFT JOIN labels USING (run) ORDER BY coalesce(archived, 0), idx DESC LIMIT 1"
            )
            return pick([row[0] for row in rows], name)
        return pick(self.run_ids(), name)

    def results(self, run: str | None = None) -> list[ArtifactView]:
        """Every output, or those of one run, in the order of the log."""
        return self._artifacts(f"{_of(run)} ORDER BY idx", *_arguments(run))

    def newest_results(self, limit: int) -> list[ArtifactView]:
        """The newest outputs, the newest first; all of them where ``limit`` is negative."""
        return self._artifacts("ORDER BY idx DESC LIMIT ?", limit)

    def newest_checkpoints(self, limit: int) -> list[CheckpointView]:
        """The newest training checkpoints, the newest first; all of them where ``limit`` is negative."""
        return self._saved("ORDER BY idx DESC LIMIT ?", limit)

    def made(self, digest: str) -> list[ArtifactView]:
        """The outputs whose content or stored bytes have this digest, those that made it first."""
        return self._artifacts("WHERE artifact = ? OR digest = ? ORDER BY idx != completed_at, idx", digest, digest)

    def named(self, step: str) -> list[ArtifactView]:
        """The results of steps of this name or address, the newest first, 50 at most."""
        return self._artifacts("WHERE step = ? ORDER BY idx DESC LIMIT 50", step)

    def by_identity(self, beginning: str) -> list[ArtifactView]:
        """The results of steps whose identity begins so."""
        return self._artifacts(
            "WHERE identity >= ? AND identity < ? ORDER BY idx LIMIT 50", beginning, f"{beginning}\U0010ffff"
        )

    def digests(self, beginning: str) -> set[str]:
        """What begins so of all that outputs, states and steps are called by."""
        end = f"{beginning}\U0010ffff"
        found: set[str] = set()
        for table, columns in (("results", ("digest", "artifact", "identity")), ("checkpoints", ("artifact", "state"))):
            for column in columns:
                asked = f"SELECT {column} FROM {table} WHERE {column} >= ? AND {column} < ? LIMIT 50"  # noqa: S608
                found.update(row[0] for row in self._all(asked, beginning, end))
        return found

    def checkpoints(self, digest: str | None = None) -> list[CheckpointView]:
        """All training checkpoints, or those whose state or stored tree has this digest."""
        where = "" if digest is None else "WHERE artifact = ? OR state = ? "
        return self._saved(f"{where}ORDER BY idx", *_arguments(digest), *_arguments(digest))

    def metrics(self, run: str) -> dict[str, float]:
        """The numbers of a run, by name."""
        return dict(self._all("SELECT name, value FROM metrics WHERE run = ? ORDER BY idx, name", run))

    def all_metrics(self) -> dict[str, dict[str, float]]:
        """The numbers of every run."""
        found: dict[str, dict[str, float]] = {}
        for run, name, value in self._all("SELECT run, name, value FROM metrics ORDER BY run, idx, name"):
            found.setdefault(run, {})[name] = value
        return found

    def metric_names(self) -> list[str]:
        """The names of all numbers, by a walk from one to the next in the index."""
        names: list[str] = []
        found = self._all("SELECT min(name) FROM metrics")
        while found and found[0][0] is not None:
            names.append(found[0][0])
            found = self._all("SELECT min(name) FROM metrics WHERE name > ?", names[-1])
        return names

    def between(self, name: str, low: float, high: float, limit: int) -> list[Number]:
        """The numbers of this name from ``low`` to ``high``, the oldest first."""
        return [
            Number(*row)
            for row in self._all(
                "SELECT run, name, value, idx, completed_at FROM metrics WHERE name = ? AND value BETWEEN ? AND ? "
                "ORDER BY idx LIMIT ?",
                name,
                low,
                high,
                limit,
            )
        ]

    def nearest(self, name: str, value: float, limit: int) -> list[Number]:
        """The numbers of this name that come nearest to ``value``."""
        columns = "run, name, value, idx, completed_at"
        below = self._all(
            f"SELECT {columns} FROM metrics WHERE name = ? AND value <= ? ORDER BY value DESC LIMIT ?",  # noqa: S608
            name,
            value,
            limit,
        )
        above = self._all(
            f"SELECT {columns} FROM metrics WHERE name = ? AND value > ? ORDER BY value LIMIT ?",  # noqa: S608
            name,
            value,
            limit,
        )
        both = [Number(*row) for row in (*below, *above)]
        return sorted(both, key=lambda item: (abs(item.value - value), item.index))[:limit]

    def newest(self, name: str, limit: int) -> list[Number]:
        """The numbers of this name, the newest first."""
        return [
            Number(*row)
            for row in self._all(
                "SELECT run, name, value, idx, completed_at FROM metrics WHERE name = ? ORDER BY idx DESC LIMIT ?",
                name,
                limit,
            )
        ]

    def _saved(self, rest: str, *values: str | int) -> list[CheckpointView]:
        return [
            CheckpointView(*row)
            for row in self._all(f"SELECT run, step, idx, state, artifact, size FROM checkpoints {rest}", *values)  # noqa: S608
        ]

    def _artifacts(self, rest: str, *values: str | int) -> list[ArtifactView]:
        return [
            ArtifactView(*row)
            for row in self._all(
                f"SELECT run, step, idx, completed_at, identity, digest, artifact, kind, size FROM results {rest}",  # noqa: S608
                *values,
            )
        ]

    def _all(self, statement: str, *values: str | float) -> list[Any]:
        return self._file.connection.execute(statement, values).fetchall()

    # Folding

    def _catch_up(self) -> None:
        target = self._reader.checkpoint()
        with self._file.transaction() as db:
            row = db.execute("SELECT origin, size, root FROM cursor").fetchone()
            origin, size, root = row if row is not None else (target.origin, 0, b"")
            if size and (origin != target.origin or size > target.size or self._reader.root(size) != bytes(root)):
                raise DoesNotFit(f"its {size} events are not the beginning of this log")
            if size == target.size:
                return
            for kind, fold in FOLDS.items():
                new = self._projection.events(type=type_of(kind), start=size)
                facts: Iterable[Fact[Any]] = readable(kind, (item for item in new if item[0] < target.size))
                if kind is ReplayCompleted:
                    facts = (fact for fact in facts if of_this_log(fact.body.log_checkpoint, self._reader))
                fold(db, facts)
            db.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?, ?)", (target.origin, target.size, target.root))


def twin_of(root: Root, run: Run) -> str:
    """The verified run of equal bytes (:meth:`Catalog.twins`); "" where there is none."""
    with open_catalog(root) as catalog:
        return catalog.twins(catalog.runs()).get(run.run, "")


@contextmanager
def open_catalog(root: Root) -> Iterator[Catalog]:
    """The catalog of a root, up to its newest event."""
    reader, path = root.reader(), root.projection_path()
    with Projection(path, reader) as projection:
        catch_up(projection, reader)
        written = Authorship(
            reader, lambda kind: projection.places(type=kind), own=root.is_own(), mine=root.author_keys()
        )
        with Catalog(path and path.with_name(f"catalog-{path.name}"), projection, reader, written) as catalog:
            yield catalog


def _of(run: str | None) -> str:
    return "" if run is None else "WHERE run = ?"


def _arguments(value: str | None) -> list[str]:
    return [] if value is None else [value]
