"""Under exact the processor decides nothing: strangers on emulated processors verify a run that was trained here, and
each finds the copies of it in which one bit of a weight, a moment or a token is another. So does the reference, without a
compiler.

The emulators and an ARM system are fetched (processors.py); where they cannot be had the test is skipped, and says why.
An emulated verification takes minutes, most of them compiling: what a processor compiled is kept, so that the test can be
stopped and begun again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import judges
import processors
import pytest

from marin.process.arithmetic import settings
from marin.recipe.schema import Execution
from marin.verify.diagnosis import PROFILES

pytestmark = pytest.mark.determinism
HERE = Path(__file__).parent
RECIPE = {
    "seed": 3,
    "dataset": {"kind": "grammar", "train_bytes": 60_000, "validation_bytes": 10_000, "minimal_pairs": 8},
    "tokenizer": {"vocab_size": 400},
    "model": {
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 2,
        "seq_len": 16,
    },
    "optimizer": {"warmup_steps": 2},
    "trainer": {"num_steps": 3, "batch_size": 4, "steps_per_segment": 1},
    "evaluation": {"max_sequences": 8, "batch_size": 8, "minimal_pairs": 8},
}
MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
STEP = "1"
CHANGED = ("weight", "moment", "token")


@dataclass(frozen=True)
class Ran:
    """A run in ``folder``/honest, its key there, and copies of it with one bit changed: what -> root, tensor."""

    folder: Path
    run: str
    vkey: str
    roots: dict[str, str]
    tensors: dict[str, str]
    environment: dict[str, str]


def lines(command: Sequence[str], environment: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """What a program says in JSON, a line each."""
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Trained on two devices, which an emulated processor does not have."""
    folder = tmp_path_factory.mktemp("exact")
    project = folder / "honest"
    project.mkdir()
    environment = processors.environment(folder / "own", os.environ) | {"MARIN_KEY": str(folder / "operator.key")}
    (project / "params.json").write_text(json.dumps(RECIPE))
    command = [sys.executable, "-c", MARIN]
    (made,) = lines([*command, "init", "--json"], environment, project)
    options = ["--config-json", "params.json", "profile=exact", "arithmetic.microbatch_size=4", "--devices", "2"]
    lines([*command, "-q", "train", "--json", *options], environment, project)
    environment |= settings(PROFILES["exact"], Execution())
    forged = lines([sys.executable, str(HERE / "forged.py"), "make", str(folder), STEP], environment, folder)
    roots, tensors = ({one["what"]: one[field] for one in forged} for field in ("root", "tensor"))
    assert tuple(roots) == ("nothing", *CHANGED)
    return Ran(folder, forged[0]["run"], made["vkey"], roots, tensors, environment)


@pytest.mark.parametrize("name", processors.NAMES)
def test_a_stranger_on_another_processor_verifies_the_run_and_finds_every_changed_bit(
    ran: Ran, name: str, tmp_path: Path
) -> None:
    try:
        python = processors.interpreter(name)
    except judges.Absent as reason:
        pytest.skip(str(reason))
    command = [str(python), str(HERE / "stranger.py"), ran.run, "1:2", ran.vkey, *ran.roots.values()]
    environment = processors.environment(tmp_path, compiled=processors.compiled(name))
    doctor, known, honest, *forged = lines(command, environment, tmp_path)
    assert doctor["machine"] == ("aarch64" if name == processors.ARM else "x86_64")
    assert doctor["said"]["profiles"]["exact"] == {"supported": True, "reasons": []}
    assert known == {"float64": [], "int8": [], "bfloat16": []}
    assert doctor["said"]["profiles"]["portable-cpu"]["supported"] or name == processors.ARM
    assert honest["said"]["verdicts"]["training"] == "PARTIAL", (
        honest
    )  # one of three segments, executed with the same bits
    assert [one["said"]["verdicts"]["training"] for one in forged] == ["FAIL"] * len(CHANGED)
    for one, what in zip(forged, CHANGED, strict=True):
        assert one["status"] == 1
        assert one["said"]["first_divergence"]["step"] == 1
        assert ran.tensors[what] in ("", *one["said"]["first_divergence"]["tensors"])


def test_the_reference_gives_the_recorded_step_and_finds_every_changed_bit(ran: Ran) -> None:
    judged = lines(
        [sys.executable, str(HERE / "forged.py"), "judge", str(ran.folder), STEP], ran.environment, ran.folder
    )
    differing = {one["root"]: one["differs"] for one in judged}
    assert differing[ran.roots["nothing"]] == []
    assert differing[ran.roots["weight"]] == [ran.tensors["weight"]]
    assert differing[ran.roots["moment"]] == [ran.tensors["moment"]]
    assert {f"loss {STEP}", ran.tensors["weight"], ran.tensors["moment"]} <= set(differing[ran.roots["token"]])


def test_here_too_on_one_device(ran: Ran, tmp_path: Path) -> None:
    """The same question on one device of this processor."""
    command = [sys.executable, str(HERE / "stranger.py"), ran.run, "1:2", ran.vkey, *ran.roots.values()]
    _, _, honest, *forged = lines(command, processors.environment(tmp_path), tmp_path)
    outcomes = [one["said"]["verdicts"]["training"] for one in (honest, *forged)]
    assert outcomes == ["PARTIAL", "FAIL", "FAIL", "FAIL"]
