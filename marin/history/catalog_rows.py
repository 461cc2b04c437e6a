"""The rows of the catalog: what each kind of event adds to them. Written from the same values as a run that is folded
whole (:mod:`marin.history.run`); an event whose body does not fit its type adds nothing.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from ledger import Event
from marin.errors import MarinError
from marin.history.fold import by_address, reused_result, step_view
from marin.history.labels import Labels, label_stream
from marin.history.names import model_of, section
from marin.history.run import Fact, Indexed, StepView, plan_of, was_interrupted
from marin.history.runs import stands_in_stream
from marin.record import events
from marin.record import events as kinds

VERSION = 12
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, idx INTEGER NOT NULL, started TEXT NOT NULL, pipeline TEXT NOT NULL, plan TEXT NOT NULL,
    recipe_digest TEXT NOT NULL, dataset TEXT NOT NULL, model TEXT NOT NULL, num_steps TEXT NOT NULL, seed TEXT NOT NULL,
    experiment TEXT NOT NULL, completed INTEGER, failed INTEGER,
    interrupted INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_idx ON runs (idx);
CREATE TABLE IF NOT EXISTS replays (run TEXT NOT NULL, idx INTEGER NOT NULL, PRIMARY KEY (run, idx)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    run TEXT NOT NULL, step TEXT NOT NULL, idx INTEGER NOT NULL, completed_at INTEGER NOT NULL, identity TEXT NOT NULL,
    digest TEXT NOT NULL, artifact TEXT NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL,
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
CREATE TABLE IF NOT EXISTS labels (
    run TEXT PRIMARY KEY, archived INTEGER NOT NULL, description TEXT NOT NULL, tags TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursor (one INTEGER PRIMARY KEY CHECK (one = 1), origin TEXT, size INTEGER, root BLOB);
"""


@dataclass(frozen=True)
class ArtifactView:
    """One output that a run has, as lists and lineage show it: by ``index`` in this run, made by the event
    ``completed_at`` (the same unless taken over)."""

    run: str
    step: str
    index: int
    completed_at: int
    identity: str
    digest: str
    artifact: str
    kind: str
    size: int

    @classmethod
    def of(cls, run: str, step: StepView) -> ArtifactView:
        """The output of a step of ``run``."""
        made = step.output
        return cls(
            run,
            step.step,
            step.index,
            step.completed_at,
            step.identity,
            made.digest,
            made.artifact,
            made.kind,
            made.size,
        )


@dataclass(frozen=True)
class CheckpointView:
    """A training checkpoint, saved before train step ``step``."""

    run: str
    step: int
    index: int
    state: str
    artifact: str
    size: int

    @classmethod
    def of(cls, fact: Fact[events.CheckpointSaved]) -> CheckpointView:
        """What one ``checkpoint.saved`` records."""
        saved = fact.body
        return cls(saved.run, saved.step, fact.index, saved.state, saved.artifact, saved.size)


def started(db: sqlite3.Connection, facts: Iterable[Fact[events.RunStarted]]) -> None:
    """A run begins; what lists show of its recipe is read here, once."""
    for fact in facts:
        body = fact.body
        model = section(body.recipe, "model")
        if tags := dict(Labels.first(body.recipe).tags):
            db.execute("INSERT OR IGNORE INTO labels VALUES (?, 0, '', ?)", (body.run, json.dumps(tags)))
        db.execute(
            "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)",
            (
                body.run,
                fact.index,
                fact.time,
                plan_of(body.pipeline),
                body.plan,
                body.recipe_digest,
                _text(section(body.recipe, "dataset").get("name")),
                model_of(body.recipe)
                if body.pipeline == kinds.LOOP
                else f"{_text(model.get('architecture'))} {_text(model.get('num_layers'))}x{_text(model.get('hidden_dim'))}",
                _text(section(body.recipe, "trainer").get("num_steps")),
                _text(body.recipe.get("seed")),
                body.experiment,
            ),
        )


def step_completed(db: sqlite3.Connection, facts: Iterable[Fact[events.StepCompleted]]) -> None:
    """An output, and its numbers. One that is not finite is not found by its value."""
    for fact in facts:
        run, step = fact.body.run, step_view(fact)
        _result(db, ArtifactView.of(run, step))
        db.executemany(
            "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)",
            (
                (run, f"{step.step}.{name}", value, step.index, step.index)
                for name, value in step.metrics.items()
                if math.isfinite(value)
            ),
        )


def step_cached(db: sqlite3.Connection, facts: Iterable[Fact[events.StepCached]]) -> None:
    """An output that another run made, with the numbers that it recorded."""
    for fact in facts:
        found = ArtifactView.of(fact.body.run, reused_result(fact, None))
        if db.execute(
            "SELECT 1 FROM results WHERE run = ? AND step = ? AND idx > ?", (found.run, found.step, found.index)
        ).fetchone():
            continue
        _result(db, found)
        db.execute(
            "INSERT OR REPLACE INTO metrics SELECT ?, name, value, ?, completed_at FROM metrics "
            "WHERE completed_at = ? AND idx = ?",
            (found.run, found.index, found.completed_at, found.completed_at),
        )


def _result(db: sqlite3.Connection, found: ArtifactView) -> None:
    db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(found))


def step_failed(db: sqlite3.Connection, facts: Iterable[Fact[events.StepFailed]]) -> None:
    """The newest failure of a run."""
    db.executemany(
        "UPDATE runs SET failed = ?, interrupted = ? WHERE run = ?",
        ((fact.index, was_interrupted(fact.body), fact.body.run) for fact in facts),
    )


def run_completed(db: sqlite3.Connection, facts: Iterable[Fact[events.RunCompleted]]) -> None:
    """A run is complete."""
    db.executemany("UPDATE runs SET completed = ? WHERE run = ?", ((fact.index, fact.body.run) for fact in facts))


def checkpoint_saved(db: sqlite3.Connection, facts: Iterable[Fact[events.CheckpointSaved]]) -> None:
    """A training checkpoint."""
    db.executemany(
        "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)",
        (astuple(CheckpointView.of(fact)) for fact in facts),
    )


def replayed(db: sqlite3.Connection, facts: Iterable[Fact[events.ReplayCompleted]]) -> None:
    """A verification of a run."""
    db.executemany("INSERT OR IGNORE INTO replays VALUES (?, ?)", ((fact.body.run, fact.index) for fact in facts))


def run_labelled(db: sqlite3.Connection, facts: Iterable[Fact[events.RunLabelled]]) -> None:
    """What a user says of a run, on top of what was said before."""
    for fact in facts:
        now = labels_in(db, fact.body.run).after(fact.body)
        row = (fact.body.run, now.archived, now.description, json.dumps(dict(now.tags)))
        db.execute("INSERT OR REPLACE INTO labels VALUES (?, ?, ?, ?)", row)


def labels_in(db: sqlite3.Connection, run: str) -> Labels:
    """What is said of a run by now."""
    row = db.execute("SELECT archived, description, tags FROM labels WHERE run = ?", (run,)).fetchone()
    return Labels() if row is None else Labels(bool(row[0]), row[1], json.loads(row[2]))


Fold = Callable[[sqlite3.Connection, Iterable[Any]], None]
FOLDS: Mapping[type[events.Body], Fold] = {
    events.RunStarted: started,
    events.StepCompleted: step_completed,
    events.StepCached: step_cached,
    events.StepFailed: step_failed,
    events.RunCompleted: run_completed,
    events.CheckpointSaved: checkpoint_saved,
    events.ReplayCompleted: replayed,
    events.RunLabelled: run_labelled,
}
"""In this order, which is one in which every row finds what it refers to."""


def _stands(event: Event, body: Any) -> bool:
    """Whether an event stands in the stream of the run that it speaks of; verdicts may stand anywhere."""
    if isinstance(body, events.RunLabelled):
        return event.stream == label_stream(body.run)
    return isinstance(body, events.ReplayCompleted) or stands_in_stream(event, body.run)


def readable[T: events.Body](kind: type[T], found: Iterable[Indexed]) -> Iterator[Fact[T]]:
    """Those of these events whose body fits their type and that stand where such an event is its run's own; a step goes by its
    address, where it has one."""
    for index, event in found:
        try:
            body = kinds.read(kind, event.body, where=f"event {index}")
        except MarinError:
            continue
        if _stands(event, body):
            yield Fact(index, event.time, by_address(body), event.actor)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
