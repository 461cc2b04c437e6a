"""The completions of an update, drawn by the state before it: a pure function of that state, the recipe and the update's number.

Prompt n of a training is question ``order(n)`` of the set, in the order of the recipe's seed. Token t of completion c of it is
drawn by threefry, keyed by seed, n, c and t alone. One program draws the next token of all completions, with a cache of keys and
values. Another looks at whole completions in one pass: the log-probability of each token, and the token that is drawn there.
Completions that somebody says were drawn take that pass alone: no bit of a position depends on later ones
(:mod:`marin.plugins.rl.causal`), so where every token is the one that is drawn after those before it, drawing gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import Store
from marin.data.borrowed.chats import special_tokens
from marin.data.template import SPECIAL, ChatTemplate, plain_template
from marin.data.tokenizer import open_tokenizer
from marin.errors import DataError
from marin.plugins.rl.advantages import advantages, deviation, mean, token_weight
from marin.plugins.rl.causal import KeyValues, hidden_states, next_states, no_keys
from marin.plugins.rl.own_reward import called, function_of
from marin.plugins.rl.policy import drawn_tokens, entropies, policy_logits, token_logprobs
from marin.plugins.rl.prompts import Message, Question, questions, read_stored
from marin.plugins.rl.record import CompletionRecord, PromptRecord, UpdateRecord, hex_floats, read_record
from marin.plugins.rl.rewards import REWARDS
from marin.recipe.objective import Objective
from marin.recipe.schema import Recipe, as_recorded
from marin.training.data import EpochOrder
from marin.training.initial import initial_slices
from marin.training.runtime import hosts
from marin.training.runtime.objective import Rollout
from marin.training.runtime.profile import Fixed, exact_profile
from marin.training.state import batch_axes, named_key
from marin.training.step.contract import Step
from marin.training.step.slices import SlicedState

Tokens = list[tuple[int, ...]]


@dataclass(frozen=True)
class Looked:
    """Of each completion and each of its places (``max_completion_length`` of them; those after its end say nothing): the token
    that is drawn there, the log-probability of the one that stands there, and the entropy, int32 and float32."""

    drawn: np.ndarray
    logprobs: np.ndarray
    entropy: np.ndarray


class DrawnRollouts:
    """The rollouts of one recipe, on the mesh of its train step.

    Raises:
        DataError: a prompt leaves no room for a completion, or ``store`` has other than prompts where the recipe's are.
    """

    def __init__(
        self, recipe: Recipe, step: Step, vocab_size: int, tokenizer: Path, store: Store | None = None
    ) -> None:
        objective = recipe.objective
        assert objective is not None
        self.recipe, self.objective, self._step, self._vocab_size = recipe, objective, step, vocab_size
        self._tokenizer = open_tokenizer(tokenizer, as_recorded=as_recorded(recipe))
        self._template = _template_of(recipe, tokenizer)
        self._questions = _questions_of(objective, store)
        self._reward = _reward_of(objective)
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
        keys = self.keys_of(numbers)
        arrays = self._whole(state)
        completions = self._hinted(hint, len(prompts))
        passed = None if completions is None else self._looked_at(arrays, prompts, completions, keys)
        if completions is None or passed is None:
            completions = self.completions(arrays, prompts, keys)
            passed = self._pass(arrays, prompts, completions, keys)
        logprobs, reference = passed.logprobs, passed.logprobs
        if objective.beta:
            reference = self._pass(self._reference_arrays(), prompts, completions, keys).logprobs
        texts = [self._text(tokens) for tokens in completions]
        of = [self._questions[index] for index in indices for _ in range(objective.num_generations)]
        rewards = [self.reward_of(*one) for one in zip(of, texts, completions, strict=True)]
        count = objective.num_generations
        groups = [rewards[at : at + count] for at in range(0, len(rewards), count)]
        gained = [np.float32(value) for group in advantages(objective, groups) for value in group]
        ids, columns = self._table(prompts, completions, gained, logprobs, reference)
        record = UpdateRecord(
            update,
            tuple(PromptRecord(n, i, self._tokens(i)) for n, i in zip(numbers, indices, strict=True)),
            tuple(
                CompletionRecord(
                    new,
                    text,
                    hex_floats(logprobs[row, : len(new)]),
                    hex_floats(reference[row, : len(new)]) if objective.beta else "",
                    float(reward).hex(),
                    float(gain).hex(),
                )
                for row, (new, text, reward, gain) in enumerate(zip(completions, texts, rewards, gained, strict=True))
            ),
        )
        measured = self._measured(completions, groups, passed.entropy)
        repeated = np.repeat(np.asarray(indices, np.int64), count)
        return Rollout(repeated, ids, columns, record.encode(), measured)

    @property
    def program(self) -> Mapping[str, str]:
        """As there."""
        return {"completions": self._look.program.digest, "next token": self._next.program.digest}

    # -- prompts and texts

    def _tokens(self, index: int) -> tuple[int, ...]:
        """A text after the token before a text; a conversation as the chat template writes it, and nothing before it."""
        if index not in self._encoded:
            prompt, before = self._questions[index].prompt, [self.recipe.tokens.begin]
            if not isinstance(prompt, str):
                prompt, before = self._written(prompt, index), []
            ids = self._tokenizer.encode(prompt, add_special_tokens=False).ids
            self._encoded[index] = (*before, *(int(token) for token in ids))
        return self._encoded[index]

    def _written(self, messages: list[Message], index: int) -> str:
        try:
            return self._template.render(messages)
        except ValueError as error:
            raise DataError(
                "the chat template cannot render a prompt",
                where=f"question {index} of objective.questions",
                expected="messages that it takes, of which the assistant's is next",
                found=str(error)[:200],
                cure="correct the line, or name another template: objective.chat_template",
            ) from None

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
        """As TRL has it: without special tokens."""
        kept = tokens[:-1] if tokens and tokens[-1] in self.recipe.tokens.stops else tokens
        return str(self._tokenizer.decode(list(kept), skip_special_tokens=True))

    def reward_of(self, question: Question, text: str, tokens: Sequence[int]) -> float:
        reward = self._reward(question, text, tokens)
        if not math.isfinite(reward):
            raise DataError(
                "a reward is no number",
                where=f"objective.reward, of {text[:60]!r}",
                expected="a finite number",
                found=repr(reward),
                cure="correct the function; nothing of this update was recorded",
            )
        return reward

    # -- what is drawn

    def keys_of(self, numbers: Sequence[int]) -> np.ndarray:
        seed, count = self.recipe.seed or 0, self.objective.num_generations
        begun = f" from train step {self.recipe.first_step}" if self.recipe.phase is not None else ""
        names = [f"completion {copy} of prompt {number}{begun}" for number in numbers for copy in range(count)]
        return np.stack([np.asarray(named_key(seed, name)) for name in names])

    def completions(self, arrays: Any, prompts: Tokens, keys: np.ndarray) -> Tokens:
        """Position after position, until every completion has a stop or the longest length."""
        grown: Tokens = [() for _ in prompts]
        ids, cache = self._ids(prompts, grown), self._no_keys()
        by_row = self._step.batch(keys)
        for at in range(self.recipe.model.seq_len - 1):
            with jax.enable_x64(True):
                given = (self._step.batch(ids[:, at]), np.int32(at), cache, by_row)
                chosen, cache = self._next_compiled(exact_profile().zero(), arrays, *given)
                tokens = hosts.whole(chosen)
            for row, prompt in enumerate(prompts):
                if at >= len(prompt) - 1 and not self._ended(grown[row]):
                    grown[row] = (*grown[row], int(tokens[row]))
                    ids[row, at + 1] = tokens[row]
            if all(self._ended(new) for new in grown):
                break
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

    def _looked_at(self, arrays: Any, prompts: Tokens, completions: Tokens, keys: np.ndarray) -> Looked | None:
        """One pass over completions; None where a token is not the one that is drawn there."""
        passed = self._pass(arrays, prompts, completions, keys)
        same = all(passed.drawn[row, : len(new)].tolist() == list(new) for row, new in enumerate(completions))
        return passed if same else None

    def _table(
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
            columns[row, 2, span] = logprobs[row, : len(new)]
            columns[row, 3, span] = reference[row, : len(new)]
        return self._ids(prompts, completions), columns.reshape(size, 4 * length)

    def _ids(self, prompts: Tokens, completions: Tokens) -> np.ndarray:
        ids = np.zeros((len(prompts), self.recipe.model.seq_len), np.int32)
        for row, (prompt, new) in enumerate(zip(prompts, completions, strict=True)):
            ids[row, : len(prompt) + len(new)] = (*prompt, *new)
        return ids

    def _measured(
        self, completions: Tokens, groups: Sequence[Sequence[float]], entropy: np.ndarray
    ) -> dict[str, float]:
        """Means over the update, for curves. Nothing rests on them."""
        rewards = [reward for group in groups for reward in group]
        return {
            "rl/reward": mean(rewards),
            "rl/reward_std": mean([deviation(group) for group in groups]),
            "rl/completion_length": mean([float(len(new)) for new in completions]),
            "rl/entropy": mean([float(x) for row, new in enumerate(completions) for x in entropy[row, : len(new)]]),
        }

    # -- how it is computed

    @cached_property
    def _rows_at_once(self) -> int:
        """Completions that go through the program together; it decides no bits."""
        micro = self.recipe.arithmetic.microbatch_size
        return micro if micro % self._step.devices == 0 else self.recipe.trainer.batch_size

    @cached_property
    def _look(self) -> Fixed:
        """(parameters, tokens, place of the first, keys) -> of each place of a completion: the token that is drawn there, the
        log-probability of the one that stands there, and the entropy."""
        objective, static, size = self.objective, self._step.layout.static, self._rows_at_once
        length, count = self.recipe.model.seq_len, self.objective.max_completion_length

        def look(arrays: Any, ids: jax.Array, first: jax.Array, keys: jax.Array) -> Any:
            model = eqx.combine(arrays, static)
            places = jnp.minimum(first[:, None] + jnp.arange(count, dtype=jnp.int32), np.int32(length - 1))
            states = jnp.take_along_axis(hidden_states(model, ids), places[..., None], axis=1)
            logits = policy_logits(objective, model, states)
            after = jnp.take_along_axis(jnp.roll(ids, -1, axis=1), places, axis=1)
            drawn = drawn_tokens(objective, logits, keys, places)
            return drawn, token_logprobs(logits, after), entropies(logits)

        shapes = _int32(size, length), _int32(size), jax.ShapeDtypeStruct((size, 2), jnp.uint32)
        return exact_profile().fixed(look, self._step.layout.named, *shapes, recipe=self.recipe)

    @cached_property
    def _look_compiled(self) -> Any:
        with jax.enable_x64(True):
            return jax.jit(self._look.__call__)

    @cached_property
    def _next(self) -> Fixed:
        """(parameters, tokens, their position, cache, keys) -> the tokens that are drawn after them, and the cache with them."""
        objective, static, size = self.objective, self._step.layout.static, self.recipe.trainer.batch_size

        def following(arrays: Any, tokens: jax.Array, at: jax.Array, cache: KeyValues, keys: jax.Array) -> Any:
            model = eqx.combine(arrays, static)
            states, after = next_states(model, tokens, at, cache)
            positions = jnp.broadcast_to(at, (size, 1))
            return drawn_tokens(objective, policy_logits(objective, model, states), keys, positions)[:, 0], after

        keys = jax.ShapeDtypeStruct((size, 2), jnp.uint32)
        shapes = _int32(size), _int32(), self._cache_shape, keys
        return exact_profile().fixed(following, self._step.layout.named, *shapes, recipe=self.recipe)

    @cached_property
    def _next_compiled(self) -> Any:
        with jax.enable_x64(True):
            return jax.jit(self._next.__call__, donate_argnums=(4,))

    @cached_property
    def _cache_shape(self) -> KeyValues:
        model = eqx.combine(self._step.layout.named, self._step.layout.static)
        size, length = self.recipe.trainer.batch_size, self.recipe.model.seq_len
        found: KeyValues = jax.eval_shape(lambda: no_keys(model, size, length))
        return found

    def _no_keys(self) -> KeyValues:
        by_row = NamedSharding(self._step.mesh, P(None, batch_axes(self._step.mesh)))
        return KeyValues(*(jax.device_put(np.zeros(x.shape, x.dtype), by_row) for x in self._cache_shape))

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

    def _pass(self, arrays: Any, prompts: Tokens, completions: Tokens, keys: np.ndarray) -> Looked:
        """What one pass says of every completion."""
        ids, size = self._ids(prompts, completions), self._rows_at_once
        first = np.asarray([len(prompt) - 1 for prompt in prompts], np.int32)
        found = []
        with jax.enable_x64(True):
            for at in range(0, len(ids), size):
                rows = [self._step.batch(x[at : at + size]) for x in (ids, first, keys)]
                found.append(self._look_compiled(exact_profile().zero(), arrays, *rows))
            parts = [[hosts.whole(x) for x in one] for one in found]
        drawn, logprobs, entropy = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Looked(drawn, logprobs, entropy)


def _questions_of(objective: Objective, store: Store | None) -> tuple[Question, ...]:
    if objective.questions is None:
        return questions(objective.prompts)
    assert store is not None, "a user's prompts are in the store"
    return read_stored(store.read(objective.questions), objective.reward, where=f"prompts {objective.questions}")


def _reward_of(objective: Objective) -> Callable[[Question, str, Sequence[int]], float]:
    """What a completion gets, of its question, its text and its tokens."""
    named = objective.reward
    if isinstance(named, str):
        shipped = REWARDS[named]
        return lambda question, text, tokens: shipped(text, question.answer)
    function, where = function_of(named), f"objective.reward: {named.function} of {named.file}"

    def own(question: Question, text: str, tokens: Sequence[int]) -> float:
        columns = question.columns or {"answer": question.answer}
        return called(function, question.prompt, text, tokens, columns, f"{where}, of {text[:60]!r}")

    return own


def _template_of(recipe: Recipe, tokenizer: Path) -> ChatTemplate:
    assert recipe.objective is not None
    special = SPECIAL if recipe.kept_tokenizer is None else special_tokens(tokenizer)
    if recipe.objective.chat_template is None:
        return plain_template(special)
    return ChatTemplate(recipe.objective.chat_template, special, where="objective.chat_template")


def _int32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)
