"""Classes 1, 11 and 14: bytes of the store that are kept as records of how to make them, lists of shards, of tensors and
of files that say a thing twice, and what unfolds without end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger.store.blobs.hashing import hash_bytes
from ledger.store.packs.packing import Chunks, Packed, Planes, compress_planes
from marin.record import events as kinds
from tests.adversary.forgeries.kinds.binding import _edit, _json, _kind
from tests.adversary.forgeries.kinds.surface import _blob, _trace
from tests.adversary.forgeries.registry import Forge, kind
from tests.adversary.forgeries.workshop import OTHER, Shop

BOMB = 1 << 40
"""Bytes that a record may claim to give, of a few that are kept."""


def _instead(shop: Shop, digest: str, make: Callable[[bytes], Packed]) -> None:
    """A record in the place of a stored blob; the ingredients are put by ``make``."""
    data = shop.store.read(digest)
    packed = make(data)
    _blob(shop, digest).unlink()
    shop.store.blobs.put_packed(packed)


def _zeros(shop: Shop, digest: str, size: int) -> Planes:
    """A record of so many zeros, which are a few hundred bytes: frames repeated, as zstd has them."""
    frame = compress_planes(memoryview(bytes(8 << 20)), 4)
    kept = shop.store.put_bytes(frame * 300)
    return Planes(digest, size, kept.digest, 4)


@kind(0, "an honest run whose traces and manifests are packed", by="publisher", honest=True)
def packed(shop: Shop) -> None:
    for segment in shop.all(kinds.TRAIN_SEGMENT):
        digest = segment.body["trace"]

        def planes(data: bytes, digest: str = digest) -> Packed:
            return Planes(digest, len(data), shop.store.put_bytes(compress_planes(memoryview(data), 4)).digest, 4)

        _instead(shop, digest, planes)
    digest = shop.all(kinds.CHECKPOINT_SAVED)[0].body["manifest"]

    def chunks(data: bytes) -> Packed:
        pieces = [data[:100], data[100:]]
        return Chunks(digest, len(data), tuple((shop.store.put_bytes(p).digest, len(p)) for p in pieces))

    _instead(shop, digest, chunks)


@kind(1, "a record that makes other bytes of a trace", by="publisher", verdict="artifacts")
def other_planes(shop: Shop) -> None:
    digest = _trace(shop)
    _instead(
        shop,
        digest,
        lambda data: Planes(
            digest, len(data), shop.store.put_bytes(compress_planes(memoryview(data[::-1]), 4)).digest, 4
        ),
    )


@kind(1, "a record that makes other bytes of an exported file", by="publisher", verdict="artifacts")
def other_export(shop: Shop) -> None:
    listed = shop.store.manifest(shop.output("export")["artifact"])
    digest = next(entry.digest for entry in listed if entry.path == "config.json")
    evil = shop.store.put_bytes(b'{"auto_map": {"AutoModel": "evil.Evil"}}')
    _instead(shop, digest, lambda data: Chunks(digest, evil.size, ((evil.digest, evil.size),)))


@kind(11, "a record of 2^40 bytes in the place of a trace", by="publisher", verdict="artifacts")
def bomb(shop: Shop) -> None:
    digest = _trace(shop)
    _instead(shop, digest, lambda data: _zeros(shop, digest, BOMB))


@kind(11, "a record of 2 GiB in the place of an exported file", by="publisher", verdict="artifacts")
def bomb_in_tree(shop: Shop) -> None:
    listed = shop.store.manifest(shop.output("export")["artifact"])
    digest = next(entry.digest for entry in listed if entry.path == "config.json")
    _instead(shop, digest, lambda data: _zeros(shop, digest, 2 << 30))


@kind(11, "records that rest on each other", by="publisher", verdict="artifacts")
def circle(shop: Shop) -> None:
    digest, other = _trace(shop), OTHER

    def make(data: bytes) -> Packed:
        planes = shop.store.put_bytes(compress_planes(memoryview(data), 4)).digest
        shop.store.blobs.put_packed(Planes(other, len(data), planes, 4, digest, 1))
        return Planes(digest, len(data), planes, 4, other, 1)

    _instead(shop, digest, make)


@kind(11, "a record of as many chunks as fit, all of them one", by="publisher", verdict="artifacts")
def repeated(shop: Shop) -> None:
    digest, piece = _trace(shop), bytes(8 << 20)
    kept = shop.store.put_bytes(piece)
    _instead(shop, digest, lambda data: Chunks(digest, 4096 * len(piece), ((kept.digest, len(piece)),) * 4096))


@kind(11, "frames of zstd with a window of 2 GiB", by="publisher", verdict="artifacts")
def window(shop: Shop) -> None:
    import zstandard

    digest = _trace(shop)

    def make(data: bytes) -> Packed:
        settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
        writer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
        frames = writer.compress(data[::-1]) + writer.flush()
        return Planes(digest, len(data), shop.store.put_bytes(frames).digest, 1)

    _instead(shop, digest, make)


@kind(14, "part hashes of other bytes beside a blob", by="publisher", harmless=True)
def parts(shop: Shop) -> None:
    made = hash_bytes(bytes(9 << 20))
    assert made.parts is not None
    name = shop.output("export")["artifact"].removeprefix("sha256:")
    shop.replace_file(f"store/parts/sha256/{name[:2]}/{name[2:]}", made.parts.encode())


# Lists that say a thing twice


def _shards(**fields: Any) -> Callable[[Path], None]:
    return _json("train/shard_ledger.json", **fields)


_kind(
    "a shard that the tokens have twice",
    "tokens",
    _edit(
        "train/shard_ledger.json",
        lambda data: json.dumps(
            (told := json.loads(data)) | {"finished_shards": list(told.get("finished_shards", [])) * 2}
        ).encode(),
    ),
    number=14,
    claimed="but what their writers left",
)
_kind("rows of tokens that are no number", "tokens", _shards(total_num_rows="many"), number=14)
_kind("a negative number of documents", "tokens", _shards(total_num_rows=-1), number=14)
_kind(
    "a ledger of tokens that is no JSON",
    "tokens",
    lambda folder: (folder / "train/shard_ledger.json").write_bytes(b"{"),
    number=14,
)
_kind("offsets that run backwards", "tokens", lambda folder: _backwards(folder), number=1)


def _backwards(folder: Path) -> None:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / "train/input_ids/offsets")}}
    stretch = tensorstore.open(spec, open=True).result()[1:3]  # the whole array is longer than any memory
    stretch.write(stretch.read().result()[::-1].copy()).result()


@kind(14, "tokens in a compression that nobody has", verdict="artifacts")
def codec(shop: Shop) -> None:
    def change(folder: Path) -> None:
        path = folder / "train/input_ids/data/zarr.json"
        told = json.loads(path.read_bytes())
        path.write_text(json.dumps(told | {"codecs": [{"name": "evil", "configuration": {"module": "os"}}]}))

    shop.output("tokens")["artifact"] = shop.altered(shop.output("tokens")["artifact"], change).digest
    shop.follow()


def _listed(change: Callable[[list[Any]], object]) -> Forge:
    """The list of the last state's tensors, changed."""

    def forge(shop: Shop) -> None:
        def edit(folder: Path) -> None:
            path = folder / "state.json"
            told = json.loads(path.read_bytes())
            tensors = told["tensors"] if isinstance(told, dict) else told
            change(tensors)
            path.write_text(json.dumps(told, separators=(",", ":"), sort_keys=True))

        shop.output("train")["artifact"] = shop.altered(shop.output("train")["artifact"], edit).digest
        shop.follow()

    return forge


kind(1, "a state that lists a tensor twice", verdict="artifacts")(_listed(lambda tensors: tensors.append(tensors[-1])))
kind(1, "a state that lists a tensor less", verdict="artifacts")(_listed(lambda tensors: tensors.pop()))
kind(1, "a state that lists no tensor", verdict="artifacts")(_listed(lambda tensors: tensors.clear()))
kind(1, "a state in another order", verdict="artifacts")(_listed(lambda tensors: tensors.reverse()))

# Tokenizers that mean the same


_kind(
    "a tokenizer in other spaces",
    "tokenizer",
    _edit("tokenizer.json", lambda data: json.dumps(json.loads(data), indent=1).encode()),
    digest=True,
    verdict="data",
    says="tokenizer: expected",
)
_kind(
    "a tokenizer that has a key twice",
    "tokenizer",
    _edit("tokenizer.json", lambda data: data.replace(b"{", b'{"model":{"type":"WordLevel"},', 1)),
    digest=True,
    verdict="data",
    says="tokenizer: expected",
)
_kind(
    "a tokenizer after a byte order mark",
    "tokenizer",
    _edit("tokenizer.json", lambda data: b"\xef\xbb\xbf" + data),
    digest=True,
    verdict="data",
    says="a tokenizer cannot be read",
)
_kind(
    "a chat template in the tokenizer's settings",
    "tokenizer",
    _json("tokenizer_config.json", chat_template="{{ ''.__class__.__mro__ }}"),
    digest=True,
    verdict="data",
    says="tokenizer: expected",
)
_kind(
    "another end of text in the tokenizer's settings",
    "export",
    _json("tokenizer_config.json", eos_token="x"),
    digest=True,
    verdict="model",
    says="export: expected",
)
_kind(
    "weights in another order of tensors",
    "export",
    lambda folder: _reordered(folder / "model.safetensors"),
    digest=True,
    verdict="model",
    says="export: expected",
)
_kind(
    "a header of weights that is padded",
    "export",
    lambda folder: _padded(folder / "model.safetensors"),
    digest=True,
    verdict="model",
    says="export: expected",
)
_kind(
    "a header of weights of 2^60 bytes",
    "export",
    _edit("model.safetensors", lambda data: (1 << 60).to_bytes(8, "little") + data[8:]),
    digest=True,
    verdict="model",
    says="export: expected",
)


def _header(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], pad: int = 0) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    text = json.dumps(change(json.loads(data[8 : 8 + size])), separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 + pad)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


def _reordered(path: Path) -> None:
    _header(path, lambda header: dict(reversed(header.items())))


def _padded(path: Path) -> None:
    _header(path, dict, pad=800)
