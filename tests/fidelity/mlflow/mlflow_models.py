"""Models, the registry and prompts; and what has no event."""

from __future__ import annotations

from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelInput, LoggedModelOutput, Metric

from .mlflow_calls import begun, case, model_of, refused, registered_of, run_of, tried, version_of

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


# What has no event

TRACES = "Traces, spans, assessments and issues"
SETS = "Evaluation data sets, scorers and review queues"
HOOKS = "Webhooks, gateways and MCP servers"
JOBS = "A deployment job of a registered model"
PLACES = "Artifacts outside the store"


@refused(TRACES)
def tags_of_a_trace(client: MlflowClient) -> Any:
    return client.set_trace_tag("tr-1", "a", "b")


@refused(TRACES)
def traces_deleted(client: MlflowClient) -> Any:
    return client.delete_traces("0", trace_ids=["tr-1"])


@refused(SETS)
def an_evaluation_data_set(client: MlflowClient) -> Any:
    return client.create_dataset("set")


@refused(HOOKS)
def a_webhook(client: MlflowClient) -> Any:
    from mlflow.entities.webhook import WebhookEvent

    return client.create_webhook("hook", "https://example.org", [WebhookEvent.from_str("registered_model.created")])


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


@refused("Half a character")
def half_a_character(client: MlflowClient) -> Any:
    _, run = begun(client, "half")
    return client.set_tag(run, "a", "\ud83d")
