"""What a sequence scores depends on its tokens and the state: not on its neighbours, their number or the devices."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
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
from levanter.models.lm_model import LmHeadModel

from marin.errors import UsageError
from marin.evaluation.scoring import SHORTEST_ALONE, Prompt, Row, Scorer, lengths, request_name, slot_of, slots
from marin.plugins.exact import reference
from marin.plugins.exact.compiled import exact
from marin.process.arithmetic import settings
from marin.process.cache import compilation_cache
from marin.recipe.schema import Arithmetic, Execution, Model, Recipe
from marin.training.model import attention_mask, model_config
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.runtime.products import foreign_products
from marin.training.state import named_key

VOCAB = 31


def recipe_of(architecture: Literal["llama", "gpt2", "qwen3"] = "llama", seq_len: int = 48) -> Recipe:
    return Recipe(
        model=Model(
            architecture=architecture,
            hidden_dim=16,
            intermediate_dim=32,
            num_layers=1,
            num_heads=2,
            num_kv_heads=2,
            seq_len=seq_len,
        )
    )


def model_of(recipe: Recipe) -> LmHeadModel:
    return model_config(recipe.model).build(Axis("vocab", VOCAB), key=jrandom.PRNGKey(1))


RECIPE = recipe_of()


@pytest.fixture(scope="module")
def model() -> LmHeadModel:
    return model_of(RECIPE)


@pytest.fixture(scope="module")
def scorer(model: LmHeadModel) -> Scorer:
    return Scorer(model, RECIPE, ahead=1)


def rows_of(count: int, seq_len: int = 48) -> list[Row]:
    numbers = np.random.default_rng(5)
    sizes = numbers.integers(2, seq_len + 2, count)
    sizes[0] = seq_len + 1  # the context is full, and its last token is predicted too
    rows = [tuple(int(t) for t in numbers.integers(0, VOCAB, size)) for size in sizes]
    return [Row(tokens, int(numbers.integers(1, len(tokens)))) for tokens in rows]


def never(tokens: tuple[int, ...]) -> bool:
    return False


def prompts_of(temperature: float) -> list[Prompt]:
    begun = [(0,), (3, 4), (3, 4), tuple(range(30)), (7,) * 47]
    return [
        Prompt(tokens, 6, never, temperature, request_name(tokens, begun[:place].count(tokens)))
        for place, tokens in enumerate(begun)
    ]


def table_of(model: LmHeadModel, recipe: Recipe, row: Row) -> np.ndarray:
    """Log-softmax in float64 of the logits of the unpadded sequence: (position, token that may follow)."""
    ids = hax.named(np.asarray([row.tokens[:-1]], np.int32), (Axis("batch", 1), Axis("position", len(row.tokens) - 1)))
    logits = np.asarray(model(ids, attention_mask(recipe, ids)).array[0], np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    table: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return table


def by_hand(model: LmHeadModel, recipe: Recipe, row: Row) -> list[float]:
    """Of each scored token."""
    table = table_of(model, recipe, row)
    return [float(table[at, row.tokens[at + 1]]) for at in range(len(row.tokens) - 1)][-row.scored :]


@pytest.mark.table
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3"])
def test_a_score_is_the_log_softmax_of_the_unpadded_sequence(architecture: Literal["llama", "gpt2", "qwen3"]) -> None:
    recipe = recipe_of(architecture)
    model = model_of(recipe)
    rows = rows_of(4)
    for row, scored in zip(rows, Scorer(model, recipe).score(rows), strict=True):
        expected = by_hand(model, recipe, row)
        assert scored.logprobs == pytest.approx(expected, abs=2e-5)
        assert scored.total == math.fsum(scored.logprobs)


def test_neighbours_their_number_and_their_order_change_no_bit(model: LmHeadModel, scorer: Scorer) -> None:
    rows = rows_of(12)
    alone = [scorer.score([row])[0] for row in rows]
    for ahead in (1, 2, 7, 16):
        assert replace_ahead(scorer, ahead).score(rows) == alone
    order = [int(place) for place in np.random.default_rng(2).permutation(len(rows))]
    assert scorer.score([rows[place] for place in order]) == [alone[place] for place in order]


def test_sequences_that_share_a_program_cannot_meet(model: LmHeadModel) -> None:
    """A neighbour of nothing but NaN poisons whatever touches it."""
    embeddings = model.embeddings.token_embeddings.weight  # type: ignore[attr-defined]
    poison = eqx.tree_at(
        lambda one: one.embeddings.token_embeddings.weight.array, model, embeddings.array.at[7].set(np.nan)
    )
    program = Scorer(poison, RECIPE)
    draw, count = np.random.default_rng(8), slots(32)
    ids = draw.integers(8, VOCAB, (count, 32)).astype(np.int32)
    targets = draw.integers(8, VOCAB, (count, 32)).astype(np.int32)
    scored = jax.jit(program.scored_rows)
    clean, _ = scored(program.arrays, ids, targets)
    assert count == 16 and np.isfinite(clean).all()
    for slot in range(count):
        among = np.full_like(ids, 7)
        among[slot] = ids[slot]
        found, _ = scored(program.arrays, among, targets)
        assert np.asarray(found)[slot].tobytes() == np.asarray(clean)[slot].tobytes()
        assert np.isnan(np.delete(np.asarray(found), slot, 0)).all()


class Asked(Scorer):
    """One that keeps what it found: whether all slots of a length give the same bits."""

    @cached_property
    def answers(self) -> dict[int, bool]:
        """By length."""
        return {}

    def alike(self, program: Callable[..., Any], length: int) -> bool:
        return self.answers.setdefault(length, super().alike(program, length))


class Odd(Asked):
    """One whose every slot adds its own number."""

    def scored_rows(self, arrays: Any, ids: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        logprobs, greedy = super().scored_rows(arrays, ids, targets)
        return logprobs + jnp.arange(len(logprobs), dtype=jnp.float32)[:, None], greedy


def test_slots_that_are_not_alike_are_given_by_tokens(model: LmHeadModel) -> None:
    """A compiler that rounds every slot in its own way: who lies beside a sequence still changes nothing."""
    honest, scorer = Asked(model, RECIPE), Odd(model, RECIPE)
    of_each_length = [Row(tuple(8 + n % 16 for n in range(length + 1)), 1) for length in lengths(RECIPE.model.seq_len)]
    for one, alike in ((honest, True), (scorer, False)):
        one.score(of_each_length)
        assert one.answers == dict.fromkeys(lengths(RECIPE.model.seq_len), alike)
    rows = rows_of(20)
    alone = [scorer.score([row])[0] for row in rows]
    assert scorer.score(rows) == alone and scorer.score(rows[::-1]) == alone[::-1]
    assert (
        len({round(one.logprobs[0] - other.logprobs[0]) for one, other in zip(alone, honest.score(rows), strict=True)})
        > 3
    )


def test_where_a_sequence_lies_follows_from_its_tokens() -> None:
    assert [slots(length) for length in (8, 16, 24, 96, 128, 512, 4096)] == [64, 32, 21, 5, 4, 1, 1]
    places = [slot_of((1, token), 8) for token in range(200)]
    assert places == [slot_of([1, token], 8) for token in range(200)]
    assert np.bincount(places, minlength=8).min() > 10, "every slot is used"
    assert slot_of((5, 6), 1) == 0


def replace_ahead(scorer: Scorer, ahead: int) -> Scorer:
    """The same programs with another number of sequences on their way."""
    other = copy.copy(scorer)
    other.ahead = ahead
    return other


def test_what_is_greedy_is_what_greedy_generation_gives(scorer: Scorer) -> None:
    (new,) = scorer.generate([Prompt((5, 6, 7), 6, never)])
    other = (*new[:-1], (new[-1] + 1) % VOCAB)
    followed, left = scorer.score([Row((5, 6, 7, *new), len(new)), Row((5, 6, 7, *other), len(new))])
    assert followed.greedy and not left.greedy


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_continuation_is_its_own_whatever_else_is_asked(temperature: float, scorer: Scorer) -> None:
    prompts = prompts_of(temperature)
    together = scorer.generate(prompts, seed=3)
    assert scorer.generate(prompts[::-1], seed=3)[::-1] == together
    assert [scorer.generate([prompt], seed=3)[0] for prompt in prompts] == together
    assert len(together[-1]) <= 2, "the context has room for two: one is predicted from the full context"
    if temperature:
        assert together[1] != together[2], "equal requests of one evaluation draw each for itself"
        assert scorer.generate(prompts, seed=4) != together


def test_draws_have_the_chances_of_the_softmax(scorer: Scorer) -> None:
    drawn = scorer.generate([Prompt((5, 6), 1, never, 1.0, f"draw {n}") for n in range(300)])
    logprobs = [scorer.score([Row((5, 6, token), 1)])[0].logprobs[0] for token in range(VOCAB)]
    expected = 300 * np.exp(logprobs)
    seen = np.bincount([new[0] for new in drawn], minlength=VOCAB)
    assert float(((seen - expected) ** 2 / expected).sum()) < 70, "chi squared, 30 degrees of freedom: p < 1e-4 beyond"


def test_generation_ends_by_limit_stop_and_end_of_text(scorer: Scorer) -> None:
    (free,) = scorer.generate([Prompt((5, 6), 8, never)])
    (stopped,) = scorer.generate([Prompt((5, 6), 8, lambda tokens: len(tokens) == 3)])
    assert stopped == free[:3] and len(scorer.generate([Prompt((5, 6), 0, never)])[0]) == 0
    many = scorer.generate([Prompt((5,), 40, never, 1.0, f"end {n}") for n in range(8)])
    assert all(0 not in new[:-1] for new in many) and any(new[-1] == 0 for new in many)


@pytest.mark.parametrize(
    "ask",
    [
        lambda scorer, model: scorer.score([Row(tuple(range(20)) * 3, 1)]),
        lambda scorer, model: scorer.score([Row((1,), 1)]),
        lambda scorer, model: scorer.generate([Prompt((), 1, never)]),
        lambda scorer, model: scorer.generate([Prompt((1,) * 49, 1, never)]),
        lambda scorer, model: Scorer(model, scorer.recipe, devices=64),
        lambda scorer, model: Scorer(model, scorer.recipe, ahead=0),
    ],
)
def test_what_cannot_be_scored_is_refused(
    ask: Callable[[Scorer, LmHeadModel], object], scorer: Scorer, model: LmHeadModel
) -> None:
    with pytest.raises(UsageError):
        ask(scorer, model)


@pytest.mark.long
def test_under_exact_a_score_and_a_token_are_those_of_the_reference(model: LmHeadModel) -> None:
    contract = Arithmetic(
        profile="exact", logical_shards=1, microbatch_size=8, reduction="integer", isa="any", xla_flags=()
    )
    scorer = Scorer(model, msgspec.structs.replace(RECIPE, arithmetic=contract))
    tokens, length = (3, 1, 4, 1, 5, 9), lengths(RECIPE.model.seq_len)[0]
    (found,) = scorer.score([Row(tokens, 4)])
    ((first, *_),) = scorer.generate([Prompt(tokens, 2, lambda new: False, 0.9, "name")], seed=5)
    ids, targets = np.zeros((1, length), np.int32), np.zeros((1, length), np.int32)
    ids[0, :6], targets[0, :5] = tokens, tokens[1:]
    known = [np.asarray(leaf) for leaf in jax.tree.leaves(scorer.arrays)]
    shown = ids.copy()
    shown[0, 5] = 0
    logprobs, greedy = reference.run(
        exact(scorer.scored_rows, scorer.arrays, shown, targets).program, [*known, shown, targets]
    )
    assert np.asarray(found.logprobs, np.float32).tobytes() == logprobs[0, 1:5].tobytes()
    assert found.greedy == bool(greedy[0, 1:5].all())
    said = Prompt(tokens, 2, lambda new: False, 0.9, "name", (VOCAB - 1, VOCAB - 2))
    assert scorer.generate([said], seed=5)[0][0] == first, (
        "later positions decide how values are rounded: none is looked at"
    )
    given = [ids, np.asarray([[5]], np.int32), np.asarray(named_key(5, "name"))[None], np.asarray([0.9], np.float32)]
    token, _ = reference.run(exact(scorer.next_tokens, scorer.arrays, *given).program, [*known, *given])
    assert first == int(token[0, 0])


def test_there_is_a_program_for_every_length() -> None:
    assert lengths(128) == (8, 16, 24, 32, 48, 64, 96, 128) and lengths(40) == (8, 16, 24, 32, 40)
    assert lengths(6) == (6,) and lengths(32) == (8, 16, 24, 32)
    assert lengths(128, SHORTEST_ALONE) == (16, 32, 48, 64, 96, 128)
    assert set(lengths(80, SHORTEST_ALONE)) <= set(lengths(80)), "a server makes all of them ready by the longer list"


def on_devices() -> None:
    """The same bits from one, two and four devices, under the contract; executed in a process of its own."""
    use_compilation_cache(compilation_cache())
    model = model_of(RECIPE)
    found = []
    for devices in (1, 2, 4):
        scorer = Scorer(model, RECIPE, devices=devices, ahead=5)
        scorer.drafts.worth = 0 if devices > 1 else 1 << 60  # with proposals, and without
        new = scorer.generate(prompts_of(0.0)[2:] + prompts_of(0.9)[:2], seed=3)
        found.append((scorer.score(rows_of(7)), new))
    assert found[0] == found[1] == found[2]
    scorer = Scorer(model, RECIPE)
    for length in lengths(RECIPE.model.seq_len):
        ids = np.zeros((slots(length), length), np.int32)
        compiled = jax.jit(scorer.scored_rows).lower(scorer.arrays, ids, ids).compile().as_text()
        assert compiled is not None and foreign_products(compiled) == []


@pytest.mark.long(seconds=25)
def test_the_number_of_devices_changes_no_bit() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import test_scoring; test_scoring.on_devices()"
    run = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent)],
        env={**os.environ, **settings(Arithmetic(), Execution(devices=4))},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
