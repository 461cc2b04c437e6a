"""What other libraries do with MLflow: keras and scikit-learn as they are where they can be imported, and the calls that
transformers and Lightning make, as they were seen when each trained a tiny model (both need torch, which is not in the lock).

Seen with MLflow 3.17.2: transformers 5.12.1's ``MLflowCallback`` in a ``Trainer`` with ``report_to="mlflow"`` and
``HF_MLFLOW_LOG_ARTIFACTS``; Lightning 2.6.6's ``MLFlowLogger`` with ``log_model="all"``, one run that failed and one with
``synchronous=False``.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from .mlflow_calls import CASES, Case, case, history, model_of, run_of

NEEDS: dict[str, tuple[str, ...]] = {}
"""Of a case the packages without which it is skipped."""
Files = list[tuple[str, int]]


def needs(*packages: str) -> Callable[[Case], Case]:
    def mark(call: Case) -> Case:
        NEEDS[call.__name__] = packages
        CASES[call.__name__] = call
        return call

    return mark


def files_of(listed: Callable[[str | None], Any], path: str | None = None) -> Files:
    """All files below a path; sizes of those that hold ids and times differ each time."""
    found: Files = []
    for one in listed(path):
        if one.path == "registered_model_meta":
            continue  # MLflow's loading writes it into the folder that it loads from, where that is a local one
        found += (
            files_of(listed, one.path)
            if one.is_dir
            else [(re.sub("tmp[a-z0-9_]{8}", "tmp", one.path), one.file_size if plain(one.path) else 0)]
        )
    return sorted(found)


def plain(path: str) -> bool:
    return Path(path).suffix not in (".pkl", ".keras", ".yaml", ".csv", ".html", "") and path != "model_summary.txt"


def whole(client: MlflowClient, experiment: str) -> Any:
    """Everything that the runs and models of an experiment hold."""
    number = client.get_experiment_by_name(experiment).experiment_id
    found = []
    for run in client.search_runs([number], order_by=["start_time ASC", "attributes.run_name ASC"]):
        name = run.info.run_id
        steps = {
            # A set: of equal values of one step, one a millisecond is kept.
            key: sorted({(repr(one.value), one.step) for one in client.get_metric_history(name, key)})
            for key in sorted(run.data.metrics)
            if "_time" not in key
        }
        state = run_of(client, name)
        state["metrics"] = {key: value for key, value in state["metrics"].items() if "_time" not in key}
        state["tags"] = {key: re.sub(r"[0-9a-f]{32}", "id", value) for key, value in state["tags"].items()}
        state["inputs"].sort()
        found.append((state, steps, files_of(lambda path, name=name: client.list_artifacts(name, path))))
    models = []
    for model in client.search_logged_models([number]):
        held = model_of(client, model.model_id)
        held["metrics"] = sorted(one for one in held["metrics"] if "_time" not in one[0])
        listed = files_of(lambda path, one=model.model_id: client.list_logged_model_artifacts(one, path))
        models.append((held, listed))
    return found, sorted(models, key=repr)


@case
def the_calls_of_transformers_callback(client: MlflowClient) -> Any:
    """A ``Trainer``'s arguments and its model's configuration are more than 100 parameters: two batches, not waited for."""
    assert mlflow.is_tracking_uri_set()
    assert mlflow.active_run() is None
    mlflow.set_experiment("hf trainer\u00a0é")
    mlflow.start_run(run_name="tiny\u3000run", nested=False)
    run = mlflow.active_run().info.run_id
    named: dict[str, Any] = {
        "transformers_version": "5.12.1",
        "architectures": None,
        "return_dict": True,
        "id2label": {0: "LABEL_0", 1: "LABEL_1"},
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "hub_token": "<HUB_TOKEN>",
        "learning_rate": 5e-05,
        "label_names": None,
        "fsdp_config": {"min_num_params": 0, "xla": False},
        "run_name": "tiny\u3000run",
        **{f"argument_{number}": number / 7 for number in range(150)},
    }
    items = list(named.items())
    for start in range(0, len(items), 100):
        mlflow.log_params(dict(items[start : start + 100]), synchronous=False)
    mlflow.set_tags({"release.candidate": "RC1", "note": "می\u200cخواهم"})
    for step in (1, 2, 3):
        mlflow.log_metrics(
            metrics={
                "loss": 4.1316423416137695 / step,
                "grad_norm": math.nan,
                "learning_rate": 5e-05,
                "epoch": step / 8,
            },
            step=step,
            synchronous=False,
        )
    mlflow.log_metrics(metrics={"eval_loss": 4.13, "eval_runtime": 0.0126, "epoch": 0.375}, step=3, synchronous=False)
    mlflow.flush_async_logging()  # a model gets those parameters of its run that are there by then: on each store others
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trainer_state.json").write_text("{}")
        (Path(folder) / "model.safetensors").write_bytes(b"\x00" * 100)
        mlflow.pyfunc.log_model(
            "checkpoint-3", artifacts={"model_path": folder}, python_model=mlflow.pyfunc.PythonModel()
        )
    mlflow.log_metrics(
        metrics={"train_runtime": 8.0503, "total_flos": 2092032.0, "train_loss": 4.12, "epoch": 0.75},
        step=6,
        synchronous=False,
    )
    assert mlflow.active_run().info.run_id == run
    mlflow.end_run()
    return whole(client, "hf trainer\u00a0é")


@case
def the_calls_of_lightnings_logger(client: MlflowClient) -> Any:
    name = "lightning\u3000実験"
    assert client.get_experiment_by_name(name) is None
    number = client.create_experiment(name=name, artifact_location=None)
    source = {"mlflow.user": "ada", "mlflow.source.name": "fit.py", "mlflow.source.type": "LOCAL"}
    tags = {**source, "team": "می\u200cخواهم", "mlflow.runName": "run\u00a0é"}
    run = client.create_run(experiment_id=number, tags=tags).info.run_id
    hyper = {"width": 4, "note": "n\u00a0o", "nested/a": [1, 2], "nested/b": None}
    client.log_batch(run_id=run, params=[Param(key=key, value=str(value)) for key, value in hyper.items()])
    for step in range(4):
        values = {"train/loss": 0.33 / (step + 1), "lr_step": 0.10000000149011612, "epoch": 0}
        client.log_batch(run_id=run, metrics=[Metric(key, value, 1000 + step, step) for key, value in values.items()])
    client.log_batch(run_id=run, metrics=[Metric("val_loss", 0.19, 1010, 3), Metric("epoch", 0, 1010, 3)])
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "epoch=0-step=4.ckpt"
        checkpoint.write_bytes(b"\x00" * 2000)
        client.log_artifact(run, str(checkpoint), "epoch=0-step=4")
        about = Path(folder) / "about"
        about.mkdir()
        (about / "metadata.yaml").write_text("monitor: val_loss\n")
        (about / "aliases.txt").write_text("['latest', 'best']")
        client.log_artifacts(run, str(about), "epoch=0-step=4")
    if client.get_run(run).info.status == "RUNNING":
        client.set_terminated(run, "FINISHED")
    fails = client.create_run(experiment_id=number, tags={**source, "mlflow.runName": "fails"}).info.run_id
    client.log_batch(run_id=fails, params=[Param("long", "x" * 250), Param("a", "1")])
    client.log_batch(run_id=fails, metrics=[Metric("m1", 2.0, 5, 3), Metric("n", math.nan, 5, 3)])
    client.set_terminated(fails, "FAILED")
    later = client.create_run(experiment_id=number, tags={**source, "mlflow.runName": "later"}).info.run_id
    client.log_batch(run_id=later, params=[Param("b", "1")], synchronous=False)
    client.log_batch(run_id=later, metrics=[Metric("m", 2.0, 5, 3)], synchronous=False)
    client.set_terminated(later, "FINISHED")
    mlflow.flush_async_logging()
    return whole(client, name), history(client, run, "train/loss")


@needs("keras")
def keras_by_its_callback_its_models_and_autolog(client: MlflowClient) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras
    import numpy

    mlflow.set_experiment("keras\u00a0実験")

    def built() -> Any:
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(2, name="first"), keras.layers.Dense(1, name="last")]
        )
        model.compile(optimizer=keras.optimizers.SGD(0.01, name="sgd"), loss="mse", metrics=["mae"])
        return model

    x, y = numpy.ones((8, 3), "float32"), numpy.ones((8, 1), "float32")
    with mlflow.start_run(run_name="callback"):
        model = built()
        told = [mlflow.keras.MlflowCallback()]
        model.fit(x, y, epochs=2, batch_size=4, verbose=0, validation_data=(x, y), callbacks=told)
    with mlflow.start_run(run_name="by batches"):
        told = [mlflow.keras.MlflowCallback(log_every_epoch=False, log_every_n_steps=2)]
        built().fit(x, y, epochs=2, batch_size=2, verbose=0, callbacks=told)
    with mlflow.start_run(run_name="model"):
        stored = mlflow.keras.log_model(model, name="a model", signature=mlflow.models.infer_signature(x, y))
        again = mlflow.keras.load_model(stored.model_uri)
        assert numpy.array_equal(model.predict(x, verbose=0), again.predict(x, verbose=0))
    mlflow.keras.autolog()
    try:
        with mlflow.start_run(run_name="autolog"):
            built().fit(x, y, epochs=2, batch_size=4, verbose=0, validation_data=(x, y))
    finally:
        mlflow.keras.autolog(disable=True)
    return whole(client, "keras\u00a0実験")
