"""`marin ui` as a person meets it: a process, an address that answers, a browser, Ctrl-C.

The browser part needs a Chromium (``pytest -m browser``); screenshots are left in MARIN_SCREENSHOTS, or in pytest's
folder.
"""

# Taken by their commands: marin.plugins.mlflow.

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from ui import MANY, NAMED, RUN, Served, address_of, ended, left_behind, roots, started, story

from ledger import Draft
from marin.history.projection.identity import Ids


def test_the_printed_address_answers_on_loopback_alone(served: Served):
    assert served.address.startswith("http://127.0.0.1:")
    with served.open("/health") as answer:
        assert answer.read() == b"OK"


def test_what_computes_is_not_in_the_server(served: Served):
    """A hundred megabytes that MLflow imports where they are installed, and that no page asks for."""
    mapped = Path(f"/proc/{served.process.pid}/maps").read_text()
    assert "/sqlalchemy/" in mapped
    assert not [
        name
        for name in ("jaxlib", "pandas", "polars", "_polars_runtime_32", "pyarrow", "scipy")
        if f"/{name}/" in mapped
    ]


def test_nothing_is_read_or_written_without_the_token(served: Served):
    size = served.root.reader().checkpoint().size
    change = json.dumps({"run_id": RUN, "key": "marin.verified", "value": "PASS 2030-01-01"}).encode()
    for path, data in (
        ("/", None),
        ("/health", None),
        (f"/api/2.0/mlflow/runs/get?run_id={RUN}", None),
        (f"/get-artifact?run_uuid={RUN}&path=report.html", None),
        ("/api/2.0/mlflow/runs/set-tag", change),
        ("/ajax-api/2.0/mlflow/runs/set-tag", change),
        ("/graphql", b"{}"),
    ):
        assert served.refused(path, data, content_type="application/json") == 401
        assert served.refused(path, data, authorization="Bearer " + "0" * 64) == 401
    assert served.refused("/", host="rebound.example") == 421
    assert served.root.reader().refresh().size == size


def test_what_is_asked_by_post_alone_is_refused_in_a_line(served: Served):
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.open("/graphql")
    assert (refused.value.code, refused.value.headers["allow"]) == (405, "POST")
    assert refused.value.read() == b"asked by POST alone\n"
    refused.value.close()


@pytest.mark.browser
def test_a_page_of_another_port_of_this_machine_is_not_sent_the_key(served: Served, page: Any):
    """A browser sends the cookies of a host to each of its ports; below the room's path alone, which nobody knows."""
    sent: list[str] = []

    class Curious(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(f"{self.path} {self.headers.get('cookie', '')}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Curious) as other:
        threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            page.goto(f"{served.room}/#/experiments")
            page.get_by_role("heading", name="Experiments", exact=True).wait_for()
            for path in ("/", "/graphql", "/" + "0" * 32 + "/"):
                page.goto(f"http://127.0.0.1:{other.server_port}{path}")
        finally:
            other.shutdown()
    assert "/ " in sent and not [line for line in sent if "marin-ui" in line], sent
    (kept,) = [one for one in page.context.cookies(served.room + "/") if one["name"] == "marin-ui"]
    assert kept["value"] != served.token and kept["httpOnly"] and kept["sameSite"] == "Strict"


@pytest.mark.browser
def test_what_the_pages_ask_for_lies_in_the_room(served: Served, page: Any):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for place in (f"experiments/1/runs/{RUN}", f"experiments/1/runs/{RUN}/model-metrics", "models", "experiments"):
        page.goto(f"{served.room}/#/{place}")
        page.wait_for_selector("#root > *", state="attached")
        page.wait_for_load_state("networkidle")
    outside = [url for url in asked if not url.startswith((f"{served.room}/", "data:", "blob:"))]
    assert len(asked) > 4 and outside == []


def test_what_the_ledger_says_of_a_run_is_not_changed_by_whoever_has_the_token(served: Served):
    size = served.root.reader().checkpoint().size
    for path, body in (
        ("runs/set-tag", {"run_id": RUN, "key": "marin.verified", "value": "PASS 2030-01-01"}),
        ("runs/update", {"run_id": RUN, "run_name": "renamed"}),
        ("runs/log-metric", {"run_id": RUN, "key": "train/loss", "value": 0.1, "timestamp": 0, "step": 1}),
        ("runs/delete", {"run_id": RUN}),
        ("registered-models/alias", {"name": "pipeline", "alias": "verified", "version": "1"}),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            served.ask(f"/api/2.0/mlflow/{path}", body)
        assert refused.value.code == 403
        refused.value.close()
    assert served.root.reader().refresh().size == size


def test_what_is_not_in_a_ledger_is_not_served(served: Served):
    for path, data in (
        ("/ajax-api/3.0/mlflow/assistant/config", None),
        ("/ajax-api/3.0/mlflow/assistant/message", b'{"message": "id"}'),
        ("/ajax-api/3.0/mlflow/assistant/providers", None),
        ("/ajax-api/3.0/mlflow/demo/generate", b"{}"),
        ("/ajax-api/3.0/mlflow/ui-telemetry", None),
        ("/ajax-api/3.0/jobs/", b"{}"),
        ("/gateway/x/mlflow/invocations", b"{}"),
    ):
        with pytest.raises(urllib.error.HTTPError) as absent:
            served.open(path, data)
        assert absent.value.code == 404, path
        assert absent.value.read() == b"not part of marin ui\n"
        absent.value.close()
    listed = served.ask("/api/2.0/mlflow/experiments/search", {"max_results": 100})["experiments"]
    assert "Default" not in {item["name"] for item in listed}


def test_artifacts_are_listed_with_the_size_of_what_is_read(served: Served):
    listed = served.ask(f"/api/2.0/mlflow/artifacts/list?run_id={RUN}")["files"]
    files = {item["path"]: item for item in listed if not item["is_dir"]}
    assert {"report.html", "verification.html", "lineage.html", "loss.png", "record.json"} <= set(files)
    for path, item in files.items():
        with served.open(f"/get-artifact?run_uuid={RUN}&path={path}") as answer:
            assert int(item["file_size"]) == len(answer.read()) > 0, path
    with served.open(f"/get-artifact?run_uuid={RUN}&path=record.json") as answer:
        told = json.load(answer)
    assert told["steps"]["export"]["output"]["artifact"].startswith("sha256:")
    assert told["environment"] == {"python": "3.12", "cpu": {"cores": 2}}
    tags = served.ask(f"/api/2.0/mlflow/runs/get?run_id={RUN}")["run"]["data"]["tags"]
    assert not [tag["key"] for tag in tags if tag["value"].startswith("sha256:")]
    assert told["training"][0]["program"]["jaxlib"]
    train = Ids(story.ORIGIN).run("abcd2345", "train")
    with served.open(f"/get-artifact?run_uuid={train}&path=record.json") as answer:
        assert json.load(answer) == told, "a step shows the record of its run"


def test_mlflows_api_and_its_artifact_server_show_the_run(served: Served):
    run = served.ask(f"/api/2.0/mlflow/runs/get?run_id={RUN}")["run"]
    assert run["info"]["run_name"] == "llama-4x128-seed0 · abcd2345"
    told = [metric["key"] for metric in run["data"]["metrics"]]
    assert told[:3] == ["evaluate.loss", "evaluate.perplexity", "train/loss"] and told[-1].startswith("system/")
    files = {item["path"] for item in served.ask(f"/api/2.0/mlflow/artifacts/list?run_id={RUN}")["files"]}
    assert files >= {"loss.png", "report.html", "lineage.html", "corpus", "export"}
    with served.open(f"/get-artifact?run_uuid={RUN}&path=loss.png") as answer:
        assert answer.read(8) == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.open(f"/get-artifact?run_uuid={RUN}&path=../../../key.pem")
    assert refused.value.code == 400
    refused.value.close()


def test_one_process_serves(served: Served):
    assert left_behind(served.process.pid) == [served.process.pid]


def test_a_run_that_begins_now_appears_while_the_server_runs(served: Served):
    story.start(served.log, "live2345")
    served.root.append(
        [
            Draft(event.type, event.stream, event.body, id=event.id, actor=event.actor)
            for event in served.log.entries[-1:]
        ]
    )
    wanted = {"experiment_ids": ["1"], "filter": "tags.marin.run = 'live2345'"}
    for _ in range(600):
        if served.ask("/api/2.0/mlflow/runs/search", wanted).get("runs"):
            break
    assert served.ask("/api/2.0/mlflow/runs/search", wanted)["runs"][0]["info"]["status"] == "RUNNING"


@pytest.mark.long
def test_a_taken_port_is_said_and_sigterm_ends_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MARIN_ROOT", "")
    monkeypatch.setenv("MARIN_KEY", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    roots.make_root(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = started(dict(os.environ), "--port", str(port))
        address = address_of(process)
        status, complaint = ended(process, signal.SIGTERM)
    other = urllib.parse.urlsplit(address).port
    assert other != port
    assert f"port {port} is taken, using {other}" in complaint
    assert status == 0
    assert left_behind(process.pid) == []


def test_without_a_root_there_is_one_line(tmp_path: Path):
    environment = {**os.environ, "MARIN_ROOT": str(tmp_path / "nowhere")}
    done = subprocess.run(
        [sys.executable, "-m", "marin.cli.main", "ui"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 3
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("loading "))  # said on a busy machine
    assert "marin init" in line


FOREIGN = ("Assistant", "GenAI", "telemetry", "Start Demo", "AI Gateway", "Prompts", "Traces", "Welcome to MLflow")
"""Words of MLflow for what is not in a ledger."""


CUT = """(root, chosen) => [...root.querySelectorAll(chosen)].filter(one => {
    const range = document.createRange();
    range.selectNodeContents(one);
    const text = range.getBoundingClientRect();
    for (let box = one; box; box = box.parentElement) {
        if (getComputedStyle(box).overflowX === "visible") continue;
        const seen = box.getBoundingClientRect();
        if (text.right > seen.right + 0.5 || text.bottom > seen.bottom + 0.5) return true;
    }
    return text.right > innerWidth;
}).map(one => one.innerText).filter(text => text)"""
"""Texts of elements of which something that clips shows a part alone."""
NAMES = '[role=gridcell][col-id="attributes.`Run Name`"] a'
VERDICTS = '[role=gridcell][col-id="tags.`marin.verified`"] .ag-cell-value'
HEADINGS = "[data-testid^=sort-header], .ag-header-group-text"
SEEN = {1400: "", 390: "evaluate.perplexity marin.model marin.data seed Duration Created Parameters"}
"""Of the headings those that a narrow page has to be scrolled to."""


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 1400), ("light", 390), ("dark", 390)])
def test_the_printed_address_opens_on_the_run_list_of_the_newest_experiment(
    served: Served, page: Any, shots: Path, scheme: str, width: int
):
    context = page.context.browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    fresh = context.new_page()
    fresh.goto(served.printed)
    fresh.get_by_role("link", name=f"{NAMED}abcd2345").wait_for()
    assert fresh.url.startswith(f"{served.room}/#/experiments/1/runs")
    if width == 1400:
        row = fresh.locator(".ag-center-cols-container [role=row]").filter(has_text="PASS 2026-11").first
        cells = {cell.get_attribute("col-id"): cell.inner_text() for cell in row.locator("[role=gridcell]").all()}
        assert cells["metrics.`evaluate.loss`"] == "2.25"
        assert cells["metrics.`evaluate.perplexity`"] == "9.5"
        assert cells["tags.`marin.verified`"].startswith("PASS 2026-11-2")
        assert cells["tags.`marin.model`"] == "llama-4x128"
        assert cells["tags.`marin.data`"] == "grammar"
        assert cells["params.`seed`"] == "0"
        assert "duration" in cells
    else:
        row = fresh.locator(".ag-center-cols-container [role=row]").filter(has_text="PASS 2026-11").first
        for column, text in (
            ("attributes.`Run Name`", f"{NAMED}abcd2345"),
            ("tags.`marin.verified`", "PASS 2026-11-2"),
            ("metrics.`evaluate.loss`", "2.25"),
        ):
            cell = row.locator(f'[role=gridcell][col-id="{column}"]')
            assert text in cell.inner_text()
            box, whole = cell.bounding_box(), cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
            assert box["x"] >= 0 and box["x"] + box["width"] <= width and whole, (column, box)
        first = fresh.locator(".ag-center-cols-container [role=row]").first.bounding_box()
        assert first["y"] < 400, "the list begins on the first screen, and not below its buttons"
        assert not fresh.get_by_role("button", name="Group by").is_visible()
    grid = fresh.locator("[role=grid]").first
    assert any(text.startswith("PARTIAL 2026-11-2") for text in fresh.locator(VERDICTS).all_inner_texts())
    assert grid.evaluate(CUT, f"{NAMES}, {VERDICTS}") == []
    assert set(grid.evaluate(CUT, HEADINGS)) <= set(SEEN[width].split())
    seen = fresh.evaluate("document.body.innerText")
    assert [word for word in FOREIGN if word in seen] == []
    assert "matching run" not in seen, "a count of rows that are not shown"
    fresh.screenshot(path=shots / f"runs-{scheme}-{width}.png")
    context.close()


@pytest.mark.browser
def test_the_logo_leads_to_the_runs_too(served: Served, page: Any):
    page.goto(f"{served.room}/#/experiments")
    page.get_by_role("heading", name="Experiments", exact=True).wait_for()
    page.get_by_role("link", name="MLflow", exact=True).click()
    page.get_by_role("link", name=f"{NAMED}abcd2345").wait_for()
    assert page.url.startswith(f"{served.room}/#/experiments/1/runs")


@pytest.mark.browser
def test_the_run_page_draws_the_loss(served: Served, page: Any, shots: Path):
    page.goto(f"{served.room}/#/experiments/1/runs/{RUN}")
    page.get_by_text("PASS 2026-11", exact=False).first.wait_for()
    seen = page.evaluate("document.body.innerText")
    assert "Replayed and compared: PASS 2026-11" in seen and "llama-4x128 on grammar, seed 0. Recipe " in seen
    assert "sha256:" not in seen, "whole digests are in record.json"
    assert [word for word in FOREIGN if word in seen] == []
    loss, machine = (
        page.get_by_role("link", name=name, exact=True) for name in ("evaluate.loss", "system/tokens_per_second")
    )
    assert loss.bounding_box()["y"] < 600 and loss.bounding_box()["y"] < machine.bounding_box()["y"]
    page.screenshot(path=shots / "run.png")
    page.goto(f"{served.room}/#/experiments/1/runs/{RUN}/model-metrics")
    page.get_by_placeholder("Search metric charts").fill("loss")  # charts out of sight are not drawn
    points = page.wait_for_function(
        "() => Math.max(0, ...[...document.querySelectorAll('.scatterlayer path.js-line')]"
        ".map(path => path.getAttribute('d').split(/[LHVC]/).length)) > 8"
    )
    assert points
    page.screenshot(path=shots / "loss.png")


@pytest.mark.browser
def test_on_a_telephone_a_run_begins_with_its_verdict(served: Served, page: Any, shots: Path):
    context = page.context.browser.new_context(viewport={"width": 390, "height": 850})
    fresh = context.new_page()
    fresh.goto(served.printed)
    fresh.goto(f"{served.room}/#/experiments/1/runs/{RUN}")
    verdict, about = fresh.get_by_text("Replayed and compared: PASS").first, fresh.get_by_text("About this run").first
    verdict.wait_for()
    about.wait_for()
    assert 0 < verdict.bounding_box()["y"] < min(850, about.bounding_box()["y"])
    told = fresh.get_by_test_id("entity-overview-container").locator("h4, p, code, [role=table]").all()
    outside = [one.inner_text() for one in told if (box := one.bounding_box()) and box["x"] + box["width"] > 390]
    assert told and outside == []
    fresh.screenshot(path=shots / "run-390.png")
    context.close()


@pytest.mark.browser
def test_charts_stand_in_groups_that_say_what_they_show(served: Served, page: Any, shots: Path):
    context = page.context.browser.new_context(viewport={"width": 1400, "height": 3000})
    fresh = context.new_page()
    fresh.goto(served.printed)
    fresh.goto(f"{served.room}/#/experiments/1/runs/{RUN}/model-metrics")
    places = []
    for name in ("train loss", "validation", "evaluation", "training", "data"):
        heading = fresh.get_by_text(name, exact=True).first
        heading.wait_for()
        places.append(heading.bounding_box()["y"])
    assert places == sorted(places)
    fresh.screenshot(path=shots / "groups.png")
    context.close()


@pytest.mark.browser
def test_artifacts_are_shown_inline_and_hostile_text_stays_text(served: Served, page: Any, shots: Path):
    page.goto(f"{served.room}/#/experiments/1/runs/{RUN}/artifacts")
    page.get_by_text("loss.png", exact=True).first.click()
    page.wait_for_function("() => [...document.images].some(image => image.naturalWidth === 800)")
    page.screenshot(path=shots / "artifact-curve.png")
    page.get_by_text("report.html", exact=True).first.click()
    page.frame_locator("iframe").get_by_role("heading", name=f"{NAMED}abcd2345").wait_for()
    page.screenshot(path=shots / "artifact-report.png")
    page.get_by_text("lineage.html", exact=True).first.click()
    lineage = page.frame_locator("iframe")
    lineage.get_by_text("The cat number 0 sleeps.", exact=False).first.wait_for(state="attached")
    page.screenshot(path=shots / "artifact-lineage.png")
    assert lineage.locator("img[src='x']").count() == 0
    assert lineage.locator("script").count() == 2  # d3 and ours, named by their digests in the page's policy
    assert "pwned" not in [page.title(), *(frame.evaluate("document.title") for frame in page.frames)]
    page.get_by_text("corpus", exact=True).first.click()
    page.get_by_text("train.jsonl", exact=True).first.click()
    page.get_by_text("The cat number 0 sleeps.", exact=False).first.wait_for()
    page.screenshot(path=shots / "artifact-corpus.png")


@pytest.mark.browser
def test_a_report_is_read_on_a_telephone(served: Served, page: Any, shots: Path):
    context = page.context.browser.new_context(viewport={"width": 390, "height": 850})
    fresh = context.new_page()
    fresh.goto(served.printed)
    fresh.goto(f"{served.room}/#/experiments/1/runs/{RUN}/artifacts")
    fresh.get_by_text("report.html", exact=True).first.click()
    fresh.frame_locator("iframe").get_by_role("heading", name=f"{NAMED}abcd2345").wait_for()
    fresh.screenshot(path=shots / "artifact-report-390.png")
    frame = fresh.locator("iframe")
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["width"] > 300 and box["height"] > 500, box
    last = fresh.frame_locator("iframe").locator("h2").last
    last.scroll_into_view_if_needed()
    inside = last.bounding_box()
    assert 0 <= inside["y"] <= 850 and inside["x"] + inside["width"] <= 390, inside
    assert fresh.locator(".mlflow-artifact-view > :first-child").bounding_box()["width"] > 300, (
        "the tree is above, and whole"
    )
    context.close()


@pytest.mark.browser
def test_the_other_artifacts_are_shown_inline(served: Served, page: Any, shots: Path):
    page.goto(f"{served.room}/#/experiments/1/runs/{RUN}/artifacts")
    for name, heading in (
        ("verification.html", "Reproduced, bit for bit"),
        ("data_order.html", "Data order of run abcd2345"),
    ):
        page.get_by_text(name, exact=True).first.click()
        page.frame_locator("iframe").get_by_role("heading", name=heading).wait_for()
        page.screenshot(path=shots / f"artifact-{name}.png")


@pytest.mark.browser
def test_the_tab_of_system_metrics_shows_what_training_measured(served: Served, page: Any, shots: Path):
    page.goto(f"{served.room}/#/experiments/1/runs/{RUN}/system-metrics")
    for name in ("tokens_per_second", "peak_memory_megabytes"):
        page.get_by_text(f"system/{name}", exact=False).first.wait_for()
    page.wait_for_function("() => document.querySelectorAll('.plot-container').length >= 2")
    page.screenshot(path=shots / "system.png")


@pytest.mark.browser
def test_a_run_with_a_hundred_thousand_points_is_drawn(served: Served, page: Any, shots: Path):
    run = Ids(story.ORIGIN).run("manyj234")
    asked = (
        f"/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?run_ids={run}&metric_key=train%2Floss&max_results=320"
    )
    last = max(point["step"] for point in served.ask(asked)["metrics"])
    assert last == MANY - 1, "the points reach to the last train step"
    page.goto(f"{served.room}/#/experiments/1/runs/{run}/model-metrics")
    page.get_by_placeholder("Search metric charts").fill("loss")
    page.wait_for_function(
        "() => Math.max(0, ...[...document.querySelectorAll('.scatterlayer path.js-line')]"
        ".map(path => path.getAttribute('d').split(/[LHVC]/).length)) > 1"
    )  # flat stretches are drawn as one
    page.screenshot(path=shots / "points.png")


@pytest.mark.browser
def test_two_runs_are_compared(served: Served, page: Any, shots: Path):
    other = Ids(story.ORIGIN).run("efgh6723")
    runs = urllib.parse.quote(json.dumps([RUN, other]))
    page.goto(f"{served.room}/#/compare-runs?runs={runs}&experiments=%5B%221%22%5D")
    page.get_by_text("Comparing 2 Runs", exact=False).first.wait_for()
    page.get_by_text("efgh6723", exact=False).first.wait_for()
    page.screenshot(path=shots / "compare.png")


@pytest.mark.browser
def test_what_is_logged_by_plain_mlflow_is_seen_and_is_in_the_ledger(served: Served, page: Any):
    script = """
import mlflow
mlflow.set_experiment("by hand")
with mlflow.start_run(run_name="plainly") as run:
    mlflow.log_param("rate", 0.1)
    mlflow.log_metric("loss", 0.25, step=1)
    mlflow.log_text("a note", "note.txt")
print(run.info.run_id)
"""
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": served.address,
        "MLFLOW_TRACKING_TOKEN": served.token,
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    run = done.stdout.split()[-1]
    assert {event.type for _, event in served.root.history().events(stream=f"tracking/{run}")} == {"tracking.logged/v1"}
    experiment = served.ask("/api/2.0/mlflow/experiments/get-by-name?experiment_name=by%20hand")["experiment"][
        "experiment_id"
    ]
    page.goto(f"{served.room}/#/experiments/{experiment}/runs/{run}/artifacts")
    page.get_by_text("note.txt", exact=True).first.click()
    page.get_by_text("a note", exact=False).first.wait_for()


REPORTING = '''
"""Two numbers and what they say."""
from marin.reporting.experiment import Plot, Report
from marin.graph import Resources, Result, Step

HERE = Resources(in_process=True)

def number(context):
    return Result(context.config["n"], metrics={"loss": context.config["n"] / 3})

def report(context):
    rows = [(name, given.metrics["loss"]) for name, given in sorted(context.inputs.items())]
    Report(title="Two numbers", question="Which is larger?", findings=["the second"], columns=("number", "loss"), rows=rows,
           plot=Plot("Numbers", "which", "loss", {"both": [(1.0, rows[0][1]), (2.0, rows[1][1])]})).write(context.out)
    return Result(kind="report", value={"larger": "two"})

numbers = {name: Step(f"number/{name}", number, {"n": n}, {}, HERE) for n, name in enumerate(("one", "two"))}
steps = [Step("report/numbers", report, {}, numbers, HERE)]
'''


def test_table_and_plot_of_an_experiment_are_artifacts_of_its_runs_for_mlflows_client(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from mlflow import MlflowClient

    from marin.graph.execution.loop import execute_graph
    from marin.graph.files import load_graph

    monkeypatch.setenv("MARIN_ROOT", str(served.root.location))
    file = tmp_path / "exp042_numbers.py"
    file.write_text(REPORTING)
    outcome = execute_graph(load_graph(file), served.root, file=file)
    assert outcome.failures == {}
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", served.token)
    client = MlflowClient(tracking_uri=served.address)
    wanted = f"tags.`marin.run` = '{outcome.graph}' and attributes.status = 'FINISHED'"
    names: dict[str, Any] = {}
    whole = f"graph · {outcome.graph}"
    for _ in range(600):
        experiment = client.get_experiment_by_name("exp042_numbers")
        found = client.search_runs([experiment.experiment_id], wanted) if experiment is not None else []
        names = {run.info.run_name: run for run in found}
        if {whole, "report/numbers"} <= set(names):
            break
    assert {whole, "report/numbers"} <= set(names)
    (above,) = client.search_runs([experiment.experiment_id], "attributes.run_name = 'executions of the graph'")
    assert names[whole].data.tags["mlflow.parentRunId"] == above.info.run_id, "nested: one row of the list for all"
    assert above.info.status == "FINISHED" and "mlflow.parentRunId" not in above.data.tags
    for name, folder in ((whole, "report/numbers"), ("report/numbers", "output")):
        run = names[name].info.run_id
        listed = {item.path for item in client.list_artifacts(run, folder)}
        assert listed == {
            f"{folder}/{file}" for file in ("table.csv", "plot.png", "report.md", "report.html", "value.json")
        }
        table = Path(client.download_artifacts(run, f"{folder}/table.csv", str(tmp_path)))
        assert table.read_text().splitlines() == ["number,loss", "one,0.0", f"two,{1 / 3!r}"]
        picture = Path(client.download_artifacts(run, f"{folder}/plot.png", str(tmp_path)))
        assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
