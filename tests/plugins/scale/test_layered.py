"""The step layer by layer computes what the step by shards does, to rounding; its own bits are in tests/determinism."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import haliax as hax
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from haliax import Axis
from hypothesis import given
from hypothesis import strategies as st
from levanter.layers.attention import AttentionBackend, AttentionMask, dot_product_attention

from marin.errors import UsageError
from marin.plugins.scale.attention import splash
from marin.plugins.scale.layered import LayeredStep, gatherings, halves, passes
from marin.recipe.cost import work_of
from marin.recipe.schema import Recipe, check
from marin.training.initial import initial_state
from marin.training.loop import step_of
from marin.training.model import compute_dtype
from marin.training.state import arrays_of, state_like
from marin.training.step.contract import mesh_of, mesh_over


def by_layer(recipe: Recipe, **fields: Any) -> Recipe:
    arithmetic = msgspec.structs.replace(recipe.arithmetic, gather="layer", **fields)
    return msgspec.structs.replace(recipe, arithmetic=arithmetic)


def stepped(worker: ModuleType, recipe: Recipe, case: Any) -> tuple[Any, dict[str, np.ndarray]]:
    first = initial_state(recipe, worker.VOCABULARY)
    step = step_of(recipe, mesh_of(1), first)
    tokens, weights = worker.batch_of(case, 0)
    state, outcome = step.run(step.place(first), step.batch(tokens), step.batch(weights))
    return outcome, arrays_of(step.collect(state))


@pytest.mark.long
@pytest.mark.parametrize(
    ("fields", "over"),
    [
        ({"architecture": "llama", "tied": True}, {"loss_block": 16, "loss_vocabulary": 24}),
        ({"architecture": "gpt2"}, {}),
        ({"architecture": "qwen3"}, {}),
    ],
    ids=["llama, tied, loss in blocks", "gpt2", "qwen3"],
)
def test_it_computes_what_the_step_by_shards_does(
    worker: ModuleType, fields: dict[str, Any], over: dict[str, int]
) -> None:
    case = worker.Case(name="layers", shards=2, batch=8, microbatch=2, length=8, **fields)
    recipe = worker.recipe_of(case)
    recipe = msgspec.structs.replace(recipe, trainer=msgspec.structs.replace(recipe.trainer, z_loss=1e-3))
    outcome, after = stepped(worker, recipe, case)
    layered, found = stepped(worker, by_layer(recipe, **over), case)
    np.testing.assert_allclose(layered.loss, outcome.loss, rtol=1e-6)
    np.testing.assert_allclose(layered.grad_norm, outcome.grad_norm, rtol=1e-5)
    for name, value in after.items():
        if "/nu/" in name or "/mu/" in name:
            np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-7, err_msg=name)


@pytest.mark.long
def test_no_more_lies_on_a_device_than_is_said(worker: ModuleType) -> None:
    """Arrays that are there when a program of the backward pass is called, its own arguments aside. A vocabulary so large that
    nothing else hides the gradient of tied weights."""
    case = worker.Case(name="lying", shards=2, batch=4, microbatch=2, length=8, layers=1, tied=True)
    recipe = by_layer(worker.recipe_of(case))

    def live() -> int:
        return sum(x.nbytes for x in jax.live_arrays() if not x.is_deleted())

    gc.collect()
    before = live()
    first = initial_state(recipe, 4096)
    step: Any = step_of(recipe, mesh_of(1), first)
    state = step.place(first)
    del first
    memory, found = step.memory, {}
    said = memory.state + memory.gradient + memory.between

    def watched(name: str, program: Any) -> Any:
        def called(*given: Any) -> Any:
            own = sum(x.nbytes for x in jax.tree.leaves(given)) - memory.lying.get(name, 0)
            found[name] = max(found.get(name, 0), live() - before - own)
            return program(*given)

        return called

    step.programs = {name: watched(name, program) for name, program in step.programs.items()}
    tokens, weights = worker.batch_of(case, 0)
    step.run(state, step.batch(tokens), step.batch(weights))
    backward = {"layer_back", "gather_layer", "leave_layer", "first_back", "leave_first"}
    assert {name: lying for name, lying in found.items() if name in backward and lying > said} == {}
    assert max(found[name] for name in backward) > 0.9 * said


GIVEN_UP = """
import sys
sys.path.insert(0, sys.argv[1])
import jax, msgspec
import worker
from marin.training.initial import initial_slices
from marin.training.loop import step_of
from marin.training.state import state_like
from marin.training.step.contract import mesh_of

recipe = worker.recipe_of(worker.Case("given up", shards=4, batch=4, microbatch=1, length=8, layers=1))
recipe = msgspec.structs.replace(recipe, arithmetic=msgspec.structs.replace(recipe.arithmetic, gather="layer"))
step = step_of(recipe, mesh_of(2), state_like(recipe, worker.VOCABULARY))
first = initial_slices(recipe, worker.VOCABULARY, step.layout, step.by_slice)
rows = [shard.data for x in jax.tree.leaves((first.params, first.moments)) for shard in x.addressable_shards]
batch = [step.batch(x) for x in worker.batch_of(worker.Case("given up", batch=4, length=8), 0)]
step.run(first, *batch)
print(len(rows))
print(sum(row.is_deleted() for row in rows))
"""


@pytest.mark.determinism
def test_the_state_before_a_step_is_given_up(on_two_devices: Callable[[str], list[float]]) -> None:
    """On the device for which nothing is compiled too, whose slices are brought to the other."""
    rows, gone = on_two_devices(GIVEN_UP)
    assert gone == rows > 0


class NotCompiled(LayeredStep):
    def _compiled(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    "fields",
    [
        {"shards": 1, "batch": 2, "microbatch": 2},
        {"shards": 8, "batch": 16, "microbatch": 1, "tied": True},
        {"shards": 4, "batch": 4, "microbatch": 1, "architecture": "gpt2", "compute_dtype": "bfloat16"},
    ],
)
def test_a_dry_run_counts_what_lies_on_a_device(worker: ModuleType, fields: dict[str, Any]) -> None:
    """And a layer, or the head, besides."""
    recipe = by_layer(worker.recipe_of(worker.Case(name="counted", hidden=64, length=16, **fields)), loss_block=8)
    memory = NotCompiled(recipe, mesh_of(1), state_like(recipe, recipe.vocabulary)).memory
    head = recipe.vocabulary * 64 * compute_dtype(recipe).itemsize
    lying = work_of("train", recipe).memory_bytes - 2 * head - 2 * 8 * recipe.vocabulary * 4
    assert lying == pytest.approx(memory.state + memory.gradient + memory.between, rel=1e-3)


@given(levels=st.integers(0, 5), devices=st.integers(0, 5), seed=st.integers(0, 99))
def test_passes_and_devices_fold_along_one_tree(levels: int, devices: int, seed: int) -> None:
    """Blocks on any number of devices: first between devices, then the device's own, depth first."""
    count = 2**levels
    on = 2 ** min(levels, devices)
    blocks = np.random.default_rng(seed).random(count, np.float32) * 10.0 ** np.arange(count, dtype=np.float32) % 97
    expected = halves(blocks)
    own = count // on
    pending: list[tuple[int, Any]] = []
    for number in passes(own):
        part = halves(blocks[number::own])  # block number of every device
        level = 0
        while pending and pending[-1][0] == level:
            part = pending.pop()[1] + part
            level += 1
        pending.append((level, part))
    ((_, folded),) = pending
    assert np.asarray(folded).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.table
@pytest.mark.parametrize("segments", [False, True])
def test_the_splash_kernel_attends_as_plain_attention_does(segments: bool) -> None:
    """Interpreted, for there is no TPU here; gradients too."""
    axes = [
        Axis("batch", 1),
        Axis("kv_head", 2),
        Axis("q_heads_per_group", 2),
        Axis("position", 128),
        Axis("head_size", 8),
    ]
    B, K, _, Pos, D = axes
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    query = hax.named(jax.random.normal(keys[0], [axis.size for axis in axes]), axes)
    theirs = (B, K, Pos.alias("key_position"), D)
    key, value = (hax.named(jax.random.normal(k, [axis.size for axis in theirs]), theirs) for k in keys[1:])
    mask = AttentionMask.causal()
    if segments:
        mask = mask.with_segment_ids(hax.named(jnp.arange(128)[None] // 50, (B, Pos)))

    def attended(backend: AttentionBackend, query: Any, key: Any, value: Any) -> Any:
        found = dot_product_attention(
            "position", "key_position", "head_size", query, key, value, mask, attn_backend=backend
        )
        return found.rearrange(axes).array

    def weighed(backend: AttentionBackend) -> Any:
        return jax.grad(lambda *given: jnp.sum(jnp.sin(attended(backend, *given))), argnums=(0, 1, 2))

    plain = attended(AttentionBackend.VANILLA, query, key, value)
    with splash(128, interpret=True):
        np.testing.assert_allclose(attended(AttentionBackend.SPLASH, query, key, value), plain, atol=2e-5)
        found = weighed(AttentionBackend.SPLASH)(query, key, value)
    for ours, expected in zip(found, weighed(AttentionBackend.VANILLA)(query, key, value), strict=True):
        np.testing.assert_allclose(ours.rearrange(expected.axes).array, expected.array, atol=5e-5)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"attention": "splash", "attention_block": 128}, "arithmetic.attention"),
        ({"loss_block": 8}, "arithmetic.loss_block"),
        ({"matmul_precision": "default"}, "arithmetic.matmul_precision"),
        ({"gather": "layer", "attention_block": 128}, "arithmetic.attention_block"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(fields: dict[str, Any], name: str) -> None:
    recipe = Recipe()
    recipe = msgspec.structs.replace(recipe, arithmetic=msgspec.structs.replace(recipe.arithmetic, **fields))
    with pytest.raises(UsageError, match=f"do not go together: here: {name}"):
        check(recipe, where="here")


def test_a_cut_into_more_devices_than_shards_is_refused(worker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = by_layer(worker.recipe_of(worker.Case(name="cut", shards=2, batch=8)))

    class Three:
        def __init__(self) -> None:
            self.shape, self.devices = {"data": 3}, np.zeros(3)

    with pytest.raises(UsageError, match="logical shards do not divide over the devices"):
        LayeredStep(recipe, Three(), None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Chip:
    """A device that knows its place in a torus, as a TPU's does."""

    coords: tuple[int, ...]
    core_on_chip: int = 0


@pytest.mark.parametrize("sides", [(4, 4, 8), (2, 2, 2), (16, 16, 1), (2, 4, 1), (1, 1, 1), (2, 1, 4)])
def test_gathered_along_at_most_two_axes_at_once_rows_come_in_the_order_of_the_mesh(sides: tuple[int, ...]) -> None:
    chips = [Chip(place) for place in itertools.product(*map(range, sides))]
    shuffled = list(np.random.default_rng(3).permutation(len(chips)))
    mesh = mesh_over([chips[number] for number in shuffled])
    devices = list(mesh.devices)
    rows = {number: [number] for number in range(len(devices))}
    for groups in gatherings(devices):
        for group in groups or [range(len(devices))]:
            axes = zip(*(devices[number].coords for number in group), strict=True)
            assert sum(len(set(along)) > 1 for along in axes) <= 2, "three axes are a sum over zeros"
            rows |= {number: [row for member in group for row in rows[member]] for number in group}
    assert all(row == list(range(len(devices))) for row in rows.values())


def test_devices_that_are_in_no_torus_gather_at_once_in_the_order_that_they_come_in() -> None:
    assert list(mesh_over(jax.devices()).devices) == jax.devices()
    assert gatherings(jax.devices()) == [None]
    assert gatherings([Chip((0, 0, 0)), Chip((0, 0, 1)), Chip((0, 1, 0)), Chip((1, 0, 0))]) == [None], "no whole torus"
