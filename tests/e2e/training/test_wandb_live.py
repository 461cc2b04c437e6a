"""`tracker=wandb`: Levanter's tracker follows a training that is interrupted and goes on; identity and bits stay the
same."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from wandb_records import read_offline_run

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.e2e

STAGE = """
import os, sys
os.environ |= {"WANDB_BASE_URL": sys.argv.pop(1), "WANDB_API_KEY": "0" * 40, "MARIN_TRACKER": sys.argv.pop(1)}
from marin.cli.main import main
main()
"""


def events(project: Project, run: str, kind: str) -> list[dict[str, Any]]:
    done = project.marin("log", "--stream", f"run/{run}", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [item["body"] for item in found if item["type"] == kind]


@pytest.mark.long(seconds=20)
def test_wandb_follows_a_training_and_changes_nothing(project: Project) -> None:
    (plain,) = json.loads(project.marin("ls", "--json").stdout)
    views = project.home / "cache" / "views"
    others = set(views.glob("*/wandb"))  # of other roots: the cache is the session's
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        project.forked(STAGE, address, "wandb", "-q", "stage", "train", "--force", "--pause-at", "3")
        (folder,) = set(views.glob("*/wandb")) - others
        (first,) = folder.glob("offline-run-*")
        begun = read_offline_run(first)
        project.forked(STAGE, address, "wandb", "-q", "stage", "train", "--force")
        project.forked(STAGE, address, "wandb", "-q", "stage", "export")
        with pytest.raises(BlockingIOError):  # nobody called, though address and key were there
            listener.accept()
    assert not list(project.root.rglob("*wandb*")), "a root travels"
    runs = [read_offline_run(path) for path in sorted(folder.glob("offline-run-*"))]
    tracked = begun.run_id
    assert tracked != plain["run"] and {run.run_id for run in runs} == {tracked}, (
        "one id, however often it was interrupted"
    )
    segments, untracked = (
        events(project, tracked, "train.segment/v1"),
        events(project, plain["run"], "train.segment/v1"),
    )
    for name in ("losses", "fingerprints", "batches", "start_state", "end_state"):
        assert [part[name] for part in segments] == [part[name] for part in untracked], name
    (one,), (other,) = events(project, tracked, "run.started/v1"), events(project, plain["run"], "run.started/v1")
    assert (one["recipe_digest"], one["plan"], one["recipe"]) == (
        other["recipe_digest"],
        other["plan"],
        other["recipe"],
    )

    losses = [float.fromhex(loss) for part in segments for loss in part["losses"]]
    assert [point["train/loss"] for point in begun.points] == losses[:3], "during the training, not after it"
    points = [point for run in runs for point in run.points]
    assert [point["train_step"] for point in points] == list(range(6))
    assert [point["train/loss"] for point in points] == losses
    assert all(point["train/grad_norm"] > 0 for point in points) and points[2]["system/tokens_per_second"] > 0
    assert runs[0].config["marin.recipe"] == one["recipe_digest"]
    saved = {body["artifact"]: body["state"] for body in events(project, tracked, "checkpoint.saved/v1")}
    told = {metadata["marin.artifact"]: metadata["marin.digest"] for run in runs for _, metadata, _ in run.artifacts}
    assert saved.items() <= told.items()
    assert runs[-1].summary["marin.state"] == "completed" and "evaluate/perplexity" in runs[-1].summary
    assert all(run.complete for run in runs)
