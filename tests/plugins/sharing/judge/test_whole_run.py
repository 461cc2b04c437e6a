"""The judge in node on the run under profile exact that is kept (tests/golden): it executes every train step, and finds what
only that finds, in logs whose operator signs what the operator wants."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugins.sharing.judge.golden import FORGED, GoldenFolder
from tests.plugins.sharing.judge.node import checked, evaluated, needs_node

pytestmark = needs_node
KEPT = Path(__file__).parents[3] / "golden"
OTHER = "sha256:" + "5" * 64


@pytest.fixture
def kept(tmp_path: Path) -> GoldenFolder:
    return GoldenFolder(tmp_path)


def test_every_train_step_is_executed_from_nothing(kept: GoldenFolder) -> None:
    found = kept.checked()
    assert (found.status, found.outcomes) == (0, ["PASS"] * 3), found.said
    told = found.report["execution"]
    assert told["outcome"] == "PARTIAL" and "all 4 train steps of the run were executed here" in told["lines"], told
    assert "train steps 0 to 1 executed again from the initial program" in told["lines"][0]
    executed = [one for one in found.report["claims"] if one["by"] == "execution" and one["status"] == "established"]
    assert len(executed) == 2 and all(one["claim"].startswith("train steps") for one in executed)
    named = kept.checked("1").report["execution"]["lines"]
    assert named[0].startswith("train steps 0 to 1 executed again from the initial program")


@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("archive", sorted(KEPT.glob("exact-*.tar.gz")), ids=lambda path: path.name.partition(".")[0])
def test_a_run_of_another_form_is_executed_from_nothing(archive: Path, tmp_path: Path) -> None:
    """A mixture that Muon moved; a GPT-2; answers of conversations."""
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    folder = tmp_path / "exact"
    found = checked(folder, (folder / "vkey").read_text().strip(), execute="all")
    assert (found.status, found.outcomes) == (0, ["PASS"] * 3), found.said
    assert "all 4 train steps of the run were executed here" in found.report["execution"]["lines"]


def test_a_segment_whose_first_state_is_not_stored_follows_the_one_before(kept: GoldenFolder) -> None:
    kept.body("checkpoint.saved/v1", step=2).clear()
    kept.signed()
    told = kept.checked().report["execution"]["lines"]
    assert "from the state in which those before it ended here" in told[1] and told[2].startswith("all 4 train steps")
    kept.program("initial").unlink()
    told = kept.checked().report["execution"]
    assert (told["outcome"], told["lines"][0]) == (
        "not judged",
        "no segment begins with a state that is known here, so that it could be executed",
    )


def swapped(kept: GoldenFolder) -> None:
    told = json.loads(kept.hints.read_text())
    told["sequences"]["1"][:2] = reversed(told["sequences"]["1"][:2])
    kept.hints.write_text(json.dumps(told, sort_keys=True, separators=(",", ":")))


def twice(kept: GoldenFolder) -> None:
    told = json.loads(kept.hints.read_text())
    told["parameters"][1] = told["parameters"][0]
    kept.hints.write_text(json.dumps(told, sort_keys=True, separators=(",", ":")))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def program(name: str, digest: str | None = None) -> Callable[[GoldenFolder], None]:
    """The digest of another program, which is published."""
    return lambda kept: kept.functions.update({name: digest or kept.functions["update"]})


WRONG: dict[str, tuple[Callable[[GoldenFolder], None], str]] = {
    **FORGED,
    "a gradient norm": (
        lambda kept: kept.step(3, norm="0x1.7055ee0000000p-1"),
        "train step 3, executed again, has another gradient",
    ),
    "a tensor": (lambda kept: kept.step(2, tensor=True), "train step 2, executed again, has another tensor model/"),
    "the gradient of another run": (program("gradient"), "train steps 0 to 1: a program takes other values"),
    "the update of another run": (
        lambda kept: kept.functions.update(update=kept.functions["gradient"]),
        "train steps 0 to 1: a program takes other values",
    ),
    "the initial program of another run": (
        program("initial"),
        "train steps 0 to 1: the initial program gives other tensors",
    ),
    "a program that was changed": (lambda kept: flipped(kept.program("gradient")), "a program is not the recorded one"),
    "a constant that was changed": (
        lambda kept: flipped(next((kept.folder / "programs/constants").iterdir())),
        "a constant is not the one of its program",
    ),
    "a list of tensors that names one twice": (twice, "names a tensor twice"),
    "other sequences": (swapped, "train step 1: its tokens are not those of these sequences"),
}


@pytest.mark.long(seconds=2)
@pytest.mark.parametrize("name", WRONG)
def test_what_only_execution_finds(kept: GoldenFolder, name: str) -> None:
    forge, says = WRONG[name]
    forge(kept)
    kept.signed()
    found = kept.checked()
    assert found.outcomes == ["PASS"] * 3, found.said
    assert (found.status, found.report["execution"]["outcome"]) == (1, "FAIL")
    assert says in found.report["execution"]["lines"][0]
    assert not any("all 4 train steps" in line for line in found.report["execution"]["lines"])


MISSING: dict[str, tuple[Callable[[GoldenFolder], None], str]] = {
    "the list of programs": (lambda kept: kept.hints.unlink(), "are not published"),
    "a program": (lambda kept: kept.program("update").unlink(), "a program is not published"),
    "a program that nobody has": (program("gradient", OTHER), "a program is not published"),
    "constants": (
        lambda kept: shutil.rmtree(kept.folder / "programs/constants"),
        "a constant of a program is not published",
    ),
}


@pytest.mark.long(seconds=2)
@pytest.mark.parametrize("name", MISSING)
def test_what_is_not_published_is_named_and_nothing_is_said_to_be_executed(kept: GoldenFolder, name: str) -> None:
    forge, says = MISSING[name]
    forge(kept)
    kept.signed()
    found = kept.checked()
    told = found.report["execution"]
    assert (found.status, told["outcome"]) == (0, "not judged") and says in told["lines"][0], told
    assert not [one for one in found.report["claims"] if one["by"] == "execution" and one["status"] == "established"]


def test_a_run_that_learns_from_completions_is_not_executed_and_its_batches_are_stored(kept: GoldenFolder) -> None:
    started = kept.body("run.started/v1")
    started["recipe"]["objective"] = {"name": "grpo"}
    kept.signed()
    found = kept.checked()
    assert "a recipe with objective, which is not executed here" in found.report["execution"]["lines"][0]
    assert any("completions of train step 0" in line for line in found.report["verdicts"]["hash"]["lines"])


def test_a_recipe_of_no_train_steps_or_with_a_section_that_nobody_knows_is_refused(kept: GoldenFolder) -> None:
    kept.body("run.started/v1")["recipe"]["secret"] = {}
    kept.body("run.started/v1")["recipe"]["trainer"]["num_steps"] = 0
    kept.signed()
    said = kept.checked("none").said
    assert "recipe.secret: expected a section that recipes have" in said
    assert "recipe.trainer.num_steps: expected a whole number from 1 on, found 0" in said


def test_a_program_that_asks_for_any_memory_is_not_executed() -> None:
    form = ["float32", [65536, 65536]]
    program = {
        "forms": [form],
        "inputs": [],
        "outputs": [0],
        "constants": [],
        "operations": [["iota", [], [0], {"axis": 0}, []]],
    }
    script = "async () => judge.execute(JSON.parse(given), [], new Map()).catch((error) => error.message)"
    assert "a larger tensor than this page holds: found 65536 x 65536" in evaluated(script, given=json.dumps(program))
    program |= {"forms": [["float32", []]], "constants": [[1, "c"]], "operations": [["constructor", [1], [0], {}, []]]}
    program["forms"] = [["float32", []], ["float32", []]]
    script = script.replace("new Map()", 'new Map([["c", new Float32Array(1)]])')
    assert "an operation that this page does not have: constructor" in evaluated(script, given=json.dumps(program))
