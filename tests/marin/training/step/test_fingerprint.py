"""The fingerprint: what it must see, and that the compiled one says what the written-down one says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.training.step import fingerprint

WORDS = np.random.default_rng(5).integers(0, 2**32, 1000, dtype=np.uint32)


def by_hand(words: list[int]) -> list[int]:
    """The definition in plain integers, word by word."""
    mask, sums = 2**32 - 1, [0, 0]
    for position, word in enumerate(words):
        value = (word ^ (position * 0x9E3779B1 & mask)) * 0x85EBCA77 & mask
        value = (value ^ value >> 15) * 0xC2B2AE3D & mask
        value ^= value >> 13
        again = value * 0x27D4EB2F & mask
        sums = [(sums[0] + value) & mask, (sums[1] + (again ^ again >> 16)) & mask]
    return sums


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_it_is_what_its_definition_says(words: list[int]) -> None:
    assert fingerprint.of(np.array(words, np.uint32)).tolist() == by_hand(words)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "bfloat16"])
def test_compiled_and_host_agree(dtype: str) -> None:
    tensor = jnp.asarray(np.random.default_rng(1).normal(size=(3, 5, 7)) * 100).astype(dtype)
    assert np.asarray(jax.jit(fingerprint.words_sum)(tensor)).tolist() == fingerprint.of(np.asarray(tensor)).tolist()


def test_every_single_bit_is_seen() -> None:
    words = WORDS[:20]
    whole = fingerprint.of(words)
    for position in range(words.size):
        for bit in range(32):
            other = words.copy()
            other[position] ^= np.uint32(1 << bit)
            assert fingerprint.of(other)[0] != whole[0], (position, bit)


@given(st.permutations(range(12)))
def test_permutations_are_seen(order: list[int]) -> None:
    words = WORDS[:12]
    same = order == sorted(order)
    assert (fingerprint.of(words[order]).tolist() == fingerprint.of(words).tolist()) is same


def test_flips_that_cancel_in_plain_sums_are_seen() -> None:
    tensor = np.random.default_rng(2).normal(size=256).astype(np.float32)
    seen = {
        tuple(fingerprint.of(variant))
        for variant in (
            tensor,
            -tensor,
            np.where(np.arange(256) < 2, -tensor, tensor),
            np.abs(tensor),
            np.roll(tensor, 1),
            tensor[::-1],
        )
    }
    assert len(seen) == 6
    assert tuple(fingerprint.of(np.zeros(8, np.float32))) != tuple(fingerprint.of(-np.zeros(8, np.float32)))


@pytest.mark.parametrize("slices", [1, 2, 4, 8, 16])
def test_slices_add_up_to_the_whole_and_padding_counts_nothing(slices: int) -> None:
    width = -(-WORDS.size // slices)
    padded = np.full(width * slices, 0xDEADBEEF, np.uint32)
    padded[: WORDS.size] = WORDS
    total = np.zeros(2, np.uint32)
    for number in range(slices):
        piece = jnp.asarray(padded[number * width : (number + 1) * width])
        total += np.asarray(fingerprint.words_sum(piece, number * width, WORDS.size))
    assert total.tolist() == fingerprint.of(WORDS).tolist()


def test_a_type_without_a_fingerprint_is_refused() -> None:
    with pytest.raises(TypeError, match="no fingerprint"):
        fingerprint.words_sum(jnp.zeros(4, jnp.int8))
