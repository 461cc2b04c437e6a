"""The bytes of the store, as ledger/SPEC.md shows them: made again here, from the values that it names.

What the text shows is what the code writes; digests are recomputed with hashlib alone, so that text and code cannot
be wrong together.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import ledger
from ledger import MemoryStorage, PosixStorage, Store, describe_state, state_digest, tensor_digest
from ledger.packing import Chunks, Planes

SPEC = (Path(ledger.__file__).parent / "SPEC.md").read_text()
SECTION = SPEC[SPEC.index("## Artifact store") :]
LARGE = bytes(8 * 1024 * 1024 + 1)
STATE = {"w": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32), "step": np.array(7, np.int64)}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def shown(text: str) -> bool:
    """Whether a code block of the section shows these bytes (long lines are broken there)."""
    return text in "".join(line.strip() for line in SECTION.splitlines() if line.startswith("    "))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"alpha\n")
    (folder / "large").write_bytes(LARGE)
    (folder / "run.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    storage = MemoryStorage()
    Store(storage).put_tree(folder)
    return storage.files


def test_the_names_and_bytes_of_the_example_are_those_of_the_text(files: dict[str, bytes]) -> None:
    kinds = {name.split("/")[1] for name in files}
    assert kinds == {"blobs", "parts", "trees"}
    assert len(files) == 5
    for name, data in files.items():
        assert shown(name), name
        digest = "".join(name.split("/")[-2:])
        if "/parts/" in name:
            assert digest == sha256(LARGE)
            assert shown(data.decode())
        else:
            assert digest == sha256(data)
        if "/trees/" in name:
            assert shown(data.decode())
            assert json.loads(data)["entries"][1]["path"] == "large"


def test_the_part_hashes_follow_from_the_text() -> None:
    leaves = [sha256(b"\x00" + LARGE[: 8 << 20]), sha256(b"\x00" + LARGE[8 << 20 :])]
    root = sha256(b"\x01" + b"".join(bytes.fromhex(leaf) for leaf in leaves))
    assert shown(f'"leaves":["{leaves[0]}","{leaves[1]}"],"part_size":8388608,"root":"{root}"')
    assert shown(f'"parts":"{root}"')


def test_the_digests_of_tensors_follow_from_the_text() -> None:
    root = sha256(b"\x00" + STATE["w"].tobytes())
    bound = f'{{"dtype":"float32","root":"{root}","shape":[2,3]}}'
    assert shown(bound)
    assert tensor_digest(STATE["w"]) == f"sha256:{sha256(bound.encode())}"
    assert shown(tensor_digest(STATE["w"]))
    listing = ",".join(
        f'{{"digest":"{tensor_digest(STATE[path])}","path":"{path}"}}' for path in ("step", "w")
    )
    text = f'{{"kind":"state","tensors":[{listing}],"version":1}}'
    assert shown(text)
    assert describe_state(STATE).digest == f"sha256:{sha256(text.encode())}"
    assert shown(describe_state(STATE).digest)
    assert (
        state_digest({path: tensor_digest(array) for path, array in STATE.items()})
        == describe_state(STATE).digest
    )


def test_a_kept_store_stays_readable(tmp_path: Path) -> None:
    """A store written by an earlier version, byte for byte in the repository, opens and verifies."""
    store = Store(PosixStorage(Path(__file__).parent / "store", readonly=True))
    (tree,) = [digest for digest, kind in store.digests() if kind == "tree"]
    assert list(store.verify_all()) == []
    assert store.verify(tree) == []
    store.checkout(tree, tmp_path / "out")
    assert (tmp_path / "out" / "docs" / "note.txt").read_bytes() == b"A note that stays.\n"
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o100


def test_packed_blobs_written_once_stay_readable() -> None:
    """The bytes of SPEC.md's example: a compressor of tomorrow may write others, and must read these."""
    store = Store(MemoryStorage())
    base = bytes(range(16)) + b"xz"
    data = bytes(byte ^ (index % 4 == 0) for index, byte in enumerate(range(16))) + b"xy"
    planes = bytes.fromhex("28b52ffd20126500003001010101000301001cd002")
    named = {name: f"sha256:{sha256(value)}" for name, value in
             {"base": base, "data": data, "planes": planes, "both": b"alphabeta", "alpha": b"alpha", "beta": b"beta"}.items()}
    for value in (base, planes, b"alpha", b"beta"):
        store.put_bytes(value)
    records = [Planes(named["data"], 18, named["planes"], 4, named["base"], 1),
               Chunks(named["both"], 9, ((named["alpha"], 5), (named["beta"], 4)))]
    for record in records:
        store.blobs.put_packed(record)
        assert shown(record.encode().decode())
    assert shown(planes.hex())
    assert store.read(named["data"]) == data
    assert store.read(named["both"]) == b"alphabeta"
    assert list(store.verify_all()) == []
