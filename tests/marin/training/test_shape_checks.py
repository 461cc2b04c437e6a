"""A thread that takes named trees apart, as Levanter's loader does, does not disturb another one."""

from __future__ import annotations

import threading

import haliax as hax
import haliax.core
import jax
import jax.numpy as jnp
import pytest

from marin.training.runtime.shape_checks import per_thread


def test_a_thread_switches_for_itself_alone() -> None:
    per_thread()
    inside, left = threading.Event(), threading.Event()

    def other() -> None:
        with haliax.core.enable_shape_checks(False):
            inside.set()
            left.wait(600)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(600)
    assert haliax.core.are_shape_checks_enabled(), "off in the other thread alone"
    with haliax.core.enable_shape_checks(False):
        left.set()  # with one switch for all, the other thread now puts back what it found: on
        thread.join(600)
        assert not haliax.core.are_shape_checks_enabled()
    assert haliax.core.are_shape_checks_enabled()


def test_trees_are_put_together_and_arrays_still_checked() -> None:
    per_thread()
    named = hax.named(jnp.zeros(4), "embed")
    lifted = jax.tree.map(lambda x: x[None], named)
    assert lifted.array.shape == (1, 4)
    with pytest.raises(ValueError, match=r"(?i)shape"):
        hax.named(jnp.zeros((1, 4)), "embed")
