"""A training that was made otherwise than it says, by somebody who holds the key and goes on from the lie truly: replay finds the
first update in which it was, and names what differs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

from ledger import MemoryStorage, Store
from marin.plugins.rl.record import hex_floats, read_record
from marin.plugins.rl.rewards import exact_match
from marin.plugins.rl.rollouts import DrawnRollouts
from marin.recipe.schema import Execution, Recipe
from marin.record.events import TrainSegment
from marin.training.loop import Steps, Training
from marin.training.run import segment_event
from marin.training.runtime import canary
from marin.training.runtime.objective import Rollout
from marin.verify.jax.replay import prepared, replay
from tests.plugins.rl.conftest import recipe_with

pytestmark = pytest.mark.long(together="forgeries", seconds=40)
Patch = pytest.MonkeyPatch
Drawn = Callable[..., Rollout]


@dataclass(frozen=True)
class Told:
    """A training as it is recorded: two segments of one update each."""

    segments: list[TrainSegment]
    store: Store


@dataclass(frozen=True)
class Runs:
    """A recipe, compiled once for all who train by it, truly or not."""

    recipe: Recipe
    folder: Path
    tokenizer: Path

    def training(self) -> Training:
        return prepared(self.recipe, self.folder, self.tokenizer, Execution())

    def trained(self, tell: Callable[[Steps], None] = lambda steps: None) -> Told:
        """What a training records; ``tell`` changes what is said of a segment."""
        store, training, segments = Store(MemoryStorage()), self.training(), []
        with closing(training):
            state, manifest = training.start()
            for start in range(0, self.recipe.trainer.num_steps, self.recipe.trainer.steps_per_segment):
                state, record = training.segment(state, manifest, start, start + self.recipe.trainer.steps_per_segment)
                tell(record.steps)
                for data in record.steps.records.values():
                    store.put_bytes(data)
                trace = store.put_bytes(record.steps.trace).digest
                segments.append(segment_event("run", record, trace))
                manifest = record.end_state
        return Told(segments, store)

    def judged(self, told: Told) -> str:
        """The first difference that replay finds; empty where there is none."""
        found = replay(
            self.recipe,
            self.folder,
            self.tokenizer,
            told.segments,
            None,
            told.store,
            Execution(),
            lambda done, what: None,
            program={},
        )
        return "" if found.divergence is None else found.divergence.describe()


@pytest.fixture(scope="module")
def runs(vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "check", lambda _: None)
        changes = {"beta": 0.1, "num_iterations": 2, "reward": "regular_expression"}
        recipe = recipe_with(objective=changes)
        patch.setattr("marin.plugins.rl.rewards.REWARDS", {})
        patch.setattr("marin.plugins.rl.rollouts.REWARDS", {"regular_expression": odd, "exact_match": exact_match})
        yield Runs(recipe, tmp_path_factory.mktemp("tokens"), vocabulary)


def odd(completion: str, answer: str) -> float:
    """A reward that an untrained model gets now and then."""
    return float(sum(map(ord, completion)) % 3)


def drawing(patch: Patch, change: Callable[[Drawn, DrawnRollouts, Any, int], Rollout]) -> None:
    """Let completions be drawn by ``change``, in training alone: it never has a hint, and a judge's always has."""
    honest = DrawnRollouts.draw

    def drawn(self: DrawnRollouts, state: Any, update: int, hint: bytes | None = None) -> Rollout:
        return honest(self, state, update, hint) if hint is not None else change(honest, self, state, update)

    patch.setattr(DrawnRollouts, "draw", drawn)


def while_training(patch: Patch, name: str, forged: Any) -> None:
    """Let what is drawn while nothing is hinted at go through ``forged`` in place of a method."""

    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(DrawnRollouts, name, forged)
            return honest(self, state, update)

    drawing(patch, change)


def better_reward(patch: Patch) -> None:
    true = DrawnRollouts.reward_of
    while_training(patch, "reward_of", lambda self, *given: true(self, *given) + 1.0)


def another_function(patch: Patch) -> None:
    while_training(patch, "reward_of", lambda self, question, text, tokens: exact_match(text, question.answer) + 7.0)


def best_of_more(patch: Patch) -> None:
    true = DrawnRollouts.keys_of

    def chosen(self: DrawnRollouts, numbers: Any) -> np.ndarray:
        return np.concatenate([true(self, numbers)[:-1], true(self, [numbers[-1] + 50])[-1:]])

    while_training(patch, "keys_of", chosen)


def stale_state(patch: Patch) -> None:
    seen: list[Any] = []

    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        seen.append(jax.tree.map(jax.numpy.array, state.params))
        return honest(self, replace(state, params=seen[0]), update)

    drawing(patch, change)


def edited_token(patch: Patch) -> None:
    true = DrawnRollouts.completions

    def edited(self: DrawnRollouts, *given: Any) -> Any:
        first, *others = true(self, *given)
        return [(*first[:2], (first[2] + 1) % 200 + 1, *first[3:]), *others]

    while_training(patch, "completions", edited)


def shorter(patch: Patch) -> None:
    true = DrawnRollouts.completions

    def cut(self: DrawnRollouts, *given: Any) -> Any:
        *others, last = true(self, *given)
        return [*others, last[:2]]

    while_training(patch, "completions", cut)


def another_group(patch: Patch) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with pytest.MonkeyPatch.context() as within:
            from marin.plugins.rl.advantages import advantages as of

            def together(objective: Any, groups: Any) -> Any:
                (flat,) = of(objective, [[reward for group in groups for reward in group]])
                return [flat[at : at + 2] for at in range(0, len(flat), 2)]

            within.setattr("marin.plugins.rl.rollouts.advantages", together)
            return honest(self, state, update)

    drawing(patch, change)


def another_reference(patch: Patch) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(DrawnRollouts, "_reference_arrays", lambda self: self._whole(state))
            return honest(self, state, update)

    drawing(patch, change)


def reordered(patch: Patch) -> None:
    drawing(patch, lambda honest, self, state, update: honest(self, state, 1 - update))


def other_prompts(patch: Patch) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(self, "_order", lambda numbers: np.asarray([number + 3 for number in numbers]))
            return honest(self, state, update)

    drawing(patch, change)


def other_numbers(patch: Patch) -> None:
    """Recorded as it was, and learned with advantages of its own."""

    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        true = honest(self, state, update)
        return replace(true, numbers=true.numbers * np.float32(1.5))

    drawing(patch, change)


def retold(changes: Callable[[Any], dict[str, Any]]) -> Callable[[Patch], None]:
    """Learned as it was, and the first completion recorded otherwise."""

    def forgery(patch: Patch) -> None:
        def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
            true = honest(self, state, update)
            record = read_record(true.record)
            assert record is not None
            first, *others = record.completions
            other = msgspec.structs.replace(
                record, completions=(msgspec.structs.replace(first, **changes(first)), *others)
            )
            return replace(true, record=other.encode())

        drawing(patch, change)

    return forgery


def fewer(patch: Patch) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        true = honest(self, state, update)
        record = read_record(true.record)
        assert record is not None
        return replace(true, record=msgspec.structs.replace(record, completions=record.completions[:-1]).encode())

    drawing(patch, change)


FORGERIES: dict[Callable[[Patch], None], tuple[int, str]] = {
    better_reward: (0, "completion 0 of prompt 0, reward: recorded"),
    another_function: (0, "completion 0 of prompt 0, reward: recorded 0x1.c000000000000p+2"),
    best_of_more: (0, "completion 1 of prompt 1, position 0: recorded token"),
    stale_state: (2, "the completions differ: completion 0 of prompt 0, position "),
    edited_token: (0, "completion 0 of prompt 0, position 2: recorded token"),
    shorter: (0, "completion 1 of prompt 1, position 2: recorded no token"),
    another_group: (0, ", advantage: recorded"),
    another_reference: (2, "log-probability under the reference: recorded"),
    reordered: (0, "update: recorded 1, found 0"),
    other_prompts: (0, "prompt 0: recorded question 3 as number 0"),
    other_numbers: (0, "the state after the step differs in model/"),
    fewer: (0, "completions: recorded 3, found 4"),
    retold(lambda first: {"logprobs": hex_floats(np.full(len(first.tokens), -0.1, np.float32))}): (
        0,
        "completion 0 of prompt 0, position 0: log-probability: recorded cdccccbd",
    ),
    retold(lambda first: {"text": "the answer"}): (0, "completion 0 of prompt 0, text: recorded the answer"),
    retold(lambda first: {"reward": "0x1.8000000000000p+3"}): (0, "reward: recorded 0x1.8000000000000p+3"),
    retold(lambda first: {"advantage": "0x1.8000000000000p+3"}): (0, "advantage: recorded 0x1.8000000000000p+3"),
    retold(lambda first: {"tokens": first.tokens[::-1]}): (0, "completion 0 of prompt 0, position 0: recorded token"),
}


def test_a_training_that_is_what_it_says_is_made_again(runs: Runs) -> None:
    told = runs.trained()
    assert runs.judged(told) == ""
    assert {len(set(segment.batches)) for segment in told.segments} == {1}, "two train steps on the same completions"
    assert runs.trained().segments == told.segments


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda one: one.__qualname__.partition(".")[0])
def test_a_lie_is_named(runs: Runs, forgery: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    forgery(monkeypatch)
    step, said = FORGERIES[forgery]
    found = runs.judged(runs.trained())
    assert found.startswith(f"train step {step}: ") and said in found


def test_a_record_that_is_kept_back_is_drawn_again(runs: Runs) -> None:
    """The verdict on artifacts misses it; what was learned is judged without it."""
    told = runs.trained()
    assert runs.judged(replace(told, store=Store(MemoryStorage()))) == ""


def test_a_batch_that_an_update_did_not_see_is_named(runs: Runs) -> None:
    def same(steps: Steps) -> None:
        steps.batches[1] = "sha256:" + "0" * 64

    assert "train step 1: the completions differ: the recorded ones are not in the store" in runs.judged(
        runs.trained(same)
    )
