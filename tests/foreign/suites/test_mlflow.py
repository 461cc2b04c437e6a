"""MLflow's own store judges ours: the same calls by MLflow's client, to its store and to ours, get the same answers.

MLflow's store tests are in no package registry, so MLflow itself is the oracle: its client tells the story of `mlflow_calls` to
its own sqlite store, to ours at `marin://`, and by REST to `marin ui`, and everything is asked again.
"""

import contextlib
import os
import selectors
import signal
import sqlite3
import subprocess
import sys
from importlib import metadata

import pytest

from ledger import Draft
from marin.history.runs import stream_of
from marin.record import events
from marin.record.creation import create_root

SECONDS = 120
ORIGIN = "test.example/log"
# One value in each table that MLflow reads here, and a question whose answer it changes.
ALTERED = {
    "UPDATE experiment_tags SET value = 'three' WHERE key = 'team'": "experiment <plain>",
    "UPDATE runs SET end_time = end_time + 1 WHERE name = 'run 0'": "run 0",
    "UPDATE tags SET value = '2' WHERE key = 'more'": "run 0",
    "UPDATE params SET value = 'y' WHERE key = 'a/b.c d'": "runs where params.`a/b.c d` = 'x'",
    "UPDATE metrics SET value = value + 1 WHERE key = 'many' AND step = 500": "history of many of run 1",
    "DELETE FROM metrics WHERE key = 'back' AND step = -7": "history of back of run 0",
    "UPDATE latest_metrics SET value = value + 1 WHERE key = 'accuracy'": "run 3",
    "UPDATE datasets SET digest = 'other'": "run 2",
    "UPDATE input_tags SET value = 'testing'": "runs where datasets.context = 'training' AND datasets.digest = 'd1g3st'",
    "UPDATE registered_model_aliases SET version = 3 WHERE alias = 'best'": "alias best",
    "UPDATE model_versions SET storage_location = 'there' WHERE version = 2": "address of a version",
    "UPDATE model_version_tags SET value = 'once' WHERE key = 'seen'": "version 1",
    "UPDATE logged_model_tags SET tag_value = 'e' WHERE tag_key = 'c'": "logged models where tags.c = 'd'",
    "UPDATE logged_model_params SET param_value = '3'": "logged model",
}


class Asked:
    """What one store answered."""

    def __init__(self, uri, folder) -> None:
        import mlflow_calls
        from mlflow import MlflowClient

        self.told = mlflow_calls.Told(MlflowClient(tracking_uri=uri, registry_uri=uri))
        self.ids, self.model = mlflow_calls.write(self.told, folder)
        self.wrong = len(self.told.answers)
        self.answers = mlflow_calls.read(self.told, self.ids, self.model, folder)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The answers of MLflow's store, of ours, and of ours behind `marin ui`; and the root of the second."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("mlflow")
        patch.setenv("MARIN_KEY", str(folder / "key"))
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        for name in ("theirs", "ours", "served"):
            (folder / name).mkdir()
        served = create_root(str(folder / "served/root"), origin=ORIGIN)
        with _serving(served.location) as (address, token):
            patch.chdir(folder / "theirs")
            theirs = Asked(f"sqlite:///{folder}/theirs/mlflow.db", folder / "theirs")
            patch.setenv("MARIN_ROOT", served.location)
            patch.setenv("MLFLOW_TRACKING_TOKEN", token)
            behind = Asked(address, folder / "served")
        patch.setenv("MARIN_KEY", str(folder / "ours/key"))  # another log of that name
        patch.setenv("XDG_STATE_HOME", str(folder / "ours/state"))
        root = create_root(str(folder / "ours/root"), origin=ORIGIN)
        patch.setenv("MARIN_ROOT", root.location)
        yield theirs, Asked("marin://", folder / "ours"), behind, root, folder


@contextlib.contextmanager
def _serving(root):
    """`marin ui` over a root: its address and token."""
    command = [sys.executable, "-m", "marin.cli.main", "ui", "--port", "0", "--root", root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as server:
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(server.stdout, selectors.EVENT_READ)
                assert ready.select(SECONDS), "marin ui names no address"
            address, _, token = server.stdout.readline().strip().partition("/?token=")
            yield address, token
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(SECONDS)


def test_the_same_calls_get_the_same_answers(stores, judge):
    judged = judge("MLflow's own store", metadata.version("mlflow"))
    theirs, ours, behind, _, _ = stores
    assert _differences(ours, theirs) == {}
    right = len(theirs.answers) - theirs.wrong
    judged.accepts(f"{right} answers of ours at `marin://`, the same as its own")
    assert _differences(behind, theirs) == {}
    judged.accepts(f"{right} answers through `marin ui`")
    judged.refuses(f"{theirs.wrong} wrong calls, and so do ours, with the same error codes")


def _differences(one, other):
    """Questions that two stores answer in different ways, with both answers."""
    assert one.answers.keys() == other.answers.keys()
    return {
        key: (one.answers[key], other.answers[key]) for key in one.answers if one.answers[key] != other.answers[key]
    }


def test_an_altered_value_is_another_answer(stores, judge):
    import mlflow_calls
    from mlflow import MlflowClient

    judged = judge("MLflow's own store", metadata.version("mlflow"))
    theirs, ours, _, root, folder = stores
    for name, statements in (("copy", ()), ("altered", ALTERED)):
        place = folder / f"{name}.db"
        with (
            contextlib.closing(sqlite3.connect(root.views() / "mlflow/mlflow.db")) as source,
            contextlib.closing(sqlite3.connect(place)) as copy,
        ):
            source.backup(copy)
            for statement in statements:
                assert copy.execute(statement).rowcount >= 1, statement
            copy.commit()
        uri = f"sqlite:///{place}"
        told = mlflow_calls.Told(MlflowClient(tracking_uri=uri, registry_uri=uri))
        told.names = ours.told.names
        found = mlflow_calls.read(told, ours.ids, ours.model, folder / "ours")
        assert name == "altered" or found == {key: theirs.answers[key] for key in found}
    for statement, question in ALTERED.items():
        assert found[question] != theirs.answers[question], statement
    judged.refuses(f"our tables with one value altered in any of {len(ALTERED)} places, by another answer")


def test_what_the_ledger_recorded_is_not_written(stores, judge):
    from mlflow import MlflowClient
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException

    from marin.history.projection.identity import Ids
    from marin.plugins.mlflow.stores.recorder import projection_of

    judged = judge("MLflow's client", metadata.version("mlflow"))
    _, ours, _, root, folder = stores
    body = events.RunStarted(
        run="2khr7ocq",
        pipeline="recorded",
        plan="sha256:" + "a" * 64,
        recipe_digest="sha256:" + "b" * 64,
        recipe={"dataset": {"name": "grammar"}},
        code={"commit": "c0ffee"},
        environment={"cores": 2},
    )
    root.append([Draft(events.RUN_STARTED, stream_of("2khr7ocq"), events.write(body))])
    projection_of(root).catch_up()
    client = MlflowClient(tracking_uri="marin://", registry_uri="marin://")
    run, own = Ids(ORIGIN).run("2khr7ocq"), ours.ids[5]
    before = client.get_run(run)
    assert before.data.params["dataset.name"] == "grammar"
    judged.accepts("a run that the ledger recorded, with its recipe as parameters")
    (folder / "report.html").write_text("PASS")
    recorded = (
        lambda: client.log_metric(run, "loss", 0.1),
        lambda: client.log_param(run, "rate", "1"),
        lambda: client.log_batch(run, [Metric("loss", 0.1, 0, 0)]),
        lambda: client.set_tag(run, "note", "better"),
        lambda: client.delete_tag(run, "mlflow.runName"),
        lambda: client.update_run(run, name="another"),
        lambda: client.set_terminated(run),
        lambda: client.delete_run(run),
        lambda: client.log_artifact(run, str(folder / "report.html")),
        lambda: client.log_text(run, "PASS", "report.html"),
        lambda: client.set_experiment_tag(before.info.experiment_id, "note", "x"),
        lambda: client.create_logged_model(before.info.experiment_id, "mine", run),
        lambda: client.set_tag(own, "marin.verified", "PASS"),
        lambda: client.delete_experiment(before.info.experiment_id),
        lambda: client.rename_experiment(before.info.experiment_id, "other name"),
    )
    size = root.reader().refresh().size
    for number, write in enumerate(recorded):
        with pytest.raises(MlflowException) as refused:
            write()
        assert refused.value.error_code == "PERMISSION_DENIED", (number, refused.value)
    assert root.reader().refresh().size == size
    after = client.get_run(run)
    assert (dict(after.info), after.data.to_dictionary()) == (dict(before.info), before.data.to_dictionary())
    judged.refuses(f"(ours) {len(recorded)} writes to what the ledger recorded; nothing is logged")
