"""The completions of an update, drawn by the state before it: a pure function of that state, the recipe and the update's number.

Prompt n of a training is question ``order(n)`` of the set, in the order of the recipe's seed. Token t of completion c of it is
drawn by threefry, keyed by seed, n, c and t alone (:mod:`marin.plugins.rl.drawing`). Completions that are claimed to be drawn
take one pass. The state that draws is the one before the update, or as many updates behind it as the recipe says.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import Store
from marin.data.borrowed.chats import special_tokens
from marin.data.template import SPECIAL, ChatTemplate, plain_template
from marin.data.tokenizer import open_tokenizer
from marin.errors import DataError
from marin.plugins.rl.advantages import advantages, deviation, mean, token_weight
from marin.plugins.rl.drawing import Drawing, Looked, Tokens
from marin.plugins.rl.own_reward import call_reward, function_of
from marin.plugins.rl.prompts import Message, Question, questions_of
from marin.plugins.rl.record import CompletionRecord, PromptRecord, UpdateRecord, hex_floats, read_record
from marin.plugins.rl.rewards import REWARDS
from marin.plugins.rl.samplers import Samplers
from marin.recipe.objective import Judge, Objective
from marin.recipe.schema import Execution, Recipe, as_recorded
from marin.training.checkpoints.loading import load_slices
from marin.training.data import EpochOrder
from marin.training.initial import initial_slices
from marin.training.runtime.objective import Rollout
from marin.training.state import named_key
from marin.training.step.contract import Step
from marin.training.step.slices import SlicedState

log = logging.getLogger(__name__)


class DrawnRollouts:
    """The rollouts of one recipe, on the mesh of its train step.

    Raises:
        DataError: a prompt leaves no room for a completion, or ``store`` has other than prompts where the recipe's are.
    """

    def __init__(
        self,
        recipe: Recipe,
        step: Step,
        vocab_size: int,
        tokenizer: Path,
        store: Store | None = None,
        execution: Execution | None = None,
    ) -> None:
        objective = recipe.objective
        assert objective is not None
        self.recipe, self.objective, self._step, self._vocab_size = recipe, objective, step, vocab_size
        self._tokenizer = open_tokenizer(tokenizer, as_recorded=as_recorded(recipe))
        self._template = _template_of(recipe, tokenizer)
        self._questions = questions_of(objective, store)
        self._reward = _reward_of(objective)
        seed = recipe.seed or 0
        self._order = EpochOrder(len(self._questions), seed, "prompts", order=recipe.order)
        self._each = recipe.trainer.batch_size // objective.num_generations
        self._encoded: dict[int, tuple[int, ...]] = {}
        self._reference: Any = None
        self._drawing = Drawing(recipe, step.layout, step.mesh)
        self._held: dict[int, Any] = {}
        self._equal: list[int] = []
        asked = execution is not None and execution.samplers > 0
        self._samplers = Samplers(recipe, vocab_size, execution) if execution is not None and asked else None
        self._judge = None if objective.judge is None else self._judge_of(objective.judge, store)
        self._check_room()

    def draw(self, state: SlicedState, update: int, hint: bytes | None = None) -> Rollout:
        objective = self.objective
        numbers, indices, prompts = self._draw_prompts(update)
        keys, drawn_before = self.keys_of(numbers), self.sampler_of(update)
        self._hold(state, update)
        completions, passed = self._drawn(update, self._held[drawn_before], prompts, keys, hint)
        logprobs, reference = passed.logprobs, passed.logprobs
        if objective.beta:
            reference = self._drawing.looked(self._reference_arrays(), prompts, completions, keys).logprobs
        texts = [self._text(tokens) for tokens in completions]
        of = [self._questions[index] for index in indices for _ in range(objective.num_generations)]
        if self._judge is None:
            rewards = [self.reward_of(*one) for one in zip(of, texts, completions, strict=True)]
        else:
            rewards = self.judged(self._judge, prompts, completions, keys)
        count = objective.num_generations
        groups = [rewards[at : at + count] for at in range(0, len(rewards), count)]
        gained = [np.float32(value) for group in advantages(objective, groups) for value in group]
        if hint is None:
            self._say_equal(update, groups)
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
            drawn_before if objective.updates_behind is not None else None,
        )
        measured = self._measured(completions, groups, passed.entropy)
        repeated = np.repeat(np.asarray(indices, np.int64), count)
        return Rollout(repeated, ids, columns, record.encode(), measured)

    def close(self) -> None:
        if self._samplers is not None:
            self._samplers.close()

    @property
    def program(self) -> Mapping[str, str]:
        return {"completions": self._drawing.look.program.digest}

    # -- prompts and texts

    def _tokens(self, index: int) -> tuple[int, ...]:
        """A text after the token before a text; a conversation as the chat template writes it, and nothing before it."""
        if index not in self._encoded:
            prompt, before = self._questions[index].prompt, [self.recipe.tokens.begin]
            if not isinstance(prompt, str):
                prompt, before = self._written(prompt, index), []
            self._encoded[index] = (*before, *self.encode(prompt))
        return self._encoded[index]

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a text, with nothing before or after them."""
        return tuple(int(token) for token in self._tokenizer.encode(text, add_special_tokens=False).ids)

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
        asks, verdict = self._read_by_judge
        if len(verdict) > self.objective.max_completion_length:
            raise DataError(
                "a verdict that is longer than a completion",
                where="objective.verdict",
                expected=f"at most objective.max_completion_length tokens ({self.objective.max_completion_length})",
                found=str(len(verdict)),
                cure="choose a shorter one",
            )
        room = self.recipe.model.seq_len - self.objective.max_completion_length - len(asks) - len(verdict)
        longest = max(range(len(self._questions)), key=lambda index: len(self._tokens(index)))
        if len(self._tokens(longest)) > room:
            raise DataError(
                "a prompt leaves no room for a completion",
                where=f"question {longest} of objective.prompts={self.objective.prompts}",
                expected=f"at most {room} tokens: model.seq_len without objective.max_completion_length and what a judge reads",
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
                "a reward that is not a number",
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

    @property
    def _recorded_every(self) -> int:
        """Updates of a segment."""
        return self.recipe.trainer.steps_per_segment // self.objective.num_iterations

    def sampler_of(self, update: int) -> int:
        """The update before which the state was that draws for ``update``: so many behind, but none before a recorded state."""
        return max(update // self._recorded_every * self._recorded_every, update - (self.objective.updates_behind or 0))

    def _draw_prompts(self, update: int) -> tuple[list[int], list[int], Tokens]:
        """Numbers of an update's prompts, their questions, and the tokens that each completion follows."""
        numbers = list(range(update * self._each, (update + 1) * self._each))
        indices: list[int] = self._order(numbers).tolist()
        return numbers, indices, [self._tokens(at) for at in indices for _ in range(self.objective.num_generations)]

    def _hold(self, state: SlicedState, update: int) -> None:
        """Keep the state before ``update``, and of those before it what this and later updates are drawn by."""
        oldest = self.sampler_of(update)
        self._held = {number: arrays for number, arrays in self._held.items() if oldest <= number < update}
        self._held[update] = self._whole(state)

    def _drawn(
        self, update: int, arrays: Any, prompts: Tokens, keys: np.ndarray, hint: bytes | None
    ) -> tuple[Tokens, Looked]:
        """The completions of an update; by the samplers where nobody says what they are. These are asked as soon as the state is
        there that draws, also for updates that are to come."""
        samplers = self._samplers if hint is None else None
        if samplers is not None:
            last = self.recipe.trainer.num_steps // self.objective.num_iterations
            for later in range(update, last):
                if self.sampler_of(later) > update:
                    break
                if self.sampler_of(later) == update:
                    numbers, _, asked = self._draw_prompts(later)
                    samplers.ask(later, self._held[update], asked, self.keys_of(numbers))
        found = samplers.drawn(update) if samplers is not None else None
        return found or self._drawing.drawn(arrays, prompts, keys, self._hinted(hint, len(prompts)))

    def judged(self, judge: Any, prompts: Tokens, completions: Tokens, keys: np.ndarray) -> list[float]:
        """What a state with these parameters says of completions: the mean log-probability of a token of them, or of the verdict
        that it is asked for."""
        asks, verdict = self._read_by_judge
        if verdict:
            stops = self.recipe.tokens.stops
            bare = [new[:-1] if new[-1] in stops else new for new in completions]
            prompts = [(*prompt, *new, *asks) for prompt, new in zip(prompts, bare, strict=True)]
            completions = [verdict] * len(completions)
        logprobs = self._drawing.looked(judge, prompts, completions, keys).logprobs.tolist()
        return [mean(row[: len(new)]) for row, new in zip(logprobs, completions, strict=True)]

    @cached_property
    def _read_by_judge(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Tokens of what a judge is asked, and of the verdict; nothing where it has none to give."""
        if self._judge is None or self.objective.verdict is None:
            return (), ()
        return self.encode(self.objective.asks or ""), self.encode(self.objective.verdict)

    def _judge_of(self, judge: Judge, store: Store | None) -> Any:
        assert store is not None, "the judge is in the store"
        step, where = self._step, "objective.judge"
        given = step.layout, step.by_slice, self.recipe, self._vocab_size, judge.state
        return self._whole(load_slices((store, judge.artifact), *given, where=where)[0])

    def _hinted(self, hint: bytes | None, count: int) -> Tokens | None:
        """The completions of a record, if they could be completions at all."""
        record = read_record(hint) if hint is not None else None
        if record is None or len(record.completions) != count:
            return None
        found, ended = [one.tokens for one in record.completions], self._drawing.ended
        within = all(0 <= token < self._vocab_size for new in found for token in new)
        whole = all(ended(new) and not any(ended(new[:at]) for at in range(1, len(new))) for new in found)
        return found if within and whole else None

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
        return self._drawing.ids(prompts, completions), columns.reshape(size, 4 * length)

    def _say_equal(self, update: int, groups: Sequence[Sequence[float]]) -> None:
        """Say where a prompt's completions teach nothing, having one reward: at once if no prompt of the update does, else
        once a segment."""
        centered = self.objective.name != "reinforce"
        equal = sum(len(set(group)) == 1 and (centered or not group[0]) for group in groups)
        if equal == len(groups):
            log.warning("update %d: no completion has another reward than those beside it: nothing is learned", update)
        self._equal.append(equal)
        if (update + 1) % self._recorded_every == 0:
            count, some = len(self._equal), sum(self._equal)
            if some:
                said = "updates %d to %d: of %d of %d prompts all completions have one reward, and teach nothing"
                log.info(said, update + 1 - count, update, some, count * self._each)
            self._equal = []

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


def _reward_of(objective: Objective) -> Callable[[Question, str, Sequence[int]], float]:
    """What a completion gets, of its question, its text and its tokens."""
    named = objective.reward
    if isinstance(named, str):
        if named not in REWARDS:  # the judge, who reads all completions of an update at once
            return lambda question, text, tokens: math.nan
        shipped = REWARDS[named]
        return lambda question, text, tokens: shipped(text, question.answer)
    function, where = function_of(named), f"objective.reward: {named.function} of {named.file}"

    def own(question: Question, text: str, tokens: Sequence[int]) -> float:
        columns = question.columns or {"answer": question.answer}
        return call_reward(function, question.prompt, text, tokens, columns, f"{where}, of {text[:60]!r}")

    return own


def _template_of(recipe: Recipe, tokenizer: Path) -> ChatTemplate:
    assert recipe.objective is not None
    special = SPECIAL if recipe.kept_tokenizer is None else special_tokens(tokenizer)
    if recipe.objective.chat_template is None:
        return plain_template(special)
    return ChatTemplate(recipe.objective.chat_template, special, where="objective.chat_template")
