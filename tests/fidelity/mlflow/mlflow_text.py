"""Texts of people who write other languages than English, in every place that MLflow has for one."""

from __future__ import annotations

from typing import Any

from mlflow import MlflowClient

from .mlflow_calls import ODD, begun, case, named, run_of, tried

# Text


@case
def values_of_tags_and_params(client: MlflowClient) -> Any:
    number, run = begun(client, "values")
    for name, text in ODD.items():
        client.set_tag(run, f"t {name}", text)
        client.log_param(run, f"p {name}", text)
        client.log_param(run, f"p {name}", text)  # equal: taken twice
        client.set_experiment_tag(number, f"e {name}", text)
    return run_of(client, run), named(client.get_experiment(number).tags)


@case
def filters_find_the_value_that_was_logged(client: MlflowClient) -> Any:
    number, run = begun(client, "filters")
    found = {}
    for name, text in ODD.items():
        if name == "quotes":
            continue
        key = name.replace(" ", "_").replace("-", "_")
        client.set_tag(run, key, text)
        client.log_param(run, key, text)
        found[name] = [len(client.search_runs([number], f"{kind}.{key} = '{text}'")) for kind in ("tags", "params")]
    return found


@case
def names_of_experiments(client: MlflowClient) -> Any:
    found = []
    for text in ODD.values():
        number = tried(lambda text=text: client.create_experiment(f"named {text}"))
        again = tried(lambda text=text: client.create_experiment(f"named {text}"))
        there = client.get_experiment_by_name(f"named {text}")
        found.append((number, again, there and there.name))
    return found


@case
def names_of_runs(client: MlflowClient) -> Any:
    number = client.create_experiment("names of runs")
    found = []
    for name, text in ODD.items():
        run = client.create_run(number, run_name=text).info.run_id
        named = client.get_run(run).info.run_name
        seen = 0 if name == "quotes" else len(client.search_runs([number], f"attributes.run_name = '{text}'"))
        client.update_run(run, name=f"{text}2")
        found.append((named, seen, client.get_run(run).info.run_name, client.get_run(run).data.tags["mlflow.runName"]))
    return found


@case
def names_of_models(client: MlflowClient) -> Any:
    number = client.create_experiment("names of models")
    found = []
    for text in ODD.values():
        made = tried(lambda text=text: client.create_registered_model(f"model {text}").name)
        version = tried(lambda text=text: client.create_model_version(f"model {text}", "marin:/x").version)
        logged = tried(lambda text=text: client.create_logged_model(number, f"model {text}", tags={"a": text}).name)
        found.append((made, version, logged))
    return found


@case
def keys_that_mlflow_takes_and_refuses(client: MlflowClient) -> Any:
    _, run = begun(client, "keys")
    keys = [
        *(f"k{text}" for text in ODD.values()),
        "",
        "..",
        "a/b",
        "/a",
        "a//b",
        "ключ",
        "键",
        "مفتاح",
        "a" * 250,
        "a" * 251,
    ]
    found = [
        [
            tried(lambda key=key: client.set_tag(run, key, "1")),
            tried(lambda key=key: client.log_param(run, key, "1")),
            tried(lambda key=key: client.log_metric(run, key, 1.0, timestamp=1) and None),
        ]
        for key in keys
    ]
    return found, run_of(client, run)


@case
def values_of_every_length(client: MlflowClient) -> Any:
    number, run = begun(client, "lengths")
    found = [
        [
            tried(lambda size=size: client.set_tag(run, f"t{size}", "é" * size)),
            tried(lambda size=size: client.log_param(run, f"p{size}", "日" * size) and None),
            tried(lambda size=size: client.set_experiment_tag(number, f"e{size}", "\x01" * size)),
        ]
        for size in (0, 1, 5000, 6000, 6001, 8000, 8001, 20_000, 20_001)
    ]
    return found, run_of(client, run), named(client.get_experiment(number).tags)


@case
def a_long_name_of_a_run(client: MlflowClient) -> Any:
    _, run = begun(client, "long names", run_name="n" * 400)
    return run_of(client, run)
