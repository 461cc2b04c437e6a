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
from ledger import (
    PosixStorage,
    Store,
    Tampered,
    copy_artifacts,
    describe_state,
    describe_tree,
    state_digest,
    tensor_digest,
)
from ledger.store.packs.packing import Chunks, Planes
from tests.ledger.memory import MemoryStorage

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
            assert digest == sha256(text_of_large().encode())
            assert shown(data.decode())
        elif data == LARGE:
            assert digest == sha256(text_of_large().encode())
        else:
            assert digest == sha256(data)
        if "/trees/" in name:
            assert shown(data.decode())
            assert json.loads(data)["entries"][1]["path"] == "large"


def text_of_large() -> str:
    """What is hashed in place of the large file of the example, from its bytes by hashlib alone."""
    leaves = [sha256(b"\x00" + LARGE[: 8 << 20]), sha256(b"\x00" + LARGE[8 << 20 :])]
    root = sha256(b"\x01" + b"".join(bytes.fromhex(leaf) for leaf in leaves))
    return f"marin.blob/v1\nparts 8388608\nsize {len(LARGE)}\nroot {root}\n"


def test_the_text_of_a_large_blob_is_shown() -> None:
    assert shown(text_of_large().replace("\n", ""))


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
    listing = ",".join(f'{{"digest":"{tensor_digest(STATE[path])}","path":"{path}"}}' for path in ("step", "w"))
    text = f'{{"kind":"state","tensors":[{listing}],"version":1}}'
    assert shown(text)
    assert describe_state(STATE).digest == f"sha256:{sha256(text.encode())}"
    assert shown(describe_state(STATE).digest)
    assert state_digest({path: tensor_digest(array) for path, array in STATE.items()}) == describe_state(STATE).digest


def test_a_kept_store_stays_readable(tmp_path: Path) -> None:
    """A store written by an earlier version, byte for byte in the repository, opens and verifies."""
    store = Store(PosixStorage(Path(__file__).parent / "store", readonly=True))
    (tree,) = [digest for digest, kind in store.digests() if kind == "tree"]
    assert list(store.verify_all()) == []
    assert store.verify(tree) == []
    store.checkout(tree, tmp_path / "out")
    assert (tmp_path / "out" / "docs" / "note.txt").read_bytes() == b"A note that stays.\n"
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o100


OLD_TREE = (
    '{"entries":[{"digest":"sha256:b6a98d9ce9a2d9149288fa3df42d377c3e42737afdcdaf714e33c0a100b51060","executable":false,'
    '"path":"a.txt","size":6},{"digest":"sha256:4459f957d031a8b782dfee09d2c7070a4b5e6c33130a8f20ac35393fd97fc57a",'
    '"executable":false,"parts":"fd958781c500103b238c172a5c38af8e5df80f862954ea2fa6de8f948dcd6b0a","path":"large",'
    '"size":8388609},{"digest":"sha256:a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf","executable":true,'
    '"path":"run.sh","size":10}],"kind":"tree","version":1}'
)
OLD_PARTS = (
    '{"digest":"sha256:4459f957d031a8b782dfee09d2c7070a4b5e6c33130a8f20ac35393fd97fc57a","kind":"parts","leaves":['
    '"4459f957d031a8b782dfee09d2c7070a4b5e6c33130a8f20ac35393fd97fc57a",'
    '"96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"],"part_size":8388608,'
    '"root":"fd958781c500103b238c172a5c38af8e5df80f862954ea2fa6de8f948dcd6b0a","size":8388609,"version":1}'
)


@pytest.fixture
def old_root(tmp_path: Path) -> Path:
    """What the first version wrote for the example's tree: the large file under its plain sha256."""
    storage = PosixStorage(tmp_path / "old")
    for data in (b"alpha\n", LARGE, b"#!/bin/sh\n"):
        storage.create(spread("blobs", sha256(data)), data)
    storage.create(spread("parts", sha256(LARGE)), OLD_PARTS.encode())
    storage.create(spread("trees", sha256(OLD_TREE.encode())), OLD_TREE.encode())
    return tmp_path / "old"


def spread(area: str, digest: str) -> str:
    return f"store/{area}/sha256/{digest[:2]}/{digest[2:]}"


@pytest.mark.parametrize("with_record", [True, False])
def test_a_store_of_plain_digests_stays_readable(old_root: Path, tmp_path: Path, with_record: bool) -> None:
    tree, large = f"sha256:{sha256(OLD_TREE.encode())}", f"sha256:{sha256(LARGE)}"
    assert tree == "sha256:aae49d5414d15744c525d3c8bbd8322df5fb90d5f862dfa6384bea452d97453e"
    if not with_record:
        PosixStorage(old_root).remove(spread("parts", sha256(LARGE)))
    store = Store(PosixStorage(old_root, readonly=True))
    root = store.manifest(tree).entry("large").parts
    assert store.verify(tree) == [] == list(store.verify_all())
    assert store.read(large) == LARGE
    assert store.open_range(large, 8388600, 9) == bytes(9) == store.open_range(large, 8388600, 9, parts=root)
    with store.open(large) as whole, store.open_file(tree, "large") as file:
        assert whole.read() == file.read() == LARGE
    for how in ("copy", "auto"):
        store.checkout(tree, tmp_path / how, how=how)
        assert (tmp_path / how / "large").read_bytes() == LARGE
        assert store.checkout(tree, tmp_path / how).unchanged
    assert describe_tree(tmp_path / "copy", store.manifest(tree)).digest == tree
    assert describe_tree(tmp_path / "copy").digest != tree
    other = Store(MemoryStorage())
    copy_artifacts(store, other, [tree])
    assert other.verify(tree) == []
    assert other.read(large) == LARGE


def test_damage_in_a_store_of_plain_digests_is_named(old_root: Path) -> None:
    path = old_root / spread("blobs", sha256(LARGE))
    path.write_bytes(LARGE[:-1] + b"x")
    store = Store(PosixStorage(old_root))
    (finding,) = store.verify(f"sha256:{sha256(OLD_TREE.encode())}")
    assert "file large" in finding.where
    assert "part 1 (bytes 8388608 to 8388608)" in finding.where
    with pytest.raises(Tampered):
        store.read(f"sha256:{sha256(LARGE)}")
    path.write_bytes(LARGE)
    (old_root / "large").write_bytes(LARGE)
    new = store.put_file(old_root / "large").digest
    assert new == f"sha256:{sha256(text_of_large().encode())}"
    assert list(store.verify_all()) == []


def test_packed_blobs_written_once_stay_readable() -> None:
    """The bytes of SPEC.md's example: a compressor of tomorrow may write others, and must read these."""
    store = Store(MemoryStorage())
    base = bytes(range(16)) + b"xz"
    data = bytes(byte ^ (index % 4 == 0) for index, byte in enumerate(range(16))) + b"xy"
    planes = bytes.fromhex("28b52ffd20126500003001010101000301001cd002")
    named = {
        name: f"sha256:{sha256(value)}"
        for name, value in {
            "base": base,
            "data": data,
            "planes": planes,
            "both": b"alphabeta",
            "alpha": b"alpha",
            "beta": b"beta",
        }.items()
    }
    for value in (base, planes, b"alpha", b"beta"):
        store.put_bytes(value)
    records = [
        Planes(named["data"], 18, named["planes"], 4, named["base"], 1),
        Chunks(named["both"], 9, ((named["alpha"], 5), (named["beta"], 4))),
    ]
    for record in records:
        store.blobs.put_packed(record)
        assert shown(record.encode().decode())
    assert shown(planes.hex())
    assert store.read(named["data"]) == data
    assert store.read(named["both"]) == b"alphabeta"
    assert list(store.verify_all()) == []


def test_a_packfile_written_once_stays_readable() -> None:
    """The bytes of SPEC.md's example."""
    index = b"".join(
        bytes.fromhex(sha256(blob)) + start.to_bytes(8) + len(blob).to_bytes(4)
        for blob, start in ((b"alpha", 16), (b"beta", 21))
    )
    tail = (2).to_bytes(8) + b"marin.packfile/1"
    name, data = f"store/packfiles/{sha256(index + tail)}", b"marin.packfile/1alphabeta" + index + tail
    assert shown(name)
    assert shown(data.hex())
    storage = MemoryStorage()
    storage.create(name, data)
    store = Store(storage)
    assert list(store.verify_all()) == []
    assert store.read(f"sha256:{sha256(b'alpha')}") == b"alpha"
    assert store.read(f"sha256:{sha256(b'beta')}") == b"beta"
