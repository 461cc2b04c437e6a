"""What users ask of MLflow's client, as one story of calls: `write` tells it to a client, `read` asks for all of it again.

Ids, addresses and times that a store draws itself are replaced by names in the order of the calls, so the answers of two stores
are equal where the stores do the same. Answers are plain values; a call that was refused is ("refused", MLflow's error code).
"""

import math
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

START = 1_700_000_000_000
OURS = ("marin.",)  # tags that Marin adds
DRAWN = (
    "run_id",
    "run_uuid",
    "user_id",
    "creation_time",
    "last_update_time",
    "creation_timestamp",
    "last_updated_timestamp",
)


class Told:
    """A client, and the names of what its store has drawn."""

    def __init__(self, client) -> None:
        self.client = client
        self.names = {}
        self.answers = {}

    def name(self, drawn, name):
        self.names[str(drawn)] = f"<{name}>"
        return drawn

    def plain(self, value):
        """An answer as plain values that compare, NaN too."""
        if isinstance(value, float):
            return repr(value)
        if isinstance(value, str):
            for drawn in sorted(self.names, key=len, reverse=True):
                if len(drawn) > 8 or value == drawn:  # short ids are numbers, which other texts may hold
                    value = value.replace(drawn, self.names[drawn])
            return value
        if isinstance(value, dict):
            return {
                self.plain(key): self.plain(item)
                for key, item in sorted(value.items())
                if not str(key).startswith(OURS) and key not in DRAWN
            }
        if isinstance(value, list | tuple | set):
            return [self.plain(item) for item in value]
        if hasattr(value, "to_dictionary"):
            return self.plain(value.to_dictionary())
        if hasattr(value, "__iter__") and not isinstance(value, bytes):
            return self.plain(dict(value))
        return value

    def ask(self, question, call):
        """Keep what is answered to `question`, or that it was refused."""
        assert question not in self.answers, question
        try:
            self.answers[question] = self.plain(call())
        except MlflowException as error:
            self.answers[question] = ("refused", error.error_code)

    def run(self, run):
        info = self.plain(dict(run.info))
        inputs = [self.plain(item.to_dictionary()) for item in run.inputs.dataset_inputs]
        return [info, self.plain(run.data.params), self.plain(run.data.tags), self.plain(run.data.metrics), inputs]


def write(told, folder):
    """Tell the story: three experiments, runs of all ends, nested ones, artifacts, models and their versions."""
    client, ask, name = told.client, told.ask, told.name
    plain = name(client.create_experiment("plain", tags={"team": "one", "mlflow.note.content": "a note"}), "plain")
    other = name(client.create_experiment("other"), "other")
    client.set_experiment_tag(plain, "team", "two")
    for experiment in (plain, other):
        name(client.get_experiment(experiment).artifact_location, f"artifacts of {experiment}")
    runs = []
    for number in range(7):
        tags = {"mlflow.user": "ada", "kind": "odd" if number % 2 else "even"}
        if number in (5, 6):
            tags["mlflow.parentRunId"] = runs[0].info.run_id
        place = plain if number < 6 else other
        run = client.create_run(place, start_time=START + number, tags=tags, run_name=f"run {number}")
        name(run.info.artifact_uri, f"artifacts {number}")
        name(run.info.run_id, f"run {number}")
        runs.append(run)
    ids = [run.info.run_id for run in runs]
    for number, run in enumerate(ids):
        client.log_param(run, "rate", number / 10)
        client.log_param(run, "text", "ü" * 60 if number else "")
        client.set_tag(run, "note", f"the note of {number}")
        for step in range(5):
            client.log_metric(run, "loss", 5.0 - number - step / 4, timestamp=START + step, step=step)
        client.log_metric(run, "accuracy", number / 7, timestamp=START, step=0)
    odd = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    points = [Metric(f"odd {place}", value, START, 0) for place, value in enumerate(odd)]
    # The latest value is that of the highest step, then time, then value; the same point twice is one.
    points += [
        Metric("again", value, START + time, step) for value, time, step in ((1, 0, 3), (2, 5, 2), (4, 1, 3), (3, 1, 3))
    ]
    points += [Metric("again", 3, START + 1, 3), Metric("back", 1, START, -2), Metric("back", 2, START, -7)]
    client.log_batch(
        ids[0], points, [Param("a/b.c d", "x"), Param("rate", "0.0")], [RunTag("note", "again"), RunTag("more", "1")]
    )
    client.log_batch(ids[1], [Metric("many", float(step % 7), START + step, step) for step in range(1000)])
    client.set_tag(ids[1], "gone", "1")
    client.delete_tag(ids[1], "gone")
    data = Dataset("corpus", "d1g3st", "local", '{"uri": "corpus"}', '{"text": "string"}', '{"rows": 3}')
    client.log_inputs(ids[2], [DatasetInput(data, [InputTag("mlflow.data.context", "training")])])
    client.set_terminated(ids[0], "FINISHED", START + 100)
    client.set_terminated(ids[1], "FAILED", START + 101)
    client.set_terminated(ids[2], "KILLED", START + 102)
    client.update_run(ids[3], status="FINISHED", name="another name")
    client.delete_run(ids[4])
    client.delete_run(ids[3])
    client.restore_run(ids[3])
    (folder / "files/deep").mkdir(parents=True)
    (folder / "files/deep/a.bin").write_bytes(bytes(range(256)))
    (folder / "files/b.txt").write_text("b")
    client.log_artifacts(ids[0], str(folder / "files"), "below")
    client.log_artifact(ids[0], str(folder / "files/b.txt"))
    client.log_text(ids[0], "hello", "texts/hello.txt")
    client.log_dict(ids[0], {"a": [1, 2]}, "texts/a.json")
    for model in ("first", "second", "third"):
        client.create_registered_model(model)
    for number in range(3):
        client.create_model_version(
            "first", f"{runs[number].info.artifact_uri}/model", ids[number], tags={"number": str(number)}
        )
    client.create_model_version("second", f"{runs[0].info.artifact_uri}/model", ids[0])
    client.set_registered_model_alias("first", "best", "1")
    client.set_registered_model_alias("first", "best", "2")
    client.set_registered_model_alias("first", "oldest", "1")
    client.set_model_version_tag("first", "1", "seen", "yes")
    client.set_model_version_tag("first", "1", "seen", "twice")
    model = client.create_logged_model(
        plain, "logged", ids[0], tags={"a": "b"}, params={"layers": "2"}, model_type="lm"
    )
    name(model.artifact_location, "logged model's artifacts")
    name(model.model_id, "logged model")
    client.set_logged_model_tags(model.model_id, {"c": "d"})
    client.finalize_logged_model(model.model_id, "READY")

    wrong = {
        "another value of a parameter": lambda: client.log_param(ids[0], "rate", 9),
        "another value of a parameter in a batch": lambda: client.log_batch(ids[1], [], [Param("rate", "9")]),
        "a parameter twice in a batch": lambda: client.log_batch(ids[1], [], [Param("p", "1"), Param("p", "2")]),
        "a key that climbs": lambda: client.log_metric(ids[1], "../x", 1.0),
        "a key with a line in it": lambda: client.log_param(ids[1], "a\nb", 1),
        "a long key": lambda: client.log_param(ids[1], "k" * 251, 1),
        "a long tag": lambda: client.set_tag(ids[1], "t" * 251, "1"),
        "no key": lambda: client.set_tag(ids[1], "", "1"),
        "a deleted run": lambda: client.log_metric(ids[4], "x", 1.0),
        "a tag of a deleted run": lambda: client.set_tag(ids[4], "x", "1"),
        "a tag that is not there": lambda: client.delete_tag(ids[0], "nothing"),
        "a run that is not there": lambda: client.get_run("0" * 32),
        "a metric of no run": lambda: client.log_metric("0" * 32, "x", 1.0),
        "no run id": lambda: client.get_run("../x"),
        "an experiment's name again": lambda: client.create_experiment("plain"),
        "an experiment without a name": lambda: client.create_experiment(""),
        "an experiment that is not there": lambda: client.get_experiment("987654"),
        "a run of no experiment": lambda: client.create_run("987654"),
        "not a filter": lambda: client.search_runs([plain], "nonsense"),
        "a filter of an unknown kind": lambda: client.search_runs([plain], "weather.rain = 'yes'"),
        "a filter with a wrong comparison": lambda: client.search_runs([plain], "params.rate > '1'"),
        "not an order": lambda: client.search_runs([plain], order_by=["weather.rain UPWARDS"]),
        "too many results": lambda: client.search_runs([plain], max_results=50_001),
        "not a page": lambda: client.search_runs([plain], page_token="nonsense"),
        "a registered model again": lambda: client.create_registered_model("first"),
        "a registered model without a name": lambda: client.create_registered_model(""),
        "a registered model that is not there": lambda: client.get_registered_model("none"),
        "a version of no model": lambda: client.create_model_version(
            "none", f"{runs[0].info.artifact_uri}/model", ids[0]
        ),
        "a version that is not there": lambda: client.get_model_version("first", "9"),
        "a tag of no version": lambda: client.set_model_version_tag("first", "9", "a", "b"),
        "an alias that is not there": lambda: client.get_model_version_by_alias("first", "nobody"),
        "an alias that is a version": lambda: client.set_registered_model_alias("first", "v1", "1"),
        "an alias that is kept": lambda: client.set_registered_model_alias("first", "latest", "1"),
        "an alias of no version": lambda: client.set_registered_model_alias("first", "worst", "9"),
        "a logged model that is not there": lambda: client.get_logged_model("m-" + "0" * 32),
        "a logged model's wrong name": lambda: client.create_logged_model(plain, "a/b"),
    }
    for question, call in wrong.items():
        ask(question, call)
        assert told.answers[question] == ("refused", told.answers[question][-1]), (question, told.answers[question])
    return ids, model.model_id


def pages(told, search, plain):
    """All pages of a search, as lists of what `plain` makes of the items."""
    token, found = None, []
    while True:
        page = search(token)
        found.append([plain(item) for item in page])
        if not page.token:
            return found
        token = page.token


def read(told, ids, model, folder):
    """Ask for all of it. What is asked is the same, no matter who told it."""
    client, ask = told.client, told.ask
    plain, other = (client.get_experiment_by_name(name).experiment_id for name in ("plain", "other"))
    for experiment in (plain, other):
        ask(
            f"experiment {told.names[experiment]}",
            lambda experiment=experiment: dict(client.get_experiment(experiment)),
        )
    for number, run in enumerate(ids):
        ask(f"run {number}", lambda run=run: told.run(client.get_run(run)))
        for key in client.get_run(run).data.metrics:
            points = lambda run=run, key=key: [dict(point) for point in client.get_metric_history(run, key)]  # noqa: E731
            ask(f"history of {key} of run {number}", points)
    ask("parent", lambda: told.run(client.get_parent_run(ids[5])))
    for where in (
        "",
        "metrics.loss < 1",
        "metrics.loss >= 0.5 AND params.rate = '0.1'",
        "metrics.`odd 1` > 1",
        "params.rate != '0.1'",
        "params.text LIKE '%ü%'",
        "params.text ILIKE '%Ü%'",
        "params.`a/b.c d` = 'x'",
        "tags.kind = 'odd'",
        "tags.note IN ('again', 'the note of 3')",
        "tags.more IS NOT NULL",
        "tags.more IS NULL",
        f"tags.mlflow.parentRunId = '{ids[0]}'",
        "attributes.status = 'FINISHED'",
        "attributes.status != 'RUNNING'",
        f"attributes.start_time > {START + 2}",
        f"attributes.end_time <= {START + 101}",
        "attributes.run_name LIKE 'run%'",
        f"attributes.run_id IN ('{ids[1]}', '{ids[2]}')",
        "datasets.name = 'corpus'",
        "datasets.context = 'training' AND datasets.digest = 'd1g3st'",
    ):
        question = told.plain(f"runs where {where}")
        ask(question, lambda where=where: [item.info.run_id for item in client.search_runs([plain, other], where)])
    orders = (
        "metrics.loss ASC",
        "metrics.accuracy DESC",
        "params.rate DESC",
        "tags.note",
        "attributes.start_time",
        "metrics.`odd 0`",
    )
    for order in orders:
        by = lambda order=order: [one.info.run_id for one in client.search_runs([plain, other], order_by=[order])]  # noqa: E731
        ask(f"runs by {order}", by)
    for view in (ViewType.ACTIVE_ONLY, ViewType.DELETED_ONLY, ViewType.ALL):
        ask(
            f"runs of view {view}", lambda view=view: [one.info.run_id for one in client.search_runs([plain], "", view)]
        )
    by_two = lambda token: client.search_runs([plain, other], order_by=["params.rate"], max_results=2, page_token=token)  # noqa: E731
    ask("runs by pages", lambda: pages(told, by_two, told.run))
    ask(
        "experiments",
        lambda: [
            dict(one)
            for one in client.search_experiments(filter_string="name IN ('plain', 'other')", order_by=["name"])
        ],
    )
    ask(
        "experiments by tag", lambda: [one.name for one in client.search_experiments(filter_string="tags.team = 'two'")]
    )
    one_by_one = lambda token: client.search_experiments(order_by=["name DESC"], max_results=1, page_token=token)  # noqa: E731
    ask(
        "experiments by pages",
        lambda: [page for page in pages(told, one_by_one, lambda one: one.name) if page != ["Default"]],
    )

    for path in (None, "below", "below/deep", "texts"):
        ask(f"artifacts of {path}", lambda path=path: _listed(client.list_artifacts(ids[0], path)))
    ask("artifacts of a run without any", lambda: client.list_artifacts(ids[3]))
    (folder / "got").mkdir(exist_ok=True)
    for path in ("b.txt", "below", "texts/hello.txt"):
        ask(f"download of {path}", lambda path=path: _downloaded(client, ids[0], path, folder / "got"))

    for registered in ("first", "second", "third"):
        ask(
            f"registered {registered}",
            lambda registered=registered: _registered(client.get_registered_model(registered)),
        )
    ask(
        "registered by pages",
        lambda: pages(
            told,
            lambda token: client.search_registered_models(max_results=2, order_by=["name DESC"], page_token=token),
            lambda one: one.name,
        ),
    )
    ask(
        "registered like",
        lambda: [one.name for one in client.search_registered_models("name ILIKE '%IR%'", order_by=["name"])],
    )
    for version in ("1", "2", "3"):
        ask(f"version {version}", lambda version=version: _version(client.get_model_version("first", version)))
    for alias in ("best", "oldest"):
        ask(f"alias {alias}", lambda alias=alias: _version(client.get_model_version_by_alias("first", alias)))
    for where in ("name = 'first'", f"run_id = '{ids[0]}'", "name = 'first' AND tags.number = '1'", "name LIKE 'sec%'"):
        found = lambda where=where: sorted((one.name, str(one.version)) for one in client.search_model_versions(where))  # noqa: E731
        ask(told.plain(f"versions where {where}"), found)
    ask(
        "versions in order",
        lambda: [
            str(one.version) for one in client.search_model_versions("name = 'first'", order_by=["version_number DESC"])
        ],
    )
    ask("address of a version", lambda: client.get_model_version_download_uri("first", "2"))
    ask("logged model", lambda: _logged(client.get_logged_model(model)))
    for where in ("name = 'logged'", "params.layers = '2'", "tags.c = 'd'", "tags.c = 'e'", "model_type = 'lm'"):
        logged = lambda where=where: [one.model_id for one in client.search_logged_models([plain], where)]  # noqa: E731
        ask(f"logged models where {where}", logged)
    return told.answers


def _listed(items):
    return sorted((one.path, one.is_dir, one.file_size) for one in items)


def _downloaded(client, run, path, folder):
    place = Path(client.download_artifacts(run, path, str(folder)))
    files = [place] if place.is_file() else sorted(one for one in place.rglob("*") if one.is_file())
    return [(one.relative_to(place).as_posix(), one.read_bytes().hex()) for one in files]


def _registered(model):
    return {
        "name": model.name,
        "aliases": {alias: str(version) for alias, version in model.aliases.items()},
        "tags": model.tags,
        "description": model.description or "",
    }


def _version(one):
    fields = ("name", "version", "source", "run_id", "status", "current_stage", "aliases", "description")
    tags = {key: value for key, value in one.tags.items() if not key.startswith(OURS)}
    return {field: str(getattr(one, field) or "") for field in fields if field not in ("run_id", "aliases")} | {
        "run": one.run_id,
        "tags": tags,
    }


def _logged(model):
    fields = ("name", "model_id", "artifact_location", "model_type", "source_run_id", "params")
    return {field: getattr(model, field) for field in fields} | {
        "status": str(model.status),
        "tags": model.tags,
        "metrics": model.metrics or [],
    }
