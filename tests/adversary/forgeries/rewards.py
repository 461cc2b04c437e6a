"""Trainings that learned from rewards otherwise than they say, by somebody who holds the key and goes on from the lie truly:
what is recorded agrees in everything, and replay finds the first update in which it was made otherwise, and names what differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import msgspec
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ledger import Store
from marin.plugins.rl import rewards as own_rewards
from marin.plugins.rl import rollouts as own_rollouts
from marin.plugins.rl.record import hex_floats, read_record
from marin.plugins.rl.rewards import exact_match
from marin.plugins.rl.rollouts import DrawnRollouts
from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import Execution, Recipe, from_mapping, plain, unplain
from marin.record.events import OF_COMPLETIONS, TrainSegment
from marin.training.loop import Steps, Training
from marin.training.run import segment_event
from marin.training.runtime import canary
from marin.training.runtime.objective import Rollout
from marin.verify.derivation.series import Measured
from marin.verify.jax.replay import prepared, replay
from marin.verify.segments.compare import MEASURED
from tests.adversary.forgeries.bench import How, Row, shortened
from tests.adversary.forgeries.registry import OF_REWARDS
from tests.adversary.forgeries.workshop import Changes, changes
from tests.ledger.memory import MemoryStorage

VOCABULARY = 260
GIVEN = {
    "seed": 3,
    "order": "swap-or-not",
    "tokenizer": {"vocab_size": VOCABULARY},
    "model": {
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 1,
        "seq_len": 24,
    },
    "trainer": {"num_steps": 4, "batch_size": 4, "steps_per_segment": 2},
    "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    "arithmetic": {**unplain(plain(EXACT)), "microbatch_size": 2},
    "objective": {"prompts": "sums", "num_generations": 2, "max_completion_length": 6},
}
LEARNED = {"beta": 0.1, "num_iterations": 2, "reward": "regular_expression", "updates_behind": 1}
"""The objective of the training that is lied about."""
LENGTH = {"num_steps": 8, "steps_per_segment": 4}
"""Two segments of two updates: the second one of each is drawn by the state before the first."""
Drawn = Callable[..., Rollout]


def recipe_with(**changes: dict[str, Any]) -> Recipe:
    """The small recipe, with some values of some sections changed."""
    return from_mapping(
        {key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value for key, value in GIVEN.items()},
        where="forgery",
    )


def put_tokenizer(folder: Path) -> Path:
    """A byte-level tokenizer of 260 tokens in this folder."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(["1+2=3 see the bee"], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    return folder


@dataclass(frozen=True)
class RecordedTraining:
    """A training as it is recorded: two segments of two updates each."""

    segments: list[TrainSegment]
    store: Store
    measured: Measured


@dataclass(frozen=True)
class Runs:
    """A recipe, compiled once for all who train by it, truly or not."""

    recipe: Recipe
    folder: Path
    tokenizer: Path

    def training(self) -> Training:
        """The compiled training."""
        return prepared(self.recipe, self.folder, self.tokenizer, Execution())

    def trained(self, tell: Callable[[Steps], None] = lambda steps: None) -> RecordedTraining:
        """What a training records; ``tell`` changes what is said of a segment."""
        store, training, segments = Store(MemoryStorage()), self.training(), []
        said: dict[str, dict[int, str]] = {}
        with closing(training):
            state, manifest = training.start()
            for start in range(0, self.recipe.trainer.num_steps, self.recipe.trainer.steps_per_segment):
                state, record = training.segment(state, manifest, start, start + self.recipe.trainer.steps_per_segment)
                tell(record.steps)
                for data in record.steps.records.values():
                    store.put_bytes(data)
                trace = store.put_bytes(record.steps.trace).digest
                segments.append(segment_event("run", record, trace))
                for name, values in record.steps.completions.items():
                    said.setdefault(name, {}).update((step, value.hex()) for step, value in enumerate(values, start))
                manifest = record.end_state
        return RecordedTraining(segments, store, said)

    def judged(self, told: RecordedTraining) -> str:
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
            measured=told.measured,
        )
        return "" if found.divergence is None else found.divergence.describe()


def odd(completion: str, *answer: object) -> float:
    """A reward that an untrained model gets now and then."""
    return float(sum(map(ord, completion)) % 3)


def drawing(made: Changes, change: Callable[[Drawn, DrawnRollouts, Any, int], Rollout]) -> None:
    """Let completions be drawn by ``change``, in training alone: it never has a hint, and a judge's always has."""
    honest = DrawnRollouts.draw

    def drawn(self: DrawnRollouts, state: Any, update: int, hint: bytes | None = None) -> Rollout:
        return honest(self, state, update, hint) if hint is not None else change(honest, self, state, update)

    made.setattr(DrawnRollouts, "draw", drawn)


def while_training(made: Changes, name: str, forged: Any) -> None:
    """Let what is drawn while nothing is hinted at go through ``forged`` in place of a method."""

    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with changes() as within:
            within.setattr(DrawnRollouts, name, forged)
            return honest(self, state, update)

    drawing(made, change)


def better_reward(made: Changes) -> None:
    true = DrawnRollouts.reward_of
    while_training(made, "reward_of", lambda self, *given: true(self, *given) + 1.0)


def another_function(made: Changes) -> None:
    while_training(made, "reward_of", lambda self, *given: 7.0)


def best_of_more(made: Changes) -> None:
    true = DrawnRollouts.keys_of

    def chosen(self: DrawnRollouts, numbers: Any) -> np.ndarray:
        return np.concatenate([true(self, numbers)[:-1], true(self, [numbers[-1] + 50])[-1:]])

    while_training(made, "keys_of", chosen)


def stale_state(made: Changes) -> None:
    seen: list[Any] = []

    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        seen.append(jax.tree.map(jax.numpy.array, state.params))
        return honest(self, replace(state, params=seen[0]), update)

    drawing(made, change)


def drawn_otherwise(made: Changes, change: Callable[[Any], Any]) -> None:
    """Let completions be changed after they were drawn, with the log-probabilities that these have."""
    true = DrawnRollouts._drawn

    def other(self: DrawnRollouts, update: int, arrays: Any, prompts: Any, keys: Any, hint: bytes | None) -> Any:
        completions = change(true(self, update, arrays, prompts, keys, hint)[0])
        return completions, self._drawing.looked(arrays, prompts, completions, keys)

    while_training(made, "_drawn", other)


def edited_token(made: Changes) -> None:
    def edited(drawn: Any) -> Any:
        first, *others = drawn
        return [(*first[:2], (first[2] + 1) % 200 + 1, *first[3:]), *others]

    drawn_otherwise(made, edited)


def shorter(made: Changes) -> None:
    drawn_otherwise(made, lambda drawn: [*drawn[:-1], drawn[-1][:2]])


def another_group(made: Changes) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with changes() as within:
            from marin.plugins.rl.advantages import advantages as of

            def together(objective: Any, groups: Any) -> Any:
                (flat,) = of(objective, [[reward for group in groups for reward in group]])
                return [flat[at : at + 2] for at in range(0, len(flat), 2)]

            within.setattr(own_rollouts, "advantages", together)
            return honest(self, state, update)

    drawing(made, change)


def another_reference(made: Changes) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with changes() as within:
            within.setattr(DrawnRollouts, "_reference_arrays", lambda self: self._whole(state))
            return honest(self, state, update)

    drawing(made, change)


def fresh_state(made: Changes) -> None:
    """Drawn by the state before the update, where the recipe wants an earlier one."""
    while_training(made, "sampler_of", lambda self, update: update)


def reordered(made: Changes) -> None:
    true = DrawnRollouts._draw_prompts
    while_training(made, "_draw_prompts", lambda self, update: true(self, update ^ 1))


def other_prompts(made: Changes) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        with changes() as within:
            within.setattr(self, "_order", lambda numbers: np.asarray([number + 3 for number in numbers]))
            return honest(self, state, update)

    drawing(made, change)


def other_numbers(made: Changes) -> None:
    """Recorded as it was, and learned with advantages of its own."""

    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        true = honest(self, state, update)
        return replace(true, numbers=true.numbers * np.float32(1.5))

    drawing(made, change)


def retold(other_of: Callable[[Any], dict[str, Any]]) -> Callable[[Changes], None]:
    """Learned as it was, and the first completion recorded otherwise."""

    def forgery(made: Changes) -> None:
        def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
            true = honest(self, state, update)
            record = read_record(true.record)
            assert record is not None
            first, *others = record.completions
            other = msgspec.structs.replace(
                record, completions=(msgspec.structs.replace(first, **other_of(first)), *others)
            )
            return replace(true, record=other.encode())

        drawing(made, change)

    return forgery


def retold_update(other: Mapping[str, Any]) -> Callable[[Changes], None]:
    """Learned as it was, and something of the update recorded otherwise."""

    def forgery(made: Changes) -> None:
        def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
            true = honest(self, state, update)
            record = read_record(true.record)
            assert record is not None
            return replace(true, record=msgspec.structs.replace(record, **other).encode())

        drawing(made, change)

    return forgery


def another_temperature(made: Changes) -> None:
    """Drawn as at an eighth of the recipe's temperature."""
    true = DrawnRollouts._drawn

    def other(self: DrawnRollouts, update: int, arrays: Any, prompts: Any, keys: Any, hint: bytes | None) -> Any:
        cold = replace_head(arrays)
        completions = true(self, update, cold, prompts, keys, hint)[0]
        return completions, self._drawing.looked(arrays, prompts, completions, keys)

    while_training(made, "_drawn", other)


def replace_head(arrays: Any) -> Any:
    """Parameters whose logits are eight times as large."""
    return eqx.tree_at(lambda model: model.lm_head.weight, arrays, arrays.lm_head.weight * np.float32(8))


def fewer(made: Changes) -> None:
    def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
        true = honest(self, state, update)
        record = read_record(true.record)
        assert record is not None
        return replace(true, record=msgspec.structs.replace(record, completions=record.completions[:-1]).encode())

    drawing(made, change)


def measured(name: str) -> Callable[[Changes], None]:
    """Learned and recorded as it was, and measured otherwise."""

    def forgery(made: Changes) -> None:
        def change(honest: Drawn, self: DrawnRollouts, state: Any, update: int) -> Rollout:
            true = honest(self, state, update)
            return replace(true, measured={**true.measured, name: true.measured[name] + 1.0})

        drawing(made, change)

    return forgery


HONEST = "an honest training that learned from rewards"
LIES: dict[str, tuple[Callable[[Changes], None], int, str]] = {
    "a better reward": (better_reward, 0, "completion 0 of prompt 0, reward: recorded"),
    "rewards by another function": (
        another_function,
        0,
        "completion 0 of prompt 0, reward: recorded 0x1.c000000000000p+2",
    ),
    "the best of more completions": (best_of_more, 0, "completion 1 of prompt 1, position 0: recorded token"),
    "completions of an earlier state": (stale_state, 4, "the completions differ: completion 0 of prompt 0, position "),
    "a token of a completion edited": (edited_token, 0, "completion 0 of prompt 0, position 2: recorded token"),
    "a completion cut short": (shorter, 0, "completion 1 of prompt 1, position 2: recorded no token"),
    "advantages over another group": (another_group, 0, ", advantage: recorded"),
    "completions at another temperature": (another_temperature, 0, "recorded token"),
    "another reference": (another_reference, 2, "log-probability under the reference: recorded"),
    "completions of a later state": (fresh_state, 2, "drawn by the state before update: recorded 1, found 0"),
    "updates in another order": (reordered, 0, "prompt 0: recorded question"),
    "an update recorded as another": (retold_update({"update": 7}), 0, "update: recorded 7, found 0"),
    "a later state recorded as what drew": (
        retold_update({"drawn_before": 5}),
        0,
        "drawn by the state before update: recorded 5, found 0",
    ),
    "other prompts": (other_prompts, 0, "prompt 0: recorded question 3 as number 0"),
    "learned with other advantages than recorded": (other_numbers, 0, "the state after the step differs in model/"),
    "a completion less in the record": (fewer, 0, "completions: recorded 3, found 4"),
    "log-probabilities recorded otherwise": (
        retold(lambda first: {"logprobs": hex_floats(np.full(len(first.tokens), -0.1, np.float32))}),
        0,
        "completion 0 of prompt 0, position 0: log-probability: recorded cdccccbd",
    ),
    "a text recorded otherwise": (
        retold(lambda first: {"text": "the answer"}),
        0,
        "completion 0 of prompt 0, text: recorded the answer",
    ),
    "a reward recorded otherwise": (
        retold(lambda first: {"reward": "0x1.8000000000000p+3"}),
        0,
        "reward: recorded 0x1.8000000000000p+3",
    ),
    "an advantage recorded otherwise": (
        retold(lambda first: {"advantage": "0x1.8000000000000p+3"}),
        0,
        "advantage: recorded 0x1.8000000000000p+3",
    ),
    "tokens recorded otherwise": (
        retold(lambda first: {"tokens": first.tokens[::-1]}),
        0,
        "completion 0 of prompt 0, position 0: recorded token",
    ),
    **{
        f"{what} that no completion has": (measured(name), 0, f"{name}: {MEASURED}")
        for name, what in zip(
            OF_COMPLETIONS, ("a mean reward", "a spread of rewards", "a length", "an entropy"), strict=True
        )
    },
}
"""What was done, the first train step that is not as recorded, and part of what is said of it."""


@contextmanager
def prepared_runs(folder: Path) -> Iterator[Runs]:
    """The training, whose reward is one that an untrained model gets now and then."""
    with changes() as made:
        made.setattr(canary, "check", lambda _: None)  # the bits of profile exact are any processor's
        made.setattr(own_rewards, "REWARDS", {})
        made.setattr(own_rollouts, "REWARDS", {"regular_expression": odd, "exact_match": exact_match})
        (folder / "tokens").mkdir(parents=True, exist_ok=True)
        yield Runs(
            recipe_with(objective=LEARNED, trainer=LENGTH), folder / "tokens", put_tokenizer(folder / "tokenizer")
        )


def _judged(name: str, found: str) -> tuple[How, str]:
    if name not in LIES:
        return ("broken", found) if found else ("honest", "training: same bits")
    _, step, says = LIES[name]
    if not found:
        return "passes", "PASS"
    named = found.startswith(f"train step {step}: ") and says in found
    return "refused" if named else "elsewhere", f"training FAIL: {found}"


def rows(folder: Path, wanted: Collection[str]) -> Iterator[Row]:
    """Each of these lies and what replay says of it; and an honest training, where that is ``wanted``."""
    with prepared_runs(folder) as runs:
        for name in (HONEST, *LIES):
            if name not in wanted:
                continue
            began = time.monotonic()
            with changes() as made:
                if name != HONEST:
                    LIES[name][0](made)
                told = runs.trained()
                found = runs.judged(told)
            how, said = _judged(name, found)
            number = 0 if name == HONEST else OF_REWARDS
            yield Row(number, name, "operator", how, shortened(said), time.monotonic() - began)
