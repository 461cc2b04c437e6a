"""One state, many forms: memory, a TensorStore checkpoint in any layout (as Levanter writes: zarr3 in OCDBT),
safetensors, the store's own states. The digest is the same, because it is that of the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorstore
from buckets import Bucket
from safetensors.numpy import load_file, save_file

from ledger import Store, describe_state, load_slices, put_slices
from tests.ledger.memory import MemoryStorage

RNG = np.random.default_rng(11)
STATE: dict[str, np.ndarray] = {
    "model/w": RNG.standard_normal((700, 900)).astype(np.float32),
    "model/half": RNG.standard_normal((33, 65)).astype(ml_dtypes.bfloat16),
    "moments/count": np.array(240, np.int32),
    "key": np.array([0, 2**31 + 5], np.uint32),
}
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one chunk": ({"driver": "zarr3"}, {}),
    "small chunks": ({"driver": "zarr3"}, {"chunk": [64, 100]}),
    "sharded": ({"driver": "zarr3"}, {"chunk": [128, 300], "inner": [32, 100]}),
    "column order": (
        {
            "driver": "zarr3",
            "metadata": {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "bytes"}]},
        },
        {},
    ),
    "big-endian, compressed": (
        {
            "driver": "zarr3",
            "metadata": {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "gzip"}]},
        },
        {},
    ),
}


def written(base: str, path: str, array: np.ndarray, layout: str) -> np.ndarray:
    """Write an array in a layout where it has one (two axes, standard types), and read it back."""
    spec, chunks = LAYOUTS[layout]
    store = {"driver": "ocdbt", "base": base, "path": f"{path}/"}
    if array.ndim != 2 or array.dtype != np.float32:
        spec, chunks = {"driver": "zarr3"}, {}
    more: dict[str, Any] = {}
    if "inner" in chunks:
        more["chunk_layout"] = tensorstore.ChunkLayout(
            write_chunk_shape=chunks["chunk"], read_chunk_shape=chunks["inner"]
        )
    elif chunks:
        more["chunk_layout"] = tensorstore.ChunkLayout(chunk_shape=chunks["chunk"])
    made = tensorstore.open(
        {**spec, "kvstore": store}, create=True, dtype=array.dtype, shape=array.shape, **more
    ).result()
    made.write(array).result()
    found: np.ndarray = tensorstore.open({"driver": "zarr3", "kvstore": store}).result().read().result()
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_on_disk(tmp_path: Path, layout: str) -> None:
    found = {path: written(f"file://{tmp_path}/", path, array, layout) for path, array in STATE.items()}
    assert describe_state(found) == describe_state(STATE)


def test_a_checkpoint_in_a_bucket(gcs: Bucket) -> None:
    found = {path: written(f"{gcs.url}/checkpoint/", path, array, "one chunk") for path, array in STATE.items()}
    assert describe_state(found) == describe_state(STATE)


def test_safetensors(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "model.safetensors")
    assert describe_state(load_file(tmp_path / "model.safetensors")) == describe_state(STATE)


def test_the_store_s_own_states() -> None:
    store = Store(MemoryStorage())
    assert describe_state(load_slices(store, put_slices(store, STATE, 5).digest)) == describe_state(STATE)


def test_one_number_is_enough(tmp_path: Path) -> None:
    other = {**STATE, "model/w": STATE["model/w"].copy()}
    other["model/w"][699, 899] = np.nextafter(other["model/w"][699, 899], np.float32(9))
    save_file(other, tmp_path / "other.safetensors")
    assert describe_state(load_file(tmp_path / "other.safetensors")).differing(describe_state(STATE)) == ("model/w",)
