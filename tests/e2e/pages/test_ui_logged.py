"""What programs log through MLflow's own client over HTTP: files go through the server; pages show what would hide."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ui import Served

SCRIPT = """
import sys
sys.modules["marin"] = None  # a client that has no Marin: its own server's addresses are all that it knows
import mlflow
from mlflow import MlflowClient
mlflow.set_experiment("elsewhere")
with mlflow.start_run() as run:
    mlflow.log_text("a note", "notes/a.txt")
    model = mlflow.pyfunc.log_model("model", python_model=mlflow.pyfunc.PythonModel(), pip_requirements=[])
client = MlflowClient()
assert [one.path for one in client.list_artifacts(run.info.run_id, "notes")] == ["notes/a.txt"]
assert mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/notes/a.txt") == "a note"
assert "MLmodel" in [one.path for one in client.list_logged_model_artifacts(model.model_id)]
version = mlflow.register_model(model.model_uri, "brought")
again = client.copy_model_version(f"models:/brought/{version.version}", "copied")
print(run.info.run_id, run.info.artifact_uri, client.get_logged_model(model.model_id).artifact_location)
print(client.get_model_version_download_uri("brought", version.version))
print(client.get_model_version_download_uri("copied", again.version))
"""
ODD = {
    "a\u202eb": "a\\u202eb",
    "a\u200bb": "a\\u200bb",
    "\ufeffmark": "\\ufeffmark",
    "Mod\u00e8le n\u00ba\u00a01": "Mod\u00e8le n\u00ba\u00a01",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "a\u200cb": "a\\u200cb",
    "\\u200c": "\\u200c",
}
"""Names, and how a page draws them: joiners stay in scripts that join."""


def executed(served: Served, script: str, *arguments: str) -> list[list[str]]:
    environment = {name: value for name, value in os.environ.items() if name not in ("MARIN_ROOT", "MARIN_KEY")} | {
        "MLFLOW_TRACKING_URI": served.address,
        "MLFLOW_TRACKING_TOKEN": served.token,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.split() for line in done.stdout.splitlines() if line]


@pytest.mark.browser
def test_pages_make_visible_what_would_steer_or_hide(served: Served, page: Any, shots: Path) -> None:
    script = (
        "import sys; from mlflow import MlflowClient; c = MlflowClient(); e = c.create_experiment('odd \u202e names')\n"
        "for n, name in enumerate(sys.argv[1:]):\n"
        "    run = c.create_run(e, run_name=name, start_time=n, tags={'note': name}).info.run_id\n"
        "    c.log_param(run, 'p', name)\n"
        "print(e)"
    )
    ((experiment,),) = executed(served, script, *ODD)
    page.goto(f"{served.room}/#/experiments/{experiment}/runs")
    names = page.locator('[role=gridcell][col-id="attributes.`Run Name`"] a')
    names.nth(len(ODD) - 1).wait_for()
    assert sorted(names.all_inner_texts()) == sorted(ODD.values())
    page.screenshot(path=shots / "odd-runs.png")
    seen = page.evaluate("document.body.innerText")
    assert "odd \\u202e names" in seen and not {"\u202e", "\u200b", "\ufeff"} & set(seen)
    for drawn in (ODD["a\u202eb"], ODD["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"]):
        page.goto(f"{served.room}/#/experiments/{experiment}/runs")
        page.get_by_role("link", name=drawn, exact=True).first.click()
        page.get_by_text("About this run").first.wait_for()
        seen = page.evaluate("document.body.innerText")
        assert seen.count(drawn) >= 3, "its name, its parameter and its tag"
        assert "\u202e" not in seen
    page.screenshot(path=shots / "odd-run.png")


def test_a_client_without_marin_brings_and_fetches_files_and_models(served: Served) -> None:
    found = executed(served, SCRIPT)
    at = next(number for number, line in enumerate(found) if len(line) == 3 and "artifacts" in line[1])
    (run, of_run, of_model), (of_version,), (of_copy,) = found[at : at + 3]
    assert of_run.startswith("mlflow-artifacts:/") and of_run.endswith(f"/{run}/artifacts")
    assert of_model.startswith("mlflow-artifacts:/") and of_version == of_copy == of_model
    told = [event.body for _, event in served.root.history().events(type="tracking.logged/v1")]
    (note,) = [one["values"] for one in told if one["operation"] == "artifact" and one["run"] == run]
    assert note["path"] == "notes/a.txt"
    assert served.root.store_to_read().read(note["artifact"]) == b"a note"
    assert "mlflow-artifacts:" not in str([one["values"] for one in told if one["operation"] == "registered"])
