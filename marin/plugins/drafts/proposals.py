"""Which sequences have a place in the cache, and the tokens that are proposed to them.

A proposal is what the model draws there by sums of another order than those that decide: nearly always the same token. Whatever
is proposed, what is said is decided elsewhere, so nothing here needs care for a bit, a neighbour or another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from levanter.models.lm_model import LmHeadModel

from marin.evaluation.noise import gumbel
from marin.evaluation.scoring import DRAFTED, SHORTEST_ALONE, Continuation, Prompt, lengths, window
from marin.plugins.drafts import forward
from marin.plugins.drafts.forward import LayerCache, Parts, heads_of, logits_of, no_keys, parts, settle_cache, states_of
from marin.recipe.schema import Recipe

SIZES = (1, 4, 16)
"""Sequences for which there are programs; fewer leave places empty."""

NEW = DRAFTED + 4
"""New places of one program: of a sequence, its last tokens that are not in the cache yet, and those that are proposed."""

WORTH = 100_000_000
"""Parameters times tokens: for fewer, proposals are not worth the compilation of their programs."""

MOST_PARAMETERS = 1 << 30
"""Of a model: its matrices are in memory twice, once as they are proposed with."""

MOST_BYTES = 1 << 30
"""Of a cache, unless one sequence alone takes more."""


def choose_tokens(logits: jax.Array, noise: jax.Array, heat: jax.Array) -> jax.Array:
    """int32[sequence]: the likeliest token, of all or of those that the noise of a temperature leaves."""
    warm = logits / jnp.where(heat > 0, heat, 1.0) + jnp.where(heat > 0, noise, 0.0)
    return jnp.argmax(warm, axis=-1).astype(jnp.int32)


@dataclass
class _Row:
    """A row of the cache. ``known``: the cache has the tokens before; behind them, those that were ``fed`` to it."""

    one: Continuation
    known: int
    fed: tuple[int, ...] = ()

    @property
    def last(self) -> list[int]:
        """The tokens that the cache has not."""
        return self.one.tokens[self.known :]


def looks_ahead(model: LmHeadModel[Any], recipe: Recipe) -> bool:
    """Whether a pass may give weight to positions behind the one that it decides; that of ``exact`` has none that could."""
    return recipe.arithmetic.profile != "exact" and not forward.greatest_logit(model) < forward.FAR


class CachedDrafts:
    """:class:`marin.evaluation.scoring.Drafts` by one model.

    Args:
        choose: the tokens that are drawn of logits, by noise at temperatures.
    """

    def __init__(
        self, model: LmHeadModel[Any], recipe: Recipe, choose: Callable[..., jax.Array] = choose_tokens
    ) -> None:
        self.recipe, self._choose, self._config, self._model = recipe, choose, model.config, model
        self.worth = WORTH
        self.parts: tuple[Any, Any] | None = None
        self._places = recipe.model.seq_len + NEW
        one = jax.eval_shape(lambda: no_keys(self._config, 1, self._places + NEW))
        each = sum(4 * x.size for x in jax.tree.leaves(one))
        self.most = max(size for size in SIZES if size == 1 or size * each <= MOST_BYTES)
        self._rows: list[_Row | None] = []
        self._cache: tuple[LayerCache, ...] = ()
        self._read = jax.jit(self._reading, donate_argnums=(1,))
        self._draw = jax.jit(self._drawing, donate_argnums=(1,))

    def holding(self, model: LmHeadModel[Any]) -> CachedDrafts | None:
        if looks_ahead(model, self.recipe):
            return None
        other = CachedDrafts(model, self.recipe, self._choose)
        other.worth = self.worth
        if self.parts is not None:
            other._read, other._draw = self._read, self._draw
            other._lay()
        return other

    def propose(self, active: Sequence[Continuation], ahead: int) -> list[tuple[int, ...]]:
        """As :meth:`marin.evaluation.scoring.Drafts.propose`: what the next pass of each can decide."""
        wanted = sum(one.prompt.limit - len(one.new) for one in active) + ahead
        found: list[tuple[int, ...]] = [() for _ in active]
        active = active[: self.most]
        counts = [self._count(one) for one in active]
        if not any(counts) or not self._worth(wanted):
            return found
        self._place(active)
        while max(len(row.last) for row in self._rows if row is not None) > NEW - DRAFTED:
            self._read_more()
        said = self._draw_more({id(one): count for one, count in zip(active, counts, strict=True)})
        return [said[id(one)] for one in active] + found[len(active) :]

    def completed(
        self,
        prompts: Sequence[tuple[int, ...]],
        begun: Sequence[tuple[int, ...]],
        keys: np.ndarray,
        limit: int,
        stops: Any,
    ) -> list[tuple[int, ...]]:
        """What may come after each prompt and what is known to, up to a token of ``stops`` or ``limit`` tokens; or not so far.
        ``keys``: uint32[prompt, 2], of what is drawn."""
        found, left = list(begun), [row for row, new in enumerate(begun) if self._cut(new, limit, stops) is None]
        while left:
            rows, left = left[: self.most], left[self.most :]
            # One more than there may be: it is another's pass that says the last one of a whole prompt.
            of = [Prompt(prompts[row], limit + 1, lambda new: False, 1.0) for row in rows]
            active = [
                Continuation(one, keys[row], [*one.tokens, *found[row]]) for one, row in zip(of, rows, strict=True)
            ]
            while active:
                drafts = self.propose(active, limit * len(left))
                for one, draft in zip(active, drafts, strict=True):
                    one.tokens.extend(draft)
                going = zip(list(active), list(rows), drafts, strict=True)
                active, rows = [], []
                for one, row, draft in going:
                    cut = self._cut(one.new, limit, stops)
                    found[row] = one.new if cut is None else cut
                    if draft and cut is None:
                        active.append(one)
                        rows.append(row)
        return found

    @staticmethod
    def _cut(new: tuple[int, ...], limit: int, stops: Any) -> tuple[int, ...] | None:
        """As much of what was drawn as is a whole completion; None where there is more to come."""
        ends = next((at + 1 for at, token in enumerate(new) if token in stops), None)
        return new[: min(ends or limit, limit)] if ends is not None or len(new) >= limit else None

    def _count(self, one: Continuation) -> int:
        size = len(one.tokens)
        length = next((length for length in lengths(self.recipe.model.seq_len, SHORTEST_ALONE) if length >= size), 0)
        decided = min(window(length, self.recipe.model.seq_len), length - size + 1) if length else 0
        return max(0, min(decided, one.prompt.limit - len(one.new)) - 1)

    def _worth(self, wanted: int) -> bool:
        """Whether so many tokens are worth the compilation; from then on, all are."""
        if self.parts is None:
            size = sum(x.size for x in jax.tree.leaves(self._model) if eqx.is_array(x))
            if wanted * size >= self.worth and size <= MOST_PARAMETERS:
                self._lay()
        return self.parts is not None

    def _lay(self) -> None:
        self.parts = eqx.partition(_parts(self._model), eqx.is_array)

    @property
    def _arrays(self) -> Any:
        assert self.parts is not None
        return self.parts[0]

    def _whole(self, arrays: Any) -> Parts:
        assert self.parts is not None
        whole: Parts = eqx.combine(arrays, self.parts[1])
        return whole

    def _place(self, active: Sequence[Continuation]) -> None:
        """Give each a row of the cache; what is not active has none any more."""
        kept = [number for number, row in enumerate(self._rows) if row and any(row.one is one for one in active)]
        size = next(size for size in SIZES if size >= len(active))
        if size != len(self._rows):
            source = np.asarray([*kept, *(0 for _ in range(size - len(kept)))])
            old = self._cache
            taken = jax.tree.map(lambda x: x[source], old) if old else no_keys(self._config, size, self._places + NEW)
            self._cache = jax.device_put(taken, jax.devices()[0])  # at once where its programs leave it
            self._rows = [*(self._rows[number] for number in kept), *(None for _ in range(size - len(kept)))]
        else:
            self._rows = [row if number in kept else None for number, row in enumerate(self._rows)]
        there = {id(row.one) for row in self._rows if row is not None}
        others = iter([one for one in active if id(one) not in there])
        self._rows = [row or self._row(next(others, None)) for row in self._rows]
        for row in filter(None, self._rows):
            same = (ours == theirs for ours, theirs in zip(row.fed, row.last[:-1], strict=False))
            row.known += sum(1 for _ in takewhile(bool, same))
            row.fed = ()

    def _row(self, one: Continuation | None) -> _Row | None:
        return None if one is None else _Row(one, self._begin(one.tokens))

    def _begin(self, tokens: Sequence[int]) -> int:
        """The first position that the last one sees: with ``trainer.packing=isolated`` that of its document."""
        if self.recipe.trainer.packing is None:
            return 0
        ends = (place + 1 for place, token in enumerate(tokens[:-1]) if token == self.recipe.tokens.end)
        return max(ends, default=0)

    def _of_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens begin that are not in the cache, and what each sequence sees from."""
        rows = [(row.known, self._begin(row.one.tokens)) if row else (0, 0) for row in self._rows]
        known, first = np.asarray(rows, np.int32).T
        return known, first

    def _read_more(self) -> None:
        """Keys and values of the next tokens of each sequence, but of its last one."""
        tokens, places = np.zeros((len(self._rows), NEW), np.int32), self._of_rows()
        for number, row in enumerate(self._rows):
            part = row.last[:-1][:NEW] if row else []
            tokens[number, : len(part)] = part
            if row:
                row.known += len(part)
        self._cache = self._read(self._arrays, self._cache, tokens, *places)

    def _draw_more(self, wanted: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """So many tokens for each sequence, by its id."""
        size, steps, found = len(self._rows), 0, {}
        tokens, keys, heat = (
            np.full((NEW, size), -1, np.int32),
            np.zeros((size, 2), np.uint32),
            np.zeros(size, np.float32),
        )
        for number, row in enumerate(self._rows):
            if row is not None:
                tokens[: len(row.last), number] = row.last
                keys[number], heat[number] = row.one.key, row.one.prompt.temperature
                steps = max(steps, len(row.last) + wanted[id(row.one)] - 1)
        given = tokens, *self._of_rows(), keys, heat, np.int32(steps)
        self._cache, said = self._draw(self._arrays, self._cache, *given)
        for row, drawn in zip(self._rows, np.asarray(said).T.tolist(), strict=True):
            if row is not None:
                new = tuple(drawn[len(row.last) - 1 : steps])
                found[id(row.one)] = new[: wanted[id(row.one)]]
                row.known, row.fed = len(row.one.tokens), new[:-1]
        return found

    # -- what is compiled

    def _reading(self, arrays: Any, cache: Any, tokens: jax.Array, begun: jax.Array, first: jax.Array) -> Any:
        model, place = self._whole(arrays), jnp.arange(NEW)
        positions = jnp.minimum(begun[:, None] + place, self.recipe.model.seq_len - 1)
        seen = self._seen(begun, first, place)
        _, cache = states_of(model, heads_of(self._config), tokens, positions, cache, self._places, seen)
        return settle_cache(cache, self._places, begun)

    def _drawing(
        self,
        arrays: Any,
        cache: Any,
        tokens: jax.Array,
        begun: jax.Array,
        first: jax.Array,
        keys: jax.Array,
        heat: jax.Array,
        steps: jax.Array,
    ) -> Any:
        model, heads = self._whole(arrays), heads_of(self._config)

        def step(at: jax.Array, before: Any) -> Any:
            token, cache, said = before
            token = jnp.where(tokens[at] < 0, token, tokens[at])
            position = jnp.minimum(begun + at, self.recipe.model.seq_len - 1)
            seen = self._seen(begun, first, at[None])
            given = token[:, None], position[:, None], cache, self._places + at, seen
            states, cache = states_of(model, heads, *given)
            logits = logits_of(model, states)
            noise = jax.lax.cond(
                jnp.any(heat > 0),
                lambda: gumbel(keys, position, logits.shape[1]),
                lambda: jnp.zeros(logits.shape, jnp.float32),
            )
            token = self._choose(logits, noise, heat[:, None])
            return token, cache, jax.lax.dynamic_update_slice(said, token[None], (at, 0))

        start = jnp.zeros(len(begun), jnp.int32), cache, jnp.zeros((NEW, len(begun)), jnp.int32)
        _, cache, said = jax.lax.fori_loop(0, steps, step, start)
        return settle_cache(cache, self._places, begun), said

    def _seen(self, begun: jax.Array, first: jax.Array, at: jax.Array) -> jax.Array:
        """bool[sequence, count, place]: what new places ``at`` see, int32[count]."""
        place = jnp.arange(self._places + NEW)
        before = (place >= first[:, None]) & (place < begun[:, None])
        new = (place >= self._places) & (place <= self._places + at[:, None])
        return before[:, None] | new


def _parts(model: LmHeadModel[Any]) -> Parts:
    first = jax.devices()[0]
    return parts(jax.tree.map(lambda x: jax.device_put(x, first) if eqx.is_array(x) else x, model))
