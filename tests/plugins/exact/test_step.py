"""A train step under profile exact is what docs/exact.md says: NumPy and whole numbers give every bit of it, from the
recipe alone. Devices, processes and processors are in tests/determinism."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from jax.sharding import Mesh

from ledger import LedgerError
from marin.errors import UsageError
from marin.plugins.exact import reference
from marin.plugins.exact.stacks import axis_over
from marin.plugins.exact.step import ExactStep, gradient_of, shares_of, update_of
from marin.process.arithmetic import check_devices
from marin.recipe.form.optimizer import completed
from marin.recipe.schema import Arithmetic, Execution, Optimizer, Recipe, check, digest, from_plain, plain
from marin.training.initial import exact_initializer, initial_state
from marin.training.loop import step_of, training_mesh
from marin.training.optimizers.rule import optimizer
from marin.training.run import describe_devices
from marin.training.state import DATA, TENSOR, arrays_of, state_like
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout

EXACT = Arithmetic(profile="exact", logical_shards=1, microbatch_size=2, reduction="integer", isa="any", xla_flags=())


@pytest.fixture(scope="module")
def recipe(worker: ModuleType) -> Recipe:
    """One layer, two microbatches."""
    case = worker.Case("exact", profile="exact", hidden=16, layers=1, length=16, batch=4, steps=2)
    made: Recipe = msgspec.structs.replace(worker.recipe_of(case), arithmetic=EXACT)
    return made


def bits(values: Any) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in values]


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize(
    "changes",
    [{}, {"factor_bits": 8, "factor_rounding": "stochastic"}, {"z_loss": 1e-2}],
    ids=["15 bits", "8 bits stochastic", "z-loss"],
)
def test_the_initial_state_and_two_steps_are_those_of_the_reference(
    recipe: Recipe, worker: ModuleType, changes: dict[str, Any]
) -> None:
    trainer = msgspec.structs.replace(recipe.trainer, z_loss=changes.get("z_loss"))
    arithmetic = msgspec.structs.replace(EXACT, **{k: v for k, v in changes.items() if k != "z_loss"})
    recipe = msgspec.structs.replace(recipe, trainer=trainer, arithmetic=arithmetic)
    check(recipe, where="recipe")
    first = initial_state(recipe, worker.VOCABULARY)
    program = exact_initializer(recipe, worker.VOCABULARY).program
    assert bits(reference.run(program, [])) == bits(list(arrays_of(first).values()))
    step = step_of(recipe, mesh_of(1), first)
    assert isinstance(step, ExactStep) and step.foreign_products() == []
    layout = Layout(first, optimizer(recipe), 1)
    gradient, update = gradient_of(recipe, layout).program, update_of(recipe, layout).program
    assert (gradient.digest, update.digest) == (step.program()["gradient"], step.program()["update"])
    state, params, count = step.place(first), len(layout.params), len(layout.params) + len(layout.moments)
    own = [np.asarray(x) for x in arrays_of(first).values()][3:]
    for number in range(2):
        generator = np.random.default_rng(number)
        tokens = generator.integers(0, worker.VOCABULARY, (4, 16), dtype=np.int32)
        weights = (generator.random((4, 16)) < 0.7).astype(np.float32)
        state, outcome = step.run(state, step.batch(tokens), step.batch(weights))
        *grads, square, loss, weight = reference.run(
            gradient, [*own[:params], tokens, weights], (recipe.seed or 0, number)
        )
        flat = [x.reshape(-1) if x.ndim else x for x in own]
        given = [*flat[:params], *flat[params:], *(x.reshape(-1) for x in grads), square, loss, weight]
        *after, mean, norm = reference.run(update, given)
        assert len(after) == count
        own = [made.reshape(x.shape) for made, x in zip(after, own, strict=True)]
        assert bits([mean, norm]) == bits([outcome.loss, outcome.grad_norm])
        assert bits(own) == bits(list(arrays_of(step.collect(state)).values())[3:])


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("fields", [{}, {"architecture": "mixtral", "experts": 4}], ids=["dense", "mixture"])
def test_a_recipe_with_excluded_documents_compiles_each_program_once(
    worker: ModuleType, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    case = worker.Case("excluded", profile="exact", hidden=16, layers=1, length=16, batch=4, steps=2, **fields)
    recipe = msgspec.structs.replace(worker.recipe_of(case), arithmetic=EXACT)
    compiled: list[object] = []
    compile_ = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda self, *given: compiled.append(self) or compile_(self, *given)
    )
    recipe = msgspec.structs.replace(recipe, exclude=("a-document",))
    step = ExactStep(recipe, mesh_of(1), state_like(recipe, worker.VOCABULARY))
    assert set(step.named) == {"gradient", "blank", "update"} and len(compiled) == 3
    tokens = np.random.default_rng(3).integers(0, worker.VOCABULARY, (4, 16), dtype=np.int32)
    weights = np.ones((4, 16), np.float32)

    first = initial_state(recipe, worker.VOCABULARY)

    def stepped(*, blank: bool) -> list[bytes]:
        state, outcome = step.run(step.place(first), step.batch(tokens), step.batch(weights), blank=blank)
        assert outcome.finite
        return bits([outcome.loss, *arrays_of(step.collect(state)).values()])

    whole = stepped(blank=False)
    assert stepped(blank=True) == whole, "no position of it is blank"
    tokens[0, :4] = -1
    assert stepped(blank=True) != whole


def one_step(recipe: Recipe, vocabulary: int) -> list[bytes]:
    """Loss, norm and state after a train step, compiled; each is the reference's."""
    first = initial_state(recipe, vocabulary)
    step = step_of(recipe, mesh_of(1), first)
    assert isinstance(step, ExactStep) and step.foreign_products() == []
    generator = np.random.default_rng(3)
    shape = (recipe.trainer.batch_size, recipe.model.seq_len)
    tokens = generator.integers(0, vocabulary, shape, dtype=np.int32)
    weights = (generator.random(shape) < 0.7).astype(np.float32)
    state, outcome = step.run(step.place(first), step.batch(tokens), step.batch(weights))
    layout = Layout(first, optimizer(recipe), 1)
    gradient, update = gradient_of(recipe, layout).program, update_of(recipe, layout).program
    own, params = [np.asarray(x) for x in arrays_of(first).values()][3:], len(layout.params)
    *grads, square, loss, weight = reference.run(gradient, [*own[:params], tokens, weights])
    flat = [x.reshape(-1) if x.ndim else x for x in own]
    *after, mean, norm = reference.run(update, [*flat, *(x.reshape(-1) for x in grads), square, loss, weight])
    found = bits([outcome.loss, outcome.grad_norm, *list(arrays_of(step.collect(state)).values())[3:]])
    assert found == bits([mean, norm, *(made.reshape(x.shape) for made, x in zip(after, own, strict=True))])
    return found


@pytest.mark.determinism
@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": True},
        {"num_heads": 2, "num_kv_heads": 1},
        {"architecture": "gpt2", "intermediate_dim": 64, "tie_word_embeddings": True},
        {"architecture": "qwen3", "num_heads": 2, "num_kv_heads": 1, "rope_theta": 1e6},
        {"rope": "llama3", "rope_factor": 32.0},
        {"architecture": "mistral", "num_heads": 2, "num_kv_heads": 1},
        {"architecture": "olmo2", "num_heads": 2, "num_kv_heads": 1},
    ],
    ids=["tied", "grouped heads", "gpt2", "qwen3", "llama 3", "mistral", "olmo2"],
)
def test_other_shapes_of_models_are_those_of_the_reference_too(
    recipe: Recipe, worker: ModuleType, changes: dict[str, Any]
) -> None:
    one_step(msgspec.structs.replace(recipe, model=msgspec.structs.replace(recipe.model, **changes)), worker.VOCABULARY)


@pytest.mark.determinism
def test_documents_that_do_not_see_each_other_are_those_of_the_reference_too(
    recipe: Recipe, worker: ModuleType
) -> None:
    trainer = msgspec.structs.replace(recipe.trainer, packing="isolated")
    isolated = msgspec.structs.replace(recipe, trainer=trainer)
    assert one_step(isolated, 4) != one_step(recipe, 4), "of four tokens one is the end of a document"


@pytest.mark.determinism
def test_lion_is_that_of_the_reference_and_computing_again_changes_no_bit(recipe: Recipe, worker: ModuleType) -> None:
    lion = msgspec.structs.replace(recipe, optimizer=msgspec.structs.replace(recipe.optimizer, name="lion"))
    model = msgspec.structs.replace(lion.model, gradient_checkpointing=True)
    again = msgspec.structs.replace(lion, model=model)
    assert one_step(lion, worker.VOCABULARY) == one_step(again, worker.VOCABULARY)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"logical_shards": 2}, "arithmetic.logical_shards"),
        ({"compute_dtype": "bfloat16"}, "arithmetic.compute_dtype"),
        ({"xla_flags": ("--xla_cpu_enable_fast_math=true",)}, "arithmetic.xla_flags"),
        ({"reduction": "binary-tree"}, "arithmetic.reduction"),
        ({"isa": "x86-64-v3"}, "arithmetic.isa"),
        ({"device_kind": "cpu"}, "arithmetic.device_kind"),
        ({"factor_rounding": "stochastic"}, "arithmetic.factor_rounding"),
        ({"profile": "portable-cpu", "isa": "x86-64-v3"}, "arithmetic"),
        ({"profile": "portable-cpu", "isa": "x86-64-v3", "reduction": "binary-tree", "factor_bits": 8}, "arithmetic"),
    ],
)
def test_what_has_no_meaning_under_the_profile_is_refused_by_name(
    recipe: Recipe, changes: dict[str, Any], where: str
) -> None:
    check(recipe, where="recipe")
    arithmetic = msgspec.structs.replace(EXACT, **changes)
    with pytest.raises(LedgerError, match=where):
        check(msgspec.structs.replace(recipe, arithmetic=arithmetic), where="recipe")


def test_the_profile_is_part_of_the_identity_and_reads_back(recipe: Recipe) -> None:
    assert from_plain(plain(recipe), where="recipe") == recipe
    other = msgspec.structs.replace(EXACT, microbatch_size=4)
    assert digest(msgspec.structs.replace(recipe, arithmetic=other)) != digest(recipe)


def test_a_layer_is_shared_by_the_axes_that_levanter_shares(recipe: Recipe, worker: ModuleType) -> None:
    parameters = Layout(state_like(recipe, worker.VOCABULARY), optimizer(recipe), 1).named
    shares = shares_of(parameters, 2)
    assert sum(TENSOR in share for share in shares) == 4, (
        "three matrices of the inner layer, and the output of attention"
    )
    assert not any(TENSOR in share for share in shares_of(parameters, 1))
    with pytest.raises(UsageError, match=r"share them: --tensor-parallel: expected a divisor of heads \(2\), found 4"):
        shares_of(parameters, 4)


def test_devices_that_can_not_share_are_refused(recipe: Recipe) -> None:
    with pytest.raises(
        UsageError, match=r"groups that share matrices: --tensor-parallel: expected a divisor of .* \(1\)"
    ):
        training_mesh(recipe, Execution(tensor_parallel=2))
    other = msgspec.structs.replace(recipe, arithmetic=Arithmetic())
    with pytest.raises(UsageError, match="--tensor-parallel: expected profile=exact"):
        training_mesh(other, Execution(devices=2, tensor_parallel=2))


def test_how_many_devices_share_is_recorded() -> None:
    alone = np.array(jax.devices()[:1]).reshape(1, 1)
    assert describe_devices(Mesh(alone, (DATA, TENSOR)))["tensor_parallel"] == 1
    assert "tensor_parallel" not in describe_devices(mesh_of(1))


SHARED = """
import json, sys
sys.path.insert(0, sys.argv[1])
import worker
from marin.training.loop import step_of
from marin.training.state import state_like
from marin.training.step.contract import mesh_of

recipe = worker.recipe_of(worker.Case("shared", profile="exact", hidden=64, length=64, batch=2))
for devices, tensor in ((1, 1), (2, 2)):
    step = step_of(recipe, mesh_of(devices, 1, tensor), state_like(recipe, worker.VOCABULARY))
    print(json.dumps(step.named["gradient"].cost_analysis()["flops"]))
"""


@pytest.mark.determinism
def test_two_devices_that_share_the_layers_compute_half_each(on_two_devices: Callable[[str], list[float]]) -> None:
    """Both have the whole batch."""
    alone, each = on_two_devices(SHARED)
    assert each < 0.6 * alone


MOVED = """
import json, re, sys
sys.path.insert(0, sys.argv[1])
import msgspec
import worker
from marin.training.loop import step_of
from marin.training.state import state_like
from marin.training.step.contract import mesh_of

whole = worker.recipe_of(worker.Case("moved", profile="exact", hidden=64, length=64, batch=8, layers=1))
pieces = msgspec.structs.replace(whole, arithmetic=msgspec.structs.replace(whole.arithmetic, microbatch_size=2))
for recipe in (whole, pieces):
    step = step_of(recipe, mesh_of(2), state_like(recipe, worker.VOCABULARY))
    program = step.named["gradient"].as_text()
    for moved in ("(?:all-gather|all-reduce|collective-permute)", "all-to-all"):
        print(len(re.findall(f" {moved}\\\\(", program)))
"""


BY_LAYER = """
import math, re, sys
sys.path.insert(0, sys.argv[1])
import worker
from msgspec.structs import replace
from marin.plugins.exact.stacks import axis_over
from marin.training.initial import initial_state
from marin.training.loop import step_of
from marin.training.state import manifest_of
from marin.training.step.contract import mesh_of

def trained(gather):
    recipe = worker.recipe_of(case)
    recipe = replace(recipe, arithmetic=replace(recipe.arithmetic, microbatch_size=4, gather=gather))
    first = initial_state(recipe, worker.VOCABULARY)
    step = step_of(recipe, mesh_of(2), first)
    tokens, weights = worker.batch_of(case, 0)
    state, outcome = step.run(step.place(first), step.batch(tokens), step.batch(weights))
    bits = outcome.loss.tobytes() + outcome.grad_norm.tobytes() + outcome.fingerprint.tobytes()
    program = step.named["gradient"]
    stacks = [x for name, x in zip(step.layout.param_names, step.layout.params) if "/stacked/" in name and x.ndim > 2]
    whole = {x.size for x in stacks if axis_over(x.shape, 2) is not None}
    gathered = re.findall(r"= f32\\[([\\d,]+)\\]\\S* all-gather", program.as_text())
    stacks = [sizes for sizes in gathered if math.prod(map(int, sizes.split(","))) in whole]
    digest = manifest_of(step.collect(state)).digest
    return bits, digest, dict(step.program()), len(stacks), program.memory_analysis().temp_size_in_bytes

# Of a GPT-2 with heads of 9 numbers some tensors of a layer divide over two devices by no axis.
for fields in ({}, {"architecture": "mixtral", "experts": 4}, {"architecture": "gpt2", "hidden": 18}):
    sizes = {"hidden": 32, "layers": 5, "length": 16, "batch": 8, "steps": 1} | fields
    case = worker.Case("layers", profile="exact", **sizes)
    (*whole, stacks, held), (*layered, pieces, less) = trained(None), trained("layer")
    print(float(whole == layered), stacks, pieces, less / held)
"""


@pytest.mark.determinism
def test_no_device_need_have_all_layers(on_two_devices: Callable[[str], list[float]]) -> None:
    """Loss, norm, every fingerprint, the state and the programs' digests are those of a step in which each device has all; no
    stack of layers is gathered at once."""
    found = on_two_devices(BY_LAYER)
    assert len(found) == 12
    for equal, stacks, pieces, memory in zip(*(found[place::4] for place in range(4)), strict=True):
        assert equal == 1 and stacks > 0 and pieces == 0 and memory < 1


@pytest.mark.parametrize(
    ("shape", "devices", "axis"),
    [
        ((4, 8, 5), 8, 1),
        ((4, 2, 6, 8), 4, 3),
        ((4, 3, 5), 2, None),
        ((4, 3), 2, None),
        ((4, 6), 2, 1),
        ((4, 2, 3, 6), 4, None),
    ],
)
def test_a_layer_lies_by_whole_rows_of_its_slices_or_by_its_last_axis(
    shape: tuple[int, ...], devices: int, axis: int | None
) -> None:
    assert axis_over(shape, devices) == axis


@pytest.mark.parametrize(
    ("option", "field"), [("--tensor-parallel", "tensor_parallel"), ("--expert-parallel", "expert_parallel")]
)
def test_layers_that_lie_over_all_devices_are_not_shared_out_once_more(recipe: Recipe, option: str, field: str) -> None:
    layered = msgspec.structs.replace(recipe, arithmetic=msgspec.structs.replace(EXACT, gather="layer"))
    with pytest.raises(UsageError, match=rf"{option}: expected 1 with arithmetic\.gather=layer"):
        check_devices(layered, Execution(devices=2, **{field: 2}))


def test_an_optimizer_that_looks_across_tensors_has_them_whole(recipe: Recipe) -> None:
    muon = msgspec.structs.replace(recipe, optimizer=completed(Optimizer(name="muon")))
    check(muon, where="recipe")
    with pytest.raises(UsageError, match=r"arithmetic\.gather: expected .* muon looks across whole tensors"):
        check(msgspec.structs.replace(muon, arithmetic=msgspec.structs.replace(EXACT, gather="layer")), where="recipe")


@pytest.mark.determinism
def test_devices_share_each_microbatch(on_two_devices: Callable[[str], list[float]]) -> None:
    """Not rows of matrices: GSPMD would do that with a batch that is cut before it is split, and move far more often. What is
    exchanged all to all, once, are the tokens and the loss mask."""
    whole, whole_all_to_all, pieces, pieces_all_to_all = on_two_devices(MOVED)
    assert 0 < pieces <= whole
    assert whole_all_to_all == 0 and pieces_all_to_all <= 2
