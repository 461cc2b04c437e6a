"""What a user logs by plain MLflow becomes events, and comes back from a projection that was folded from them."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import LoggedModelOutput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from ledger import Draft
from marin.history.projection.identity import Ids
from marin.plugins.mlflow.folding.operations import AliasValues, LogValues, StateValues, described, stream_of
from marin.plugins.mlflow.projection.follow import MlflowProjection
from marin.plugins.mlflow.stores import recorder
from marin.process.running import running
from marin.record.events import TRACKING_LOGGED, TrackingLogged, write
from marin.record.root import Root

from .dump import client, dump
from .roots import make_artifacts, make_root, record
from .story import ORIGIN, Log, replay, whole_run

RUN = Ids(ORIGIN).run("abcd2345")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    folder = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MARIN_ROOT", "MARIN_KEY", "MLFLOW_TRACKING_URI"):
            patch.setenv(name, "")
        root = make_root(folder)
        log = Log()
        whole_run(log, "abcd2345", steps=30, artifacts=make_artifacts(root, folder / "made"))
        replay(log, "abcd2345")
        record(root, log)
        mlflow.set_tracking_uri("marin://")
        mlflow.set_registry_uri("marin://")
        yield root
        mlflow.set_tracking_uri("")
        mlflow.set_registry_uri("")
        recorder._projections.clear()


def rebuilt(root: Root) -> None:
    """Folded again from the ledger alone, MLflow's database answers as before."""
    folder = root.views() / "mlflow"
    before = dump(folder)
    again = root.views() / "again" / "mlflow"
    shutil.rmtree(again.parent, ignore_errors=True)
    projection = MlflowProjection(again, root.reader())
    projection.catch_up()
    projection.close()
    assert repr(dump(again)) == repr(before)  # by repr: a NaN is not equal to itself


def test_the_entry_points_are_installed():
    groups = ("tracking_store", "model_registry_store", "artifact_repository", "run_context_provider", "dataset_source")
    for group in groups:
        (point,) = entry_points(group=f"mlflow.{group}", name="marin")
        assert callable(point.load())


def test_the_last_page_of_experiments_is_not_an_empty_one(root: Root):
    """MLflow's own "Default", which nobody sees here, is counted on no page."""
    plain = mlflow.MlflowClient()
    for name in ("paged one", "paged two"):
        plain.create_experiment(name)
    pages, token = [], None
    while not pages or token:
        found = plain.search_experiments(order_by=["name DESC"], max_results=1, page_token=token)
        pages.append([one.name for one in found])
        token = found.token
    assert all(pages) and pages == sorted(pages, reverse=True) and ["Default"] not in pages
    assert [one.name for one in plain.search_experiments(filter_string="name LIKE 'paged%'", order_by=["name"])] == [
        "paged one",
        "paged two",
    ]
    assert plain.search_experiments(filter_string="name = 'Default'") == []


def test_a_plain_run_is_events_and_survives_the_view(root: Root, tmp_path: Path):
    mlflow.set_experiment("by hand")
    (tmp_path / "plot.txt").write_text("a plot")
    with mlflow.start_run(run_name="mine", tags={"why": "because"}) as started:
        mlflow.log_params({"rate": 0.1, "long": "x" * 5000})
        for step in range(3):
            mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
        mlflow.log_metrics({"odd": math.nan, "vast": math.inf})
        mlflow.log_artifact(str(tmp_path / "plot.txt"), "plots")
        mlflow.log_text("hello", "note.txt")
        mlflow.set_tag("gone", "1")
        mlflow.delete_tag("gone")
    run = mlflow.get_run(started.info.run_id)
    assert (run.info.status, run.info.run_name, run.data.params["rate"], run.data.tags["why"]) == (
        "FINISHED",
        "mine",
        "0.1",
        "because",
    )
    assert "gone" not in run.data.tags
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert math.isnan(run.data.metrics["odd"])
    assert mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/note.txt") == "hello"
    listed = mlflow.artifacts.list_artifacts(run_id=run.info.run_id)
    assert {item.path: item.is_dir for item in listed} == {"plots": True, "note.txt": False}
    assert {event.type for _, event in root.history().events(stream=f"tracking/{run.info.run_id}")} == {
        "tracking.logged/v1"
    }
    rebuilt(root)


def test_search_compare_and_download_by_mlflows_client(root: Root, tmp_path: Path):
    found: Any = mlflow.search_runs(experiment_names=["pipeline"], filter_string="tags.marin.verified LIKE 'PASS%'")
    assert list(found["run_id"]) == [RUN]
    assert found["metrics.train/loss"][0] < 3
    both: Any = mlflow.search_runs(search_all_experiments=True, filter_string="status = 'FINISHED'")
    assert {"params.model.seq_len", "tags.marin.recipe"} <= set(both.columns)
    got = Path(
        mlflow.artifacts.download_artifacts(run_id=RUN, artifact_path="export/config.json", dst_path=str(tmp_path))
    )
    assert got.read_text() == '{"model_type": "llama"}'
    assert mlflow.MlflowClient().get_model_version_by_alias("pipeline", "verified").run_id == RUN


def test_an_edit_of_a_finished_run_is_a_later_event_and_told(root: Root):
    with mlflow.start_run() as started:
        pass
    run, before = started.info.run_id, root.reader().checkpoint().size
    mlflow.MlflowClient().set_tag(run, "mlflow.note.content", "better than it was")
    tags = mlflow.get_run(run).data.tags
    assert tags["mlflow.note.content"] == "better than it was"
    assert tags["marin.edits"] == "1"
    assert f"event {before}" in tags["marin.edited"]
    assert "better than it was" in tags["marin.edited"]
    mlflow.MlflowClient().log_metric(run, "train/loss", 0.001, step=29)
    assert mlflow.get_run(run).data.tags["marin.edits"] == "2"
    rebuilt(root)


def test_what_the_ledger_says_is_not_changed_through_mlflow(root: Root, tmp_path: Path):
    plain = mlflow.MlflowClient()
    version = plain.get_model_version_by_alias("pipeline", "verified")
    model = mlflow.get_run(RUN).outputs.model_outputs[0].model_id
    (tmp_path / "report.html").write_text("PASS")
    own = plain.create_run("0").info.run_id
    plain.create_registered_model("mine")
    mine = plain.create_model_version("mine", version.source, RUN)
    size = root.reader().checkpoint().size
    writes: list[Callable[[], object]] = [
        lambda: plain.set_tag(RUN, "marin.verified", "PASS 2030-01-01"),
        lambda: plain.set_tag(RUN, "mlflow.runName", "renamed"),
        lambda: plain.delete_tag(RUN, "marin.verified"),
        lambda: plain.update_run(RUN, name="renamed"),
        lambda: plain.log_metric(RUN, "train/loss", 0.001, step=29),
        lambda: plain.log_param(RUN, "more", "1"),
        lambda: plain.set_terminated(RUN, "FAILED"),
        lambda: plain.delete_run(RUN),
        lambda: plain.log_artifact(RUN, str(tmp_path / "report.html")),
        lambda: plain.set_experiment_tag(mlflow.get_run(RUN).info.experiment_id, "mlflow.note.content", "x"),
        lambda: plain.set_logged_model_tags(model, {"a": "b"}),
        lambda: plain.create_logged_model("1", source_run_id=RUN),
        lambda: plain.create_model_version("pipeline", version.source, own),
        lambda: plain.set_model_version_tag("pipeline", version.version, "a", "b"),
        lambda: plain.set_registered_model_alias("pipeline", "best", version.version),
        lambda: plain.set_registered_model_alias("mine", "Verified", mine.version),
        lambda: plain.set_model_version_tag("mine", mine.version, "marin.verified", "PASS"),
        lambda: plain.set_tag(own, "verified", "yes"),
        lambda: plain.set_tag(own, " Marin.Verified", "PASS"),
        lambda: plain.create_run("0", tags={"marin.verified": "PASS"}),
    ]
    for attempt in writes:
        with pytest.raises(MlflowException):
            attempt()
    assert root.reader().refresh().size == size
    rebuilt(root)


def test_a_made_event_that_would_change_what_the_ledger_says_is_told_and_has_no_effect(root: Root):
    """Anyone who has the key can append what the interface refuses; what is shown follows from the rest all the same."""
    before = mlflow.get_run(RUN)
    events = [
        (RUN, "state", StateValues(name="renamed", status="FAILED")),
        (RUN, "log", LogValues(metrics=[("train/loss", (0.1).hex(), 0, 3)], tags={"marin.verified": "PASS 2030"})),
        ("", "alias", AliasValues("pipeline", "best", "0" * 32)),
    ]
    root.append(
        [
            Draft(
                TRACKING_LOGGED,
                stream_of(run),
                write(TrackingLogged(run=run, operation=operation, values=described(operation, values))),
            )
            for run, operation, values in events
        ]
    )
    recorder.projection_of(root).catch_up()
    after = mlflow.get_run(RUN)
    told = {"marin.edits": "2", "marin.edited": after.data.tags["marin.edited"]}
    assert "without effect" in told["marin.edited"]
    assert after.data.tags == before.data.tags | told
    assert (after.info.run_name, after.info.status, after.data.metrics) == (
        before.info.run_name,
        before.info.status,
        before.data.metrics,
    )
    rebuilt(root)


def test_a_value_that_stands_is_not_overwritten_and_what_has_no_event_is_refused(root: Root):
    with pytest.raises(MlflowException, match="Changing param values is not allowed"):
        mlflow.MlflowClient().log_param(RUN, "model.seq_len", "1")
    size = root.reader().checkpoint().size
    with pytest.raises(MlflowException, match="no event in Marin's ledger"):
        mlflow.MlflowClient().delete_traces("1", trace_ids=["tr-1"])
    with pytest.raises(MlflowException, match="the experiment pipeline is the ledger's own"):
        mlflow.MlflowClient().delete_experiment("1")
    with pytest.raises(MlflowException, match="the experiment pipeline is the ledger's own"):
        mlflow.MlflowClient().rename_experiment("1", "other")
    assert root.reader().refresh().size == size


def test_large_batches_are_several_events_of_one_batch(root: Root):
    plain = mlflow.MlflowClient()
    run = plain.create_run("0").info.run_id
    plain.log_batch(run, [Metric("m", float(step), step, step) for step in range(1000)])
    plain.log_batch(
        run,
        params=[Param(f"p{number}", "y" * 6000) for number in range(90)],
        tags=[RunTag(f"t{number}", "z" * 5000) for number in range(10)],
    )
    assert len(plain.get_metric_history(run, "m")) == 1000
    assert len(plain.get_run(run).data.params) == 90
    plain.delete_run(run)
    assert plain.get_run(run).info.lifecycle_stage == "deleted"
    plain.restore_run(run)
    plain.set_terminated(run, "KILLED")
    assert plain.get_run(run).info.status == "KILLED"
    rebuilt(root)


def test_models_and_versions_by_hand_are_events_too(root: Root, tmp_path: Path):
    with mlflow.start_run() as started:
        model = mlflow.initialize_logged_model("mine", params={"layers": "2"}, tags={"a": "b"})
        mlflow.set_logged_model_tags(model.model_id, {"c": "d"})
        mlflow.log_outputs([LoggedModelOutput(model.model_id, step=1)])
        mlflow.finalize_logged_model(model.model_id, "READY")
    plain = mlflow.MlflowClient()
    plain.create_registered_model("hand made")
    version = plain.create_model_version("hand made", f"models:/{model.model_id}", started.info.run_id)
    plain.set_registered_model_alias("hand made", "best", version.version)
    plain.set_model_version_tag("hand made", version.version, "seen", "yes")
    found = plain.get_model_version_by_alias("hand made", "best")
    assert (found.run_id, found.tags["seen"]) == (started.info.run_id, "yes")
    assert plain.get_logged_model(model.model_id).tags["c"] == "d"
    assert model.model_id in [output.model_id for output in plain.get_run(started.info.run_id).outputs.model_outputs]
    rebuilt(root)


def test_the_registry_of_the_ledger_takes_no_words_from_here(root: Root):
    plain = mlflow.MlflowClient()
    assert not plain.create_registered_model("bare").description
    assert "exported by runs" in plain.get_registered_model("pipeline").description
    version = plain.create_model_version("bare", "marin://mlflow/0/x/artifacts/model")
    own = plain.get_model_version_by_alias("pipeline", "verified")
    size = root.reader().refresh().size
    writes: list[Callable[[], object]] = [
        lambda: plain.update_registered_model("pipeline", "words"),
        lambda: plain.set_registered_model_tag("pipeline", "a", "b"),
        lambda: plain.rename_registered_model("pipeline", "other"),
        lambda: plain.rename_registered_model("bare", "pipeline"),
        lambda: plain.delete_registered_model("pipeline"),
        lambda: plain.delete_registered_model_alias("pipeline", "verified"),
        lambda: plain.update_model_version("pipeline", own.version, "words"),
        lambda: plain.delete_model_version("pipeline", own.version),
        lambda: plain.transition_model_version_stage("pipeline", own.version, "Production"),
        lambda: plain.set_registered_model_alias("bare", "ｖerified", version.version),
        lambda: plain.delete_logged_model(mlflow.get_run(RUN).outputs.model_outputs[0].model_id),
        lambda: plain.log_outputs(RUN, [LoggedModelOutput("m-" + "0" * 32, step=1)]),
    ]
    for attempt in writes:
        with pytest.raises(MlflowException):
            attempt()
    assert root.reader().refresh().size == size
    rebuilt(root)


def test_what_is_logged_while_the_program_goes_on_is_recorded_once_and_in_order(root: Root):
    mlflow.set_experiment("going on")
    with mlflow.start_run() as started:
        for step in range(40):
            mlflow.log_metrics({"loss": step / 7}, step=step, timestamp=step + 1, synchronous=False)
            mlflow.set_tags({"last": str(step)}, synchronous=False)
    run = started.info.run_id
    events = [event.body["values"] for _, event in root.history().events(stream=stream_of(run))]
    assert [point[3] for values in events for point in values.get("metrics", [])] == list(range(40))
    assert [values["tags"]["last"] for values in events if "last" in values.get("tags", {})] == list(
        map(str, range(40))
    )
    assert events[-1]["status"] == "FINISHED"
    rebuilt(root)


def test_text_is_stored_as_it_was_logged(root: Root):
    text = "a\u00a0b می\u200cخواهم\r\n\u202e\x00\ufeff"
    plain = mlflow.MlflowClient()
    run = plain.create_run(plain.create_experiment(text), run_name=text, tags={"t": text}).info.run_id
    plain.log_param(run, "p", text)
    size = root.reader().refresh().size
    plain.log_param(run, "p", text)
    with pytest.raises(MlflowException, match="already exists"):
        plain.create_experiment(text)
    with pytest.raises(MlflowException, match="half a character"):
        plain.set_tag(run, "t", "\ud800")
    assert root.reader().refresh().size == size
    found = plain.get_run(run)
    assert (found.info.run_name, found.data.tags["t"], found.data.params["p"]) == (text, text, text)
    assert plain.get_experiment(found.info.experiment_id).name == text
    rebuilt(root)


def test_what_is_too_large_for_an_event_goes_in_pieces(root: Root):
    plain = mlflow.MlflowClient()
    plain.create_registered_model("large", {"a": "日" * 90_000})
    assert plain.get_registered_model("large").tags["a"] == "日" * 90_000
    pieces = [
        e.body["values"] for _, e in root.history().events(stream=stream_of("")) if e.body["operation"] == "piece"
    ]
    assert [piece["number"] for piece in pieces] == list(range(pieces[0]["count"]))
    rebuilt(root)


def test_a_run_begun_inside_a_step_is_tied_to_it(root: Root, monkeypatch: pytest.MonkeyPatch):
    for name in ("MARIN_RUN", "MARIN_STEP"):  # stages in threads of this process may have left theirs
        monkeypatch.delenv(name, raising=False)
    with running("abcd2345", "train"), mlflow.start_run() as inner:
        pass
    tags = mlflow.get_run(inner.info.run_id).data.tags
    assert (tags["marin.run"], tags["marin.step"]) == ("abcd2345", "train")
    assert tags["mlflow.parentRunId"] == Ids(ORIGIN).run("abcd2345", "train")
    assert "MARIN_RUN" not in os.environ


def test_data_sets_name_stored_artifacts_as_their_source(root: Root, tmp_path: Path):
    from mlflow.data.dataset_source_registry import resolve_dataset_source

    (data,) = [item for item in mlflow.get_run(RUN).inputs.dataset_inputs if item.dataset.name == "grammar/corpus"]
    source = mlflow.data.get_source(data)
    assert data.dataset.source_type == "marin"
    assert "The cat number 0" in (Path(source.load(str(tmp_path))) / "train.jsonl").read_text()
    assert resolve_dataset_source("sha256:" + "0" * 64).to_dict() == {"uri": "marin://artifact/" + "0" * 64}
    with mlflow.start_run() as started:
        mlflow.log_input(mlflow.data.meta_dataset.MetaDataset(source, name="again"), context="training")
    (logged,) = mlflow.get_run(started.info.run_id).inputs.dataset_inputs
    assert (logged.dataset.name, logged.dataset.source_type) == ("again", "marin")
    rebuilt(root)


def test_without_a_key_nothing_is_logged_and_everything_is_readable(
    root: Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    own = mlflow.MlflowClient().create_run("0").info.run_id
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "none"))
    with pytest.raises(MlflowException, match="not recorded, so not logged: there is no signing key"):
        mlflow.MlflowClient().log_metric(own, "x", 1.0)
    assert mlflow.get_run(RUN).info.run_name == "llama-4x128-seed0 · abcd2345"


def test_rows_are_what_mlflows_own_store_writes(root: Root, tmp_path: Path):
    """The oracle: the same calls to MLflow's own store on a database of its own; ids, times and our tags aside."""
    (tmp_path / "theirs").mkdir()
    shown = []
    for plain in (client(tmp_path / "theirs"), mlflow.MlflowClient()):
        experiment = plain.create_experiment("compared", tags={"e": "1"})
        run = plain.create_run(experiment, run_name="same", start_time=5, tags={"t": "1", "mlflow.user": "ada"})
        plain.log_batch(
            run.info.run_id,
            [Metric("m", value, 7, step) for step, value in enumerate((2.0, math.inf, -math.inf))],
            [Param("p", "1")],
            [RunTag("t", "2")],
        )
        plain.log_batch(run.info.run_id, [Metric("m", 1.0, 6, 2), Metric("n", math.nan, 7, 0)])
        plain.set_terminated(run.info.run_id, "FINISHED", 9)
        after = plain.get_run(run.info.run_id)
        tags = {key: value for key, value in after.data.tags.items() if not key.startswith("marin.")}
        info = {
            key: value
            for key, value in dict(after.info).items()
            if key not in ("run_id", "run_uuid", "experiment_id", "artifact_uri", "user_id")
        }
        history = [
            (point.key, repr(point.value), point.timestamp, point.step)
            for key in ("m", "n")
            for point in plain.get_metric_history(run.info.run_id, key)
        ]
        latest = {key: repr(value) for key, value in after.data.metrics.items()}
        shown.append((info, tags, after.data.params, latest, history))
    assert shown[0] == shown[1]
