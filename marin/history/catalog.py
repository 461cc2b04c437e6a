"""What a ledger holds, by every name that somebody may have of it: runs, results, artifacts, numbers.

A fold of the read model of events into a second small SQLite file, so that a question about one number does not read a
million events. It is folded forwards only, remembers how far it has come and under which root, and begins anew where
that is not the log's beginning any more; the file may be deleted at any time. What it says is for finding: whoever
needs evidence follows the index to the event and verifies that.

    runs(run, idx, ...)               one row a run, with the newest verdict on it
    results(run, step, idx, ...)      one row for every output that a run has, taken over or made
    metrics(name, value, run, idx)    one row for every number, as step.name
    checkpoints(run, step, ...)       training checkpoints
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ledger import DoesNotFit, Event, FoldedDatabase, LogReader, Projection
from marin.history.run import ArtifactView
from marin.record import events as kinds
from marin.record.root import Root, catch_up
from marin.record.verdicts import effective, of_all, of_this_log

_VERSION = 4
_WAIT = 60.0
_FOLDED = (
    kinds.RUN_STARTED,
    kinds.STEP_COMPLETED,
    kinds.STEP_CACHED,
    kinds.STEP_FAILED,
    kinds.RUN_COMPLETED,
    kinds.CHECKPOINT_SAVED,
    kinds.REPLAY_COMPLETED,
)
"""In this order, which is one in which every row finds what it refers to."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, idx INTEGER NOT NULL, started TEXT NOT NULL, pipeline TEXT NOT NULL, plan TEXT NOT NULL,
    recipe_digest TEXT NOT NULL, dataset TEXT NOT NULL, model TEXT NOT NULL, num_steps TEXT NOT NULL, experiment TEXT NOT NULL,
    completed INTEGER, failed INTEGER, verdicts TEXT, replayed INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_idx ON runs (idx);
CREATE TABLE IF NOT EXISTS results (
    run TEXT NOT NULL, step TEXT NOT NULL, idx INTEGER NOT NULL, completed_at INTEGER NOT NULL, identity TEXT NOT NULL,
    digest TEXT NOT NULL, artifact TEXT NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL, seconds REAL,
    PRIMARY KEY (run, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS results_artifact ON results (artifact);
CREATE INDEX IF NOT EXISTS results_digest ON results (digest);
CREATE INDEX IF NOT EXISTS results_identity ON results (identity);
CREATE INDEX IF NOT EXISTS results_idx ON results (idx);
CREATE INDEX IF NOT EXISTS results_step ON results (step, idx);
CREATE TABLE IF NOT EXISTS metrics (
    run TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, idx INTEGER NOT NULL, completed_at INTEGER NOT NULL,
    PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS metrics_value ON metrics (name, value);
CREATE INDEX IF NOT EXISTS metrics_made ON metrics (completed_at);
CREATE TABLE IF NOT EXISTS checkpoints (
    run TEXT NOT NULL, step INTEGER NOT NULL, idx INTEGER NOT NULL, state TEXT NOT NULL, artifact TEXT NOT NULL,
    size INTEGER NOT NULL, PRIMARY KEY (run, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS checkpoints_idx ON checkpoints (idx);
CREATE INDEX IF NOT EXISTS checkpoints_artifact ON checkpoints (artifact);
CREATE INDEX IF NOT EXISTS checkpoints_state ON checkpoints (state);
CREATE TABLE IF NOT EXISTS cursor (one INTEGER PRIMARY KEY CHECK (one = 1), origin TEXT, size INTEGER, root BLOB);
"""


_RUN = (
    "run, idx, started, pipeline, plan, recipe_digest, dataset, model, num_steps, experiment, completed, failed, "
    "verdicts, replayed"
)


@dataclass(frozen=True)
class RunSummary:
    """One run as lists show it. ``verdicts`` are those of this user's newest replay; ``claimed``
    are what somebody else's log says of itself."""

    run: str
    index: int
    started: str
    pipeline: str
    plan: str
    recipe_digest: str
    dataset: str
    model: str
    num_steps: str
    experiment: str
    status: str
    verdicts: Mapping[str, str] | None
    claimed: Mapping[str, str] | None


@dataclass(frozen=True)
class CheckpointView:
    """A training checkpoint, saved before train step ``step``."""

    run: str
    step: int
    index: int
    state: str
    artifact: str
    size: int


@dataclass(frozen=True)
class Number:
    """One number that a run ended with."""

    run: str
    name: str
    value: float
    index: int
    completed_at: int


class Catalog:
    """The file, caught up with the projection when it is opened. ``path`` None keeps it in memory."""

    def __init__(self, path: Path | None, projection: Projection, reader: LogReader, *, own: bool) -> None:
        """``own``: this user's key signs the log, so that the verdicts in it are his."""
        self._own = own
        self._projection, self._reader = projection, reader
        self._file = FoldedDatabase(path, "the catalog of runs", _SCHEMA, version=_VERSION, wait=_WAIT)
        try:
            try:
                self._catch_up()
            except (sqlite3.DatabaseError, DoesNotFit):
                self._file.discard()
                self._catch_up()
        except (sqlite3.Error, DoesNotFit) as error:
            raise self._file.failed(error) from error

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    # Questions

    def runs(self, run: str | None = None) -> list[RunSummary]:
        """All runs in the order in which they started, or the one with this id."""
        rows = self._all(f"SELECT {_RUN} FROM runs {_of(run)} ORDER BY idx", *_given(run))  # noqa: S608
        return [self._run(row) for row in rows]

    def _run(self, row: Sequence[Any]) -> RunSummary:
        (
            run,
            index,
            started,
            pipeline,
            plan,
            recipe,
            dataset,
            model,
            num_steps,
            experiment,
            completed,
            failed,
            verdicts,
            replayed,
        ) = row
        counting = self._counting(run, json.loads(verdicts), replayed) if verdicts else None
        return RunSummary(
            run,
            index,
            started,
            pipeline,
            plan,
            recipe,
            dataset,
            model,
            num_steps,
            experiment,
            status=self._status(run, completed, failed),
            verdicts=counting if self._own else None,
            claimed=None if self._own else counting,
        )

    def _counting(self, run: str, verdicts: Mapping[str, str], replayed: int) -> Mapping[str, str]:
        """The verdicts of one verification, as they count for the run as it is by now."""
        told = self._projection.event(replayed)
        checkpoint = told.body["log_checkpoint"] if told is not None else {}
        size = checkpoint.get("size")
        start = size if isinstance(size, int) and 0 <= size <= replayed else 0
        later = self._projection.events(stream=f"run/{run}", start=start)
        last = max((index for index, event in later if event.type != kinds.REPLAY_COMPLETED), default=-1)
        return of_all(verdicts, checkpoint, last)

    def _status(self, run: str, completed: int | None, failed: int | None) -> str:
        if completed is not None:
            return "completed"
        last = self._projection.latest(stream=f"run/{run}") if failed is not None else None
        return "failed" if last is not None and last[0] == failed else "open"

    def run_ids(self, beginning: str = "") -> list[str]:
        """The ids that begin so, in the order in which they started."""
        return [
            row[0]
            for row in self._all(
                "SELECT run FROM runs WHERE run >= ? AND run < ? ORDER BY idx", beginning, f"{beginning}\U0010ffff"
            )
        ]

    def results(self, run: str | None = None) -> list[ArtifactView]:
        """Every output, or those of one run, in the order of the log."""
        return self._made(f"{_of(run)} ORDER BY idx", *_given(run))

    def newest_results(self, limit: int) -> list[ArtifactView]:
        """The newest outputs, the newest first; all of them where ``limit`` is negative."""
        return self._made("ORDER BY idx DESC LIMIT ?", limit)

    def newest_checkpoints(self, limit: int) -> list[CheckpointView]:
        """The newest training checkpoints, the newest first; all of them where ``limit`` is negative."""
        return self._saved("ORDER BY idx DESC LIMIT ?", limit)

    def made(self, digest: str) -> list[ArtifactView]:
        """The outputs whose content or stored bytes have this digest, those that made it first."""
        return self._made("WHERE artifact = ? OR digest = ? ORDER BY idx != completed_at, idx", digest, digest)

    def named(self, step: str) -> list[ArtifactView]:
        """The results of steps of this name or address, the newest first, 50 at most."""
        return self._made("WHERE step = ? ORDER BY idx DESC LIMIT 50", step)

    def by_identity(self, beginning: str) -> list[ArtifactView]:
        """The results of steps whose identity begins so."""
        return self._made(
            "WHERE identity >= ? AND identity < ? ORDER BY idx LIMIT 50", beginning, f"{beginning}\U0010ffff"
        )

    def checkpoints(self, digest: str | None = None) -> list[CheckpointView]:
        """All training checkpoints, or those whose state or stored tree has this digest."""
        where = "" if digest is None else "WHERE artifact = ? OR state = ? "
        return self._saved(f"{where}ORDER BY idx", *_given(digest), *_given(digest))

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

    def _made(self, rest: str, *values: str | int) -> list[ArtifactView]:
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
            for kind in _FOLDED:
                if kind == kinds.REPLAY_COMPLETED:
                    _fold_replays(db, _until(self._projection.events(type=kind, start=size), target.size), self._reader)
                    continue
                _FOLDS[kind](db, _until(self._projection.events(type=kind, start=size), target.size))
            db.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?, ?)", (target.origin, target.size, target.root))


@contextmanager
def open_catalog(root: Root) -> Iterator[Catalog]:
    """The catalog of a root, up to its newest event."""
    reader, path = root.reader(), root.projection_path()
    with Projection(path, reader) as projection:
        catch_up(projection, reader)
        with Catalog(path and path.with_name(f"catalog-{path.name}"), projection, reader, own=root.is_own()) as catalog:
            yield catalog


def _of(run: str | None) -> str:
    return "" if run is None else "WHERE run = ?"


def _given(value: str | None) -> list[str]:
    return [] if value is None else [value]


Indexed = tuple[int, Event]


def _until(found: Iterable[Indexed], size: int) -> Iterator[Indexed]:
    return (item for item in found if item[0] < size)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _name(body: Mapping[str, Any]) -> str:
    """What a result is called in its run: the step of the pipeline, or the address of a graph's step."""
    return _text(body.get("address")) or _text(body.get("step"))


def _section(recipe: object, name: str) -> Mapping[str, Any]:
    found = recipe.get(name) if isinstance(recipe, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _fold_started(db: sqlite3.Connection, found: Iterable[Indexed]) -> None:
    for index, event in found:
        body, recipe = event.body, event.body.get("recipe")
        model = _section(recipe, "model")
        db.execute(
            "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, NULL)",
            (
                _text(body.get("run")),
                index,
                event.time,
                _text(body.get("pipeline")),
                _text(body.get("plan")),
                _text(body.get("recipe_digest")),
                _text(_section(recipe, "dataset").get("name")),
                f"{_text(model.get('architecture'))} {_text(model.get('num_layers'))}x{_text(model.get('hidden_dim'))}",
                _text(_section(recipe, "trainer").get("num_steps")),
                _text(body.get("experiment")),
            ),
        )


def _fold_completed(db: sqlite3.Connection, found: Iterable[Indexed]) -> None:
    for index, event in found:
        body, output = event.body, event.body.get("output")
        if not isinstance(output, Mapping):
            continue
        run, step = _text(body.get("run")), _name(body)
        _result(db, index, index, body, output)
        metrics = body.get("metrics")
        for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
            number = _number(value)
            if number is not None:
                db.execute(
                    "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)",
                    (run, f"{step}.{name}", number, index, index),
                )


def _fold_cached(db: sqlite3.Connection, found: Iterable[Indexed]) -> None:
    for index, event in found:
        body, output, made = event.body, event.body.get("output"), event.body.get("completed_at")
        if not isinstance(output, Mapping) or not isinstance(made, int):
            continue
        run, step = _text(body.get("run")), _name(body)
        if db.execute("SELECT 1 FROM results WHERE run = ? AND step = ? AND idx > ?", (run, step, index)).fetchone():
            continue
        _result(db, index, made, body, output)
        db.execute(
            "INSERT OR REPLACE INTO metrics SELECT ?, name, value, ?, completed_at FROM metrics "
            "WHERE completed_at = ? AND idx = ?",
            (run, index, made, made),
        )


def _result(db: sqlite3.Connection, index: int, made: int, body: Mapping[str, Any], output: Mapping[str, Any]) -> None:
    seconds, size = body.get("seconds"), output.get("size")
    db.execute(
        "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            _text(body.get("run")),
            _name(body),
            index,
            made,
            _text(body.get("identity")),
            _text(output.get("digest")),
            _text(output.get("artifact")),
            _text(output.get("kind")),
            size if isinstance(size, int) else 0,
            seconds if isinstance(seconds, int | float) else None,
        ),
    )


def _fold_failed(db: sqlite3.Connection, found: Iterable[Indexed]) -> None:
    db.executemany(
        "UPDATE runs SET failed = ? WHERE run = ?", ((index, _text(event.body.get("run"))) for index, event in found)
    )


def _fold_run_completed(db: sqlite3.Connection, found: Iterable[Indexed]) -> None:
    db.executemany(
        "UPDATE runs SET completed = ? WHERE run = ?", ((index, _text(event.body.get("run"))) for index, event in found)
    )


def _fold_checkpoints(db: sqlite3.Connection, found: Iterable[Indexed]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)",
        (
            (
                _text(body.get("run")),
                body.get("step"),
                index,
                _text(body.get("state")),
                _text(body.get("artifact")),
                body.get("size"),
            )
            for index, event in found
            if isinstance((body := event.body).get("step"), int) and isinstance(body.get("size"), int)
        ),
    )


def _fold_replays(db: sqlite3.Connection, found: Iterable[Indexed], log: LogReader) -> None:
    db.executemany(
        "UPDATE runs SET verdicts = ?, replayed = ? WHERE run = ?",
        (
            (json.dumps(effective(event.body["verdicts"], event.body["training"])), index, _text(event.body.get("run")))
            for index, event in found
            if all(isinstance(event.body.get(name), Mapping) for name in ("verdicts", "training", "log_checkpoint"))
            and of_this_log(event.body["log_checkpoint"], log)
        ),
    )


def _number(value: object) -> float | None:
    """A hex float; one that is no finite number is not found by its value."""
    try:
        number = float.fromhex(value) if isinstance(value, str) else float("nan")
    except (ValueError, OverflowError):
        return None
    return number if number - number == 0 else None


_FOLDS = {
    kinds.RUN_STARTED: _fold_started,
    kinds.STEP_COMPLETED: _fold_completed,
    kinds.STEP_CACHED: _fold_cached,
    kinds.STEP_FAILED: _fold_failed,
    kinds.RUN_COMPLETED: _fold_run_completed,
    kinds.CHECKPOINT_SAVED: _fold_checkpoints,
}
