"""What draws completions by a state: proposals are made however it is fast, and one exact pass says which of them are drawn.

The pass has of each place of a completion the token that is drawn there, and no bit of a position depends on later ones
(:mod:`marin.plugins.exact.causal`). So where every token is the one that is drawn after those before it, drawing them one by one
gives them; up to the first that is another, and with the right one in its place, they are drawn too. What nobody proposes costs a
pass for each token. Who proposes decides no bit: the plugin ``drafts``, a record, or nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from marin.errors import Diverged
from marin.plugins.exact.causal import hidden_states
from marin.plugins.rl.policy import drawn_tokens, entropies, likely_logits, policy_logits, token_logprobs
from marin.provenance.plugins import own_points
from marin.recipe.schema import Recipe
from marin.training.runtime import hosts
from marin.training.runtime.profile import Fixed, exact_profile
from marin.training.state import batch_axes
from marin.training.step.slices import Layout

Tokens = list[tuple[int, ...]]


@dataclass(frozen=True)
class Looked:
    """Of each completion and each of its places (``max_completion_length`` of them; those after its end say nothing): the token
    that is drawn there, the log-probability of the one that stands there, and the entropy, int32 and float32."""

    drawn: np.ndarray
    logprobs: np.ndarray
    entropy: np.ndarray

    def put(self, rows: slice, other: Looked) -> None:
        """Have these rows as ``other`` has them."""
        self.drawn[rows], self.logprobs[rows], self.entropy[rows] = other.drawn, other.logprobs, other.entropy


class Drawing:
    """The program of one recipe that looks at completions, on the devices of ``mesh``."""

    def __init__(self, recipe: Recipe, layout: Layout, mesh: Mesh) -> None:
        assert recipe.objective is not None
        self.recipe, self.objective, self._layout = recipe, recipe.objective, layout
        self._by_row = NamedSharding(mesh, P(batch_axes(mesh)))
        micro, devices = recipe.arithmetic.microbatch_size, mesh.devices.size
        self.rows_at_once = micro if micro % devices == 0 else recipe.trainer.batch_size
        self._drafts: Any = None

    # -- what is drawn

    def drawn(
        self, arrays: Any, prompts: Tokens, keys: np.ndarray, said: Tokens | None = None
    ) -> tuple[Tokens, Looked]:
        """A completion of each prompt, by its key, and what the pass says of them. ``said``: what is claimed that they are: it is
        looked at, and never believed.

        Raises:
            Diverged: what is drawn does not settle, for the state gives no finite numbers.
        """
        size, count = self.rows_at_once, self.objective.max_completion_length
        begun: Tokens = list(said) if said is not None else [()] * len(prompts)
        found = begun if said is not None else self.proposed(arrays, prompts, keys, begun)
        passed = Looked(*(np.zeros((len(prompts), count), kind) for kind in (np.int32, np.float32, np.float32)))
        starts = list(range(0, len(prompts), size))
        for _ in range(count + 2):
            parts = [slice(at, at + size) for at in starts]
            answers = [self._handed(arrays, prompts[rows], found[rows], keys[rows]) for rows in parts]
            starts, right = [], list(found)
            for rows, answer in zip(parts, answers, strict=True):
                passed.put(rows, Looked(*map(hosts.whole, answer)))
                pairs = zip(found[rows], passed.drawn[rows].tolist(), strict=True)
                right[rows] = [self._right(*pair) for pair in pairs]
                if right[rows] != found[rows]:
                    starts.append(rows.start)
            if not starts:
                return found, passed
            found = self.proposed(arrays, prompts, keys, right)
        raise Diverged(
            "completions that do not settle",
            where="what is drawn by the state before an update",
            expected="finite logits",
            found="others in each pass over the same tokens",
            cure="lower optimizer.learning_rate",
        )

    def looked(self, arrays: Any, prompts: Tokens, completions: Tokens, keys: np.ndarray) -> Looked:
        """What one pass says of completions, whatever drew them."""
        size, found = self.rows_at_once, []
        for at in range(0, len(prompts), size):
            rows = slice(at, at + size)
            found.append(self._handed(arrays, prompts[rows], completions[rows], keys[rows]))
        parts = [[hosts.whole(x) for x in one] for one in found]
        return Looked(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def ended(self, new: Sequence[int]) -> bool:
        """Whether nothing comes after these tokens."""
        full = len(new) >= self.objective.max_completion_length
        return full or (len(new) > 0 and new[-1] in self.recipe.tokens.stops)

    def ids(self, prompts: Tokens, completions: Tokens) -> np.ndarray:
        """int32[row, seq_len]: each prompt and what comes after it."""
        ids = np.zeros((len(prompts), self.recipe.model.seq_len), np.int32)
        for row, (prompt, new) in enumerate(zip(prompts, completions, strict=True)):
            ids[row, : len(prompt) + len(new)] = (*prompt, *new)
        return ids

    def _right(self, said: tuple[int, ...], drawn: Sequence[int]) -> tuple[int, ...]:
        """What is drawn up to the first token that is another than the proposed one, and this one; whole where none is."""
        right: list[int] = []
        for at, token in enumerate(drawn):
            right.append(token)
            if self.ended(right) or at >= len(said) or said[at] != token:
                break
        return tuple(right)

    # -- what is proposed

    def proposed(self, arrays: Any, prompts: Tokens, keys: np.ndarray, begun: Tokens) -> Tokens:
        """Completions that go on from their beginnings, as far as the drafts propose."""
        point = own_points("marin.drafts").get("drafts")
        if point is None:
            return begun
        model = eqx.combine(arrays, self._layout.static)
        here = self._drafts
        self._drafts = point.load()(model, self.recipe, self._chosen) if here is None else here.holding(model)
        limit, stops = self.objective.max_completion_length, self.recipe.tokens.stops
        found: Tokens = self._drafts.completed(prompts, begun, keys, limit, stops)
        return found

    def _chosen(self, logits: jax.Array, noise: jax.Array, heat: jax.Array) -> jax.Array:
        """As the policy draws."""
        warm = likely_logits(self.objective, logits / np.float32(self.objective.temperature))
        return jnp.argmax(warm + noise, axis=-1).astype(jnp.int32)

    # -- how it is computed

    @cached_property
    def look(self) -> Fixed:
        """(parameters, tokens, place of the first, keys) -> of each place of a completion: the token that is drawn there, the
        log-probability of the one that stands there, and the entropy."""
        objective, static, size = self.objective, self._layout.static, self.rows_at_once
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
        return exact_profile().fixed(look, self._layout.named, *shapes, recipe=self.recipe)

    @cached_property
    def _look_compiled(self) -> Any:
        with jax.enable_x64(True):
            return jax.jit(self.look.__call__)

    def _handed(self, arrays: Any, prompts: Tokens, completions: Tokens, keys: np.ndarray) -> Any:
        """The answers of one pass, on their way."""
        first = np.asarray([len(prompt) - 1 for prompt in prompts], np.int32)
        with jax.enable_x64(True):
            rows = [jax.device_put(x, self._by_row) for x in (self.ids(prompts, completions), first, keys)]
            return self._look_compiled(exact_profile().zero(), arrays, *rows)


def _int32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)
