"""Train steps before the TPU's own compiler, which needs no TPU (`make tpu`; where libtpu is, `make test` has the first)."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

import pytest

from marin.recipe.composition import compose
from marin.recipe.schema import Recipe
from marin.scale.chips import chip_of, count_of
from marin.scale.compiled import COMPUTES, LIBTPU, Forecast, differing, forecast


def installed() -> bool:
    try:
        return importlib.metadata.version("libtpu") == LIBTPU
    except importlib.metadata.PackageNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not installed(), reason=f"libtpu {LIBTPU} is not here: make tpu")


def recipe_for(model: str, topologies: Sequence[str]) -> Recipe:
    """One sequence a logical shard, one shard a chip of the largest slice."""
    shards = max(8, *map(count_of, topologies))
    kind = chip_of(topologies[0]).kind
    return compose(
        [f"model={model}", "profile=tpu", f"arithmetic.device_kind='{kind}'", f"arithmetic.logical_shards={shards}",
         f"trainer.batch_size={shards}"]
    ).recipe  # fmt: skip


def of(model: str, topologies: Sequence[str], vocabulary: int = 2048) -> list[Forecast]:
    recipe = recipe_for(model, topologies)
    return [forecast(recipe, topology, vocabulary) for topology in topologies]


def floats_moved(made: Forecast) -> list[str]:
    """Collectives of movement programs that add floats: none may, but for integers."""
    return [
        f"{one.name}: {item.kind} {item.dtype}"
        for one in made.answer.programs
        for item in one.collectives
        if item.kind in ("all-reduce", "reduce-scatter") and item.dtype not in ("u32", "s32", "pred")
    ]


def test_a_small_model_computes_by_the_same_programs_on_two_slices() -> None:
    two, four = of("nano", ("v5e:2x2", "v5e:2x4"))
    assert (two.answer.chips, four.answer.chips) == (4, 8) and two.fits and four.fits
    assert differing(two.answer, four.answer) == []
    identities = [one.identity for one in two.answer.programs if one.name in COMPUTES]
    assert len(set(identities)) == len(identities) == 4
    gradient = next(one for one in two.answer.programs if one.name == "gradient")
    assert gradient.cycles > 0 and gradient.collectives == [], "a shard's gradient is its device's alone"
    assert floats_moved(two) == floats_moved(four) == []
    assert 0 < two.utilisation < 1


@pytest.mark.tpu
@pytest.mark.parametrize("topologies", [("v5p:2x2x1", "v5p:2x2x2", "v5p:4x4x4", "v5p:4x4x8"),
                                        ("v5e:2x2", "v5e:8x8", "v5e:16x16"), ("v6e:2x2", "v6e:8x8", "v6e:16x16")],
                         ids=["v5p", "v5e", "v6e"])  # fmt: skip
@pytest.mark.parametrize(("model", "vocabulary"), [("nano", 2048), ("llama-135m", 49_152)])
def test_computing_programs_are_the_same_from_four_chips_to_a_whole_pod(
    topologies: tuple[str, ...], model: str, vocabulary: int
) -> None:
    first, *others = of(model, topologies, vocabulary)
    for other in others:
        assert differing(first.answer, other.answer) == [], other.topology
        assert floats_moved(other) == []
        assert other.fits


@pytest.mark.tpu
def test_one_chip_computes_by_other_programs_and_that_is_said() -> None:
    """Without neighbours XLA fuses otherwise; so one chip does not replay a slice's run."""
    one, four = of("nano", ("v5e:1x1", "v5e:2x2"))
    assert differing(one.answer, four.answer) == ["gradient", "update"]
