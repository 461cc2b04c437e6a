"""The parts of the judge beside the first implementation's: JSON, SHA-256, zstd, tensors, states, blobs, trees, packs."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import PosixStorage, Store, canonical_bytes, parse_canonical, put_slices, state_digest, tensor_digest
from ledger.errors import LedgerError
from ledger.tensors.statepack import put_planes
from tests.plugins.sharing.judge.node import evaluated, needs_node

pytestmark = needs_node

PART = 8 * 1024 * 1024


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


BYTES = 'const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));'


def test_sha256_of_every_length_around_a_block() -> None:
    data = random.Random(1).randbytes(300)
    found = evaluated(
        f"async () => {{ {BYTES} const all = bytes(given);"
        'return Array.from({ length: 300 }, (_, n) => Buffer.from(judge.sha256(all.subarray(0, n))).toString("hex")); }',
        given=coded(data),
    )
    assert found == [hashlib.sha256(data[:n]).hexdigest() for n in range(300)]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, min_size=20, max_size=60))
def test_canonical_json_is_the_same_bytes(values: list[Any]) -> None:
    texts = [canonical_bytes(value) for value in values]
    script = (
        f"async () => {{ {BYTES} return JSON.parse(given).map((one) => "
        "Buffer.from(judge.canonical(judge.parseCanonical(bytes(one), ''))).toString('base64')); }"
    )
    assert evaluated(script, given=json.dumps([coded(text) for text in texts])) == [coded(text) for text in texts]


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, min_size=1, max_size=30), st.randoms())
def test_what_is_not_canonical_is_refused_by_both(values: list[Any], draw: random.Random) -> None:
    texts = []
    for value in values:
        data = bytearray(canonical_bytes(value))
        for _ in range(draw.randrange(3)):
            at = draw.randrange(len(data) + 1)
            data[at : at + draw.randrange(2)] = bytes(
                [draw.choice(b' "{}[]:,0123456789eE+-.\\u\xc3\xff')]
            ) * draw.randrange(2)
        texts.append(bytes(data))
    script = (
        f"async () => {{ {BYTES} return JSON.parse(given).map((one) => {{"
        "try { judge.parseCanonical(bytes(one), ''); return true; } catch { return false; } }); }"
    )
    assert evaluated(script, given=json.dumps([coded(text) for text in texts])) == [
        _is_canonical(text) for text in texts
    ]


def _is_canonical(data: bytes) -> bool:
    try:
        parse_canonical(data)
    except LedgerError:
        return False
    return True


def pieces() -> list[bytes]:
    draw = random.Random(7)
    words = [draw.randbytes(draw.randrange(1, 12)) for _ in range(40)]
    text = b"".join(draw.choice(words) for _ in range(40_000))
    skewed = bytes(min(255, int(draw.expovariate(0.15))) for _ in range(200_000))
    numbers = np.arange(50_000, dtype="<i4").tobytes()
    return [
        b"",
        b"a",
        bytes(300_000),
        draw.randbytes(5000),
        text,
        skewed,
        numbers,
        text[:777],
        skewed[:40],
        text + skewed,
    ]


@pytest.mark.parametrize("level", [-5, 1, 3, 19])
def test_zstd_gives_back_what_was_compressed(level: int) -> None:
    press = zstandard.ZstdCompressor(level=level, write_checksum=level == 3)
    plain = pieces()
    packed = [press.compress(one) for one in plain]
    packed.append(packed[4] + packed[5])  # frames one after the other
    plain.append(plain[4] + plain[5])
    script = (
        f"async () => {{ {BYTES} return JSON.parse(given).map(([one, size]) => "
        'Buffer.from(judge.sha256(judge.zstd(bytes(one), size))).toString("hex")); }'
    )
    told = json.dumps([[coded(one), len(whole)] for one, whole in zip(packed, plain, strict=True)])
    assert evaluated(script, given=told) == [hashlib.sha256(one).hexdigest() for one in plain]


@pytest.mark.table
@pytest.mark.parametrize("seed", range(10))
def test_changed_zstd_ends_in_words(seed: int) -> None:
    draw = random.Random(seed)
    whole = zstandard.ZstdCompressor(level=3).compress(pieces()[4])
    changed = []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        changed.append(coded(bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])))
    script = (
        f"async () => {{ {BYTES} return JSON.parse(given).map((one) => {{"
        f"try {{ judge.zstd(bytes(one), {len(pieces()[4])}); return 'read'; }} "
        "catch (error) { return error.constructor.name; } }); }"
    )
    assert set(evaluated(script, given=json.dumps(changed))) <= {"read", "Wrong"}


def test_tensors_and_states_have_the_same_digests() -> None:
    draw = np.random.default_rng(3)
    arrays = {
        "a/w": draw.standard_normal((3, 5)).astype(np.float32),
        "a/x": np.array(7, np.int64),
        "b/\u00e9": draw.integers(0, 9, (700, 500), dtype=np.int64),  # several tiles
        "b/z": np.zeros((0, 4), np.uint8),
        "c": draw.standard_normal(9) > 0,
    }
    digests = {path: tensor_digest(value) for path, value in arrays.items()}
    told = [[str(v.dtype), list(v.shape), coded(v.tobytes())] for v in arrays.values()]
    script = (
        f"async () => {{ {BYTES} "
        "return Promise.all(JSON.parse(given).map(([t, s, b]) => judge.tensorDigest(t, s, bytes(b)))); }"
    )
    assert evaluated(script, given=json.dumps(told)) == list(digests.values())
    pairs = json.dumps(
        [
            {"path": path, "digest": digest}
            for path, digest in sorted(digests.items(), key=lambda item: item[0].encode())
        ]
    )
    assert evaluated("async () => judge.stateDigest(JSON.parse(given))", given=pairs) == state_digest(digests)


FOLDER = """
const { readFile } = await import("node:fs/promises");
const source = { read: (path) => readFile(`${folder}/${path}`).then((b) => new Uint8Array(b), () => null), list: async () => [] };
const store = new judge.Store(source);
const answers = [];
for (const digest of digests) {
  try {
    const files = await store.tree(digest);
    if (files) for (const entry of files) await store.file(entry);
    else await store.blob(digest);
    answers.push("PASS");
  } catch (error) { answers.push(`${error.constructor.name}: ${error.message}`); }
}
return answers;
"""


def read(folder: Path, *digests: str) -> list[str]:
    told = f"const folder = {json.dumps(str(folder))}; const digests = {json.dumps(digests)};"
    found: list[str] = evaluated(f"async () => {{ {told} {FOLDER} }}")
    return found


def test_blobs_trees_packs_and_their_damage(tmp_path: Path) -> None:
    store = Store(PosixStorage(tmp_path))
    large = random.Random(2).randbytes(PART + 12_345)
    header = b"marin.blob/v1\nand more"
    numbers = (np.arange(3_000_000, dtype="<i4") % 977).tobytes()
    base = numbers[:-8] + b"12345678"
    digests = [store.put_bytes(data).digest for data in (b"alpha", b"", header, large, base)]
    digests.append(put_planes(store, memoryview(numbers), 4, digests[4]).digest)
    (tmp_path / "chunked").write_bytes(large[::-1])
    digests.append(store.put_file(tmp_path / "chunked", chunked=True).digest)
    state = put_slices(store, {"w": np.ones((6, 5), np.float32), "n": np.array(1)}, 3, {"w": 2})
    digests.append(state.digest)
    assert read(tmp_path, *digests) == ["PASS"] * len(digests)
    assert list((tmp_path / "store/packed").rglob("*/*"))
    wrong = {}
    for name, digest in zip(
        ("small", "header", "large", "planes"), (digests[0], digests[2], digests[3], digests[5]), strict=True
    ):
        copy = Path(shutil.copytree(tmp_path, tmp_path.parent / f"copy-{name}"))
        held = (
            json.loads(next((copy / "store/packed").rglob(f"*{digest[9:]}")).read_bytes())["planes"]
            if name == "planes"
            else digest
        )
        (path,) = (copy / "store/blobs").rglob(held[9:])
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
        wrong[name] = read(copy, digest)[0]
    assert all(said.startswith("Wrong: ") for said in wrong.values()), wrong
    for kind, digest in (("parts", digests[3]), ("trees", state.digest)):
        (path,) = (tmp_path / "store" / kind).rglob(digest[9:])
        path.chmod(0o644)
        path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
        assert kind in read(tmp_path, digest)[0]


def test_small_files_in_a_packfile(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(2100):
        (folder / f"{number}.txt").write_bytes(b"file %d" % number)
    store = Store(PosixStorage(tmp_path / "root"))
    tree = store.put_tree(folder)
    pack = next((tmp_path / "root/store/packfiles").iterdir())
    assert read(tmp_path / "root", tree.digest) == ["PASS"], "packfiles.txt names it"
    data = bytearray(pack.read_bytes())
    data[20] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    assert read(tmp_path / "root", tree.digest)[0].startswith("Wrong: bytes are not those of their digest")


def test_the_released_store_is_read() -> None:
    golden = Path(__file__).parents[3] / "golden/store"
    digests = ["sha256:" + "".join(path.parts[-2:]) for path in (golden / "store").rglob("*") if path.is_file()]
    assert set(read(golden, *digests)) == {"PASS"}


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(st.lists(st.floats(allow_nan=False), min_size=200, max_size=400))
def test_numbers_are_written_as_python_writes_them(numbers: list[float]) -> None:
    numbers += [0.0, -0.0, 1e-4, 9.999e-5, 1e15, 1e16, 123456789012345680.0, 5e-324, 1.7976931348623157e308]
    script = """async () => {
      const view = new DataView(new ArrayBuffer(8));
      const number = (bits) => (view.setBigUint64(0, BigInt(bits)), view.getFloat64(0));
      return JSON.parse(given).map((bits) => judge.pythonNumber(number(bits)));
    }"""
    told = json.dumps([str(int.from_bytes(struct.pack(">d", value))) for value in numbers])
    assert evaluated(script, given=told) == [repr(value) for value in numbers]


@pytest.mark.long(seconds=5)
def test_token_caches_have_the_same_content(tmp_path: Path) -> None:
    """With and without a loss mask, whose bits the codec shuffles; of numbers that compress and of such as do not."""
    from marin.tensors.token_caches import tokens_content
    from marin.training.tokens.building import write_cache

    draw = np.random.default_rng(5)
    for masked in (False, True):
        folder = tmp_path / f"tokens-{masked}"
        for split, sizes in (("train", [5, 0, 300_000, 17]), ("validation", [9])):
            texts = [draw.integers(0, 50_000 if size % 2 else 3, size).astype(np.int32) for size in sizes]
            masks = [draw.integers(0, 2, size).astype(np.uint8) for size in sizes]
            write_cache(folder / split, iter(texts), iter(masks) if masked else None)
        store = Store(PosixStorage(tmp_path / "root"))
        tree = store.put_tree(folder)
        script = f"""async () => {{
          const {{ readFile }} = await import("node:fs/promises");
          const read = (path) => readFile(`{tmp_path}/root/${{path}}`).then((b) => new Uint8Array(b), () => null);
          const store = new judge.Store({{ read, list: async () => [] }});
          const found = await judge.readTokens(store, await store.tree("{tree.digest}"));
          return [found.digest, found.size];
        }}"""
        assert evaluated(script) == list(tokens_content(folder))


def test_a_batch_has_the_weights_that_training_gave_it() -> None:
    """Two streams, one of which has a loss mask."""
    from marin.training.tokens.sequences import Sequences

    draw, width, numbers = np.random.default_rng(11), 5, [4, 1, 3, 0]
    streams = [draw.integers(0, 99, size).astype(np.int32) for size in (13, 27)]
    mask = draw.integers(0, 2, 27).astype(np.uint8)
    lines = [(0, n) if n < 2 else (1, n - 2) for n in numbers]
    tokens = np.stack([streams[which][n * width : (n + 1) * width] for which, n in lines])
    cache: Any = None  # no tokens are read
    masked, plain = (Sequences(cache, one, width) for one in (mask, None))
    weights = np.stack([(masked if which else plain).weights_of(n) for which, n in lines])
    given = {
        "digest": f"sha256:{hashlib.sha256(np.asarray(numbers, '<i8').tobytes() + tokens.tobytes()).hexdigest()}",
        "streams": [coded(one.tobytes()) for one in streams],
        "mask": coded(mask.tobytes()),
        "sequences": {"7": numbers},
        "recipe": {"model": {"seq_len": width}, "trainer": {"batch_size": len(numbers)}},
    }
    script = f"""async () => {{ {BYTES}
      const told = JSON.parse(given);
      const streams = told.streams.map((one, n) => (
        {{ tokens: new Int32Array(bytes(one).buffer), mask: n ? bytes(told.mask) : null }}
      ));
      const made = judge.batchOf(told, told, streams, 7, told.digest);
      return [[...made.tokens], [...made.weights]];
    }}"""
    assert evaluated(script, given=json.dumps(given)) == [tokens.ravel().tolist(), weights.ravel().tolist()]
