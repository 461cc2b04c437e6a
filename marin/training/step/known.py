"""Known answers of whole train steps under ``portable-cpu``: does this machine give what a run would have?

A program of sums and products can agree where a run does not: jaxlib 0.11.2 and 0.12.0.1 give the same answer of
:mod:`marin.training.runtime.canary` and another GPT-2. So each training, and each replay of one, begins with the train steps
of a small Llama and a small GPT-2 (forward, backward, clipping, optimizer), in the very programs of a run, executed once for a
processor, a set of versions and our code. What a run recorded under another compiler is executed only where both compilers are
pinned here with one answer. The canary is small enough to be executed by each process: it says whether the contract's flags
are in force there.
"""

from __future__ import annotations

import hashlib
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from marin.errors import Unsupported
from marin.process.waiting import waiting
from marin.recipe.form.record import plain
from marin.recipe.schema import Arithmetic, Recipe, from_plain
from marin.training.optimizers.rule import optimizer
from marin.training.runtime.compilation import give_back_memory
from marin.training.runtime.products import canonical_products
from marin.training.runtime.turn import compiling
from marin.training.state import state_like
from marin.training.step.shards import shard_sums
from marin.training.step.slices import Layout, without_axis_names
from marin.training.step.update import slice_square, slice_update
from marin.work import answers

ARCHITECTURES = ("llama", "gpt2")
ANSWERS = {"0.11.2": "sha256:5badfa94ab90738e103e6a077ac4e98a7dc87aa7286f8bc2008b2579367fb6c8"}
"""Version of jaxlib -> the digest of both architectures' steps. One that is not here is not known to agree with any other."""
FILE = "marin/training/step/known.py"
VOCABULARY, STEPS, SEQUENCES, LENGTH = 96, 3, 8, 16
SIZES = {
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "num_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 2,
    "seq_len": LENGTH,
}


def answer(architecture: str) -> str:
    """``sha256:`` over the gradient, the parameters and the moments of each step, computed here and now."""
    canonical_products()
    recipe, number = _recipe(architecture), np.uint32(0)
    layout = Layout(state_like(recipe, VOCABULARY), optimizer(recipe), 1)
    params = tuple(_numbers(seed, x.shape).reshape(-1) for seed, x in enumerate(layout.params))
    moments = tuple(np.zeros(x.shape, x.dtype).reshape((-1,) if x.shape else ()) for x in layout.moments)
    weights = np.ones((SEQUENCES, LENGTH), np.float32)
    weights[:, -1] = 0
    hasher = hashlib.sha256()

    @jax.jit
    def gradient(rows: Any, tokens: Any) -> Any:
        arrays = layout.whole_params([x[None] for x in rows])
        grads, loss, weight = shard_sums(layout.static, recipe, arrays, tokens, weights)
        return tuple(x.reshape(-1) for x in jax.tree.leaves(without_axis_names(grads))), loss, weight

    square = jax.jit(slice_square)
    update: Any = jax.jit(partial(slice_update, recipe, layout))
    for step in range(STEPS):
        places = np.arange(SEQUENCES * LENGTH).reshape(SEQUENCES, LENGTH)
        grads, loss, weight = gradient(params, ((places**2 * (step + 3)) % 61 * 29 % VOCABULARY).astype(np.int32))
        params, moments, *told = update(params, moments, grads, square(grads), loss, weight, number)
        for one in jax.tree.leaves((grads, params, moments, told)):
            hasher.update(np.ascontiguousarray(one).tobytes())
    return "sha256:" + hasher.hexdigest()


def whole() -> str:
    """``sha256:`` over the answers of all architectures: what :data:`ANSWERS` pins. The contract is in force."""
    return "sha256:" + hashlib.sha256("".join(answer(one) for one in ARCHITECTURES).encode()).hexdigest()


def _recipe(architecture: str) -> Recipe:
    told = plain(Recipe(seed=0))
    told["model"] |= {**SIZES, "architecture": architecture}
    told["trainer"] |= {"batch_size": SEQUENCES, "num_steps": STEPS}
    told["optimizer"] |= {"warmup_steps": 1}
    told["arithmetic"] |= {"microbatch_size": SEQUENCES, "logical_shards": 1}
    return from_plain(told, where="known answers")


def _numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """float32 from -0.2 to 0.2 that need rounding, from integer arithmetic alone."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(seed << 32)
    mixed = (index * np.uint64(0x9E3779B97F4A7C15)) ^ (index << np.uint64(29))
    mixed = (mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(40)
    return ((mixed.astype(np.float64) / 2**23 - 1.0) * 0.2).astype(np.float32)


def check(arithmetic: Arithmetic) -> None:
    """Refuse to train where this machine, with what is installed, does not give the known answer. It is executed here and now,
    unless it came out before; one that did not is asked for again. The contract is in force.

    Raises:
        Unsupported: it does not, or this compiler has none yet.
    """
    if arithmetic.profile != "portable-cpu":
        return None
    here = version("jaxlib")
    expected = ANSWERS.get(here)
    if expected is None:
        raise Unsupported(
            "no known answer of whole train steps for this compiler",
            where=f"jaxlib {here}",
            expected="jaxlib " + ", ".join(ANSWERS),
            found=f"jaxlib {here}",
            cure="install requirements.lock, or train under profile=exact",
        )
    kept = answers.answer(FILE)
    if kept.digest == expected:
        return None
    with compiling("known-steps"), waiting("executing train steps whose answer is known, once for this machine"):
        if kept.digest == expected:  # by another process, meanwhile
            return None
        found = whole()
        give_back_memory()  # before the compiler of the train step needs as much again
        if found == expected:
            return kept.keep(found)
    raise Unsupported(
        "this machine does not give the known answer of whole train steps",
        where=f"profile {arithmetic.profile}, jaxlib {here}",
        expected=expected,
        found=found,
        cure="`marin doctor` says more; another processor may give it, and profile=exact needs no particular one",
    )


def check_recorded(arithmetic: Arithmetic, recorded: object) -> None:
    """Refuse to replay what another compiler made, unless both are known to give the same train steps, and this machine gives
    them. ``recorded``: the version of jaxlib that the run names; of one that names none nothing is asked.

    Raises:
        Unsupported: they are not, or it does not.
    """
    here = version("jaxlib")
    if arithmetic.profile != "portable-cpu" or not isinstance(recorded, str) or recorded == here:
        return
    if ANSWERS.get(recorded) is None or ANSWERS.get(recorded) != ANSWERS.get(here):
        raise Unsupported(
            "another compiler made this run",
            where=f"profile {arithmetic.profile}",
            expected=f"jaxlib {recorded}, or one with the same known answer of whole train steps",
            found=f"jaxlib {here}",
            cure="install the lock that the run names; a run under profile exact needs no compiler of its own",
        )
    check(arithmetic)
