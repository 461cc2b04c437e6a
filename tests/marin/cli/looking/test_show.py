"""`marin ls` and `marin show`: a run as people and machines see it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import marin as library
from ledger import Draft
from marin.execution.pointer import Pointer
from marin.history.runs import stream_of
from marin.record import events
from marin.record.root import open_root

Marin = Any


def test_ls_of_nothing(marin: Marin, root: Path) -> None:
    assert marin("ls", "--json").json == []
    assert marin("ls", "artifacts", "--json").json == []
    empty = marin("ls")
    assert (empty.status, empty.data) == (0, b"")
    assert "marin train" in empty.err


def test_ls_runs(marin: Marin, run: str) -> None:
    (only,) = marin("ls", "runs", "--json").json
    assert only["run"] == run
    assert only["status"] == "open"
    assert only["metrics"]["evaluate.perplexity"] == 54.598
    assert only["verdicts"] is None
    head, line = marin("ls").out.splitlines()
    assert head.split() == ["run", "started", "dataset", "model", "steps", "loss", "perplexity", "verified"]
    assert line.split()[0] == run
    assert "grammar" in line and "4.0000" in line and "54.5980" in line, "loss and perplexity are of one measurement"
    assert line.endswith("open"), "what nobody verified says how far it is"


def test_ls_shows_the_columns_that_are_asked_for(marin: Marin, run: str) -> None:
    assert marin("ls", "--columns", "perplexity,run").out.splitlines() == ["perplexity  run", f"54.5980     {run}"]
    wrong = marin("ls", "--columns", "run,perplexty")
    assert wrong.status == 2 and "did you mean perplexity or " in wrong.err


def test_diff_begins_with_what_came_out(marin: Marin, run: str) -> None:
    shown = marin("diff", run, run).out.splitlines()
    assert [line.split() for line in shown[:4]] == [
        [run, run],
        ["evaluate.loss", "4", "4", "same"],
        ["evaluate.perplexity", "54.598", "54.598", "same"],
        ["train.loss_last", "4.5", "4.5", "same"],
    ]


def test_what_nearly_has_a_name_is_told_it(marin: Marin, run: str) -> None:
    assert "did you mean latest?" in marin("show", "lates").err
    assert f"did you mean {run}?" in marin("show", run[:-1] + "x").err
    assert "No such command 'shwo': did you mean show?" in marin("shwo").err


def test_a_word_that_is_nearly_one_of_few_is_told_it(marin: Marin, root: Path) -> None:
    assert "Did you mean 'runs'?" in marin("ls", "rnus").err
    assert "Did you mean" not in marin("ls", "zebra").err


def test_diff_says_that_a_run_is_not_complete(marin: Marin, run: str) -> None:
    assert f"note: run {run} is open: compared as far as it is recorded" in marin("diff", run, run).err


def test_a_metric_that_is_nearly_one_is_told_it(run: str) -> None:
    metrics = library.open(open_root().location).run(run).metrics
    assert metrics["evaluate.perplexity"] == 54.598 and metrics.get("evaluate.perplexit") is None
    with pytest.raises(KeyError, match=r"no metric evaluate\.perplexit; did you mean evaluate\.perplexity\?"):
        metrics["evaluate.perplexit"]


def test_init_makes_no_second_root_inside_of_a_project(
    marin: Marin, run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inside = Path.cwd() / "deep" / "er"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    monkeypatch.setenv("MARIN_ROOT", "")
    refused = marin("init")
    assert refused.status == 2 and "a folder above has a root already" in refused.err and "--here" in refused.err
    assert list(inside.iterdir()) == []
    assert marin("ls", "--json").json[0]["run"] == run, "the one above is used"
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "another.pem"))
    assert marin("init", "--here").status == 0
    assert (inside / ".marin" / "vkey").is_file()


def test_ls_artifacts(marin: Marin, run: str, root: Path) -> None:
    (only,) = marin("ls", "artifacts", "--json").json
    assert only["runs"] == [run]
    assert only["present"] is True
    (blob,) = [file for file in root.glob("store/blobs/**/*") if file.is_file()]
    blob.unlink()
    assert marin("ls", "artifacts", "--json").json[0]["present"] is False
    assert marin("ls", "artifacts").out.rstrip().endswith("missing")


@pytest.mark.parametrize("name", ["latest", "2khr7ocq", "2k"])
def test_show_a_run_by_any_of_its_names(marin: Marin, run: str, name: str) -> None:
    shown = marin("show", name, "--json").json
    assert shown["run"] == run
    assert shown["recipe"]["trainer"] == {"num_steps": 4}
    assert [(s["start"], s["end"]) for s in shown["segments"]] == [(0, 2), (2, 4)]
    assert set(shown["steps"]) == {"train", "evaluate", "export"}
    plain = marin("show", name).out
    assert run in plain and "c0ffee with changes" in plain and shown["outputs"]["export"] in plain


def test_show_a_recipe(marin: Marin, run: str) -> None:
    assert marin("show", "latest", "--recipe").json["dataset"] == {"name": "grammar"}


def test_the_summary_is_what_make_repro_ends_with(marin: Marin, run: str) -> None:
    lines = marin("show", "latest", "--summary").out.splitlines()
    checkpoint = marin("ledger", "checkpoint", "--json").json
    assert lines[:5] == [
        f"run         {run}  (open)",
        "train loss  7.5000 at the first train step, 4.5000 at the last (4 steps)",
        "perplexity  54.60 on held-out text",
        f"model       sha256:{'d' * 64}",
        f"log         6 events, root {checkpoint['root']}",
    ]
    assert [line.split("  ")[1] for line in lines[-4:]] == [
        "marin verify latest",
        "marin ui",
        "marin log",
        "marin store push ADDRESS",
    ]


def test_the_summary_of_a_pointer_is_of_its_own_run_whatever_came_later(marin: Marin, run: str) -> None:
    later = events.RunStarted(
        run="later",
        pipeline="exp001",
        plan="sha256:" + "a" * 64,
        recipe_digest="sha256:" + "c" * 64,
        recipe={},
        code={},
        environment={},
    )
    open_root().append([Draft(events.RUN_STARTED, stream_of("later"), events.write(later))])
    Path("export.json").write_bytes(Pointer(digest="sha256:" + "d" * 64, kind="export", size=5).encode())
    assert marin("show", "latest", "--summary").out.split()[:2] == ["run", "later"]
    lines = marin("show", "export.json", "--summary").out.splitlines()
    assert lines[0] == f"run         {run}  (open)"
    assert lines[-4].strip().startswith(f"marin verify {run} ")
    Path("other.json").write_bytes(Pointer(digest="sha256:" + "e" * 64, kind="export", size=5).encode())
    missing = marin("show", "other.json", "--summary")
    assert (missing.status, missing.out) == (3, "")


def test_show_an_event(marin: Marin, run: str) -> None:
    third = marin("log", "--json").lines[3]
    assert marin("show", "3", "--json").json == third
    assert marin("show", f"event:{third['id']}", "--json").json == third
    assert json.loads(marin("show", "3").out) == third


def test_show_an_artifact_and_a_pointer(marin: Marin, run: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("a")
    digest = marin("store", "put", tree).out.strip()
    assert [file["path"] for file in marin("show", digest, "--json").json["files"]] == ["a.txt"]
    assert "a.txt" in marin("show", digest).out
    Path("export.json").write_bytes(Pointer(digest="sha256:" + "d" * 64, kind="export", size=5).encode())
    assert marin("show", "export.json", "--json").json["size"] == 5
    Path("other.json").write_bytes(Pointer(digest="sha256:" + "e" * 64, kind="export", size=5).encode())
    assert marin("show", "other.json").status == 3


@pytest.mark.parametrize(
    ("name", "status"), [("zzz", 2), ("6", 2), ("event:nothing", 3), ("sha256:12", 2), ("sha256:" + "0" * 64, 3)]
)
def test_what_is_not_there_is_one_line(marin: Marin, run: str, name: str, status: int) -> None:
    refused = marin("show", name)
    assert (refused.status, refused.data) == (status, b"")
    assert refused.err.count("\n") == 1
    assert name.removeprefix("event:") in refused.err


def test_an_ambiguous_beginning_lists_what_it_could_mean(marin: Marin, run: str) -> None:
    started = marin("log", "--json").lines[0]["body"] | {"run": "2kaaaaaa"}
    body = json.dumps(started).encode()
    appended = marin(
        "ledger", "append", "--type", "run.started/v1", "--stream", "run/2kaaaaaa", "--body", "-", stdin=body
    )
    assert appended.status == 0, appended.err
    refused = marin("show", "2k")
    assert refused.status == 2
    assert "2kaaaaaa" in refused.err and run in refused.err
    assert marin("show", "latest", "--json").json["run"] == "2kaaaaaa"


def test_a_page_where_this_user_may_not_write_is_unavailable(
    marin: Marin, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    refused = marin("verify", run, "--html", tmp_path / "page.html")
    assert refused.status == 3 and str(tmp_path) in refused.err and "give this user the rights" in refused.err
