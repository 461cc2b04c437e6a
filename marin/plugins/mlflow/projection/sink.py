"""Intents -> rows of MLflow's database, one transaction a round.

What a round wants is gathered by table and leaves as one ``executemany`` a table, together with the cursor (how much of
which log is in here, a tag of MLflow's default experiment). So a round is in the database whole or not at all, a
million points take seconds, and database and cursor can not part. Rows are what MLflow's own stores write for the same
call; a test compares the two.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin.errors import MarinError
from marin.history.projection.identity import mlflow_id
from marin.plugins.mlflow.folding import intents
from marin.plugins.mlflow.projection.database import ARTIFACT_ROOT, COLUMNS, SCHEME, connect, dispose, explained

CURSOR_TAG = "marin.cursor"
ENOUGH = 200_000
"""Rows after which a round should be written: a rebuild holds some tens of megabytes at a time."""
LONGEST = {"tag": 8000, "param": 6000, "key": 250}
DATASET_DIGEST_LENGTH = 36
MODEL_STATUS = {"UNSPECIFIED": 0, "PENDING": 1, "READY": 2, "FAILED": 3}
GONE = "Deleted_Internal"
"""MLflow's stage of a version that was deleted: its number is not given again."""
WORKSPACE = "default"

Row = tuple[Any, ...]
KEYS = {
    "tags": "run_uuid, key",
    "experiment_tags": "experiment_id, key",
    "registered_model_aliases": "workspace, name, alias",
    "logged_model_tags": "model_id, tag_key",
    "model_version_tags": "workspace, name, version, key",
    "registered_model_tags": "workspace, name, key",
}
"""Tables in which the later value holds, by their primary key; in the others the first row stands."""
OF_A_MODEL = (
    "registered_model_aliases",
    "registered_model_tags",
    "model_version_tags",
    "model_versions",
    "registered_models",
)
"""Tables whose rows name a registered model."""


def artifact_uri(digest: str) -> str:
    """The address of stored bytes for MLflow's clients: ``marin://artifact/<64 hex>``."""
    return f"{SCHEME}://artifact/{digest.removeprefix('sha256:')}"


def finite(value: float) -> tuple[float, int]:
    """A number as MLflow keeps it: NaN as 0 with a mark, an infinity as the largest float of its sign."""
    if math.isnan(value):
        return 0.0, 1
    return (math.copysign(sys.float_info.max, value) if math.isinf(value) else value), 0


@dataclass
class _Round:
    """What waits to be written, in this order: deletions, rows by table, the latest metrics by their key, changes."""

    first: list[tuple[str, Row]] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in COLUMNS})
    latest: dict[tuple[str, str], tuple[int, int, float, int]] = field(default_factory=dict)
    changes: list[tuple[str, Row]] = field(default_factory=list)
    size: int = 0


class Sink:
    """One open MLflow database. Not for several threads at a time; the projection holds a lock around it."""

    def __init__(self, folder: Path, *, created: int = 0) -> None:
        self.folder = folder
        self._connection = connect(folder, created=created)
        self._number = 0
        """The highest of experiments."""
        self._experiments: dict[str, int] = {}
        self._versions: dict[str, dict[str, int]] = {}
        self._cursor: str | None = None
        self._rounds = [_Round()]
        self._read_numbers()

    def close(self) -> None:
        """Let go of the database, also on behalf of a server in this process: its next query connects anew."""
        self._connection.close()
        dispose(self.folder)

    @property
    def created(self) -> int:
        """The time that was given when the database was made."""
        with explained(self.folder):
            (time,) = self._connection.execute(
                "SELECT creation_time FROM experiments WHERE experiment_id = 0"
            ).fetchone()
        return int(time)

    @property
    def full(self) -> bool:
        """Whether enough has been gathered for a round."""
        return sum(each.size for each in self._rounds) >= ENOUGH

    def read_cursor(self) -> dict[str, Any] | None:
        """What :meth:`flush` was given last, or None in a new database."""
        with explained(self.folder):
            found = self._connection.execute(
                "SELECT value FROM experiment_tags WHERE experiment_id = 0 AND key = ?", (CURSOR_TAG,)
            ).fetchone()
            if found and found[0] != self._cursor:  # another process was here
                self._cursor = found[0]
                self._read_numbers()
        try:
            cursor = json.loads(found[0]) if found else None
        except ValueError:
            return None
        return cursor if isinstance(cursor, dict) else None

    def apply(self, batch: Iterable[intents.Intent]) -> None:
        """Gather intents until :meth:`flush`."""
        for intent in batch:
            match intent:
                case intents.Points():
                    self._points(intent)
                case intents.PointsGone():
                    self._points_gone(intent)
                case intents.Tags():
                    self._tags(intent)
                case intents.OpenRun():
                    self._open_run(intent)
                case intents.Params():
                    self._add(
                        "params",
                        (
                            (intent.run, key[: LONGEST["key"]], value[: LONGEST["param"]])
                            for key, value in intent.values.items()
                        ),
                    )
                # A user may send a state without an end: then the end that was sent before stays.
                case intents.Status():
                    ended = "coalesce(?, end_time)" if intent.logged else "?"
                    self._change(
                        f"UPDATE runs SET status = ?, end_time = {ended} WHERE run_uuid = ?",  # noqa: S608
                        (intent.status, intent.ended, intent.run),
                    )
                case intents.OpenExperiment():
                    self._open_experiment(intent)
                case intents.ExperimentTags():
                    self._tag_experiment(self._experiment(intent.name), intent.values)
                case intents.ExperimentChanged():
                    self._experiment_changed(intent)
                case intents.DataUsed():
                    self._data_used(intent)
                case intents.ModelLogged():
                    self._create_model(intent)
                case intents.ModelChanged():
                    self._model_changed(intent)
                case intents.ModelPoints():
                    self._model_points(intent)
                case intents.ModelsUsed():
                    self._models_used(intent)
                case intents.ModelRegistered():
                    self._model_registered(intent)
                case intents.RegisteredChanged():
                    self._registered_changed(intent)
                case intents.VersionChanged():
                    self._version_changed(intent)
                # Of a version that is not there (its model was deleted) MLflow has no alias either.
                case intents.AliasSet():
                    if (version := self._versions.get(intent.name, {}).get(f"m-{intent.model}")) is not None:
                        # In the order of the log, as it may be taken away and given again in one round.
                        row = (intent.name, intent.alias, version, WORKSPACE)
                        self._change(_insert("registered_model_aliases"), row)
                case intents.AliasGone():
                    self._change(
                        "DELETE FROM registered_model_aliases WHERE workspace = ? AND name = ? AND alias = ?",
                        (WORKSPACE, intent.name, intent.alias),
                    )
                case intents.TagsGone():
                    self._tags_gone(intent)
                case intents.Lifecycle():
                    self._change(
                        "UPDATE runs SET lifecycle_stage = ?, deleted_time = ? WHERE run_uuid = ?",
                        (intent.stage, intent.time if intent.stage == "deleted" else None, intent.run),
                    )
                case intents.Shelve():
                    self._change(
                        "INSERT OR REPLACE INTO marin_shelf (id, run, at, mounts, pages) VALUES (?, ?, ?, ?, ?)",
                        (
                            intent.identity,
                            intent.run,
                            intent.at,
                            json.dumps(intent.mounts, sort_keys=True),
                            json.dumps(list(intent.pages)),
                        ),
                    )

    def flush(self, cursor: dict[str, Any] | None = None) -> None:
        """Write everything that was gathered, and the cursor with it. After a failure nothing of it is there, and what
        was gathered is lost: open the database again."""
        if cursor is not None:
            self._cursor = json.dumps(cursor, sort_keys=True)
            self._tag_experiment(0, {CURSOR_TAG: self._cursor})
        waiting, self._rounds = self._rounds, [_Round()]
        with explained(self.folder):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for each in waiting:
                    self._write(each)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise

    def _read_numbers(self) -> None:
        """The numbers that MLflow gives to names: experiments, and versions of registered models."""
        self._number = self._connection.execute("SELECT max(experiment_id) FROM experiments").fetchone()[0]
        self._experiments = {
            str(name): int(number)
            for number, name in self._connection.execute("SELECT experiment_id, name FROM experiments")
        }
        self._versions = {
            name: {} for (name,) in self._connection.execute("SELECT name FROM registered_models").fetchall()
        }
        for name, version, model in self._connection.execute(
            "SELECT name, version, value FROM model_version_tags WHERE key = 'marin.mlflow.model'"
        ):
            self._versions.setdefault(name, {})[model] = version

    def _write(self, waiting: _Round) -> None:
        for statement, values in waiting.first:
            self._connection.execute(statement, values)
        for table, rows in waiting.rows.items():
            if rows:
                self._connection.executemany(_insert(table), rows)
        if waiting.latest:
            self._connection.executemany(
                _insert("latest_metrics") + " ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value, "
                "timestamp = excluded.timestamp, step = excluded.step, is_nan = excluded.is_nan "
                "WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)",
                ((run, key, value, time, step, nan) for (run, key), (step, time, value, nan) in waiting.latest.items()),
            )
        for statement, values in waiting.changes:
            self._connection.execute(statement, values)

    @property
    def _round(self) -> _Round:
        return self._rounds[-1]

    def _now(self, statement: str, values: Row) -> None:
        """A change after all that was gathered so far, and before all that follows."""
        if any((self._round.latest, self._round.changes, *self._round.rows.values())):
            self._rounds.append(_Round())
        self._round.first.append((statement, values))

    def _add(self, table: str, rows: Iterable[Row]) -> None:
        gathered = self._round.rows[table]
        before = len(gathered)
        gathered.extend(rows)
        self._round.size += len(gathered) - before

    def _change(self, statement: str, values: Row) -> None:
        self._round.changes.append((statement, values))

    def _points(self, intent: intents.Points) -> None:
        run, key, time = intent.run, intent.key[: LONGEST["key"]], intent.time
        rows, best = [], self._round.latest.get((run, key))
        for step, value in intent.points:
            kept, nan = finite(value)
            rows.append((run, key, kept, time, step, nan))
            if best is None or (step, time, kept) > best[:3]:
                best = (step, time, kept, nan)
        self._add("metrics", rows)
        if best is not None:
            self._round.latest[run, key] = best

    def _points_gone(self, intent: intents.PointsGone) -> None:
        place = (intent.run, intent.key[: LONGEST["key"]])
        self._now(
            "DELETE FROM metrics WHERE run_uuid = ? AND key = ? AND step IN (SELECT value FROM json_each(?))",
            (*place, json.dumps(list(intent.steps))),
        )
        self._now("DELETE FROM latest_metrics WHERE run_uuid = ? AND key = ?", place)
        columns = ", ".join(COLUMNS["latest_metrics"])
        self._now(
            f"INSERT INTO latest_metrics ({columns}) SELECT {columns} FROM metrics WHERE run_uuid = ? AND key = ? "  # noqa: S608
            "ORDER BY step DESC, timestamp DESC, value DESC LIMIT 1",
            place,
        )

    def _tags(self, intent: intents.Tags) -> None:
        self._add(
            "tags",
            ((intent.run, key[: LONGEST["key"]], value[: LONGEST["tag"]]) for key, value in intent.values.items()),
        )
        if "mlflow.runName" in intent.values:
            self._change("UPDATE runs SET name = ? WHERE run_uuid = ?", (intent.values["mlflow.runName"], intent.run))

    def _tags_gone(self, intent: intents.TagsGone) -> None:
        gone = {(intent.run, key) for key in intent.keys}
        self._round.rows["tags"] = [row for row in self._round.rows["tags"] if row[:2] not in gone]
        self._round.first += [("DELETE FROM tags WHERE run_uuid = ? AND key = ?", place) for place in sorted(gone)]

    def _open_experiment(self, intent: intents.OpenExperiment) -> None:
        number = self._experiments.get(intent.name)
        if number is None:
            self._number += 1
            number = self._experiments[intent.name] = self._number
            self._add(
                "experiments",
                [(number, intent.name, f"{ARTIFACT_ROOT}/{number}", "active", intent.time, intent.time, WORKSPACE)],
            )
        self._tag_experiment(number, intent.tags)

    def _experiment_changed(self, intent: intents.ExperimentChanged) -> None:
        number = self._experiments.get(intent.name)
        if number is None:
            return
        for key in intent.untagged:
            self._now("DELETE FROM experiment_tags WHERE experiment_id = ? AND key = ?", (number, key))
        if intent.renamed is not None and intent.renamed not in self._experiments:
            self._experiments[intent.renamed] = self._experiments.pop(intent.name)
            self._now(
                "UPDATE experiments SET name = ?, last_update_time = ? WHERE experiment_id = ?",
                (intent.renamed, intent.time, number),
            )
        if intent.stage is not None:
            self._now(
                "UPDATE experiments SET lifecycle_stage = ?, last_update_time = ? WHERE experiment_id = ?",
                (intent.stage, intent.time, number),
            )
            self._now(
                "UPDATE runs SET lifecycle_stage = ?, deleted_time = ? WHERE experiment_id = ?",
                (intent.stage, intent.time if intent.stage == "deleted" else None, number),
            )

    def _tag_experiment(self, number: int, tags: Any) -> None:
        self._add("experiment_tags", ((number, key, value) for key, value in tags.items()))

    def _experiment(self, name: str) -> int:
        if name not in self._experiments:
            raise MarinError(
                "experiment is missing in the MLflow projection",
                where=str(self.folder),
                expected=name,
                found="none",
                cure=f"delete {self.folder} and run: marin sync",
            )
        return self._experiments[name]

    def _open_run(self, intent: intents.OpenRun) -> None:
        number = self._experiment(intent.experiment)
        self._add(
            "runs",
            [
                (
                    intent.run,
                    intent.name,
                    "UNKNOWN",
                    "",
                    "",
                    intent.user,
                    "RUNNING",
                    intent.time,
                    None,
                    "",
                    "active",
                    f"{ARTIFACT_ROOT}/{number}/{intent.run}/artifacts",
                    number,
                )
            ],
        )
        tags = {"mlflow.runName": intent.name} | ({} if intent.logged else {"mlflow.user": intent.user})
        if intent.parent is not None:
            tags["mlflow.parentRunId"] = intent.parent
        self._add("tags", ((intent.run, key, value) for key, value in tags.items()))

    def _data_used(self, intent: intents.DataUsed) -> None:
        number = self._experiment(intent.experiment)
        digest = intent.digest.removeprefix("sha256:")[:DATASET_DIGEST_LENGTH]
        dataset = mlflow_id("dataset", str(number), intent.name, digest)
        used = mlflow_id("data", intent.run, intent.name, intent.digest)
        source = json.dumps({"uri": artifact_uri(intent.artifact)}) if intent.source is None else intent.source
        profile = json.dumps(intent.profile, sort_keys=True) if isinstance(intent.profile, Mapping) else intent.profile
        self._add("datasets", [(dataset, number, intent.name, digest, intent.kind, source, intent.schema, profile)])
        self._add("inputs", [(used, "DATASET", dataset, "RUN", intent.run, 0)])
        tags = {"mlflow.data.context": intent.context} if intent.context else {}
        if intent.artifact:
            tags |= {"marin.digest": intent.digest, "marin.artifact": intent.artifact}
        self._add("input_tags", ((used, key, value) for key, value in (tags | dict(intent.tags)).items()))

    def _create_model(self, intent: intents.ModelLogged) -> None:
        number, model = self._experiment(intent.experiment), f"m-{intent.model}"
        self._add(
            "logged_models",
            [
                (
                    model,
                    number,
                    intent.name,
                    f"{ARTIFACT_ROOT}/{number}/models/{model}/artifacts",
                    intent.time,
                    intent.time,
                    MODEL_STATUS[intent.status or "READY"],
                    "active",
                    intent.kind or None,
                    intent.run or None,
                )
            ],
        )
        self._add("logged_model_tags", ((model, number, key, value) for key, value in intent.tags.items()))
        self._add(
            "logged_model_params",
            ((model, number, key[: LONGEST["key"]], value[: LONGEST["param"]]) for key, value in intent.params.items()),
        )
        if intent.run and intent.status is None:
            self._output(mlflow_id("output", intent.model, intent.run), intent.run, model, intent.step)

    def _output(self, number: str, run: str, model: str, step: int) -> None:
        self._add("inputs", [(number, "RUN_OUTPUT", run, "MODEL_OUTPUT", model, step)])

    def _models_used(self, intent: intents.ModelsUsed) -> None:
        at = str(intent.at)
        for model in intent.read:
            used = mlflow_id("read", intent.run, model, at)
            self._add("inputs", [(used, "RUN_INPUT", intent.run, "MODEL_INPUT", model, 0)])
        for model, step in intent.made:
            self._output(mlflow_id("made", intent.run, model, at, str(step)), intent.run, model, step)

    def _model_changed(self, intent: intents.ModelChanged) -> None:
        model = f"m-{intent.model}"
        for key in intent.untagged:
            self._now("DELETE FROM logged_model_tags WHERE model_id = ? AND tag_key = ?", (model, key))
        new = {"status": MODEL_STATUS[intent.status]} if intent.status is not None else {}
        named = {**new, **({"lifecycle_stage": intent.stage} if intent.stage is not None else {})}
        for column, value in named.items():
            self._change(
                f"UPDATE logged_models SET {column} = ?, last_updated_timestamp_ms = ? WHERE model_id = ?",  # noqa: S608
                (value, intent.time, model),
            )

    def _model_points(self, intent: intents.ModelPoints) -> None:
        number = self._experiment(intent.experiment)
        self._add(
            "logged_model_metrics",
            (
                (model, key, time, step, finite(value)[0], number, intent.run, None, name, digest)
                for model, key, value, time, step, name, digest in intent.points
            ),
        )

    def _model_registered(self, intent: intents.ModelRegistered) -> None:
        name, versions, model = intent.name, self._versions.setdefault(intent.name, {}), f"m-{intent.model}"
        self._add("registered_models", [(name, intent.time, intent.time, intent.about or None, WORKSPACE)])
        if intent.about:
            self._change("UPDATE registered_models SET description = ? WHERE name = ?", (intent.about, name))
        self._change("UPDATE registered_models SET last_updated_time = ? WHERE name = ?", (intent.time, name))
        if not intent.model:
            return
        if model not in versions:
            versions[model] = max(versions.values(), default=0) + 1
            source = artifact_uri(intent.artifact) if intent.artifact.startswith("sha256:") else intent.artifact
            self._add(
                "model_versions",
                [
                    (
                        name,
                        versions[model],
                        intent.time,
                        intent.time,
                        intent.description,
                        "None",
                        source,
                        intent.location or source,
                        intent.run or None,
                        intent.run_link,
                        "READY",
                        WORKSPACE,
                    )
                ],
            )
        tags = {**intent.tags, "marin.mlflow.model": model}
        self._add("model_version_tags", ((name, versions[model], key, value, WORKSPACE) for key, value in tags.items()))

    def _registered_changed(self, intent: intents.RegisteredChanged) -> None:
        name = intent.name
        if name not in self._versions:
            return
        if intent.description is not None or intent.renamed is not None:
            self._now(
                "UPDATE registered_models SET description = coalesce(?, description), last_updated_time = ? WHERE name = ?",
                (intent.description, intent.time, name),
            )
        self._add("registered_model_tags", ((name, key, value, WORKSPACE) for key, value in intent.tags.items()))
        for key in intent.untagged:
            self._now("DELETE FROM registered_model_tags WHERE name = ? AND key = ?", (name, key))
        if intent.gone:
            del self._versions[name]
            for table in OF_A_MODEL:
                self._now(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608
        elif intent.renamed is not None and intent.renamed not in self._versions:
            self._versions[intent.renamed] = self._versions.pop(name)
            self._now("UPDATE model_versions SET last_updated_time = ? WHERE name = ?", (intent.time, name))
            for table in OF_A_MODEL:
                self._now(f"UPDATE {table} SET name = ? WHERE name = ?", (intent.renamed, name))  # noqa: S608

    def _version_changed(self, intent: intents.VersionChanged) -> None:
        name = intent.name
        version = self._versions.get(name, {}).get(f"m-{intent.model}")
        if version is None:
            return
        place = (name, version)
        for key in intent.untagged:
            self._now("DELETE FROM model_version_tags WHERE name = ? AND version = ? AND key = ?", (*place, key))
        if intent.description is not None:
            self._now(
                "UPDATE model_versions SET description = ? WHERE name = ? AND version = ?", (intent.description, *place)
            )
        stage = GONE if intent.gone else intent.stage
        if stage is not None:
            self._now("UPDATE model_versions SET current_stage = ? WHERE name = ? AND version = ?", (stage, *place))
        if intent.gone:
            self._now("DELETE FROM registered_model_aliases WHERE name = ? AND version = ?", place)
            self._now(
                "UPDATE model_versions SET description = NULL, source = 'REDACTED-SOURCE-PATH', run_id = 'REDACTED-RUN-ID', "
                "run_link = 'REDACTED-RUN-LINK' WHERE name = ? AND version = ?",
                place,
            )
        if stage is not None or intent.description is not None:
            self._now(
                "UPDATE model_versions SET last_updated_time = ? WHERE name = ? AND version = ?", (intent.time, *place)
            )
            self._now("UPDATE registered_models SET last_updated_time = ? WHERE name = ?", (intent.time, name))


def _insert(table: str) -> str:
    """The statement for rows of a table; names are ours, values are bound."""
    columns = COLUMNS[table]
    places = ", ".join("?" * len(columns))
    head = "INSERT" if table in KEYS or table == "latest_metrics" else "INSERT OR IGNORE"
    statement = f"{head} INTO {table} ({', '.join(columns)}) VALUES ({places})"
    if table in KEYS:
        key = KEYS[table]
        rest = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key.split(", "))
        statement += f" ON CONFLICT ({key}) DO UPDATE SET {rest}"
    return statement
