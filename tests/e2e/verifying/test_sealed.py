"""Somebody else's root, verified in a process of its own that reaches nothing but that root; and by workers on Ray: what
was forged is located, and no process is left."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from marin.process import landlock
from tests.e2e.clusters.raytraining import processes
from tests.e2e.conftest import MARIN
from tests.e2e.verifying.test_reproducer import HIDE_KEY, OWN
from tests.e2e.verifying.test_verify_parallel import FORGE_LAST

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

confined = pytest.mark.skipif(
    not landlock.version(), reason="this kernel has no Landlock, or a container keeps it away"
)


def strange(project: Project) -> Project:
    """The project of somebody who has the published root, and an own log."""
    project.forked(OWN)
    project.forked(HIDE_KEY)
    return project


@pytest.fixture
def stranger(project: Project) -> Project:
    return strange(project)


@pytest.mark.long(seconds=50)
@pytest.mark.table
@pytest.mark.parametrize(
    ("forged", "processes_each"), [(True, 1), (False, 1), (True, 2)], ids=["forged", "honest", "forged together"]
)
def test_workers_judge_data_and_training_and_verdicts_reach_ones_own_log(
    project: Project, forged: bool, processes_each: int
) -> None:
    """The last of two segments is forged, or none is; the first has the recorded bits. Two workers replay a segment
    each, or two processes with a device each replay one together."""
    if forged:
        project.forked(FORGE_LAST)
    stranger = strange(project)
    asked = ["--workers", "2"] if processes_each == 1 else ["--processes", "2", "--devices", "2"]
    status, report = stranger.verify("--record-in", "mine", *asked, "--only", "data,training")
    verdicts = [report["verdicts"][name] for name in ("data", "training")]
    assert (status, verdicts) == (int(forged), ["PASS", "FAIL" if forged else "PASS"]), report
    assert (report["first_divergence"] or {}).get("step") == (4 if forged else None), report
    if processes_each == 1:
        assert "shards" in report["details"]["data"][-1]
    assert report["training"] | {"seconds": 0} == {
        "mode": "full",
        "segments_total": 2,
        "segments_replayed": 2,
        "workers": 2 // processes_each,
        "seconds": 0,
    }
    if landlock.version():
        assert report["remarks"][0].startswith("confined: files (Landlock"), report["remarks"]
    assert list(processes(stranger).values()) == []
    mine = [json.loads(line) for line in stranger.marin("--root", "mine", "log", "--json").stdout.splitlines()]
    assert [event["type"] for event in mine][-1] == "replay.completed/v1"
    assert not list((stranger.home / "cache" / "foreign").glob("*.key"))


@pytest.mark.long
@confined
def test_a_root_on_the_network_is_read_by_the_parent(
    stranger: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where temporary files lie deeper than a socket's name may be long."""
    deep = tmp_path / ("temporary files of somebody " * 4)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    handler = partial(SimpleHTTPRequestHandler, directory=str(stranger.root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        done = stranger.python(
            MARIN,
            "--root",
            f"http://127.0.0.1:{server.server_port}",
            "-q",
            "verify",
            "latest",
            "--json",
            "--no-record",
            "--only",
            "artifacts",
            "--html",
            "page.html",
            check=False,
        )
        server.shutdown()
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdicts"]["artifacts"]) == (0, "PASS"), done.stderr
    assert "no network" in report["remarks"][0] or "NOT CONFINED" in report["remarks"][1]
    assert b'content="page.png"' in (stranger.folder / "page.html").read_bytes(), "the page and its picture"
    assert (stranger.folder / "page.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@confined
def test_a_root_that_leads_elsewhere_is_refused(stranger: Project, tmp_path: Path) -> None:
    """The topmost folder of a root may be a link; a stranger's leads nowhere."""
    elsewhere = tmp_path / "elsewhere"
    os.rename(stranger.root / "store", elsewhere)
    os.symlink(elsewhere, stranger.root / "store")
    status, report = stranger.verify("--no-record", "--only", "artifacts")
    assert status in (1, 3) and report["verdicts"]["artifacts"] != "PASS"
    status, report = stranger.verify("--no-record", "--only", "artifacts", "--allow", f"read:{elsewhere}")
    assert (status, report["verdicts"]["artifacts"]) == (0, "PASS"), report


@pytest.mark.long(seconds=15)
def test_limits_end_it_with_a_sentence(stranger: Project) -> None:
    done = stranger.marin("-q", "verify", "latest", "--no-record", "--only", "training", "--hours", "0.001")
    assert done.returncode == 3 and "--hours gives it more" in done.stderr, done.stderr
    done = stranger.marin("-q", "verify", "latest", "--no-record", "--only", "training", "--memory", "0.5")
    assert done.returncode == 3, done.stderr  # it accuses nobody
    assert "Traceback" not in done.stderr


def test_names_that_open_nothing_and_what_needs_an_open_door(stranger: Project) -> None:
    for arguments in (("--allow", "everything"), ("--allow", "network"), ("--address", "x:1", "--workers", "2")):
        done = stranger.marin("-q", "verify", "latest", "--no-record", *arguments)
        assert done.returncode == 2 and "--allow" in done.stderr, done.stderr
    done = stranger.marin(
        "-q", "verify", "latest", "--no-record", "--only", "ledger", "--json", "--allow", "unconfined"
    )
    assert json.loads(done.stdout)["remarks"][0] == "NOT CONFINED: as asked"
