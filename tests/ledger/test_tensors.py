"""Tensor and state digests against a naive oracle, over every layout that could change them and must not."""

import hashlib
import json
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import (
    Malformed,
    NotFound,
    Refused,
    StateManifest,
    TensorHasher,
    describe_state,
    state_digest,
    tensor_digest,
    tensor_info,
)
from ledger.tensors.tensors import TILE_SIZE


def merkle(leaves: list[bytes]) -> bytes:
    """RFC 6962, written down from its text."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + merkle(leaves[:split]) + merkle(leaves[split:])).digest()


def oracle(dtype: str, shape: tuple[int, ...], data: bytes) -> str:
    tiles = [data[start : start + TILE_SIZE] for start in range(0, len(data), TILE_SIZE)]
    bound = {"dtype": dtype, "root": merkle(tiles).hex(), "shape": list(shape)}
    text = json.dumps(bound, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_one_tensor_by_hand() -> None:
    array = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=np.float32)
    assert tensor_digest(array) == oracle("float32", (2, 3), array.tobytes())
    # Written out once, so that a change of the bytes cannot pass by changing oracle and code together.
    assert tensor_digest(array) == "sha256:25a1cba2aa96f7a2d135a35b5ba4e2a59aea5b898481485472d6e7a46651b124"


DTYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


@given(
    st.sampled_from([*DTYPES, "bfloat16", "float8_e4m3fn"]),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_every_layout_has_the_digest_of_the_oracle(dtype: str, extents: list[int], seed: int) -> None:
    shape = tuple(extents)
    small = np.random.default_rng(seed).integers(0, 2, shape)
    array = np.asarray(small).astype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)
    expected = oracle(dtype, shape, array.tobytes())
    assert tensor_digest(array) == expected
    assert tensor_digest(array.copy(order="F")) == expected
    spread = np.zeros((*shape, 2), array.dtype)
    spread[..., 0] = array
    assert tensor_digest(spread[..., 0]) == expected
    if dtype in DTYPES:
        assert tensor_digest(array.astype(array.dtype.newbyteorder(">"))) == expected


@pytest.mark.parametrize("tiles", [0.5, 1, 1.5, 2, 8, 8.25, 19])
@pytest.mark.parametrize("layout", ["plain", "transposed", "big-endian"])
def test_tiles_and_tasks_meet_without_a_gap(tiles: float, layout: str) -> None:
    rows = int(tiles * TILE_SIZE) // 4 // 128
    array = np.arange(rows * 128, dtype=np.int32).reshape(rows, 128)
    expected = oracle("int32", array.shape, array.tobytes())
    if layout == "transposed":
        array = np.ascontiguousarray(array.T).T
    elif layout == "big-endian":
        array = array.astype(">i4")
    assert tensor_digest(array) == expected


def test_what_differs_has_another_digest() -> None:
    base = np.arange(6, dtype=np.int32).reshape(2, 3)
    others = [
        base.reshape(3, 2),
        base.reshape(6),
        base.reshape(1, 2, 3),
        base.T,
        base.astype(np.int64),
        base.view(np.uint32),
        base.view(np.float32),
        base + 1,
        np.array(5, np.int32),
        np.zeros((0, 3), np.int32),
        np.zeros((3, 0), np.int32),
    ]
    assert len({tensor_digest(array) for array in [base, *others]}) == len(others) + 1
    assert tensor_digest(np.array([0.0])) != tensor_digest(np.array([-0.0]))


def test_jax_arrays_are_digested_as_their_numbers() -> None:
    jnp = pytest.importorskip("jax.numpy")
    array = jnp.arange(12, dtype=jnp.bfloat16).reshape(3, 4)
    assert tensor_digest(array) == oracle("bfloat16", (3, 4), np.asarray(array).tobytes())


def test_jax_keys_are_refused_with_a_cure() -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(Refused, match="key_data"):
        tensor_digest(jax.random.key(0))


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.array([object()]),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, np.longdouble),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, ml_dtypes.int4),
    ],
)
def test_types_without_fixed_bytes_are_refused(array: np.ndarray) -> None:
    with pytest.raises(Refused) as caught:
        tensor_digest(array)
    assert caught.value.cure


@settings(max_examples=30)
@given(st.lists(st.integers(1, 700_000), min_size=1, max_size=8))
def test_the_hasher_takes_pieces_of_any_length(lengths: list[int]) -> None:
    data = np.random.default_rng(1).bytes(sum(lengths))
    hasher = TensorHasher("uint8", [len(data)])
    start = 0
    for length in lengths:
        hasher.update(data[start : start + length])
        start += length
    assert hasher.digest() == hasher.digest() == oracle("uint8", (len(data),), data)


@pytest.mark.parametrize("given_bytes", [0, 7, 9])
def test_the_hasher_refuses_too_few_and_too_many_bytes(given_bytes: int) -> None:
    hasher = TensorHasher("float32", (2,))
    hasher.update(bytes(given_bytes))
    with pytest.raises(Refused, match="expected 8, found"):
        hasher.digest()


def test_a_state_is_its_sorted_pairs() -> None:
    state = {"b": np.arange(3), "a/w": np.ones((2, 2), np.float32)}
    manifest = describe_state(state)
    assert [tensor.path for tensor in manifest.tensors] == ["a/w", "b"]
    digests = {path: tensor_digest(array) for path, array in state.items()}
    text = json.dumps(
        {"kind": "state", "tensors": [{"digest": digests[p], "path": p} for p in sorted(digests)], "version": 1},
        separators=(",", ":"),
    )
    expected = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert manifest.digest == state_digest(digests) == state_digest({t.path: t for t in manifest.tensors}) == expected
    assert StateManifest.parse(manifest.encode()) == manifest
    assert manifest.tensor("a/w").shape == (2, 2)
    with pytest.raises(NotFound):
        manifest.tensor("c")


def test_states_say_where_they_differ() -> None:
    one = describe_state({"a": np.zeros(3), "b": np.ones(2), "c": np.ones(1)})
    two = describe_state({"a": np.zeros(3), "b": np.ones(3), "d": np.ones(1)})
    assert one.differing(two) == ("b", "c", "d")
    assert one.differing(one) == ()


@pytest.mark.parametrize(
    "change",
    [
        (b'"nbytes":24', b'"nbytes":25'),
        (b'"shape":[3]', b'"shape":[-3]'),
        (b'"shape":[3]', b'"shape":3'),
        (b'"kind":"state"', b'"kind":"tree"'),
        (b'"path":"a"', b'"path":"z"'),
        (b'"path":"a"', b'"path":1'),
        (b'"version":1', b'"version":1,"x":1'),
        (b'"dtype":"float64"', b'"dtype":"object"'),
    ],
)
def test_state_manifests_are_read_strictly(change: tuple[bytes, bytes]) -> None:
    data = describe_state({"a": np.zeros(3), "b": np.zeros(3)}).encode()
    assert change[0] in data
    with pytest.raises((Malformed, Refused)):
        StateManifest.parse(data.replace(change[0], change[1], 1))


def test_memory_stays_below_its_bound() -> None:
    array = np.zeros((4096, 6144), np.float32).T  # 96 MiB, not contiguous: the worst case
    tracemalloc.start()
    info = tensor_info("x", array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert info.nbytes == array.nbytes
    assert peak < 64 * 1024 * 1024
