"""What people do with MLflow, as functions of a client: executed on MLflow's own sqlite store and on ``marin://``, they answer
the same. Values are plain, without ids, times and addresses, which every store draws for itself."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.data.meta_dataset import MetaDataset
from mlflow.data.sources import LocalArtifactDatasetSource
from mlflow.entities import (
    Dataset,
    DatasetInput,
    ExperimentTag,
    InputTag,
    LoggedModelInput,
    LoggedModelOutput,
    Metric,
    Param,
    RunTag,
    ViewType,
)
from mlflow.exceptions import MlflowException

Case = Callable[[MlflowClient], Any]
CASES: dict[str, Case] = {}
REFUSED: dict[str, tuple[Case, str]] = {}
"""What has no event, and the words of docs/fidelity.md that say why."""

ODD = {
    "no-break space": "Modèle nº\u00a01",
    "ideographic space": "実験\u3000一",
    "zero-width joiner": "क्\u200dष",
    "zero-width non-joiner": "می\u200cخواهم",
    "right-to-left mark": "a\u200fb",
    "override": "a\u202eb\u202c",
    "soft hyphen": "Wort\u00adteil",
    "line separator": "a\u2028b\u2029c",
    "carriage return": "a\r\nb\rc",
    "variation selector": "❤\ufe0f",
    "byte order mark": "\ufeffa",
    "family": "👩\u200d👩\u200d👧",
    "narrow no-break space": "10\u202f000",
    "zero-width space": "a\u200bb",
    "control": "a\x1b[31mb\x07\x7f\x85",
    "null": "a\x00b",
    "blanks at the ends": "  a  ",
    "private use": "\ue000",
    "unassigned": "\u0378",
    "combining": "e\u0301",
    "quotes": 'it\'s "so" \\n %s',
}
"""Texts of people who write other languages than English, and of programs."""


def case(call: Case) -> Case:
    CASES[call.__name__] = call
    return call


def refused(why: str) -> Callable[[Case], Case]:
    def mark(call: Case) -> Case:
        REFUSED[call.__name__] = (call, why)
        return call

    return mark


def tried(call: Callable[[], Any]) -> Any:
    """What a call answers, or the code of MLflow's error."""
    try:
        return call()
    except MlflowException as error:
        return f"error {error.error_code}"


def named(tags: Any) -> dict[str, str]:
    """Tags without those that Marin adds."""
    return {key: value for key, value in dict(tags).items() if not key.startswith("marin.")}


def run_of(client: MlflowClient, run: str) -> dict[str, Any]:
    found = client.get_run(run)
    return {
        "name": plain_name(found.info.run_name),
        "status": found.info.status,
        "stage": found.info.lifecycle_stage,
        "ended": found.info.end_time is not None,
        "tags": {k: plain_name(v) for k, v in named(found.data.tags).items() if not k.startswith("mlflow.source")},
        "params": dict(found.data.params),
        "metrics": {key: repr(value) for key, value in found.data.metrics.items()},
        "inputs": [
            (one.dataset.name, one.dataset.digest, one.dataset.source_type, one.dataset.schema, one.dataset.profile,
             named({tag.key: tag.value for tag in one.tags}))
            for one in found.inputs.dataset_inputs
        ],
        "models": [len(found.inputs.model_inputs), [one.step for one in found.outputs.model_outputs]],
    }  # fmt: skip


def plain_name(name: str) -> str:
    """A name that MLflow drew is another one each time."""
    return "drawn" if re.fullmatch(r"[a-z]+-[a-z]+-[0-9]+", name) else name


def history(client: MlflowClient, run: str, key: str) -> list[tuple[Any, ...]]:
    return [(repr(one.value), one.timestamp, one.step) for one in client.get_metric_history(run, key)]


def begun(client: MlflowClient, experiment: str, **more: Any) -> tuple[str, str]:
    """A new experiment, and a run in it."""
    number = client.create_experiment(experiment)
    return number, client.create_run(number, **more).info.run_id


def model_of(client: MlflowClient, model: str) -> dict[str, Any]:
    found = client.get_logged_model(model)
    return {
        "name": found.name,
        "kind": found.model_type,
        "status": str(found.status),
        "tags": named(found.tags),
        "params": dict(found.params or {}),
        "metrics": [(one.key, repr(one.value), one.step, one.dataset_name) for one in found.metrics or []],
    }


def registered_of(client: MlflowClient, name: str) -> dict[str, Any]:
    found = client.get_registered_model(name)
    versions = client.search_model_versions(f"name='{name}'")
    return {
        "about": found.description or "",
        "tags": named(found.tags),
        "aliases": dict(found.aliases),
        "versions": [version_of(one) for one in versions],
    }


def version_of(found: Any) -> tuple[Any, ...]:
    return (
        str(found.version),
        found.description,
        found.current_stage,
        re.sub(r"m-[0-9a-f]{32}", "m-", found.source),
        found.run_id is not None,
        found.run_link,
        sorted(found.aliases),
        named(found.tags),
    )


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
    found = []
    for key in [
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
    ]:
        found.append(
            [
                tried(lambda key=key: client.set_tag(run, key, "1")),
                tried(lambda key=key: client.log_param(run, key, "1")),
                tried(lambda key=key: client.log_metric(run, key, 1.0, timestamp=1) and None),
            ]
        )
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


# Experiments


@case
def an_experiment_from_its_making_to_its_end(client: MlflowClient) -> Any:
    number = client.create_experiment("a life", tags={"a": "b", "mlflow.note.content": "# note"})
    run = client.create_run(number).info.run_id
    other = client.create_run(number).info.run_id
    client.delete_run(other)
    found: list[Any] = [tried(lambda: client.create_experiment("a life"))]
    client.rename_experiment(number, "another life")
    found += [client.get_experiment_by_name("a life"), client.get_experiment(number).name]
    client.set_experiment_tag(number, "c", "d")
    client.delete_experiment_tag(number, "a")
    found.append(tried(lambda: client.delete_experiment_tag(number, "a")))
    found.append(named(client.get_experiment(number).tags))
    client.delete_experiment(number)
    found += [client.get_experiment(number).lifecycle_stage, run_of(client, run)]
    found += [
        tried(lambda: client.delete_experiment(number)),
        tried(lambda: client.rename_experiment(number, "x")),
        tried(lambda: client.set_experiment_tag(number, "x", "y")),
        tried(lambda: client.create_run(number)),
        tried(lambda: client.create_experiment("another life")),
        tried(lambda: client.log_metric(run, "x", 1.0)),
    ]
    client.restore_experiment(number)
    found += [client.get_experiment(number).lifecycle_stage, run_of(client, run), run_of(client, other)]
    found.append(tried(lambda: client.restore_experiment(number)))
    return found


@case
def experiments_are_found(client: MlflowClient) -> Any:
    numbers = [client.create_experiment(f"sought {word}", tags={"kind": word[0]}) for word in ("one", "two", "three")]
    client.delete_experiment(numbers[0])
    found = [
        [one.name for one in client.search_experiments(**asked)]
        for asked in (
            {"filter_string": "name LIKE 'sought%'", "order_by": ["name ASC"]},
            {"filter_string": "name LIKE 'sought%'", "order_by": ["name DESC"], "view_type": ViewType.ALL},
            {"filter_string": "tags.kind = 't'", "order_by": ["experiment_id ASC"]},
            {"filter_string": "name ILIKE 'SOUGHT%'", "view_type": ViewType.DELETED_ONLY},
            {"filter_string": "name LIKE 'sought%'", "max_results": 1, "order_by": ["name ASC"]},
        )
    ]
    first = client.search_experiments(filter_string="name LIKE 'sought%'", max_results=1, order_by=["name"])
    second = client.search_experiments(
        filter_string="name LIKE 'sought%'", max_results=1, order_by=["name"], page_token=first.token
    )
    return found, [one.name for one in second], tried(lambda: client.search_experiments(filter_string="nonsense"))


@case
def experiments_that_are_none(client: MlflowClient) -> Any:
    return [
        tried(call)
        for call in (
            lambda: client.get_experiment("99999"),
            lambda: client.get_experiment("not a number"),
            lambda: client.get_experiment_by_name("nobody"),
            lambda: client.create_experiment(""),
            lambda: client.create_experiment("n" * 501),
            lambda: client.delete_experiment("99999"),
            lambda: client.rename_experiment("99999", "x"),
            lambda: client.create_run("99999"),
            lambda: client.set_experiment_tag("99999", "a", "b"),
        )
    ]


@case
def names_change_hands(client: MlflowClient) -> Any:
    first, second = client.create_experiment("hand one"), client.create_experiment("hand two")
    found = [tried(lambda: client.rename_experiment(first, "hand two"))]
    client.rename_experiment(first, "hand three")
    client.rename_experiment(second, "hand one")
    third = client.create_experiment("hand two")
    for number in (first, second, third):
        client.set_experiment_tag(number, "which", number)
        run = client.create_run(number).info.run_id
        client.log_metric(run, "m", 1.0)
    return [
        found[0] if str(found[0]).startswith("error") else "renamed",
        [(client.get_experiment(one).name, len(client.search_runs([one]))) for one in (first, second, third)],
    ]


# Runs


@case
def a_run_from_its_beginning_to_its_end(client: MlflowClient) -> Any:
    number = client.create_experiment("runs")
    run = client.create_run(number, start_time=5, tags={"a": "1", "mlflow.user": "ada"}, run_name="mine").info.run_id
    client.log_batch(
        run,
        [Metric("m", value, 7, step) for step, value in enumerate((2.0, math.inf, -math.inf, math.nan))],
        [Param("p", "1"), Param("number", 2)],
        [RunTag("t", "2"), RunTag("t", "3")],
    )
    client.log_metric(run, "m", 1.0, timestamp=6, step=2)
    client.log_metric(run, "m", 1.0, timestamp=6, step=2)
    client.log_metric(run, "n", 3, timestamp=1, step=-1)
    client.log_metric(run, "n", 4, timestamp=1, step=-1)
    found = [run_of(client, run), history(client, run, "m"), history(client, run, "n")]
    client.set_tag(run, "a", "2")
    client.delete_tag(run, "t")
    found.append(tried(lambda: client.delete_tag(run, "t")))
    found.append(tried(lambda: client.log_param(run, "p", "2")))
    found.append(tried(lambda: client.log_batch(run, params=[Param("p", "2"), Param("new", "x")])))
    client.set_terminated(run, "FAILED", 9)
    found.append(run_of(client, run))
    client.update_run(run, status="RUNNING")
    found.append(run_of(client, run))
    client.update_run(run, status="KILLED", name="renamed")
    found.append(run_of(client, run))
    client.set_tag(run, "mlflow.runName", "by its tag")
    found.append(run_of(client, run))
    client.delete_run(run)
    client.delete_run(run)
    found += [
        run_of(client, run),
        tried(lambda: client.log_metric(run, "x", 1.0)),
        tried(lambda: client.set_tag(run, "x", "y")),
        tried(lambda: client.update_run(run, name="x")),
        tried(lambda: client.log_inputs(run, [])),
    ]
    client.restore_run(run)
    client.restore_run(run)
    found.append(run_of(client, run))
    return found


@case
def runs_that_are_none(client: MlflowClient) -> Any:
    absent = "0" * 32
    number = client.create_experiment("no runs")
    return [
        tried(call)
        for call in (
            lambda: client.get_run(absent),
            lambda: client.log_metric(absent, "a", 1.0),
            lambda: client.log_param(absent, "a", 1.0),
            lambda: client.set_tag(absent, "a", 1.0),
            lambda: client.delete_run(absent),
            lambda: client.restore_run(absent),
            lambda: client.set_terminated(absent),
            lambda: client.log_inputs(absent, []),
            lambda: client.log_batch(absent, [Metric("a", 1.0, 1, 0)]),
            lambda: client.create_run(number, tags={"mlflow.runName": "a"}, run_name="b"),
            lambda: client.get_metric_history(absent, "a"),
        )
    ]


@case
def batches_that_mlflow_refuses(client: MlflowClient) -> Any:
    _, run = begun(client, "batches")
    return [
        tried(lambda call=call: client.log_batch(run, **call))
        for call in (
            {"metrics": [Metric("m", 1.0, 1, step) for step in range(1001)]},
            {"params": [Param(f"p{n}", "1") for n in range(101)]},
            {"tags": [RunTag(f"t{n}", "1") for n in range(101)]},
            {"params": [Param("same", "1"), Param("same", "2")]},
            {"params": [Param("same", "1"), Param("same", "1")]},
            {"metrics": [Metric("m", "word", 1, 0)]},
            {"metrics": [Metric("m", 1.0, "now", 0)]},
            {"metrics": [Metric("m", 1.0, 1, "first")]},
            {"metrics": [Metric(None, 1.0, 1, 0)]},
        )
    ], run_of(client, run)


@case
def a_large_batch(client: MlflowClient) -> Any:
    _, run = begun(client, "large")
    client.log_batch(run, [Metric("語" * 60 + str(step % 7), step / 3, step, step) for step in range(1000)])
    client.log_batch(run, params=[Param(f"p{n}", '"\\' * 3000) for n in range(100)])
    client.log_batch(run, tags=[RunTag(f"t{n}", "\x02" * 8000) for n in range(100)])
    return run_of(client, run), history(client, run, "語" * 60 + "3")


@case
def a_run_that_begins_with_many_tags(client: MlflowClient) -> Any:
    number = client.create_experiment("many tags", tags={f"e{n}": "x" * 5000 for n in range(30)})
    run = client.create_run(number, tags={f"t{n}": "y" * 7000 for n in range(30)}).info.run_id
    return run_of(client, run), named(client.get_experiment(number).tags)


@case
def runs_are_found(client: MlflowClient) -> Any:
    number = client.create_experiment("search")
    for n in range(6):
        run = client.create_run(number, start_time=1000 + n, run_name=f"r{n}", tags={"parity": str(n % 2)}).info.run_id
        client.log_batch(
            run,
            [Metric("loss", 1 / (n + 1), 1, 0), Metric("a/b c", float(n), 1, 0)],
            [Param("lr", f"1e-{n}"), Param("kind", "even" if n % 2 == 0 else "odd")],
        )
        client.set_terminated(run, "FINISHED" if n < 4 else "FAILED", 2000 + n)
    filters = (
        "metrics.loss < 0.4",
        "metrics.`a/b c` >= 3 and params.kind = 'odd'",
        "params.lr LIKE '1e-%' AND tags.parity = '1'",
        "params.kind ILIKE 'EV%'",
        "attributes.status = 'FAILED'",
        "run_name IN ('r1', 'r2')",
        "attributes.start_time > 1002",
        "tags.mlflow.runName = 'r3'",
        "params.kind != 'odd'",
        "metrics.absent > 1",
        "nonsense",
        "metrics.loss = 'word'",
    )
    found: list[Any] = [
        tried(lambda asked=asked: sorted(run.info.run_name for run in client.search_runs([number], asked)))
        for asked in filters
    ]
    found += [
        [run.info.run_name for run in client.search_runs([number], order_by=order)]
        for order in (
            ["metrics.loss ASC"],
            ["params.kind ASC", "start_time DESC"],
            ["attributes.end_time DESC"],
            ["tags.parity DESC", "run_name ASC"],
            ["metrics.absent DESC", "start_time ASC"],
        )
    ]
    names, token = [], None
    while True:
        page = client.search_runs([number], max_results=4, page_token=token, order_by=["start_time ASC"])
        names.append([run.info.run_name for run in page])
        token = page.token
        if not token:
            return found, names


@case
def nested_runs_know_their_parent(client: MlflowClient) -> Any:
    mlflow.set_experiment("nested")
    with mlflow.start_run(run_name="outer") as outer, mlflow.start_run(run_name="inner", nested=True) as inner:
        mlflow.log_metric("m", 1.0, timestamp=1)
    found = mlflow.search_runs(experiment_names=["nested"], output_format="list")
    parent = mlflow.get_parent_run(inner.info.run_id)
    return (
        [run.info.run_name for run in found],
        parent.info.run_id == outer.info.run_id,
        inner.data.tags["mlflow.parentRunId"] == outer.info.run_id,
    )


@case
def metrics_of_many_steps(client: MlflowClient) -> Any:
    _, run = begun(client, "steps")
    for start in range(0, 3000, 1000):
        client.log_batch(run, [Metric("m", math.sin(step), step, step) for step in range(start, start + 1000)])
    for value in (5e-324, 1.7976931348623157e308, -0.0, 0.1 + 0.2):
        client.log_metric(run, "exact", value, timestamp=1, step=0)
    return history(client, run, "m"), sorted(history(client, run, "exact")), run_of(client, run)


@case
def data_sets_of_a_run(client: MlflowClient) -> Any:
    _, run = begun(client, "data sets")
    schema = '{"mlflow_colspec": [' + ", ".join(f'{{"type": "long", "name": "column {n}"}}' for n in range(3000)) + "]}"
    sets = [
        Dataset("train\u00a0set", "abc", "local", '{"uri": "/a"}', schema=schema, profile='{"rows": 3, "a": 1}'),
        Dataset("valid", "def", "local", '{"uri": "/b"}'),
    ]
    tags = [InputTag("mlflow.data.context", "training"), InputTag("own", "می\u200cخواهم")]
    client.log_inputs(run, [DatasetInput(sets[0], tags), DatasetInput(sets[1], [])])
    client.log_inputs(run, [DatasetInput(sets[1], [InputTag("mlflow.data.context", "late")])])
    found = run_of(client, run)
    return sorted(found.pop("inputs")), found


@case
def a_data_set_by_the_fluent_interface(client: MlflowClient) -> Any:
    mlflow.set_experiment("fluent data")
    with mlflow.start_run() as started:
        data = MetaDataset(LocalArtifactDatasetSource("/tmp/x"), name="meta", digest="1234")
        mlflow.log_input(data, context="eval", tags={"a": "b"})
        mlflow.log_inputs([data], ["again"], [None])
    return run_of(client, started.info.run_id)


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


# Models


@case
def a_logged_model_from_its_making_to_its_end(client: MlflowClient) -> Any:
    number, run = begun(client, "logged models")
    made = client.create_logged_model(number, "net", run, {"a": "b"}, {"layers": "2"}, "agent")
    model, found = made.model_id, [str(made.status), model_of(client, made.model_id), run_of(client, run)]
    client.log_model_params(model, {"heads": "می\u200cخواهم"})
    client.set_logged_model_tags(model, {"a": "c", "d": "e"})
    client.delete_logged_model_tag(model, "d")
    found.append(tried(lambda: client.delete_logged_model_tag(model, "d")))
    client.log_metric(run, "loss", 0.5, timestamp=1, step=2, model_id=model, dataset_name="d", dataset_digest="1")
    client.log_batch(run, [Metric("acc", 0.25, 1, 3, model_id=model), Metric("plain", 1.0, 1, 3)])
    client.log_outputs(run, [LoggedModelOutput(model, step=7)])
    client.log_inputs(run, models=[LoggedModelInput(model)])
    found += [str(client.finalize_logged_model(model, "READY").status), model_of(client, model), run_of(client, run)]
    other = client.create_logged_model(number).model_id
    found.append(str(client.finalize_logged_model(other, "FAILED").status))
    client.delete_logged_model(other)
    found += [
        tried(lambda: client.get_logged_model(other)),
        tried(lambda: client.get_logged_model("m-" + "0" * 32)),
        tried(lambda: client.create_logged_model(number, "a/b")),
        tried(lambda: client.finalize_logged_model("m-" + "0" * 32, "READY")),
    ]
    return found


@case
def logged_models_are_found(client: MlflowClient) -> Any:
    number, run = begun(client, "search models")
    for n in range(4):
        model = client.create_logged_model(number, f"m{n}", run, {"odd": str(n % 2)}, {"n": str(n)}).model_id
        client.log_metric(run, "loss", 1 / (n + 1), timestamp=1, model_id=model)
        client.finalize_logged_model(model, "READY")
    asked: list[dict[str, Any]] = [
        {"filter_string": "tags.odd = '1'"},
        {"filter_string": "params.n = '2'"},
        {"filter_string": "metrics.loss < 0.4"},
        {"filter_string": "name LIKE 'm%'", "order_by": [{"field_name": "metrics.loss", "ascending": True}]},
        {"order_by": [{"field_name": "name", "ascending": False}], "max_results": 2},
    ]
    found = [[one.name for one in client.search_logged_models([number], **some)] for some in asked]
    return [sorted(names) if n < 3 else names for n, names in enumerate(found)]


@case
def registered_models_from_their_making_to_their_end(client: MlflowClient) -> Any:
    number, run = begun(client, "registry")
    client.create_registered_model("reg", {"a": "می\u200cخواهم"}, "about\u00a0it")
    found: list[Any] = [registered_of(client, "reg"), tried(lambda: client.create_registered_model("reg"))]
    model = client.create_logged_model(number, "net", run).model_id
    for n in range(3):
        client.create_model_version("reg", "marin:/x", run, {"n": str(n)}, "http://link", f"version {n}")
    client.create_model_version("reg", f"models:/{model}")
    client.create_model_version("reg", "models:/reg/2", description="a copy")
    found.append(registered_of(client, "reg"))
    client.set_registered_model_alias("reg", "best", "1")
    client.set_registered_model_alias("reg", "best", "2")
    client.set_registered_model_alias("reg", "other", "2")
    client.set_model_version_tag("reg", "2", "t", "v")
    client.set_model_version_tag("reg", "3", "t", "v")
    client.delete_model_version_tag("reg", "3", "t")
    client.delete_model_version_tag("reg", "3", "t")
    client.update_model_version("reg", "3", "told\r\nlater")
    client.set_registered_model_tag("reg", "c", "d")
    client.delete_registered_model_tag("reg", "a")
    client.delete_registered_model_tag("reg", "a")
    client.update_registered_model("reg", "other words")
    found += [registered_of(client, "reg"), version_of(client.get_model_version_by_alias("reg", "best"))]
    client.delete_registered_model_alias("reg", "other")
    client.delete_registered_model_alias("reg", "other")
    client.delete_model_version("reg", "5")
    found.append(str(client.create_model_version("reg", "marin:/x").version))
    client.delete_model_version("reg", "2")
    found += [
        registered_of(client, "reg"),
        tried(lambda: client.get_model_version("reg", "2")),
        tried(lambda: client.get_model_version_by_alias("reg", "best")),
        tried(lambda: client.delete_model_version("reg", "2")),
        client.get_model_version_download_uri("reg", "1"),
    ]
    client.rename_registered_model("reg", "reg renamed")
    found += [registered_of(client, "reg renamed"), tried(lambda: client.get_registered_model("reg"))]
    client.create_registered_model("reg")
    found.append(tried(lambda: client.rename_registered_model("reg", "reg renamed")))
    client.delete_registered_model("reg renamed")
    found.append(tried(lambda: client.get_registered_model("reg renamed")))
    client.create_registered_model("reg renamed")
    client.create_model_version("reg renamed", "marin:/y")
    found.append(registered_of(client, "reg renamed"))
    return found


@case
def stages_of_versions(client: MlflowClient) -> Any:
    client.create_registered_model("staged")
    for _ in range(3):
        client.create_model_version("staged", "marin:/x")
    client.transition_model_version_stage("staged", "1", "Production")
    client.transition_model_version_stage("staged", "2", "production", archive_existing_versions=True)
    client.transition_model_version_stage("staged", "3", "Staging")
    return (
        registered_of(client, "staged"),
        tried(lambda: client.transition_model_version_stage("staged", "1", "nowhere")),
        tried(lambda: client.transition_model_version_stage("staged", "1", "None", archive_existing_versions=True)),
        sorted(str(one.version) for one in client.get_latest_versions("staged")),
    )


@case
def registered_models_are_found(client: MlflowClient) -> Any:
    for word in ("alpha", "beta"):
        client.create_registered_model(f"found {word}", {"w": word})
        client.create_model_version(f"found {word}", f"marin:/{word}", tags={"w": word})
    return (
        [one.name for one in client.search_registered_models("name LIKE 'found%'", order_by=["name DESC"])],
        [one.name for one in client.search_registered_models("tags.w = 'beta'")],
        [one.name for one in client.search_model_versions("source_path = 'marin:/beta'")],
        [one.name for one in client.search_model_versions("tags.w = 'alpha'")],
        tried(lambda: client.search_registered_models("nonsense")),
    )


@case
def a_copy_of_a_version(client: MlflowClient) -> Any:
    client.create_registered_model("source")
    client.create_model_version("source", "marin:/x", tags={"a": "b"}, description="d")
    client.copy_model_version("models:/source/1", "copied")
    client.copy_model_version("models:/source/1", "copied")
    return registered_of(client, "copied")


@case
def registry_names_that_are_none(client: MlflowClient) -> Any:
    client.create_registered_model("real")
    client.create_model_version("real", "marin:/x")
    return [
        tried(call)
        for call in (
            lambda: client.get_registered_model("nobody"),
            lambda: client.create_registered_model(""),
            lambda: client.create_registered_model("a/b"),
            lambda: client.create_registered_model("a:b"),
            lambda: client.create_model_version("nobody", "marin:/x"),
            lambda: client.get_model_version("real", "9"),
            lambda: client.get_model_version("real", "word"),
            lambda: client.set_registered_model_alias("real", "v1", "1"),
            lambda: client.set_registered_model_alias("real", "latest", "1"),
            lambda: client.set_registered_model_alias("real", "a b", "1"),
            lambda: client.set_registered_model_alias("real", "best", "9"),
            lambda: client.get_model_version_by_alias("real", "none"),
            lambda: client.set_model_version_tag("real", "9", "a", "b"),
            lambda: client.update_registered_model("real", "words") and None,
            lambda: client.update_model_version("nobody", "1", "x"),
            lambda: client.delete_registered_model("nobody"),
        )
    ]


@case
def a_model_that_is_logged_with_its_files(client: MlflowClient) -> Any:
    class Echo(mlflow.pyfunc.PythonModel):  # type: ignore[misc,name-defined]
        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            return model_input

    mlflow.set_experiment("log model")
    with mlflow.start_run() as started:
        info = mlflow.pyfunc.log_model(
            name="echo",
            python_model=Echo(),
            pip_requirements=["numpy"],
            registered_model_name="echo",
            params={"p": "1"},
            tags={"t": "2"},
        )
        mlflow.log_metric("loss", 0.5, timestamp=1, model_id=info.model_id)
    loaded = mlflow.pyfunc.load_model("models:/echo/1")
    tags = client.get_logged_model(info.model_id).tags
    return (
        loaded.predict([1, 2]),
        client.get_logged_model(info.model_id).status,
        model_of(client, info.model_id)["params"],
        tags.get("mlflow.modelVersions"),
        run_of(client, started.info.run_id)["models"],
        str(client.get_model_version("echo", "1").version),
    )


@case
def prompts(client: MlflowClient) -> Any:
    first = mlflow.genai.register_prompt("greeting", "Hello {{name}}\u00a0!", commit_message="one", tags={"a": "b"})
    second = mlflow.genai.register_prompt("greeting", "Salut {{name}}", commit_message="two")
    mlflow.genai.set_prompt_alias("greeting", "best", 1)
    loaded = mlflow.genai.load_prompt("prompts:/greeting@best")
    client.set_prompt_tag("greeting", "k", "v")
    client.delete_prompt_tag("greeting", "k")
    client.set_prompt_version_tag("greeting", "1", "k", "v")
    mlflow.genai.delete_prompt_alias("greeting", "best")
    long = "word " * 19_000
    mlflow.genai.register_prompt("long", long)
    found = [
        (first.version, first.template, first.commit_message, second.version),
        (loaded.template, loaded.version, loaded.format(name="Ada")),
        {key: value for key, value in client.get_prompt("greeting").tags.items() if not key.startswith("_")},
        sorted(one.name for one in mlflow.genai.search_prompts()),
        mlflow.genai.load_prompt("long", version=1).template == long,
        tried(lambda: mlflow.genai.load_prompt("nobody", version=1)),
    ]
    client.delete_prompt_version("greeting", "2")
    found.append(tried(lambda: mlflow.genai.load_prompt("greeting", version=2)))
    return found


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
    store = client._tracking_client.store
    store.set_experiment_tag(number, ExperimentTag("b", "2"))
    return named(client.get_experiment(number).tags), tried(lambda: client.set_experiment_tag(number, "x" * 251, "1"))


# What has no event

TRACES = "Traces, spans, assessments and issues"
SETS = "Evaluation data sets, scorers and review queues"
HOOKS = "Webhooks, gateways and MCP servers"
JOBS = "A deployment job of a registered model"
PLACES = "Artifacts outside the store"


@refused(TRACES)
def a_trace(client: MlflowClient) -> Any:
    return client._tracking_client.store.start_trace(None)


@refused(TRACES)
def tags_of_a_trace(client: MlflowClient) -> Any:
    return client.set_trace_tag("tr-1", "a", "b")


@refused(TRACES)
def traces_deleted(client: MlflowClient) -> Any:
    return client.delete_traces("0", trace_ids=["tr-1"])


@refused(SETS)
def an_evaluation_data_set(client: MlflowClient) -> Any:
    return client.create_dataset("set")


@refused(SETS)
def a_scorer(client: MlflowClient) -> Any:
    return client._tracking_client.store.register_scorer("0", "scorer", "{}")


@refused(HOOKS)
def a_webhook(client: MlflowClient) -> Any:
    from mlflow.entities.webhook import WebhookEvent

    return client.create_webhook("hook", "https://example.org", [WebhookEvent.from_str("registered_model.created")])


@refused(HOOKS)
def a_gateway_secret(client: MlflowClient) -> Any:
    return client._tracking_client.store.create_gateway_secret("a", {"b": "c"})


@refused(HOOKS)
def an_mcp_server(client: MlflowClient) -> Any:
    return client.create_mcp_server("server")


@refused(JOBS)
def a_deployment_job(client: MlflowClient) -> Any:
    return client.create_registered_model("with a job", deployment_job_id="7")


@refused(PLACES)
def artifacts_elsewhere(client: MlflowClient) -> Any:
    return client.create_experiment("elsewhere", artifact_location="s3://bucket/x")


@refused("Names that speak for the ledger")
def a_verdict_of_ones_own(client: MlflowClient) -> Any:
    _, run = begun(client, "own verdict")
    return client.set_tag(run, "marin.verified", "PASS")


@refused("Names that speak for the ledger")
def a_parameter_that_speaks_for_the_ledger(client: MlflowClient) -> Any:
    _, run = begun(client, "own parameter")
    return client.log_param(run, "mаrin.verified", "PASS")


@refused("Text that is none")
def half_a_character(client: MlflowClient) -> Any:
    _, run = begun(client, "half")
    return client.set_tag(run, "a", "\ud83d")
