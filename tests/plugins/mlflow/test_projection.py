"""The projection in a real MLflow database: rebuilt, resumed, broken off, damaged."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from ledger import Locked
from marin.errors import MarinError
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.projection import database as database_module
from marin.plugins.mlflow.projection import follow as projection_module
from marin.plugins.mlflow.projection import sink as sink_module
from marin.plugins.mlflow.projection.follow import Follower, MlflowProjection
from marin.plugins.mlflow.projection.sink import Sink
from marin.record import events as types

from .dump import client, dump
from .story import ORIGIN, Log, begin_step, loss, replay, segment, start, whole_run


def caught_up(folder: Path, log: Log) -> dict[str, object]:
    projection = MlflowProjection(folder, log)
    projection.catch_up()
    projection.close()
    return dump(folder)


@pytest.fixture
def log() -> Log:
    log = Log()
    whole_run(log, "abcd2345", steps=60)
    replay(log, "abcd2345")
    start(log, "efgh6723", pipeline="sweep $x$ <b>")
    begin_step(log, "efgh6723", "train")
    segment(log, "efgh6723", 0, 30)
    return log


def test_mlflow_answers_what_the_ledger_holds(tmp_path: Path, log: Log):
    caught_up(tmp_path / "mlflow", log)
    mlflow = client(tmp_path / "mlflow")
    experiment = mlflow.get_experiment_by_name("pipeline")
    assert experiment is not None
    found = mlflow.search_runs(
        [experiment.experiment_id],
        "tags.marin.run = 'abcd2345' and metrics.`train/loss` < 3 "
        "and params.`model.seq_len` = '128' and tags.marin.step != ''",
    )
    assert found == []  # parameters and the curve are on the run, tags of a step on its nested run
    (run,) = mlflow.search_runs(
        [experiment.experiment_id], "params.`model.seq_len` = '128' and metrics.`train/loss` < 3"
    )
    assert run.info.run_name == "llama-4x128-seed0 · abcd2345"
    assert run.info.status == "FINISHED"
    assert len(mlflow.get_metric_history(run.info.run_id, "train/loss")) == 60
    assert {item.dataset.name for item in run.inputs.dataset_inputs} == {"grammar/corpus", "grammar/tokens"}
    assert all(len(item.dataset.digest) == 36 for item in run.inputs.dataset_inputs)
    children = mlflow.search_runs([experiment.experiment_id], f"tags.mlflow.parentRunId = '{run.info.run_id}'")
    assert {child.info.run_name for child in children} == {
        "corpus",
        "tokenizer",
        "tokens",
        "train",
        "evaluate",
        "export",
    }
    version = mlflow.get_model_version_by_alias("pipeline", "verified")
    assert version.run_id == run.info.run_id
    models = [mlflow.get_logged_model(output.model_id) for output in run.outputs.model_outputs]
    assert sorted((model.model_type, model.status.name) for model in models) == [
        ("checkpoint", "READY"),
        ("checkpoint", "READY"),
        ("huggingface", "READY"),
    ]


def test_deleting_the_folder_changes_no_answer(tmp_path: Path, log: Log):
    folder = tmp_path / "mlflow"
    before = caught_up(folder, log)
    shutil.rmtree(folder)
    assert caught_up(folder, log) == before


def test_one_event_at_a_time_gives_what_all_at_once_gives(tmp_path: Path, log: Log):
    whole = caught_up(tmp_path / "whole" / "mlflow", log)
    growing = Log()
    projection = MlflowProjection(tmp_path / "grown" / "mlflow", growing)
    for event in log.entries:
        growing.entries.append(event)
        assert projection.catch_up().applied == 1
    projection.close()
    assert dump(tmp_path / "grown" / "mlflow") == whole


def test_points_that_stand_no_more_are_taken_back(tmp_path: Path):
    """An attempt with other code, whose losses MLflow was told, and then the one that has the result."""
    log, growing = Log(), Log()
    whole_run(log, "abcd2345", steps=60)
    begun = next(at for at, event in enumerate(log.entries) if event.body.get("step") == "train")
    other = dict(log.entries[begun].body) | {"identity": "sha256:" + "5" * 64}
    first = next(event for event in log.entries if event.type == types.TRAIN_SEGMENT)
    wrong = dict(first.body) | {"losses": [(0.25).hex()] * 30, "start": 0, "end": 30}
    log.entries[begun:begun] = [replace(log.entries[begun], body=other), replace(first, body=wrong)]
    projection = MlflowProjection(tmp_path / "mlflow", growing)
    shown = []
    for event in log.entries:
        growing.entries.append(event)
        projection.catch_up()
        if event.type == types.TRAIN_SEGMENT:
            (run,) = client(tmp_path / "mlflow").search_runs(["1"], "params.`trainer.batch_size` = '16'")
            points = client(tmp_path / "mlflow").get_metric_history(run.info.run_id, "train/loss")
            shown.append({point.step: point.value for point in points})
            assert len(shown[-1]) == len(points) and run.data.metrics["train/loss"] == shown[-1][max(shown[-1])]
    projection.close()
    assert shown[0] == dict.fromkeys(range(30), 0.25)
    assert shown[1:] == [{step: loss(step) for step in range(end)} for end in (30, 60)]
    assert caught_up(tmp_path / "again" / "mlflow", log) == dump(tmp_path / "mlflow")


def test_nothing_new_writes_nothing(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch):
    caught_up(tmp_path / "mlflow", log)
    monkeypatch.setattr(Sink, "flush", lambda *_: pytest.fail("wrote"))
    again = MlflowProjection(tmp_path / "mlflow", log)
    assert again.catch_up().applied == 0
    again.close()


@pytest.fixture(scope="module")
def short() -> Log:
    log = Log()
    whole_run(log, "abcd2345", steps=30, steps_of_pipeline=("corpus", "train", "export"))
    replay(log, "abcd2345")
    return log


@pytest.fixture(scope="module")
def built(short: Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole projection of the short log, to be copied."""
    folder = tmp_path_factory.mktemp("whole") / "mlflow"
    caught_up(folder, short)
    return folder


@pytest.fixture(scope="module")
def empty_database(short: Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A projection as it is before its first round: making MLflow's tables is most of the time of a small one."""
    folder = tmp_path_factory.mktemp("empty") / "mlflow"
    projection = MlflowProjection(folder, short)
    projection.catch_up(limit=0)
    projection.close()
    return folder


@pytest.fixture(scope="module")
def expected(built: Path) -> dict[str, object]:
    return dump(built)


@pytest.mark.table
@pytest.mark.parametrize(
    ("table", "before"),
    [
        ("experiments", 0),
        ("runs", 0),
        ("tags", 5),
        ("metrics", 6),
        ("logged_models", 0),
        ("model_versions", 8),
        ("experiment_tags", 3),
        ("marin_shelf", 8),
    ],
)
def test_killed_in_the_middle_of_a_round_and_run_again_gives_the_same(
    tmp_path: Path,
    short: Log,
    expected: dict[str, object],
    empty_database: Path,
    table: str,
    before: int,
    monkeypatch: pytest.MonkeyPatch,
):
    """After so many events the next write to the table fails and nothing is tidied up after it."""
    folder = Path(shutil.copytree(empty_database, tmp_path / "mlflow"))
    opened: list[sqlite3.Connection] = []
    connect = sink_module.connect

    def kept(folder: Path, *, created: int = 0) -> sqlite3.Connection:
        opened.append(connect(folder, created=created))
        return opened[-1]

    with monkeypatch.context() as patch:
        patch.setattr(sink_module, "connect", kept)
        projection = MlflowProjection(folder, short)
        projection.catch_up(limit=before)
    opened[-1].set_authorizer(
        lambda action, name, *_: (
            sqlite3.SQLITE_DENY if (action, name) == (sqlite3.SQLITE_INSERT, table) else sqlite3.SQLITE_OK
        )
    )
    with pytest.raises(sqlite3.DatabaseError, match=r"prohibited|not authorized"):
        projection.catch_up()
    assert caught_up(folder, short) == expected


def test_a_round_that_failed_in_a_living_process_loses_nothing(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
):
    whole = caught_up(tmp_path / "whole" / "mlflow", log)
    projection = MlflowProjection(tmp_path / "mlflow", log)
    with monkeypatch.context() as patch:
        patch.setattr(Sink, "flush", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            projection.catch_up()
    projection.catch_up()
    projection.close()
    assert dump(tmp_path / "mlflow") == whole


def scribble(folder: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / f"mlflow.db{suffix}").unlink(missing_ok=True)
    (folder / "mlflow.db").write_bytes(b"this is not a database, whatever it is called" * 100)


def truncate(folder: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / f"mlflow.db{suffix}").unlink(missing_ok=True)
    data = (folder / "mlflow.db").read_bytes()
    (folder / "mlflow.db").write_bytes(data[: len(data) // 2])


def other_mlflow(folder: Path) -> None:
    with sqlite3.connect(folder / "mlflow.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0123456789ab'")


def empty(folder: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / f"mlflow.db{suffix}").unlink(missing_ok=True)
    (folder / "mlflow.db").write_bytes(b"")


def unlink(folder: Path) -> None:
    for path in folder.glob("mlflow.db*"):
        path.unlink()


@pytest.mark.parametrize("damage", [scribble, truncate, other_mlflow, empty, unlink])
def test_a_damaged_projection_is_folded_anew(
    tmp_path: Path, short: Log, expected: dict[str, object], built: Path, damage: Callable[[Path], None]
):
    folder = Path(shutil.copytree(built, tmp_path / "mlflow"))
    damage(folder)
    assert caught_up(folder, short) == expected


def test_damage_inside_of_a_large_database_is_found_when_it_is_met(
    tmp_path: Path, short: Log, expected: dict[str, object], built: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database_module, "CHECKED_WHOLE", 0)
    folder = Path(shutil.copytree(built, tmp_path / "mlflow"))
    data = (folder / "mlflow.db").read_bytes()
    (folder / "mlflow.db").write_bytes(data[:40960] + bytes(len(data) - 40960))
    assert caught_up(folder, short) == expected


def test_the_folder_may_vanish_under_a_living_projection(tmp_path: Path, log: Log):
    folder = tmp_path / "mlflow"
    projection = MlflowProjection(folder, log)
    projection.catch_up()
    before = dump(folder)
    shutil.rmtree(folder)
    assert projection.catch_up().rebuilt == "there was none"
    assert dump(folder) == before
    projection.close()


def test_a_database_of_another_ledger_or_version_is_not_continued(tmp_path: Path, log: Log):
    folder = tmp_path / "mlflow"
    caught_up(folder, log)
    other = Log(origin="marin.local/1")
    whole_run(other, "zzzz2345", steps=30)
    second = MlflowProjection(folder, other)
    assert "another ledger" in str(second.catch_up().rebuilt)
    second.close()
    assert {run["tags"]["marin.run"] for run in dump(folder)["runs"].values()} == {"zzzz2345"}
    shorter = Log(entries=other.entries[:10], origin=other.origin)
    third = MlflowProjection(folder, shorter)
    assert "of a log that has 10" in str(third.catch_up().rebuilt)
    third.close()
    rewritten = Log(entries=list(shorter.entries), origin=other.origin)
    rewritten.entries[9] = log.entries[3]
    fourth = MlflowProjection(folder, rewritten)
    assert "another event at 9" in str(fourth.catch_up().rebuilt)
    fourth.close()


def test_two_processes_take_turns(tmp_path: Path, log: Log):
    folder = tmp_path / "mlflow"
    growing = Log(entries=log.entries[:20])
    one, two = MlflowProjection(folder, growing), MlflowProjection(folder, growing)
    one.catch_up()
    growing.entries += log.entries[20:25]
    two.catch_up()
    growing.entries += log.entries[25:]
    assert one.catch_up().applied == len(log.entries) - 25
    assert two.catch_up().applied == 0
    one.close()
    two.close()
    assert dump(folder) == caught_up(tmp_path / "whole" / "mlflow", log)


def test_a_lock_that_is_not_given_up_is_named(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(projection_module, "LOCK_SECONDS", 0.05)
    with (
        FileLock(tmp_path / ".mlflow.lock"),
        pytest.raises(Locked, match=r"written by another process.*stop the other"),
    ):
        MlflowProjection(tmp_path / "mlflow", log).catch_up()


def test_a_locked_database_is_named_and_left_alone(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "mlflow"
    before = caught_up(folder, log)
    whole_run(log, "late2345", steps=30)
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.05)
    projection = MlflowProjection(folder, log)
    projection.catch_up(limit=0)
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Locked, match=r"held by another process: .*mlflow\.db"):
            projection.catch_up()
        other.execute("ROLLBACK")
    assert before["runs"].items() <= caught_up(folder, log)["runs"].items()


def test_a_new_database_is_a_copy_of_one_that_mlflow_made_and_a_damaged_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path / "cache"))
    by_mlflow, by_itself = list[Path](), tmp_path / "by itself"

    def make_tables(folder: Path) -> None:  # in place of MLflow, which takes two seconds
        by_mlflow.append(folder)
        shutil.copyfile(by_itself / "mlflow.db", folder / "mlflow.db")

    def tables(name: str, begin: Callable[[Path], object]) -> list[object]:
        (tmp_path / name).mkdir()
        begin(tmp_path / name)
        with contextlib.closing(sqlite3.connect(tmp_path / name / "mlflow.db")) as connection:
            return [
                connection.execute(query).fetchall()
                for query in (
                    "SELECT kept.name, part.name, part.type, part.'notnull', part.pk FROM sqlite_master AS kept,"
                    " pragma_table_info(kept.name) AS part WHERE kept.name <> 'marin_shelf' ORDER BY 1, 2",
                    "SELECT * FROM alembic_version",
                    "SELECT experiment_id, name, artifact_location, lifecycle_stage, workspace FROM experiments",
                )
            ]

    def projection(name: str) -> list[object]:
        return tables(name, lambda folder: database_module.connect(folder).close())

    expected = tables("by itself", database_module.make_tables)
    monkeypatch.setattr(database_module, "make_tables", make_tables)
    assert projection("first") == projection("second") == expected and len(by_mlflow) == 1
    (kept,) = (tmp_path / "cache" / "mlflow").iterdir()
    kept.write_bytes(kept.read_bytes()[:50_000])
    assert projection("third") == projection("fourth") == expected and len(by_mlflow) == 2


def test_another_schema_of_mlflow_is_refused_before_anything_is_written(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(database_module.COLUMNS, "runs", (*database_module.COLUMNS["runs"], "colour"))
    with pytest.raises(MarinError, match=r"version that the projection does not know.*colour"):
        MlflowProjection(tmp_path / "mlflow", log).catch_up()


def test_the_follower_applies_what_arrives_and_survives_a_bad_round(tmp_path: Path, log: Log):
    growing = Log()
    projection = MlflowProjection(tmp_path / "mlflow", growing)
    follower = Follower(projection, interval=0.01)
    follower.start()
    growing.entries += log.entries[:12]
    growing.origin = "marin.local/other"  # a round over a log that is not the same one any more
    growing.origin = ORIGIN
    growing.entries += log.entries[12:]
    follower.wait_for(len(log.entries), timeout=600)
    follower.stop()
    projection.close()
    assert not follower.is_alive()
    assert dump(tmp_path / "mlflow") == caught_up(tmp_path / "whole" / "mlflow", log)


def test_the_cursor_speaks_of_the_last_event_that_is_in_the_database(tmp_path: Path, log: Log):
    folder = tmp_path / "mlflow"
    caught_up(folder, log)
    cursor = json.loads(client(folder).get_experiment("0").tags["marin.cursor"])
    assert (cursor["size"], cursor["origin"]) == (len(log.entries), ORIGIN)


def test_ids_follow_from_the_ledger(tmp_path: Path, log: Log):
    caught_up(tmp_path / "mlflow", log)
    fold = Fold(ORIGIN)
    assert client(tmp_path / "mlflow").get_run(fold.ids.run("abcd2345", "train")).info.run_name == "train"
