"""MLPerf on a real run: its log without jax, and gradient accumulation, which has the bits of the whole batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from marin.record.events import TRAIN_SEGMENT, TRAIN_STARTED

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

LOG = """
import json, sys
from marin.plugins.mlperf.benchmark import GRAMMAR_LM, Submission
from marin.plugins.mlperf.lines import lines
from marin.plugins.mlperf.seeding import seeding
from marin.history.runs import load, resolve
from marin.record.root import open_root
root = open_root()
history = root.history()
run = load(history, resolve(history, "latest"))
log = lines(history, run, GRAMMAR_LM, Submission(), seeding(history, run), origin=root.verifier.name)
print(json.dumps([[line.key, line.value, line.metadata] for line in log]))
print(json.dumps("jax" in sys.modules))
"""


def recorded(project: Project, kind: str) -> list[dict[str, Any]]:
    """The bodies of all events of a type."""
    said = project.marin("log", "--type", kind, "--json")
    assert said.returncode == 0, said.stderr
    return [json.loads(line)["body"] for line in said.stdout.splitlines()]


@pytest.mark.long
def test_gradient_accumulation_has_the_bits_of_the_whole_batch(project: Project) -> None:
    """A batch of eight: on eight devices at once, and on one device a sequence at a time, summed up before the update."""
    again = project.marin("stage", "train", "--force")
    assert again.returncode == 0, again.stderr
    assert [body["devices"] for body in recorded(project, TRAIN_STARTED)] == [8, 1]
    *at_once, one, two = [body | {"run": ""} for body in recorded(project, TRAIN_SEGMENT)]
    assert [len(body["fingerprints"]) for body in at_once] == [3, 3]
    assert [one, two] == at_once, "losses, batches, fingerprints after every step, and all states"


def logged(project: Project) -> list[tuple[str, object, dict[str, object]]]:
    """Keys, values and metadata of the run's log, made in a process without jax."""
    lines, jax = map(json.loads, project.python(LOG).stdout.splitlines())
    assert jax is False
    return [(key, value, metadata) for key, value, metadata in lines]


def test_a_real_run_is_logged_whole(trained: Project) -> None:
    log = logged(trained)
    keys = [key for key, _, _ in log]
    values = {key: value for key, value, _ in log}
    assert (values["global_batch_size"], values["gradient_accumulation_steps"]) == (8, 1), "on eight devices"
    assert keys[:2] == ["cache_clear", "init_start"] and keys[-1] == "run_stop"
    assert [(value, metadata["source"]) for key, value, metadata in log if key == "seed"] == [(3, "recipe")]
    counts = [metadata["samples_count"] for key, _, metadata in log if key == "tracked_stats"]
    assert counts == [24, 48], "two segments of three train steps of eight sequences"
    ((loss, place),) = [(value, metadata) for key, value, metadata in log if key == "eval_accuracy"]
    assert isinstance(loss, float) and 0 < loss < 10 and place["samples_count"] == 48
