"""The initial state by slices is what the initializer makes as a whole: in every cut, on any number of devices."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jrandom
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from marin.errors import UsageError
from marin.training import initial, state
from marin.training.checkpoints.digesting import describe
from marin.training.initial import Constant, Scope, initial_program, initial_slices, initial_state
from marin.training.optimizers.rule import optimizer
from marin.training.state import DATA, initial_state_function, manifest_of, state_like
from marin.training.step.contract import mesh_of
from marin.training.step.slices import FillRun, Layout, SlicedState


@pytest.mark.long(together="slices of an initial state", seconds=22)
@pytest.mark.parametrize("run", [initial.RUN, 37], ids=["at-once", "by-runs"])
@pytest.mark.parametrize("fields", [{}, {"architecture": "gpt2", "optimizer": "lion"}], ids=["llama", "gpt2"])
def test_slices_are_those_of_the_whole(
    worker: ModuleType, fields: dict[str, str], run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial, "RUN", run)  # of 37 elements most tensors take several, and the last one is not full
    recipe = worker.recipe_of(worker.Case(name="initial", length=8, **fields))
    whole = manifest_of(eqx.filter_jit(initial_state_function(recipe, worker.VOCABULARY))())
    assert manifest_of(initial_state(recipe, worker.VOCABULARY)) == whole
    sharding = NamedSharding(mesh_of(1), P(DATA))
    stack = "model/transformer/blocks" if fields else "model/transformer/layers"
    for count, layered in ((8, None), (3, None), (3, stack)):  # of three there is padding in most tensors
        layout = Layout(state_like(recipe, worker.VOCABULARY), optimizer(recipe), count, layered)
        slices = initial_slices(recipe, worker.VOCABULARY, layout, sharding)
        assert describe(slices, layout) == whole == manifest_of(layout.join(slices))
        assert initial_program(recipe, worker.VOCABULARY, layout.form).startswith("sha256:")


def test_what_makes_a_state_is_traced_once_to_make_it_and_to_name_it(
    worker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for its shapes and once for its programs, no matter who asks; and nothing that was made is kept."""
    recipe = worker.recipe_of(worker.Case(name="traced once", length=16))
    traced = []
    for module in (initial, state):
        monkeypatch.setattr(
            module, "initial_state_function", lambda *given: traced.append(1) or initial_state_function(*given)
        )
    fills: list[tuple[FillRun, str, int, int]] = []
    executed: list[int] = []
    call = jax.stages.Compiled.__call__

    class Asking(Layout):
        """Keeps who was asked for elements, and for which."""

        def place(self, fill: FillRun, *where: Any, **how: Any) -> SlicedState:
            def asked(name: str, start: int, into: np.ndarray) -> None:
                fills.append((fill, name, start, len(into)))
                fill(name, start, into)

            return super().place(asked, *where, **how)

    def counted(*given: Any) -> Any:
        executed.append(1)
        return call(*given)

    def executions() -> int:
        """How often a program is executed to give once more what was asked for last."""
        fill, name, start, count = fills[-1]
        executed.clear()
        fill(name, start, np.empty(count, layout.kinds[name][0]))
        return len(executed)

    monkeypatch.setattr(jax.stages.Compiled, "__call__", counted)
    layout = Asking(state_like(recipe, worker.VOCABULARY), optimizer(recipe), 8, None)
    first = initial_slices(recipe, worker.VOCABULARY, layout, NamedSharding(mesh_of(1), P(DATA)))
    assert (executions(), executions()) == (1, 0), "nothing that was made is kept"
    name = initial_program(recipe, worker.VOCABULARY, layout.form)
    whole = initial_state(recipe, worker.VOCABULARY, layout.form)
    assert executions() == 1, "nor of what made a whole"
    assert len(traced) == 2 and name == initial_program(recipe, worker.VOCABULARY, layout.form)
    assert describe(first, layout) == manifest_of(whole) == manifest_of(initial_state(recipe, worker.VOCABULARY))
    assert len(traced) == 3, "in another form the programs are others"


def test_elements_of_an_initializer_are_found_by_their_places() -> None:
    """What initializers are made of, and a part that has to be computed as a whole."""

    def drawn() -> jax.Array:
        keys = jrandom.split(jrandom.PRNGKey(3), 5)
        stacked = jax.vmap(lambda key: jrandom.truncated_normal(key, -2, 2, (4, 6)))(keys)
        moved = jnp.transpose(stacked, (2, 0, 1)).reshape(6, 20) * jnp.cumsum(jnp.arange(20.0))
        return jnp.where(jrandom.bernoulli(keys[1], 0.5, (6, 20)), moved, -moved[:, ::-1])

    closed = jax.make_jaxpr(drawn)()
    places = [np.array([0, 5, 2, 3], np.uint32), np.array([19, 0, 7, 11], np.uint32)]
    found = jax.jit(
        lambda *at: (
            Scope(closed.jaxpr, [Constant(jnp.asarray(value)) for value in closed.consts])
            .value(closed.jaxpr.outvars[0])
            .at(at)
        )
    )(*places)
    np.testing.assert_array_equal(found, jax.jit(drawn)()[tuple(places)])


def test_a_draw_whose_places_do_not_fit_into_a_word_is_refused() -> None:
    closed = jax.make_jaxpr(lambda: jrandom.normal(jrandom.PRNGKey(3), (2**17, 2**16)))()
    value = Scope(closed.jaxpr, [Constant(jnp.asarray(value)) for value in closed.consts]).value(
        closed.jaxpr.outvars[0]
    )
    with pytest.raises(
        UsageError, match=r"drawn by one key: the initial state: .*4294967296.* found \[131072, 65536\]"
    ):
        value.at([jnp.zeros((), jnp.uint32)] * 2)


def test_whoever_reads_a_state_is_asked_by_one_thread_unless_it_bears_more(worker: ModuleType) -> None:
    """What makes the initial state remembers what it made last; two threads would take each other's. Two that may, read two
    slices side by side, of one device too."""
    recipe = worker.recipe_of(worker.Case(name="initial", length=8))
    layout = Layout(state_like(recipe, worker.VOCABULARY), optimizer(recipe), 4)
    asking: list[set[int]] = []
    for at_once in (1, 2):
        seen: set[int] = set()
        together = threading.Barrier(at_once, timeout=600)

        def fill(name: str, start: int, into: np.ndarray, seen: set[int] = seen, together: Any = together) -> None:
            seen.add(threading.get_ident())
            if name == layout.names[-1]:
                together.wait()
            into[:] = 0

        layout.place(fill, NamedSharding(mesh_of(1), P(DATA)), at_once=at_once)
        asking.append(seen - {threading.get_ident()})
    assert asking[0] == set() and len(asking[1]) == 2
