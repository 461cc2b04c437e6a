"""How training stops: asked to, killed, paused, or because the numbers ended; and what it saw until then."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

STAGE = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"


def edit(project: Project, **sections: Any) -> None:
    path = project.folder / "params.yaml"
    params = yaml.safe_load(path.read_text())
    for section, values in sections.items():
        params[section] = (params.get(section) or {}) | values if isinstance(values, dict) else values
    path.write_text(yaml.safe_dump(params))


def stopped(
    project: Project, number: signal.Signals, *arguments: str, command: tuple[str, ...] = ("stage", "train")
) -> tuple[int, str]:
    """`marin stage train`, signalled as soon as it has recorded its first segment; exit status and messages."""
    process = subprocess.Popen(
        [sys.executable, "-c", STAGE, *command, *arguments],
        cwd=project.folder,
        env=project.environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if "recorded" in line:
            process.send_signal(number)
            break
    seen += process.communicate()[1]
    return process.returncode, seen


def train(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.marin("stage", "train", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def straight(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The state after 24 train steps in one segment, which nobody stopped."""
    project = trained.copy(tmp_path_factory.mktemp("straight"))
    edit(project, trainer={"num_steps": 24, "steps_per_segment": 24})
    return str(train(project)["digest"])


@pytest.mark.long(seconds=30)
def test_asked_to_stop_it_loses_nothing_and_goes_on_elsewhere(project: Project, straight: str) -> None:
    edit(project, trainer={"num_steps": 24, "steps_per_segment": 4})
    status, messages = stopped(project, signal.SIGTERM, "--devices", "8")
    assert status == 130 and "training was asked to stop" in messages and "Traceback" not in messages
    listed = [run["status"] for run in json.loads(project.marin("ls", "--json").stdout)]
    assert "interrupted" in listed and "failed" not in listed
    resumed = train(project)
    assert resumed["digest"] == straight
    view = json.loads(project.marin("show", resumed["run"], "--json").stdout)
    assert view["steps"]["train"]["attempts"] == 2 and len(view["failures"]) == 1
    ends = [segment["end"] for segment in view["segments"]]
    assert [segment["start"] for segment in view["segments"]] == [0, *ends[:-1]] and ends[-1] == 24
    events = [json.loads(line) for line in project.marin("log", "--json").stdout.splitlines()]
    starts = [
        event["body"]["first_step"]
        for event in events
        if event["type"] == "train.started/v1" and event["body"]["run"] == resumed["run"]
    ]
    assert len(starts) == 2 and starts[0] == 0 and starts[1] in ends, "it went on from the last recorded state"


@pytest.mark.determinism
def test_killed_it_loses_at_most_the_steps_since_the_last_training_checkpoint(project: Project, straight: str) -> None:
    edit(project, trainer={"num_steps": 24, "steps_per_segment": 4})
    status, _ = stopped(project, signal.SIGKILL, "--devices", "8")
    assert status == -signal.SIGKILL
    resumed = train(project)
    assert resumed["digest"] == straight
    events = [json.loads(line) for line in project.marin("log", "--json").stdout.splitlines()]
    mine = [event for event in events if event["body"].get("run") == resumed["run"]]
    recorded = [e["body"]["end"] for e in mine if e["type"] == "train.segment/v1"]
    starts = [e["body"]["first_step"] for e in mine if e["type"] == "train.started/v1"]
    assert starts[0] == 0 and starts[1] >= 4 and starts[1] in recorded
    assert sorted(recorded) == [4, 8, 12, 16, 20, 24], "no recorded step was executed again"


@pytest.mark.determinism
def test_marin_train_pauses_and_goes_on_with_other_devices(project: Project) -> None:
    small = (
        "model=nano",
        "trainer=smoke",
        "dataset.train_bytes=60000",
        "dataset.validation_bytes=8000",
        "seed=5",
        "dataset.minimal_pairs=10",
        "tokenizer.vocab_size=512",
        "evaluation.max_sequences=16",
        "evaluation.minimal_pairs=5",
    )
    paused = project.marin("train", *small, "--devices", "8", "--pause-at", "3")
    assert paused.returncode == 0, paused.stderr
    assert "training is paused: before train step 3" in paused.stdout and "it goes on from here" in paused.stdout
    events = [json.loads(line) for line in project.marin("log", "--json").stdout.splitlines()]
    ended = [event["body"] for event in events if event["type"] == "graph.completed/v1"][-1]
    assert ended["outcome"] == "interrupted" and ended["counts"]["paused"] == 1 and ended["failed"] == []
    done = project.marin("train", *small, "--devices", "2", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout.splitlines()[-1])["run"]
    view = json.loads(project.marin("show", run, "--json").stdout)
    assert [(segment["start"], segment["end"]) for segment in view["segments"]] == [(0, 2), (2, 3), (3, 4)]
    assert project.marin("verify", run, "--devices", "1", "--only", "training").returncode == 0


@pytest.mark.long
def test_numbers_that_end_stop_it_with_the_state_saved(project: Project) -> None:
    """Decoupled decay by 100 times the rate multiplies every weight by -99 at each step."""
    edit(
        project,
        trainer={"num_steps": 40, "steps_per_segment": 40},
        optimizer={"learning_rate": 10.0, "weight_decay": 10.0, "warmup_steps": 0, "schedule": "constant"},
    )
    done = project.marin("stage", "train")
    assert done.returncode == 1, done.stderr
    (message,) = [line for line in done.stderr.splitlines() if "loss or gradient is not finite" in line][-1:]
    assert "train step" in message and "sequences [" in message and "found loss" in message
    artifact = message.partition("marin store get ")[2].split()[0]
    got = project.marin("store", "get", artifact, str(project.folder / "state"))
    assert got.returncode == 0, got.stderr
    assert list((project.folder / "state").iterdir())
    view = json.loads(project.marin("show", "latest", "--json").stdout)
    (segment,) = view["segments"]
    assert f"train step {segment['end']} " in message, "what led there is recorded, up to the step before"
    assert view["status"] == "failed"


def test_what_a_step_saw(project: Project) -> None:
    done = project.marin("show", "latest", "--step", "4", "--data", "--json")
    assert done.returncode == 0, done.stderr
    batch = json.loads(done.stdout)
    assert batch["digest"] == batch["recorded"]
    assert len(batch["sequences"]) == 8 and all(len(s["tokens"]) == 32 for s in batch["sequences"])
    corpus = json.loads(project.marin("show", "latest", "--json").stdout)["steps"]["corpus"]["output"]["artifact"]
    project.marin("store", "get", corpus, str(project.folder / "corpus"))
    texts = [json.loads(line)["text"] for line in (project.folder / "corpus" / "train.jsonl").read_text().splitlines()]
    for sequence in batch["sequences"]:
        first, last = sequence["documents"]
        joined = "<|endoftext|>".join(texts[first : last + 1]) + "<|endoftext|>"
        assert sequence["text"] in joined
    wrong = project.marin("show", "latest", "--step", "6", "--data")
    assert wrong.returncode == 2 and "no such train step" in wrong.stderr and "from 0 to 5" in wrong.stderr


def test_a_seed_is_drawn_once(project: Project) -> None:
    edit(project, seed=None)
    for stage in ("corpus", "tokenizer"):
        done = project.marin("stage", stage)
        assert done.returncode == 0, done.stderr
    seeds = {json.loads(project.marin("show", "latest", "--recipe").stdout)["seed"]}
    events = [json.loads(line) for line in project.marin("log", "--json").stdout.splitlines()]
    drawn = [event["body"]["seed"] for event in events if event["type"] == "seed.drawn/v1"]
    assert len(drawn) == 1 and seeds == set(drawn) and int(drawn[0]) < 2**63
