"""The completions of an update, drawn by the state before it: a pure function of that state, the recipe and the update's number.

Prompt n of a training is question ``order(n)`` of the set, in the order of the recipe's seed. Token t of completion c of it is
drawn by threefry, keyed by seed, n, c and t alone. One program does both: it gives, for every position of given completions,
the token that is drawn there and the log-probability of the token that stands there. Drawing executes it for token after
token. Completions that somebody says were drawn take one pass: where every token is the one that is drawn after those before
it, drawing would have given them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from marin.data.tokenizer import open_tokenizer
from marin.errors import DataError
from marin.plugins.rl.advantages import advantages, deviation, mean, token_weight
from marin.plugins.rl.policy import drawn_tokens, entropies, policy_logits, token_logprobs
from marin.plugins.rl.prompts import questions
from marin.plugins.rl.record import CompletionRecord, PromptRecord, UpdateRecord, hex_floats, read_record
from marin.plugins.rl.rewards import REWARDS
from marin.recipe.schema import Recipe, as_recorded
from marin.training.data import EpochOrder
from marin.training.initial import initial_slices
from marin.training.runtime import hosts
from marin.training.runtime.objective import Rollout
from marin.training.runtime.profile import Fixed, exact_profile
from marin.training.state import named_key
from marin.training.step.contract import Step
from marin.training.step.slices import SlicedState

Tokens = list[tuple[int, ...]]


class DrawnRollouts:
    """The rollouts of one recipe, on the mesh of its train step.

    Raises:
        DataError: a prompt leaves no room for a completion.
    """

    def __init__(self, recipe: Recipe, step: Step, vocab_size: int, tokenizer: Path) -> None:
        objective = recipe.objective
        assert objective is not None
        self.recipe, self.objective, self._step, self._vocab_size = recipe, objective, step, vocab_size
        self._tokenizer = open_tokenizer(tokenizer, as_recorded=as_recorded(recipe))
        self._questions = questions(objective.prompts)
        self._reward = REWARDS[objective.reward]
        seed = recipe.seed or 0
        self._order = EpochOrder(len(self._questions), seed, "prompts", order=recipe.order)
        self._each = recipe.trainer.batch_size // objective.num_generations
        self._encoded: dict[int, tuple[int, ...]] = {}
        self._reference: Any = None
        self._check_room()

    def draw(self, state: SlicedState, update: int, hint: bytes | None = None) -> Rollout:
        """As :meth:`marin.training.runtime.objective.Rollouts.draw`."""
        objective = self.objective
        numbers = list(range(update * self._each, (update + 1) * self._each))
        indices = self._order(numbers).tolist()
        prompts = [self._tokens(index) for index in indices for _ in range(objective.num_generations)]
        keys = self._keys(numbers)
        arrays = self._whole(state)
        completions = self._hinted(hint, len(prompts))
        passed = None if completions is None else self._looked_at(arrays, prompts, completions, keys)
        if completions is None or passed is None:
            completions = self._drawn(arrays, prompts, keys)
            passed = self._pass(arrays, prompts, completions, keys)
        _, logprobs, entropy = passed
        reference = logprobs
        if objective.beta:
            _, reference, _ = self._pass(self._reference_arrays(), prompts, completions, keys)
        texts = [self._text(tokens) for tokens in completions]
        asked = [self._questions[index].answer for index in indices for _ in range(objective.num_generations)]
        rewards = [self._rewarded(text, answer) for text, answer in zip(texts, asked, strict=True)]
        count = objective.num_generations
        groups = [rewards[at : at + count] for at in range(0, len(rewards), count)]
        gained = [np.float32(value) for group in advantages(objective, groups) for value in group]
        ids, columns = self._rows(prompts, completions, gained, logprobs, reference)
        spans = [slice(len(one) - 1, len(one) - 1 + len(new)) for one, new in zip(prompts, completions, strict=True)]
        record = UpdateRecord(
            update,
            tuple(PromptRecord(n, i, self._tokens(i)) for n, i in zip(numbers, indices, strict=True)),
            tuple(
                CompletionRecord(
                    new,
                    text,
                    hex_floats(logprobs[row, span]),
                    hex_floats(reference[row, span]) if objective.beta else "",
                    float(reward).hex(),
                    float(gain).hex(),
                )
                for row, (new, text, span, reward, gain) in enumerate(
                    zip(completions, texts, spans, rewards, gained, strict=True)
                )
            ),
        )
        measured = self._measured(completions, groups, [entropy[row, span] for row, span in enumerate(spans)])
        repeated = np.repeat(np.asarray(indices, np.int64), count)
        return Rollout(repeated, ids, columns, record.encode(), measured)

    @property
    def program(self) -> Mapping[str, str]:
        """As there."""
        return {"completions": self._fixed.program.digest}

    # -- prompts and texts

    def _tokens(self, index: int) -> tuple[int, ...]:
        if index not in self._encoded:
            ids = self._tokenizer.encode(self._questions[index].prompt, add_special_tokens=False).ids
            self._encoded[index] = (self.recipe.tokens.begin, *(int(token) for token in ids))
        return self._encoded[index]

    def _check_room(self) -> None:
        room = self.recipe.model.seq_len - self.objective.max_completion_length
        longest = max(range(len(self._questions)), key=lambda index: len(self._tokens(index)))
        if len(self._tokens(longest)) > room:
            raise DataError(
                "a prompt leaves no room for a completion",
                where=f"question {longest} of objective.prompts={self.objective.prompts}",
                expected=f"at most {room} tokens: model.seq_len without objective.max_completion_length",
                found=str(len(self._tokens(longest))),
                cure="raise model.seq_len, or lower objective.max_completion_length",
            )

    def _text(self, tokens: Sequence[int]) -> str:
        kept = tokens[:-1] if tokens and tokens[-1] in self.recipe.tokens.stops else tokens
        return str(self._tokenizer.decode(list(kept), skip_special_tokens=False))

    def _rewarded(self, text: str, answer: str) -> float:
        reward = self._reward(text, answer)
        if not math.isfinite(reward):
            raise DataError(
                "a reward is no number",
                where=f"objective.reward={self.objective.reward}, of {text[:60]!r}",
                expected="a finite number",
                found=repr(reward),
                cure="correct the function; nothing of this update was recorded",
            )
        return reward

    # -- what is drawn

    def _keys(self, numbers: Sequence[int]) -> np.ndarray:
        seed, count = self.recipe.seed or 0, self.objective.num_generations
        names = [f"completion {copy} of prompt {number}" for number in numbers for copy in range(count)]
        return np.stack([np.asarray(named_key(seed, name)) for name in names])

    def _drawn(self, arrays: Any, prompts: Tokens, keys: np.ndarray) -> Tokens:
        """Token after token, until a stop or the longest length."""
        grown: Tokens = [() for _ in prompts]
        for _ in range(self.objective.max_completion_length):
            open_rows = [row for row, new in enumerate(grown) if not self._ended(new)]
            if not open_rows:
                break
            chosen, _, _ = self._pass(arrays, prompts, grown, keys)
            for row in open_rows:
                grown[row] = (*grown[row], int(chosen[row, len(prompts[row]) + len(grown[row]) - 1]))
        return grown

    def _ended(self, new: Sequence[int]) -> bool:
        full = len(new) >= self.objective.max_completion_length
        return full or (len(new) > 0 and new[-1] in self.recipe.tokens.stops)

    def _hinted(self, hint: bytes | None, count: int) -> Tokens | None:
        """The completions of a record, if they could be completions at all."""
        record = read_record(hint) if hint is not None else None
        if record is None or len(record.completions) != count:
            return None
        found = [one.tokens for one in record.completions]
        within = all(0 <= token < self._vocab_size for new in found for token in new)
        whole = all(self._ended(new) and not any(self._ended(new[:at]) for at in range(1, len(new))) for new in found)
        return found if within and whole else None

    def _looked_at(self, arrays: Any, prompts: Tokens, completions: Tokens, keys: np.ndarray) -> Any:
        """One pass over completions; None where a token is not the one that is drawn there."""
        passed = self._pass(arrays, prompts, completions, keys)
        for row, (prompt, new) in enumerate(zip(prompts, completions, strict=True)):
            first = len(prompt) - 1
            if passed[0][row, first : first + len(new)].tolist() != list(new):
                return None
        return passed

    def _rows(
        self,
        prompts: Tokens,
        completions: Tokens,
        gained: Sequence[np.float32],
        logprobs: np.ndarray,
        reference: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """What a train step is given: int32[batch, length], and four numbers for each position."""
        size, length = len(prompts), self.recipe.model.seq_len
        columns = np.zeros((size, 4, length), np.float32)
        for row, (prompt, new) in enumerate(zip(prompts, completions, strict=True)):
            span = slice(len(prompt) - 1, len(prompt) - 1 + len(new))
            columns[row, 0, span] = token_weight(self.objective, len(new))
            columns[row, 1, span] = gained[row]
            columns[row, 2, span] = logprobs[row, span]
            columns[row, 3, span] = reference[row, span]
        return self._ids(prompts, completions), columns.reshape(size, 4 * length)

    def _ids(self, prompts: Tokens, completions: Tokens) -> np.ndarray:
        ids = np.zeros((len(prompts), self.recipe.model.seq_len), np.int32)
        for row, (prompt, new) in enumerate(zip(prompts, completions, strict=True)):
            ids[row, : len(prompt) + len(new)] = (*prompt, *new)
        return ids

    def _measured(
        self, completions: Tokens, groups: Sequence[Sequence[float]], entropy: Sequence[np.ndarray]
    ) -> dict[str, float]:
        """Means over the update, for curves. Nothing rests on them."""
        rewards = [reward for group in groups for reward in group]
        return {
            "rl/reward": mean(rewards),
            "rl/reward_std": mean([deviation(group) for group in groups]),
            "rl/completion_length": mean([float(len(new)) for new in completions]),
            "rl/entropy": mean([float(value) for row in entropy for value in row]),
        }

    # -- how it is computed

    @cached_property
    def _rows_at_once(self) -> int:
        """Completions that go through the program together; it decides no bits."""
        micro = self.recipe.arithmetic.microbatch_size
        return micro if micro % self._step.devices == 0 else self.recipe.trainer.batch_size

    @cached_property
    def _fixed(self) -> Fixed:
        recipe, static, size = self.recipe, self._step.layout.static, self._rows_at_once

        def completions(arrays: Any, ids: jax.Array, keys: jax.Array) -> Any:
            logits = policy_logits(recipe, eqx.combine(arrays, static), ids)
            positions = jnp.broadcast_to(jnp.arange(ids.shape[1], dtype=jnp.int32), ids.shape)
            return (
                drawn_tokens(self.objective, logits, keys, positions),
                token_logprobs(logits, ids),
                entropies(logits),
            )

        ids = jax.ShapeDtypeStruct((size, recipe.model.seq_len), jnp.int32)
        keys = jax.ShapeDtypeStruct((size, 2), jnp.uint32)
        return exact_profile().fixed(completions, self._step.layout.named, ids, keys, recipe=recipe)

    @cached_property
    def _compiled(self) -> Any:
        with jax.enable_x64(True):
            return jax.jit(self._fixed.__call__)

    @cached_property
    def _gathering(self) -> Any:
        everywhere = NamedSharding(self._step.mesh, P())
        return jax.jit(self._step.layout.whole_params, out_shardings=everywhere)

    def _whole(self, state: SlicedState) -> Any:
        """Whole parameters, on every device."""
        (params,) = state.params
        return self._gathering(list(params))

    def _reference_arrays(self) -> Any:
        """The parameters that the training began with."""
        if self._reference is None:
            step = self._step
            self._reference = self._whole(initial_slices(self.recipe, self._vocab_size, step.layout, step.by_slice))
        return self._reference

    def _pass(self, arrays: Any, prompts: Tokens, completions: Tokens, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        """Of every row and position: the token drawn after it, the log-probability of the token that stands there, and the
        entropy."""
        ids, size = self._ids(prompts, completions), self._rows_at_once
        found = []
        with jax.enable_x64(True):
            for at in range(0, len(ids), size):
                rows = [self._step.batch(x[at : at + size]) for x in (ids, keys)]
                found.append(self._compiled(exact_profile().zero(), arrays, *rows))
            parts = [[hosts.whole(x) for x in one] for one in found]
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
