"""`marin stage`: what it prints, what it refuses, and with which exit status."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from marin.cli.main import run
from marin.recipe import params
from marin.recipe.params import load_params
from marin.recipe.schema import Recipe
from marin.record.creation import create_root

SMALL = "dataset: {kind: grammar, train_bytes: 20000, validation_bytes: 2000, minimal_pairs: 3}\n"


@pytest.fixture
def workspace(tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a root and a small recipe."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MARIN_ROOT", ".marin")  # put back to what it was, whatever --root does to it
    create_root(".marin", origin="marin.test/stage")
    (folder / "params.yaml").write_text(SMALL)
    return folder


def test_executed_then_nothing_to_do_then_forced(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stage", "corpus", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["action"], first["kind"], first["metrics"]["minimal_pairs"]) == ("executed", "corpus", 3.0)
    assert json.loads((workspace / "artifacts" / "corpus.json").read_text())["digest"] == first["digest"]
    assert run(["stage", "corpus"]) == 0
    line = capsys.readouterr().out
    assert line == f"corpus  {first['digest']}  nothing to do  (run {first['run']})\n"
    assert run(["stage", "corpus", "--force", "--json"]) == 0
    forced = json.loads(capsys.readouterr().out)
    assert forced["action"] == "executed" and forced["digest"] == first["digest"] and forced["run"] != first["run"]


def test_the_environment_can_force(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["stage", "corpus", "--json"]) == 0
    monkeypatch.setenv("MARIN_FORCE", "1")
    assert run(["stage", "corpus", "--json"]) == 0
    assert [json.loads(line)["action"] for line in capsys.readouterr().out.splitlines()] == ["executed", "executed"]


def test_parameters_may_lie_elsewhere_and_their_folder_is_the_project(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "other").mkdir()
    (workspace / "other" / "mine.yaml").write_text(SMALL)
    assert run(["stage", "corpus", "--params", "other/mine.yaml"]) == 0
    assert (workspace / "other" / "artifacts" / "corpus.json").is_file()
    assert not (workspace / "artifacts").exists()


@pytest.mark.parametrize(
    ("parameters", "arguments", "status", "message"),
    [
        (SMALL, ["corpsu"], 2, "corpus"),
        (SMALL, ["corpus", "--devices", "0"], 2, "--devices"),
        (SMALL + "trainer: {num_steps: -3}\n", ["corpus"], 2, "params.yaml: trainer.num_steps"),
        (SMALL + "trainer: {steps: 3}\n", ["corpus"], 2, "params.yaml: trainer.steps"),
        (None, ["corpus"], 2, "no parameters"),
        (SMALL, ["corpus", "--root", "nowhere"], 3, "marin init"),
    ],
)
def test_refusals_are_one_line_with_a_status(
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    parameters: str | None,
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    if parameters is None:
        (workspace / "params.yaml").unlink()
    else:
        (workspace / "params.yaml").write_text(parameters)
    assert run(["stage", *arguments]) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err.strip().splitlines()[-1]
    assert not (workspace / "artifacts").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--processes", "2", "--devices", "4"], "--runner ray"),
        (["--address", "127.0.0.1:6379"], "--runner ray"),
        (["--accelerator-type", "H100"], "--runner ray"),
        (["--topology", "4x4"], "--runner ray"),
        (["--runner", "ray", "--processes", "2", "--devices", "3"], "a multiple of --processes (2)"),
        (["--runner", "slurm"], "slurm"),
    ],
)
def test_a_layout_that_contradicts_itself_is_wrong_usage(
    workspace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert run(["stage", "train", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_what_a_step_reads_and_this_root_never_made_is_made_first(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a pull, dvc.lock has stages that another root made: DVC skips them, and here they have no result."""
    (workspace / "params.yaml").write_text(SMALL + "tokenizer: {vocab_size: 400}\n")
    assert run(["stage", "tokenizer", "--json"]) == 0
    told = capsys.readouterr()
    assert [json.loads(line)["step"] for line in told.out.splitlines()] == ["tokenizer"]
    assert "corpus: not made in this root yet, though dvc.lock has it: made first" in told.err
    assert {path.name for path in (workspace / "artifacts").glob("*.json")} == {"corpus.json", "tokenizer.json"}
    assert run(["stage", "corpus"]) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_stage_is_loaded_stops_the_run(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """DVC begins a process for each stage: Ctrl-C finds most of them importing, between two steps of a run."""
    assert run(["stage", "corpus", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)

    def load(path: Path) -> Recipe:
        os.kill(os.getpid(), number)
        return load_params(path)

    with monkeypatch.context() as loading:
        loading.setattr(params, "load_params", load)
        assert run(["stage", "tokenizer"]) == 130
    told = f"interrupted: before step tokenizer: found {number.name}; run the same command again: it goes on from here"
    assert capsys.readouterr().err.splitlines()[-1] == f"marin: {told}"
    assert run(["show", made["run"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "interrupted"
    assert run(["stage", "corpus", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == made["run"], "it goes on"


def test_a_run_between_two_steps_says_how_to_go_on(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C may find DVC itself there, which tells nobody."""
    assert run(["stage", "corpus", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert run(["show", made["run"]]) == 0
    assert "to go on, if nothing executes it any more: the same command again" in capsys.readouterr().out
