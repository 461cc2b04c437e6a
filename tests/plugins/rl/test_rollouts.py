"""Completions of a small model under profile exact: drawn with a cache, looked at in one pass, learned from: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from marin.errors import DataError
from marin.plugins.exact.causal import head_logits, hidden_states
from marin.plugins.exact.compiled import exact
from marin.plugins.rl.drawing import Drawing
from marin.plugins.rl.loss import completion_losses
from marin.plugins.rl.policy import drawn_tokens, policy_logits, token_logprobs
from marin.plugins.rl.record import UpdateRecord, read_record
from marin.plugins.rl.rollouts import DrawnRollouts
from marin.recipe.schema import Recipe
from marin.training.initial import initial_state
from marin.training.loop import step_of
from marin.training.state import named_key
from marin.training.step.contract import Step, mesh_of
from marin.training.step.slices import SlicedState
from tests.plugins.rl.conftest import VOCABULARY, recipe_with

pytestmark = pytest.mark.long(together="rollouts", seconds=30)


@dataclass(frozen=True)
class Policy:
    """A state with all that draws by it; ``record``: of its first update."""

    recipe: Recipe
    step: Step
    state: SlicedState
    drawn: DrawnRollouts
    record: UpdateRecord

    @property
    def arrays(self) -> Any:
        return self.step.layout.whole_params([jnp.asarray(np.asarray(x)) for x in self.state.params[0]])

    def model(self, arrays: Any) -> Any:
        return eqx.combine(arrays, self.step.layout.static)


def policy_of(recipe: Recipe, vocabulary: Path) -> Policy:
    first = initial_state(recipe, VOCABULARY)
    step = step_of(recipe, mesh_of(1), first)
    state = step.place(first)
    drawn = DrawnRollouts(recipe, step, VOCABULARY, vocabulary)
    record = read_record(drawn.draw(state, 0).record)
    assert record is not None
    return Policy(recipe, step, state, drawn, record)


@pytest.fixture(scope="module")
def policy(vocabulary: Path) -> Policy:
    return policy_of(recipe_with(objective={"beta": 0.05, "top_p": 0.95}), vocabulary)


def sequences(policy: Policy) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], str, str]]:
    """Prompt and completion of each sequence, the name of its draws, and the bits of its log-probabilities."""
    each = policy.recipe.objective.num_generations  # type: ignore[union-attr]
    for place, one in enumerate(policy.record.completions):
        prompt = policy.record.prompts[place // each]
        yield prompt.tokens, one.tokens, f"completion {place % each} of prompt {prompt.number}", one.logprobs


def test_every_token_is_drawn_from_the_tokens_before_it_alone(policy: Policy) -> None:
    """No cache, no neighbours, no padding: a program for the prefix by itself, of its own length, draws the same token, and
    gives it the log-probability that is recorded of the whole."""
    objective = policy.recipe.objective
    assert objective is not None

    def alone(arrays: Any, ids: jax.Array, key: jax.Array, after: jax.Array) -> Any:
        logits = policy_logits(objective, policy.model(arrays), hidden_states(policy.model(arrays), ids)[:, -1:])
        positions = jnp.full((1, 1), ids.shape[1] - 1, jnp.int32)
        return drawn_tokens(objective, logits, key, positions)[0, 0], token_logprobs(logits, after)[0, 0]

    looked = 0
    for prompt, new, name, bits in sequences(policy):
        for at in {0, len(new) - 1}:
            ids = np.asarray([[*prompt, *new[:at]]], np.int32)
            key, after = np.asarray(named_key(3, name))[None], np.asarray([[new[at]]], np.int32)
            token, logprob = exact(alone, policy.arrays, ids, key, after).jitted()(policy.arrays, ids, key, after)
            assert int(token) == new[at]
            assert np.asarray(logprob, "<f4").tobytes().hex() == bits[8 * at : 8 * at + 8]
            looked += 1
        if looked >= 4:
            break


def test_what_somebody_says_was_drawn_takes_one_pass_and_is_never_believed(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = policy.record.encode()
    drawn: list[object] = []
    once = Drawing.proposed
    monkeypatch.setattr(Drawing, "proposed", lambda *given: drawn.append(1) or once(*given))
    assert policy.drawn.draw(policy.state, 0, right).record == right and not drawn
    first = policy.record.completions[0]
    for tokens in ((*first.tokens[:-1], (first.tokens[-1] + 1) % VOCABULARY), first.tokens[:-1], (*first.tokens, 5)):
        other = msgspec.structs.replace(first, tokens=tokens, reward="0x1.0000000000000p+9")
        said = msgspec.structs.replace(policy.record, completions=(other, *policy.record.completions[1:]))
        assert policy.drawn.draw(policy.state, 0, said.encode()).record == right
    assert len(drawn) >= 3
    better = msgspec.structs.replace(first, reward="0x1.0000000000000p+9", advantage="0x1.0000000000000p+9")
    said = msgspec.structs.replace(policy.record, completions=(better, *policy.record.completions[1:]))
    assert policy.drawn.draw(policy.state, 0, said.encode()).record == right, "tokens are looked at, and nothing else"


def test_learning_sees_the_log_probabilities_with_which_it_was_drawn(policy: Policy) -> None:
    """The bits of the differentiated program's log-probabilities are those that are recorded."""
    objective, rollout = policy.recipe.objective, policy.drawn.draw(policy.state, 0)
    assert objective is not None

    def learned(arrays: Any, tokens: jax.Array, numbers: jax.Array) -> Any:
        def loss(arrays: Any) -> Any:
            model = policy.model(arrays)
            logits = policy_logits(objective, model, hidden_states(model, tokens))
            seen = token_logprobs(logits, jnp.roll(tokens, -1, axis=1))
            return completion_losses(policy.recipe, model, tokens, numbers), seen

        return jax.value_and_grad(loss, has_aux=True)(arrays)

    given = policy.arrays, rollout.tokens, rollout.numbers
    (_, seen), _ = exact(learned, *given).jitted()(*given)
    length = rollout.tokens.shape[1]
    counts, old = rollout.numbers[:, :length] > 0, rollout.numbers[:, 2 * length : 3 * length]
    assert counts.sum() == sum(len(one.tokens) for one in policy.record.completions)
    assert np.asarray(seen)[counts].tobytes() == old[counts].tobytes()


def test_the_model_is_levanters(policy: Policy) -> None:
    """The same function in real numbers: beside Levanter's own pass the logits differ by roundings."""
    import haliax as hax
    from haliax import Axis
    from levanter.layers.attention import AttentionMask

    ids = policy.drawn.draw(policy.state, 0).tokens
    model = policy.model(policy.arrays)
    own = np.asarray(head_logits(model, hidden_states(model, jnp.asarray(ids))))
    Batch, Pos = Axis("batch", ids.shape[0]), Axis("position", ids.shape[1])
    theirs = model(hax.named(jnp.asarray(ids), (Batch, Pos)), AttentionMask.causal())
    assert np.allclose(own, theirs.rearrange((Batch, Pos, model.Vocab)).array, atol=1e-5)


def test_another_update_is_other_prompts_and_draws_and_devices_decide_nothing(policy: Policy) -> None:
    second = read_record(policy.drawn.draw(policy.state, 1).record)
    assert second is not None
    assert [one.number for one in (*policy.record.prompts, *second.prompts)] == [0, 1, 2, 3]
    assert {one.tokens for one in second.completions}.isdisjoint(one.tokens for one in policy.record.completions)


def test_a_reward_that_is_no_number_is_refused(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy.drawn, "_reward", lambda *given: float("nan"))
    with pytest.raises(DataError, match="a reward that is not a number"):
        policy.drawn.draw(policy.state, 0)


def test_an_update_without_variance_is_said_where_it_is_drawn(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy.drawn, "_reward", lambda *given: 1.0)
    record = policy.drawn.draw(policy.state, 1).record
    assert "update 1: no completion has another reward than those beside it" in caplog.text
    found = read_record(record)
    assert found is not None and {float.fromhex(one.advantage) for one in found.completions} == {0.0}
    caplog.clear()
    assert policy.drawn.draw(policy.state, 1, record).record == record and not caplog.text, "a judge has nothing to say"


def test_prompts_whose_completions_have_one_reward_are_counted_once_a_segment(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "marin")
    monkeypatch.setattr(policy.drawn, "_equal", [])
    every = policy.recipe.trainer.steps_per_segment // policy.drawn.objective.num_iterations
    rewards = iter([*[0.1] * 3, 0.2, *[0.1] * (every * 8 - 4)])  # of one prompt two rewards, of all others one
    monkeypatch.setattr(policy.drawn, "_reward", lambda *given: next(rewards))
    for update in range(every):
        assert "of all" not in caplog.text, "a segment has not ended"
        policy.drawn.draw(policy.state, update)
    said = f"updates 0 to {every - 1}: of {2 * every - 1} of {2 * every} prompts all completions have one reward"
    assert said in caplog.text
    assert "update 0:" not in caplog.text, "one prompt of it teaches something"


def test_a_prompt_that_leaves_no_room_is_refused_before_anything(policy: Policy, vocabulary: Path) -> None:
    recipe = recipe_with(objective={"max_completion_length": 22})
    with pytest.raises(DataError, match="leaves no room"):
        DrawnRollouts(recipe, policy.step, VOCABULARY, vocabulary)
