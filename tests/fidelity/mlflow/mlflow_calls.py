"""What people do with MLflow, as functions of a client: executed on MLflow's own sqlite store and on ``marin://``, they answer
the same. Values are plain, without ids, times and addresses, which every store draws for itself."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.data.meta_dataset import MetaDataset
from mlflow.data.sources import LocalArtifactDatasetSource
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag, ViewType
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
            (
                one.dataset.name,
                one.dataset.digest,
                one.dataset.source_type,
                one.dataset.schema,
                one.dataset.profile,
                named({tag.key: tag.value for tag in one.tags}),
            )
            for one in found.inputs.dataset_inputs
        ],
        "models": [len(found.inputs.model_inputs), [one.step for one in found.outputs.model_outputs]],
    }


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
