"""Log-likelihoods and continuations whose bits depend on the tokens and the state alone.

Sequences that are scored side by side cannot meet: a program takes a few of them, each in a slot, padded to the next of a few
fixed lengths; no product, sum or attention is over two slots. That its slots are alike is asked of every program before its
first use: one sequence in all of them has to have the same bits. Of a program whose compiler treated slots differently, a
sequence gets the slot that its own tokens say, so that its bits are its own there too. How many programs are on their way at
once (``ahead``) and how many devices execute copies of them is execution.

A token of a continuation is computed by a program of one sequence, that for the length of what is before it. The plugin
``drafts`` proposes what may come next, with a cache of keys and values; one pass of the program says which token is drawn after
each of them, and those are said up to the first that is another than the proposed one. No position looks at a later one, whose
weight is 0 (the plugin sees to it), so tokens are the same with proposals, with wrong ones, and without. (Under ``exact`` later
positions decide how values are rounded, in Levanter's pass. A continuation is computed by a pass in which they do not, where
the model has one; elsewhere nothing is proposed.) Drawn tokens come from threefry by (seed, request, position).
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import jax.random as jrandom
import numpy as np
from haliax import Axis
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from levanter.models.lm_model import LmHeadModel

from marin.errors import UsageError
from marin.evaluation.noise import gumbel
from marin.provenance.plugins import own_points
from marin.recipe.model import CAUSAL
from marin.recipe.schema import CPU_PROFILES, Recipe
from marin.training.model import attention_mask
from marin.training.runtime.profile import exact_profile
from marin.training.state import DATA, named_key
from marin.training.step.contract import mesh_of

if TYPE_CHECKING:
    from marin.evaluation.programs import ProgramCache

SHORTEST, SHORTEST_ALONE = 8, 16
"""Positions of the smallest program that scores, and of the smallest that continues, which goes from each to the next."""

POSITIONS = 512
"""Positions of all sequences that share a program, as near as may be: one of few positions is mostly overhead."""

AT_ONCE = 16
"""Sequences that are continued side by side."""

DRAFTED = 32
"""Tokens that one pass says, at most."""


@dataclass(frozen=True)
class Row:
    """A sequence of at least two tokens, of which the last ``scored`` are predicted, each from all before it."""

    tokens: tuple[int, ...]
    scored: int


@dataclass(frozen=True)
class Scored:
    """Natural logarithms of the scored tokens' probabilities, float32, and whether each of them is the likeliest."""

    logprobs: tuple[float, ...]
    greedy: bool

    @property
    def total(self) -> float:
        """Their sum, rounded once: no order of summation."""
        return math.fsum(self.logprobs)


@dataclass(frozen=True)
class Prompt:
    """What is continued: at least one token, at most ``limit`` further ones. ``stop``: whether the new tokens so far
    end it. ``temperature`` 0 takes the likeliest token (of several the first), any other draws by ``name``. ``said``: what
    is claimed to come next, which is looked at in one pass for each program and never believed."""

    tokens: tuple[int, ...]
    limit: int
    stop: Callable[[tuple[int, ...]], bool]
    temperature: float = 0.0
    name: str = ""
    said: tuple[int, ...] = ()


@dataclass
class Continuation:
    """A prompt on its way: ``tokens`` are the prompt and what came after it. ``key``: uint32[2], of its draws."""

    prompt: Prompt
    key: np.ndarray
    tokens: list[int]

    @property
    def new(self) -> tuple[int, ...]:
        """What came after the prompt."""
        return tuple(self.tokens[len(self.prompt.tokens) :])


class Drafts(Protocol):
    """What may come next. Whatever it says decides time, and no token."""

    def propose(self, active: Sequence[Continuation], ahead: int) -> list[tuple[int, ...]]:
        """For each any number of tokens. ``ahead``: how many are wanted beside those of ``active``."""

    def holding(self, model: LmHeadModel) -> Drafts | None:
        """The same programs on another state of the same model; None where a pass of that could look ahead."""


def has_causal_pass(recipe: Recipe) -> bool:
    """Whether there is a pass under ``exact`` in which no bit depends on later tokens, for a model of this recipe."""
    dense = recipe.model.architecture in CAUSAL and recipe.lora is None and recipe.trainer.packing is None
    return recipe.arithmetic.profile == "exact" and recipe.arithmetic.factor_rounding is None and dense


def request_name(tokens: Sequence[int], occurrence: int = 0) -> str:
    """The name of one request among others: what is asked, and which of equal questions it is. Not its place in an
    order, so that shuffled requests draw the same."""
    return f"generate {hashlib.sha256(np.asarray(tokens, '<u4').tobytes()).hexdigest()} {occurrence}"


def lengths(seq_len: int, shortest: int = SHORTEST) -> tuple[int, ...]:
    """The fixed lengths for which there are programs: powers of two, those between them, and the model's own. A sequence
    costs what its program's length costs, so there are as many as are worth their compilation."""
    powers = [2**n for n in range(shortest.bit_length() - 1, seq_len.bit_length())]
    between = [length + length // 2 for length in powers if length > shortest]
    return (*sorted(length for length in (*powers, *between) if length < seq_len), seq_len)


def window(length: int, seq_len: int) -> int:
    """Places that a pass of this length decides: those for which no shorter program of one sequence is there."""
    shorter = [other for other in lengths(seq_len, SHORTEST_ALONE) if other < length]
    return min(DRAFTED, length - max(shorter, default=0))


def slots(length: int) -> int:
    """How many sequences share a program of this length."""
    return max(1, POSITIONS // length)


def slot_of(tokens: Sequence[int], count: int) -> int:
    """Where a sequence lies among ``count`` slots that are not alike: what its tokens say, and nothing beside them."""
    return hashlib.sha256(np.asarray(tokens, "<u4").tobytes()).digest()[0] % count


class Scorer:
    """The compiled programs of one model on some devices.

    Args:
        model: parameters are used as they are (float32), whatever the training computed in.
        devices: how many execute side by side.
        ahead: how many sequences are handed to them, at least, before the first result is read.
        programs: those of earlier processes, for answers that nobody records or judges.

    Raises:
        UsageError: there are not so many devices, or ``ahead`` is less than one.
    """

    def __init__(
        self,
        model: LmHeadModel,
        recipe: Recipe,
        *,
        devices: int = 1,
        ahead: int = 16,
        programs: ProgramCache | None = None,
    ) -> None:
        if ahead < 1:
            raise UsageError(
                "nothing can be scored at once", where="--batch-size", expected="1 or more", found=str(ahead)
            )
        self.recipe, self.seq_len, self.devices, self.ahead = recipe, recipe.model.seq_len, devices, ahead
        self.mesh = mesh_of(devices)
        self._split, whole = NamedSharding(self.mesh, P(DATA)), NamedSharding(self.mesh, P())
        arrays, self.static = eqx.partition(model, eqx.is_inexact_array)
        self.arrays = jax.device_put(arrays, whole)
        self.programs = programs
        self._score = self.shared(self.scored_rows, 2)
        self.next_program = self.shared(self.next_tokens, 4)
        self.causal = has_causal_pass(recipe)
        portable = recipe.arithmetic.profile in ("portable-cpu", "arm-cpu")
        point = own_points("marin.drafts").get("drafts") if self.causal or portable else None
        self.drafts: Drafts | None = None if point is None else point.load()(model, recipe)
        # Else a later position could change a bit, and a pass decides one place, the last.
        self.many = self.causal or self.drafts is not None
        self._known: dict[tuple[int, int], bool] = {}

    def holding(self, model: LmHeadModel) -> Scorer:
        """The same programs, nothing compiled anew, on another state of the same model."""
        other = copy(self)
        arrays, _ = eqx.partition(model, eqx.is_inexact_array)
        other.arrays = jax.device_put(arrays, NamedSharding(self.mesh, P()))
        other.drafts = self.drafts and self.drafts.holding(model)
        other.many = self.causal or other.drafts is not None
        return other

    def one_by_one(self) -> Scorer:
        """As texts were generated before there was a causal pass under ``exact``: by Levanter's, each token by a pass of its own.
        Of another profile nothing changes."""
        if not self.causal:
            return self
        other = copy(self)
        other.causal, other.many, other.drafts, other.programs = False, False, None, None
        other.next_program = other.shared(other.next_tokens, 4)
        return other

    def shared(self, function: Callable[..., Any], rows: int) -> Callable[..., Any]:
        """``function`` of the parameters and ``rows`` arrays with as many rows for each device, compiled once for each shape as
        the recipe's profile asks."""
        over = partial(jax.shard_map, mesh=self.mesh, check_vma=False, out_specs=P(DATA))
        specs = (P(), *(P(DATA) for _ in range(rows)))
        if self.recipe.arithmetic.profile != "exact":
            return self._through_cache(function, jax.jit(over(function, in_specs=specs)))
        profile = exact_profile()

        def fixed(zero: Any, arrays: Any, *given: jax.Array) -> Any:
            one = [jax.ShapeDtypeStruct((x.shape[0] // self.devices, *x.shape[1:]), x.dtype) for x in given]
            shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
            program = profile.fixed(function, shapes, *one, recipe=self.recipe)
            return over(program, in_specs=(P(), *specs))(zero, arrays, *given)

        program = self._through_cache(function, jax.jit(fixed))

        def exactly(arrays: Any, *given: jax.Array) -> Any:
            with jax.enable_x64(True):
                return program(profile.zero(), arrays, *given)

        return exactly

    def _through_cache(self, function: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
        """``traced`` of ``function``; where it is a method of this class, as a process before may have traced it."""
        own = getattr(function, "__self__", None) is self
        return self.programs.program(function.__name__, traced) if self.programs and own else traced

    # -- what is asked

    def score(self, rows: Sequence[Row], done: Callable[[int], None] = lambda count: None) -> list[Scored]:
        """Each row's log-likelihoods, in the order of ``rows``. ``done`` hears how many are there.

        Raises:
            UsageError: a row has more tokens than one more than the model's context, or one that the model does not know.
        """
        found: dict[int, Scored] = {}

        def read(place: int, part: slice, logprobs: np.ndarray, greedy: np.ndarray) -> None:
            found[place] = Scored(tuple(logprobs[part].tolist()), bool(greedy[part].all()))
            done(len(found))

        self.answered(self._score, rows, read)
        return [found[place] for place in range(len(rows))]

    def generate(self, prompts: Sequence[Prompt], seed: int = 0) -> list[tuple[int, ...]]:
        """The new tokens of each prompt. One that the model ends (end of text) keeps that token as its last.

        Raises:
            UsageError: a prompt is empty, leaves no room in the model's context, or has a token that the model does not know.
        """
        begun = [self.begin(prompt, seed) for prompt in prompts]
        waiting, active = deque(one for one in begun if one.prompt.limit > 0), list[Continuation]()
        while active or waiting:
            active += [waiting.popleft() for _ in range(min(len(waiting), max(AT_ONCE, self.devices) - len(active)))]
            self.advance(active, ahead=sum(one.prompt.limit for one in waiting))
            active = [one for one in active if not self.ended(one)]
        return [one.new for one in begun]

    def begin(self, prompt: Prompt, seed: int) -> Continuation:
        """``prompt`` without a new token yet."""
        self._check([prompt.tokens])
        key = np.asarray(named_key(seed, prompt.name)) if prompt.temperature else np.zeros(2, np.uint32)
        return Continuation(prompt, key, list(prompt.tokens))

    def advance(self, active: Sequence[Continuation], ahead: int = 0, *, alone: bool = False) -> None:
        """Further tokens for each, one at least: the same ones whatever else advances with it. ``ahead``: how many tokens are
        wanted besides; ``alone``: with no proposal.

        Raises:
            UsageError: one is empty, or fills the model's context.
        """
        proposed = [() if alone or not self.many else self._proposal(one) for one in active]
        if self.drafts is not None and not alone:
            others = [place for place, said in enumerate(proposed) if not said]
            for place, draft in zip(others, self.drafts.propose([active[one] for one in others], ahead), strict=True):
                proposed[place] = draft
        waiting, again = [], []
        for length, places in self._alone([len(one.tokens) for one in active]):
            count = window(length, self.seq_len) if self.many else 1
            ids, at = np.zeros((self.devices, length), np.int32), np.zeros((self.devices, count), np.int32)
            key, heat = np.zeros((self.devices, 2), np.uint32), np.zeros((self.devices,), np.float32)
            group = [(one := active[place], proposed[place][: length - len(one.tokens)]) for place in places]
            for line, (one, draft) in enumerate(group):
                known = (*one.tokens, *draft)
                ids[line, : len(known)], key[line], heat[line] = known, one.key, one.prompt.temperature
                at[line] = np.minimum(len(one.tokens) - 1 + np.arange(count), length - 1)
            waiting.append((group, self.next_program(self.arrays, *(self._put(x) for x in (ids, at, key, heat)))))
        for group, answers in waiting:
            for (one, draft), tokens, values in zip(group, *map(np.asarray, answers), strict=False):
                if draft and not math.isfinite(values[0]):  # a later position may have done that: 0 times NaN is NaN
                    again.append(one)
                    continue
                for token, value, guess in zip(tokens.tolist(), values.tolist(), (*draft, None), strict=False):
                    if draft and not math.isfinite(value):
                        break
                    one.tokens.append(token)
                    if token != guess or self.ended(one):
                        break
        if again:
            self.advance(again, alone=True)

    def _proposal(self, one: Continuation) -> tuple[int, ...]:
        """What is claimed to come next, where the claim was right so far and could be tokens."""
        new, said = one.new, one.prompt.said
        if not said or said[: len(new)] != new:
            return ()
        rows = self._vocabulary()
        return said[len(new) :] if all(0 <= token < rows for token in said) else ()

    def ended(self, one: Continuation) -> bool:
        """Whether nothing more is to come: it has as many tokens as it may, or a stop, or an end of text."""
        new = one.new
        full = len(new) >= one.prompt.limit or len(one.tokens) > self.seq_len
        return full or new[-1] in self.recipe.tokens.stops or one.prompt.stop(new)

    # -- how it is executed

    def answered(self, program: Callable[..., Any], rows: Sequence[Row], read: Callable[..., None]) -> None:
        """Give every row to ``program``, and its answers, with the part of them that is asked for, to ``read``."""
        waiting: list[tuple[list[tuple[int, int]], Any]] = []
        self._check([row.tokens for row in rows])

        def answered() -> None:
            placed, answers = waiting.pop(0)
            arrays = [np.asarray(answer) for answer in answers]
            for line, place in placed:
                end = len(rows[place].tokens) - 1
                read(place, slice(end - rows[place].scored, end), *(array[line] for array in arrays))

        for length, placed in self._together(program, rows):
            ids, targets = (np.zeros((self.devices * slots(length), length), np.int32) for _ in range(2))
            for line, place in placed:
                tokens = rows[place].tokens
                ids[line, : len(tokens) - 1], targets[line, : len(tokens) - 1] = tokens[:-1], tokens[1:]
            waiting.append((placed, program(self.arrays, self._put(ids), self._put(targets))))
            while sum(len(before) for before, _ in waiting) >= self.ahead and waiting:
                answered()
        while waiting:
            answered()

    def _together(
        self, program: Callable[..., Any], rows: Sequence[Row]
    ) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Fixed lengths with what one program of all devices takes: lines of its arrays, each with the place of a row."""
        for length, places in self._by_length([len(row.tokens) - 1 for row in rows], SHORTEST):
            count = slots(length)
            if self.alike(program, length):
                for start in range(0, len(places), self.devices * count):
                    yield length, list(enumerate(places[start : start + self.devices * count]))
                continue
            queues: list[list[int]] = [[] for _ in range(count)]
            for place in places:
                queues[slot_of(rows[place].tokens, count)].append(place)
            for start in range(0, max(map(len, queues)), self.devices):
                yield (
                    length,
                    [
                        (device * count + slot, place)
                        for slot, queue in enumerate(queues)
                        for device, place in enumerate(queue[start : start + self.devices])
                    ],
                )

    def alike(self, program: Callable[..., Any], length: int) -> bool:
        """Whether every slot of the program for ``length`` gives one sequence the same bits."""
        count, key = self.devices * slots(length), (id(program), length)
        if key not in self._known and count > 1:
            draw = np.random.default_rng(length)
            one = draw.integers(0, self._vocabulary(), (2, 1, length)).astype(np.int32)
            ids, targets = (self._put(np.repeat(part, count, axis=0)) for part in one)
            answers = [np.asarray(answer) for answer in program(self.arrays, ids, targets)]
            self._known[key] = all(line.tobytes() == answer[0].tobytes() for answer in answers for line in answer)
        return count == 1 or self._known[key]

    def _check(self, texts: Sequence[Sequence[int]]) -> None:
        """Refuse a token without a row of the embedding: jax would take another row, torch raises."""
        rows = self._vocabulary()
        for tokens in texts:
            if max(tokens, default=0) >= rows or min(tokens, default=0) < 0:
                raise UsageError(
                    "a token that the model does not know",
                    where="tokens of a text",
                    expected=f"numbers from 0 to {rows - 1}",
                    found=str(next(token for token in tokens if not 0 <= token < rows)),
                    cure="leave this text out: the tokenizer has a token for it that the model never had",
                )

    def _vocabulary(self) -> int:
        return int(eqx.combine(self.arrays, self.static).Vocab.size)

    def _alone(self, sizes: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Fixed lengths with the places of as many sequences as there are devices."""
        for length, places in self._by_length(sizes, SHORTEST_ALONE):
            for start in range(0, len(places), self.devices):
                yield length, places[start : start + self.devices]

    def _by_length(self, sizes: Sequence[int], shortest: int) -> Iterator[tuple[int, list[int]]]:
        """Fixed lengths with the places of the sequences that they are for; the longest first."""
        programs = lengths(self.seq_len, shortest)
        by_length: dict[int, list[int]] = {length: [] for length in reversed(programs)}
        for place, size in enumerate(sizes):
            if not 0 < size <= self.seq_len:
                raise UsageError(
                    "a sequence that the model cannot take",
                    where=f"request {place}",
                    expected=f"1 to {self.seq_len} tokens before the last that is predicted",
                    found=str(size),
                )
            by_length[next(length for length in programs if size <= length)].append(place)
        yield from ((length, places) for length, places in by_length.items() if places)

    def _put(self, rows: np.ndarray) -> jax.Array:
        return jax.device_put(rows, self._split)

    def logits(self, arrays: Any, ids: jax.Array) -> jax.Array:
        """float32[row, length, vocabulary] of sequences, int32[row, length]."""
        model = eqx.combine(arrays, self.static)
        Batch, Pos = Axis("batch", ids.shape[0]), Axis("position", ids.shape[1])
        named = hax.named(ids, (Batch, Pos))
        logits = model(named, attention_mask(self.recipe, named)).rearrange((Batch, Pos, model.Vocab))
        return jax.lax.optimization_barrier(logits.array.astype(jnp.float32))

    def scored_rows(self, arrays: Any, ids: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of one device's rows, int32[row, length] each: float32[row, length] and bool[row, length]."""
        logits = self.logits(arrays, ids)
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        logprobs = chosen - jax.nn.logsumexp(logits, axis=-1)
        return logprobs, jnp.argmax(logits, axis=-1) == targets

    def next_tokens(self, arrays: Any, ids: jax.Array, at: jax.Array, key: jax.Array, heat: jax.Array) -> Any:
        """The tokens after positions ``at``, int32[1, count], of one device's row: int32[1, count], with what each had in the
        draw, float32: the most of logits over temperature plus Gumbel noise, which has the softmax's chances (Gumbel 1954;
        Maddison et al. 2014)."""
        if self.causal:
            logits = exact_profile().causal_logits(eqx.combine(arrays, self.static), ids, at)[0]
        else:
            logits = jnp.take(self.logits(arrays, ids)[0], at[0], axis=0)
        if self.recipe.arithmetic.profile in CPU_PROFILES:  # the same bits, in half the time
            noise = gumbel(jnp.broadcast_to(key, (at.shape[1], 2)), at[0], logits.shape[-1])
        else:
            noise = jax.vmap(lambda place: jrandom.gumbel(jrandom.fold_in(key[0], place), logits.shape[-1:]))(at[0])
        warm = logits / jnp.where(heat[0] > 0, heat[0], 1.0) + jnp.where(heat[0] > 0, noise, 0.0)
        chosen = jnp.argmax(warm, axis=-1).astype(jnp.int32)
        return chosen[None], jnp.take_along_axis(warm, chosen[:, None], axis=-1)[None, :, 0]
