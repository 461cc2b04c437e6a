"""Train steps before the TPU's own compiler, which needs no TPU (`make tpu`; where libtpu is, `make test` has the first)."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

import pytest

from marin.plugins.scale.assumed import LEAST_SHARDS, recipe_for
from marin.plugins.scale.chips import count_of
from marin.plugins.scale.compiled import LIBTPU, Forecast, differing, forecast

NANO = ("model=nano", "model.seq_len=128")  # a sequence of one block of the splash kernel
LLAMA = 128_256
"""Tokens of Llama 3's vocabulary."""


def installed() -> bool:
    try:
        return importlib.metadata.version("libtpu") == LIBTPU
    except importlib.metadata.PackageNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not installed(), reason=f"libtpu {LIBTPU} is not here: make tpu")


def of(overrides: Sequence[str], topologies: Sequence[str], vocabulary: int = 2048) -> list[Forecast]:
    """The recipe on each slice, with one logical shard a chip of the largest. On one chip of a larger slice nothing moves, and
    programs that would take hundreds of slices at once are left out."""
    recipe, _ = recipe_for(overrides, topologies)
    chips = [count_of(topology) for topology in topologies]
    return [
        forecast(recipe, topology, vocabulary, moves=count > 1 or max(chips) <= LEAST_SHARDS)
        for topology, count in zip(topologies, chips, strict=True)
    ]


def floats_added(made: Forecast) -> list[str]:
    """Collectives that add floats: none may, for the fold adds by itself what was moved as words."""
    return [
        f"{one.name}: {item.kind} {item.dtype}"
        for one in made.answer.programs
        for item in one.collectives
        if item.kind in ("all-reduce", "reduce-scatter") and not set(item.dtype.split("+")) <= {"u32", "s32", "pred"}
    ]


def floats_moved(made: Forecast) -> list[str]:
    """Collectives of programs that move which know that their words are floats."""
    return [
        f"{one.name}: {item.kind} {item.dtype}"
        for one in made.answer.programs
        if not one.computes
        for item in one.collectives
        if any(dtype.startswith(("f", "bf")) for dtype in item.dtype.split("+"))
    ]


def test_a_small_model_computes_by_the_same_programs_on_one_chip_and_on_four() -> None:
    one, four = of(NANO, ("v5e:1x1", "v5e:2x2"))
    assert (one.answer.chips, four.answer.chips) == (1, 4) and one.fits and four.fits
    assert differing(one.answer, four.answer) == []
    computing = {made.name: made for made in four.answer.programs if made.computes}
    assert set(computing) == {"first", "layer", "last", "layer_back", "first_back", "square", "update"}
    assert len({made.identity for made in computing.values()}) == len(computing), "no two of them are the same"
    assert all(made.collectives == [] for made in computing.values()), "what computes is a device's alone"
    assert computing["layer_back"].cycles > 0 and computing["layer_back"].kernels > 0
    assert floats_moved(four) == floats_added(four) == []
    assert four.moved > 0 == one.moved
    assert 0 < four.utilisation(four.seconds) < 1


@pytest.mark.tpu
@pytest.mark.parametrize(
    "topologies",
    [
        ("v5p:1x1x1", "v5p:2x2x1", "v5p:2x2x2", "v5p:4x4x4", "v5p:4x4x8"),
        ("v5e:1x1", "v5e:2x4", "v5e:8x8", "v5e:16x16"),
        ("v6e:1x1", "v6e:2x4", "v6e:8x8", "v6e:16x16"),
    ],
    ids=["v5p", "v5e", "v6e"],
)
@pytest.mark.parametrize(
    ("overrides", "vocabulary"),
    [(NANO, 2048), (("model=llama-135m",), 49_152), (("model=llama-1b",), LLAMA), (("model=llama-8b",), LLAMA)],
    ids=["nano", "135m", "1b", "8b"],
)
def test_computing_programs_are_the_same_from_one_chip_to_a_whole_pod(
    topologies: tuple[str, ...], overrides: Sequence[str], vocabulary: int
) -> None:
    """What computes is made everywhere, a model that one chip cannot hold included: its parts fit."""
    *smaller, pod = of(overrides, topologies, vocabulary)
    assert pod.fits
    for made in (*smaller, pod):
        assert differing(pod.answer, made.answer) == [], made.topology
        assert floats_moved(made) == floats_added(made) == [], made.topology


@pytest.mark.tpu
def test_whole_parameters_on_each_chip_are_another_program_on_one_chip() -> None:
    """Why the step is layer by layer: compiled for a mesh, one without neighbours is fused otherwise."""
    by_shards = (
        "arithmetic.gather=null",
        "arithmetic.attention=null",
        "arithmetic.attention_block=null",
        "arithmetic.loss_block=null",
        "arithmetic.loss_vocabulary=null",
    )
    one, four = of((*NANO, *by_shards), ("v5e:1x1", "v5e:2x2"))
    assert differing(one.answer, four.answer) == ["gradient", "update"]


@pytest.mark.tpu
def test_what_does_not_fit_is_said_by_numbers() -> None:
    (made,) = of(("model=llama-8b",), ("v5e:2x2",), LLAMA)
    assert not made.fits
    assert made.hbm(made.largest) > made.chip.hbm
    said = "; ".join(made.cures())
    assert "more than a chip has" in said and "twice the chips" in said
