"""A dry run for TPUs: what their compiler says where it is here, and that it is not where it is not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from marin.plugins.scale import compiled, foreseen
from marin.plugins.scale.chips import chip_of
from marin.plugins.scale.question import ProgramAnswer, SlicePrograms
from marin.recipe.composition import PRICES, compose, conf_folder
from marin.recipe.cost import load_prices

Marin = Any
RECIPE = (
    "model=nano",
    "trainer=smoke",
    "profile=tpu",
    "arithmetic.device_kind=TPU v5 lite",
    "arithmetic.attention=null",
    "arithmetic.attention_block=null",
)
ASKED = ("train", *RECIPE, "--dry-run", "--device", "tpu-v5e", "--devices", "4")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A compiler that says of any slice: 3 GB lie there, the layer takes 12 GB more, and the step a second. What it was
    asked."""
    asked: list[str] = []

    def answer(recipe: Any, topology: str, vocabulary: int) -> compiled.Forecast:
        asked.append(f"{topology} {vocabulary}")
        chip = chip_of(topology)
        programs = [
            ProgramAnswer(
                name="layer", computes=True, identity="sha256:a", transient=12 * 10**9, cycles=int(chip.hertz)
            ),
            ProgramAnswer(name="square", computes=True, identity="sha256:b", transient=10**9),
        ]
        made = SlicePrograms(chip.kind, 4, 2 * 10**9, 10**9, 4 * 10**9 if "2x4" in topology else 0, programs)
        return compiled.Forecast(topology, chip, made, 1e12, by_layer=False)

    monkeypatch.setattr(compiled, "forecast", answer)
    return asked


def test_memory_by_program_and_time_are_the_compilers(judged: list[str], marin: Marin, root: Path) -> None:
    found = marin(*ASKED, "--json").json
    (train,) = [step for step in found["steps"] if step["step"] == "train"]
    assert judged == ["v5e:2x2 2048"]
    assert (train["memory_bytes"], train["fits"], train["basis"]) == (15 * 10**9, True, "compiled for v5e:2x2")
    assert train["seconds"] == pytest.approx(15.0 + 4 * 1.0)
    assert found["compiled"]["hbm_bytes"] == {"layer": 15 * 10**9, "square": 4 * 10**9}
    assert "compiled for v5e:2x2" in marin(*ASKED).out and "it fits" in marin(*ASKED).out


def test_what_does_not_fit_is_said_with_what_would(judged: list[str], marin: Marin, root: Path) -> None:
    said = marin(*ASKED[:-1], "8")
    assert "does not fit: layer needs 2.1 GB more" in said.out and "half of arithmetic.microbatch_size" in said.out
    assert "not everything fits" in said.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--devices", "512", "arithmetic.logical_shards=512", "trainer.batch_size=512"), "no slice of so many chips"),
        (("--slices", "2"), "a pod of several slices"),
        (("--device", "h100"), "only the compiler of TPUs"),
        (("--device", "tpu-v5p"), "another kind of device"),
    ],
)
def test_a_slice_that_cannot_be_asked_for_is_said_and_the_rule_kept(
    more: tuple[str, str], said: str, judged: list[str], marin: Marin, root: Path
) -> None:
    shown = marin(*ASKED, *more, "--json")
    assert shown.status == 0 and said in shown.json["compiled"]["why_not"] and judged == []
    assert all(step["basis"] != "compiled" for step in shown.json["steps"])
    assert "by rule, not by the device's compiler" in marin(*ASKED, *more).out


def test_without_the_compiler_it_says_so(marin: Marin, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise compiled.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(compiled.importlib.metadata, "version", version)
    shown = marin(*ASKED)
    assert shown.status == 0 and "libtpu" in shown.out and "by rule" in shown.out


def test_recipes_of_processors_are_not_asked_about(judged: list[str]) -> None:
    prices = load_prices(conf_folder() / PRICES)
    recipe = compose(["model=nano", "trainer=smoke"]).recipe
    assert foreseen.foreseen([], recipe, prices, "tpu-v5e", 4) == ([], None, "")
    assert judged == []


@pytest.mark.tpu
def test_a_small_model_before_the_compiler_itself(marin: Marin, root: Path) -> None:
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed")
    found = marin(*ASKED, "--json").json["compiled"]
    assert found["fits"] and found["topology"] == "v5e:2x2" and 0 < found["hbm_bytes"]["layer_back"] < 10**9
