"""What is said is what full passes say, one for each token, whatever is proposed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import jax.random as jrandom
import msgspec
import numpy as np
import pytest
from haliax import Axis
from levanter.adaptor.lora import LoraConfig, loraize
from levanter.models.lm_model import LmHeadModel

from marin.evaluation.noise import gumbel
from marin.evaluation.scoring import (
    AT_ONCE,
    SHORTEST_ALONE,
    Continuation,
    Drafts,
    Prompt,
    Scorer,
    has_causal_pass,
    lengths,
    request_name,
    window,
)
from marin.plugins.drafts.forward import FAR, greatest_logit
from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import Model, Recipe
from marin.training.model import model_config
from marin.training.runtime.profile import exact_profile

VOCAB = 31
Architecture = Literal["llama", "gpt2", "qwen3", "mixtral", "qwen3_moe"]


def recipe_of(architecture: Architecture = "llama", packing: Literal["isolated"] | None = None) -> Recipe:
    more: dict[str, Any] = {}
    if architecture in ("mixtral", "qwen3_moe"):
        more = {"num_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.01}
    if architecture == "mixtral":
        more["router_z_loss_coef"] = 0.001
    heads = 2 if architecture == "gpt2" else 1
    model = Model(
        architecture=architecture,
        hidden_dim=16,
        intermediate_dim=32,
        num_layers=2,
        num_heads=2,
        num_kv_heads=heads,
        seq_len=48,
        **more,
    )
    recipe = Recipe(model=model)
    return msgspec.structs.replace(recipe, trainer=msgspec.structs.replace(recipe.trainer, packing=packing))


def model_of(recipe: Recipe, seed: int = 1) -> LmHeadModel:
    """One that is sure of something: its parameters are three times as great as those of a beginning."""
    model = model_config(recipe.model).build(Axis("vocab", VOCAB), key=jrandom.PRNGKey(seed))
    return jax.tree.map(lambda x: 3 * x if eqx.is_inexact_array(x) else x, model)


def never(tokens: tuple[int, ...]) -> bool:
    return False


def prompts_of(count: int, temperature: float, limit: int = 60) -> list[Prompt]:
    """Of several lengths; the first of one token, the third of a whole context."""
    draw = np.random.default_rng(4)
    sizes = [1, 9, 48, *draw.integers(1, 40, count)][:count]
    texts = [tuple(int(t) for t in draw.integers(1, VOCAB, size)) for size in sizes]
    return [Prompt(text, limit, never, temperature, request_name(text, n)) for n, text in enumerate(texts)]


class Passes:
    """Token by token, as every release before proposals did: the whole sequence, in the program for its length, and of its
    logits those of the last token."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self._following = scorer, jax.jit(self.following)

    def following(self, arrays: Any, ids: jax.Array, at: jax.Array, key: jax.Array, heat: jax.Array) -> jax.Array:
        logits = jax.lax.dynamic_index_in_dim(self.scorer.logits(arrays, ids)[0], at[0], keepdims=False)
        noise = jrandom.gumbel(jrandom.fold_in(key[0], at[0]), logits.shape)
        warm = logits / jnp.where(heat[0] > 0, heat[0], 1.0) + jnp.where(heat[0] > 0, noise, 0.0)
        return jnp.argmax(warm).astype(jnp.int32)[None]

    def said(self, prompt: Prompt, seed: int) -> tuple[int, ...]:
        scorer, one = self.scorer, self.scorer.begin(prompt, seed)
        while prompt.limit > 0 and not (one.new and scorer.ended(one)):
            length = next(n for n in lengths(scorer.seq_len, SHORTEST_ALONE) if n >= len(one.tokens))
            ids = np.zeros((1, length), np.int32)
            ids[0, : len(one.tokens)] = one.tokens
            at, heat = np.asarray([len(one.tokens) - 1], np.int32), np.asarray([prompt.temperature], np.float32)
            one.tokens.append(int(self._following(scorer.arrays, ids, at, one.key[None], heat)[0]))
        return one.new


@dataclass
class Proposed:
    """Proposals of somebody's own, and how many passes there were."""

    says: Callable[[Continuation], tuple[int, ...]]
    passes: list[int] = field(default_factory=list)

    def propose(self, active: Sequence[Continuation], ahead: int) -> list[tuple[int, ...]]:
        self.passes.append(len(active))
        return [self.says(one) for one in active]

    def holding(self, model: LmHeadModel) -> Drafts:
        return self


def drafting(model: LmHeadModel, recipe: Recipe) -> Scorer:
    scorer = Scorer(model, recipe)
    assert scorer.drafts is not None
    scorer.drafts.worth = 0  # type: ignore[attr-defined]
    return scorer


def without(scorer: Scorer) -> Scorer:
    """The same programs, and nothing that proposes."""
    other = scorer.holding(eqx.combine(scorer.arrays, scorer.static))
    other.drafts = None
    return other


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    recipe = recipe_of()
    return drafting(model_of(recipe), recipe)


@pytest.mark.long(seconds=15)
@pytest.mark.table
@pytest.mark.parametrize("packing", [None, "isolated"])
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3", "mixtral", "qwen3_moe"])
def test_proposed_tokens_are_those_of_full_passes(
    architecture: Architecture, packing: Literal["isolated"] | None
) -> None:
    recipe = recipe_of(architecture, packing)
    scorer = drafting(model_of(recipe), recipe)
    passes = Passes(scorer)
    for temperature in (0.0, 0.8):
        prompts = prompts_of(6, temperature)
        expected = [passes.said(prompt, 3) for prompt in prompts]
        assert scorer.generate(prompts, 3) == expected and max(map(len, expected)) > 20
        assert scorer.generate(prompts[:3], 3) == expected[:3] and scorer.generate(prompts[1:2], 3) == expected[1:2]


def test_nearly_every_proposal_is_what_is_said(scorer: Scorer) -> None:
    """So a text takes as many passes as there are programs for its lengths."""
    passes, inner = [], scorer.next_program
    scorer.next_program = lambda *given: passes.append(given[1].shape) or inner(*given)  # type: ignore[func-returns-value]
    (new,) = scorer.generate([Prompt((5,), 60, lambda new: False, 2.0, "long")], 1)
    scorer.next_program = inner
    assert len(passes) == len(lengths(48, SHORTEST_ALONE)) and len(new) > 40


def exact_recipe(
    architecture: Architecture = "llama", packing: Literal["isolated"] | None = None, **changes: Any
) -> Recipe:
    return msgspec.structs.replace(
        recipe_of(architecture, packing), arithmetic=msgspec.structs.replace(EXACT, **changes)
    )


@pytest.mark.parametrize("architecture", ["llama", pytest.param("qwen3", marks=pytest.mark.long(seconds=30))])
def test_under_exact_tokens_are_those_of_a_program_for_what_is_before_them(architecture: Architecture) -> None:
    """No cache, no padding, nothing behind, and Gumbel noise of jax itself: the same tokens, in few passes."""
    recipe = exact_recipe(architecture)
    scorer, passes = drafting(model_of(recipe), recipe), []
    inner = scorer.next_program
    scorer.next_program = lambda *given: passes.append(given[1].shape) or inner(*given)  # type: ignore[func-returns-value]
    prompts = [Prompt((5, 7, 2), 9, never, heat, "one") for heat in (0.0, 2.0)]
    news = [scorer.generate([prompt], 3)[0] for prompt in prompts]
    assert len(passes) < sum(map(len, news)) / 2
    assert [scorer.generate([replace(one, said=new)], 3)[0] for one, new in zip(prompts, news, strict=True)] == news
    assert scorer.generate(prompts, 3) == news and without(scorer).generate(prompts, 3) == news

    def alone(arrays: Any, ids: jax.Array, place: jax.Array) -> jax.Array:
        return exact_profile().causal_logits(eqx.combine(arrays, scorer.static), ids, place)

    shapes = np.zeros((1, 11), np.int32), np.zeros((1, 1), np.int32)
    program = exact_profile().fixed(alone, scorer.arrays, *shapes, recipe=recipe).jitted()
    for prompt, new in zip(prompts, news, strict=True):
        ids = np.asarray([[*prompt.tokens, *new[:8]]], np.int32)
        logits = np.asarray(program(scorer.arrays, ids, np.asarray([[10]], np.int32)))[0, 0]
        if prompt.temperature:
            key = jrandom.fold_in(scorer.begin(prompt, 3).key, 10)
            logits = logits / np.float32(prompt.temperature) + np.asarray(jrandom.gumbel(key, logits.shape))
        assert int(np.argmax(logits)) == new[8]


@pytest.mark.parametrize(
    ("recipe", "causal"),
    [
        (exact_recipe(), True),
        (exact_recipe("qwen3"), True),
        (exact_recipe("gpt2"), False),
        (exact_recipe("mixtral"), False),
        (exact_recipe(packing="isolated"), False),
        (exact_recipe(factor_bits=8, factor_rounding="stochastic"), False),
        (recipe_of(), False),
    ],
)
def test_which_recipes_have_a_causal_pass(recipe: Recipe, causal: bool) -> None:
    assert has_causal_pass(recipe) is causal


def test_where_no_pass_is_causal_under_exact_nothing_is_behind_the_tokens_that_are_said() -> None:
    """There a later position decides how values are rounded. So it was for every model before there was a causal pass."""
    recipe = exact_recipe()
    scorer, passes = Scorer(model_of(recipe), recipe).one_by_one(), []
    isolated = exact_recipe(packing="isolated")
    assert Scorer(model_of(isolated), isolated).drafts is None

    def five(arrays: Any, ids: jax.Array, at: jax.Array, key: jax.Array, heat: jax.Array) -> Any:
        passes.append((int(np.count_nonzero(np.asarray(ids))), at.tolist()))
        return np.full(at.shape, 5, np.int32), np.ones(at.shape, np.float32)

    scorer.next_program = five
    said = (5,) * 6
    assert scorer.drafts is None and scorer.generate([Prompt((3, 4), 6, never, said=said)]) == [said]
    assert passes == [(known, [[known - 1]]) for known in range(2, 8)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "says",
    [
        lambda one: (),
        lambda one: (1,) * 100,
        lambda one: tuple(range(7)),
        lambda one: (-5, VOCAB + 9),
        lambda one: (one.tokens[-1],) * 5,
    ],
)
def test_whatever_is_proposed_the_tokens_are_the_same(
    says: Callable[[Continuation], tuple[int, ...]], temperature: float, scorer: Scorer
) -> None:
    prompts = prompts_of(4, temperature, limit=20)
    other = without(scorer)
    other.drafts = Proposed(says)
    assert other.generate(prompts, 3) == scorer.generate(prompts, 3)


def test_what_somebody_says_is_looked_at_in_one_pass_for_each_program_and_never_believed(scorer: Scorer) -> None:
    other = without(scorer)
    passes, inner = [], other.next_program
    other.next_program = lambda *given: passes.append(given[1].shape) or inner(*given)  # type: ignore[func-returns-value]
    prompt = Prompt((5,), 60, never, 2.0, "long")
    (new,) = scorer.generate([prompt], 1)
    changed = (*new[:30], (new[30] + 1) % VOCAB, *new[31:])
    for said, most in (
        (new, 3),
        ((*new, 1, 2), 3),
        (changed, len(new)),
        ((10**30,), len(new)),
        ((*new[:5], -1), len(new)),
    ):
        passes.clear()
        assert other.generate([replace(prompt, said=said)], 1) == [new]
        assert len(passes) <= most, said


def test_a_proposal_that_is_no_number_poisons_nothing() -> None:
    """The weight of a later position is 0, and 0 times NaN is NaN: such a pass is made again without proposals."""
    recipe = recipe_of()
    model = model_of(recipe)
    embedded = model.embeddings.token_embeddings.weight  # type: ignore[attr-defined]
    poisoned = eqx.tree_at(
        lambda one: one.embeddings.token_embeddings.weight.array, model, embedded.array.at[7].set(np.nan)
    )
    scorer = Scorer(poisoned, recipe)
    scorer.drafts = Proposed(lambda one: (3, 7, 3))
    passes = Passes(scorer)
    for prompt in prompts_of(2, 0.0, limit=8):
        assert scorer.generate([prompt], 3) == [passes.said(prompt, 3)]


def made_so(model: LmHeadModel) -> LmHeadModel:
    """One that says which of the tokens 1 to 6 has the most weight, and whose logits of attention are all about -1e12."""

    def parameters(one: Any) -> list[Any]:
        layers = one.transformer.layers.stacked
        attention = layers.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, layers.mlp.down_proj)
        weights = (one.embeddings.token_embeddings.weight, one.lm_head.weight, *(part.weight for part in parts))
        return [weight.array for weight in weights]

    arrays = [np.zeros(array.shape, np.float32) for array in parameters(model)]
    embedded, head, queries, keys, values, out, _ = arrays
    embedded[:, 0], queries[..., 3, 0], keys[..., 3, 0] = 4.0, 1e6, -1e6
    for one in range(1, 7):
        embedded[one, one] = head[one, one] = values[..., one, one] = 1.0
        out[:, one, :, one] = 1000.0
    return eqx.tree_at(parameters, model, [jnp.asarray(array) for array in arrays])


@pytest.mark.parametrize("recipe", [recipe_of(), pytest.param(exact_recipe(), marks=pytest.mark.long(seconds=20))])
def test_a_model_that_was_made_so_does_not_read_what_it_is_claimed_to_say(recipe: Recipe) -> None:
    """A state may be anyone's. Where all that may be seen has less than Levanter's -1e9, the rest would be seen."""
    scorer = Scorer(made_so(model_of(recipe)), recipe)
    scorer.drafts = None
    (new,) = scorer.generate([Prompt((5, 6, 4), 6, never)])
    for claim in ((3,) * 6, (2,) * 6):
        assert claim != new and scorer.generate([Prompt((5, 6, 4), 6, never, said=claim)]) == [new]
    assert scorer.many is (recipe.arithmetic.profile == "exact")


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3"])
def test_no_query_and_key_of_levanters_own_layers_reach_beyond_the_bound(kind: Architecture) -> None:
    """Levanter's modules on states of any size, with weights, scales and biases drawn anew."""
    model, draw = model_of(recipe_of(kind)), np.random.default_rng(7)
    model = jax.tree.map(lambda x: x + 5 * draw.normal(size=x.shape) if eqx.is_inexact_array(x) else x, model)
    stacked = model.transformer.blocks if kind == "gpt2" else model.transformer.layers
    states = hax.named(
        jnp.asarray(draw.normal(size=(500, 16)) * 100.0 ** draw.normal(size=(500, 1))), ("many", "embed")
    )
    reached = 0.0
    for layer in stacked.unstacked():
        if kind == "gpt2":
            joined = layer.attn.c_attn(layer.ln_1(states))
            queries, keys = joined["qkv", 0], joined["qkv", 1]
        else:
            attention, read = layer.self_attn, layer.input_layernorm(states)
            queries, keys = attention.q_proj(read), attention.k_proj(read)
            if kind == "qwen3":
                queries, keys = attention.q_norm(queries), attention.k_norm(keys)
        longest = [float(hax.max(hax.sum(one * one, "head_size"))) ** 0.5 for one in (queries, keys)]
        reached = max(reached, longest[0] * longest[1] / 8**0.5)
    assert 0 < reached <= greatest_logit(model) < 1e4 * reached


def test_of_layers_that_something_else_makes_nothing_is_known() -> None:
    """Adapters, say: what they add is not in the weights."""
    config = LoraConfig(target_modules=["q_proj"], r=2)
    adapted = loraize(model_of(recipe_of()), config, jrandom.PRNGKey(0))
    assert greatest_logit(adapted) == math.inf and greatest_logit(model_of(recipe_of())) < FAR


def test_no_model_that_was_trained_is_near_that() -> None:
    assert all(greatest_logit(model_of(recipe_of(kind))) < FAR / 1e2 for kind in ("llama", "gpt2", "qwen3"))
    recipe = recipe_of()
    scorer = Scorer(model_of(recipe), recipe)
    other = scorer.holding(made_so(model_of(recipe)))
    assert scorer.many and not other.many and other.drafts is None


def test_sequences_come_and_go(scorer: Scorer) -> None:
    """More than the cache has rows for, which end at other times, by a stop or by their number."""
    prompts = prompts_of(AT_ONCE + 7, 0.8)
    stopped = [
        Prompt(one.tokens, 3 * n, lambda new, n=n: len(new) > n, 0.8, one.name)  # type: ignore[misc]
        for n, one in enumerate(prompts)
    ]
    together = scorer.generate(stopped, 5)
    assert together == without(scorer).generate(stopped, 5)
    assert [len(new) for new in together] != sorted({len(new) for new in together})


def test_another_state_is_drafted_by_its_own_parameters(scorer: Scorer) -> None:
    other = model_of(recipe_of(), seed=2)
    held = scorer.holding(other)
    prompts = prompts_of(4, 0.8)
    assert held.generate(prompts, 3) == without(held).generate(prompts, 3) != scorer.generate(prompts, 3)


def test_few_tokens_of_a_small_model_are_not_worth_a_compilation() -> None:
    recipe = recipe_of()
    scorer = Scorer(model_of(recipe), recipe)
    scorer.generate([Prompt((5, 6), 4, never)])
    assert scorer.drafts is not None and scorer.drafts.parts is None  # type: ignore[attr-defined]


def test_a_pass_decides_the_places_that_no_shorter_program_has() -> None:
    assert [(length, window(length, 128)) for length in lengths(128, SHORTEST_ALONE)] == [
        (16, 16),
        (32, 16),
        (48, 16),
        (64, 16),
        (96, 32),
        (128, 32),
    ]
    assert window(1024, 1024) == 32


@pytest.mark.parametrize("together", [False, True], ids=["operation by operation", "as one program"])
def test_the_noise_has_the_bits_of_jaxs(together: bool) -> None:
    keys = np.random.default_rng(6).integers(0, 2**32, (8, 2), dtype=np.uint32)
    places = np.asarray([0, 1, 2, 3, 5, 127, 1 << 20, 2**31 - 1], np.int32)
    expected = [jrandom.gumbel(jrandom.fold_in(key, place), (999,)) for key, place in zip(keys, places, strict=True)]
    made = jax.jit(gumbel, static_argnums=2) if together else gumbel
    assert np.asarray(made(keys, places, 999)).tobytes() == np.stack(expected).tobytes()
