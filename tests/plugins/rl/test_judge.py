"""A recorded state as judge: what it gives is asked of the same numbers in other ways, and another judge is noticed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from ledger import NotFound, Store, Tampered
from marin.errors import DataError
from marin.plugins.exact.causal import hidden_states
from marin.plugins.exact.compiled import exact
from marin.plugins.rl.policy import policy_logits, token_logprobs
from marin.plugins.rl.record import UpdateRecord, first_difference, read_record
from marin.plugins.rl.rollouts import DrawnRollouts
from marin.recipe.objective import Judge
from marin.recipe.schema import Recipe
from marin.training.checkpoints.saving import Saved, Saver
from tests.ledger.memory import MemoryStorage
from tests.plugins.rl.conftest import VOCABULARY
from tests.plugins.rl.test_samplers import Drawing, drawing

__all__ = ["drawing"]
pytestmark = pytest.mark.long(together="samplers")


def judged(drawing: Drawing, store: Store, folder: Path, **changes: Any) -> Recipe:
    """The recipe with the state that draws as its judge."""
    found: list[Saved] = []
    with Saver(store, drawing.step.layout, folder) as saver:
        saver.save(drawing.state, found.append)
        saver.settle(wait=True)
    judge = Judge(state=found[0].manifest.digest, artifact=found[0].artifact.digest)
    assert drawing.recipe.objective is not None
    objective = msgspec.structs.replace(drawing.recipe.objective, reward="judge", judge=judge, **changes)
    return msgspec.structs.replace(drawing.recipe, objective=objective)


def rollouts(drawing: Drawing, recipe: Recipe, store: Store) -> DrawnRollouts:
    return DrawnRollouts(recipe, drawing.step, VOCABULARY, drawing.vocabulary, store)


def record_of(drawn: DrawnRollouts, drawing: Drawing) -> UpdateRecord:
    record = read_record(drawn.draw(drawing.state, 0).record)
    assert record is not None
    return record


def test_a_judge_that_drew_gives_what_it_drew_with(drawing: Drawing, tmp_path: Path) -> None:
    store = Store(MemoryStorage())
    recipe = judged(drawing, store, tmp_path / "work")
    assert recipe.objective is not None and recipe.objective.judge is not None
    assert recipe.objective.stored[recipe.objective.judge.artifact] == "the state that judges completions"
    record = record_of(rollouts(drawing, recipe, store), drawing)
    for one in record.completions:
        logprobs = np.frombuffer(bytes.fromhex(one.logprobs), "<f4").astype(np.float64).tolist()
        assert float.fromhex(one.reward) == math.fsum(logprobs) / len(logprobs)
    forged = msgspec.structs.replace(record.completions[0], reward=(0.0).hex())
    other = msgspec.structs.replace(record, completions=(forged, *record.completions[1:]))
    assert first_difference(other.encode(), record.encode()).startswith(
        "completion 0 of prompt 0, reward: recorded 0x0.0p+0"
    )
    hinted = rollouts(drawing, recipe, store).draw(drawing.state, 0, other.encode())
    assert hinted.record == record.encode(), "a judge is asked, whatever somebody says that it gave"


def test_a_verdict_is_read_after_prompt_completion_and_question(drawing: Drawing, tmp_path: Path) -> None:
    store = Store(MemoryStorage())
    recipe = judged(drawing, store, tmp_path / "work", asks="?", verdict="y")
    drawn = rollouts(drawing, recipe, store)
    record, objective = record_of(drawn, drawing), recipe.objective
    assert objective is not None
    arrays = drawing.step.layout.whole_params([jnp.asarray(np.asarray(x)) for x in drawing.state.params[0]])
    ask, (verdict,) = drawn.encode("?"), drawn.encode("y")
    stop = recipe.tokens.stops

    def alone(arrays: Any, ids: jax.Array, after: jax.Array) -> jax.Array:
        model = eqx.combine(arrays, drawing.step.layout.static)
        return token_logprobs(policy_logits(objective, model, hidden_states(model, ids)[:, -1:]), after)[0, 0]

    for place in (0, len(record.completions) - 1):
        prompt, one = record.prompts[place // objective.num_generations].tokens, record.completions[place].tokens
        bare = one[:-1] if one[-1] in stop else one
        given = arrays, np.asarray([[*prompt, *bare, *ask]], np.int32), np.asarray([[verdict]], np.int32)
        assert float(exact(alone, *given).jitted()(*given)) == float.fromhex(record.completions[place].reward)


def test_a_judge_that_is_another_or_not_there_or_has_no_room_is_refused(drawing: Drawing, tmp_path: Path) -> None:
    store = Store(MemoryStorage())
    recipe = judged(drawing, store, tmp_path / "work")
    assert recipe.objective is not None and recipe.objective.judge is not None

    def with_judge(**changes: str) -> Recipe:
        judge = msgspec.structs.replace(recipe.objective.judge, **changes)  # type: ignore[union-attr,type-var]
        return msgspec.structs.replace(recipe, objective=msgspec.structs.replace(recipe.objective, judge=judge))  # type: ignore[type-var]

    with pytest.raises(Tampered):
        rollouts(drawing, with_judge(state="sha256:" + "0" * 64), store)
    with pytest.raises(NotFound):
        rollouts(drawing, with_judge(artifact="sha256:" + "0" * 64), store)
    for changes, said in (
        ({"asks": "?" * 20, "verdict": "y"}, "no room"),
        ({"verdict": "yesyesyes"}, "longer than a completion"),
    ):
        with pytest.raises(DataError, match=said):
            rollouts(drawing, judged(drawing, store, tmp_path / said, **changes), store)
