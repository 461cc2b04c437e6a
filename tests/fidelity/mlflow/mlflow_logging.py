"""Logging while the program goes on, artifacts, and scripts of the fluent interface."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Metric

from .mlflow_calls import begun, case, history, model_of, named, run_of, tried

# Logging while the program goes on


@case
def asynchronous_calls(client: MlflowClient) -> Any:
    mlflow.set_experiment("asynchronous")
    with mlflow.start_run() as started:
        waiting = [
            mlflow.log_metrics({"loss": 0.5, "epoch": 1.0}, step=5, synchronous=False, timestamp=1),
            mlflow.log_metric("one", 1.0, step=1, synchronous=False, timestamp=1),
            mlflow.log_params({"rate": 0.1}, synchronous=False),
            mlflow.log_param("more", "می\u200cخواهم", synchronous=False),
            mlflow.set_tags({"note": "x"}, synchronous=False),
            mlflow.set_tag("last", "y", synchronous=False),
            client.log_batch(started.info.run_id, [Metric("two", 2.0, 1, 0)], synchronous=False),
        ]
        for one in waiting:
            if one is not None:
                one.wait()
    return run_of(client, started.info.run_id), history(client, started.info.run_id, "loss")


@case
def asynchronous_calls_are_flushed_at_the_end(client: MlflowClient) -> Any:
    mlflow.set_experiment("asynchronous flush")
    mlflow.config.enable_async_logging()
    try:
        with mlflow.start_run() as started:
            for step in range(50):
                mlflow.log_metric("loss", 1 / (step + 1), step=step, timestamp=step + 1)
                mlflow.set_tag(f"step {step}", "seen")
            mlflow.log_params({"a": 1})
    finally:
        mlflow.config.enable_async_logging(False)
    return run_of(client, started.info.run_id), history(client, started.info.run_id, "loss")


@case
def an_asynchronous_call_that_is_wrong(client: MlflowClient) -> Any:
    mlflow.set_experiment("asynchronous errors")
    with mlflow.start_run() as started:
        mlflow.log_param("p", "1")
        found = [
            tried(lambda: mlflow.log_params({"p": "2"}, synchronous=False).wait()),
            tried(lambda: mlflow.set_tags({"a\u200bb": "2"}, synchronous=False).wait()),
        ]
        mlflow.flush_async_logging()
    return found, run_of(client, started.info.run_id)


@case
def images_of_steps(client: MlflowClient) -> Any:
    import numpy

    mlflow.set_experiment("images")
    picture = numpy.full((4, 4, 3), 7, dtype=numpy.uint8)
    with mlflow.start_run() as started:
        mlflow.log_image(picture, key="seen", step=3, timestamp=11, synchronous=True)
        mlflow.log_image(picture, key="seen", step=4, timestamp=12, synchronous=False)
        mlflow.log_image(picture, "plain.png")
        mlflow.flush_artifact_async_logging()
    run = started.info.run_id
    names = [re.sub(r"[0-9a-f-]{36}", "ID", one.path) for one in client.list_artifacts(run, "images")]
    return sorted(names), run_of(client, run), [one.path for one in client.list_artifacts(run)]


# Artifacts


@case
def artifacts_of_every_kind(client: MlflowClient) -> Any:
    import matplotlib.pyplot as plt

    _, run = begun(client, "artifacts")
    client.log_text(run, "می\u200cخواهم\r\n", "notes/a\u00a0b.txt")
    client.log_dict(run, {"a": [1, "ü"]}, "some.json")
    client.log_dict(run, {"a": [1, 2]}, "some.yaml")
    client.log_table(run, {"a": [1, 2], "b": ["x", "y"]}, "table.json")
    client.log_table(run, {"a": [3], "b": ["z"]}, "table.json")
    client.log_stream(run, io.BytesIO(b"\x00\xff"), "raw.bin")
    figure = plt.figure()
    client.log_figure(run, figure, "figure.png")
    plt.close(figure)
    loaded = mlflow.artifacts.load_text(f"runs:/{run}/notes/a\u00a0b.txt")
    table = mlflow.artifacts.load_dict(f"runs:/{run}/table.json")
    raw = Path(client.download_artifacts(run, "raw.bin")).read_bytes()
    listed = [(one.path, one.is_dir) for one in client.list_artifacts(run)]
    return loaded, table, raw, listed, [one.path for one in client.list_artifacts(run, "notes")], run_of(client, run)


@case
def artifacts_that_are_none(client: MlflowClient) -> Any:
    _, run = begun(client, "no artifacts")
    return client.list_artifacts(run), client.list_artifacts(run, "absent")


# The fluent interface, as scripts use it


@case
def a_script_of_the_fluent_interface(client: MlflowClient) -> Any:
    mlflow.set_experiment("fluent script")
    mlflow.set_experiment_tags({"team": "una\u00a0squadra", "n": 3})
    with mlflow.start_run(run_name="by hand", tags={"a": "b"}, description="# words") as started:
        mlflow.log_param("depth", 3)
        mlflow.log_params({"rate": 0.1, "long": "x" * 7000})
        mlflow.log_metrics({"a": 1, "b": 2.5}, step=4, timestamp=1)
        mlflow.set_tags({"x": 1, "y": None})
        mlflow.delete_tag("x")
        mlflow.log_dict({"a": 1}, "a.json")
        mlflow.log_text("words", "b/c.txt")
    with mlflow.start_run(run_id=started.info.run_id):
        mlflow.log_metric("c", 3.0, timestamp=1)
    try:
        with mlflow.start_run(run_name="fails") as broken:
            raise ValueError("on purpose")
    except ValueError:
        pass
    table = mlflow.search_runs(experiment_names=["fluent script"], order_by=["attributes.run_name ASC"])
    columns = sorted(name for name in table.columns if not name.startswith("tags.marin."))
    return (
        run_of(client, started.info.run_id),
        run_of(client, broken.info.run_id),
        columns,
        list(table["metrics.c"].fillna(-1)),
        named(mlflow.get_experiment_by_name("fluent script").tags),
        mlflow.last_active_run().info.run_name,
    )


@case
def an_active_model_takes_metrics(client: MlflowClient) -> Any:
    mlflow.set_experiment("active model")
    with mlflow.start_run() as started:
        model = mlflow.initialize_logged_model("active", params={"a": "1"})
        mlflow.log_metric("m", 1.0, step=1, timestamp=1, model_id=model.model_id)
        mlflow.log_metrics({"n": 2.0}, step=1, timestamp=1, model_id=model.model_id)
        mlflow.log_outputs([LoggedModelOutput(model.model_id, step=1)])
        mlflow.finalize_logged_model(model.model_id, "READY")
    return model_of(client, model.model_id), run_of(client, started.info.run_id)


@case
def system_metrics(client: MlflowClient) -> Any:
    mlflow.set_experiment("system metrics")
    with mlflow.start_run(log_system_metrics=True) as started:
        mlflow.log_metric("m", 1.0, timestamp=1)
    return run_of(client, started.info.run_id)["status"]


@case
def tags_of_experiments_in_the_client(client: MlflowClient) -> Any:
    number = client.create_experiment("tagged", tags={"a": "1"})
    client.set_experiment_tag(number, "b", "2")
    return named(client.get_experiment(number).tags), tried(lambda: client.set_experiment_tag(number, "x" * 251, "1"))
