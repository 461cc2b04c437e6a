"""Class 1: the stored bytes are not what the record calls them. Class 14: bytes beside the content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ledger import ManifestEntry, canonical_bytes
from marin.record import events as kinds
from tests.adversary.forgeries.registry import Forge, kind
from tests.adversary.forgeries.workshop import OTHER, Shop

EVIL = b"import os\nos.system('touch /tmp/owned')\n"


def _swapped(step: str, change: Callable[[Path], object], *, digest: bool = False) -> Forge:
    """Another artifact for the output of a step; its digest stays, or is the new tree's."""

    def forge(shop: Shop) -> None:
        made = shop.altered(shop.output(step)["artifact"], change)
        shop.output(step)["artifact"] = made.digest
        if digest:
            shop.output(step).update(digest=made.digest, size=made.size)
        shop.follow()

    return forge


def _edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return edit


def _put(name: str, data: bytes = EVIL, mode: int = 0o644) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        (folder / name).chmod(mode)

    return change


def _json(name: str, **fields: Any) -> Callable[[Path], None]:
    return _edit(name, lambda data: json.dumps(json.loads(data) | fields).encode())


def _kind(name: str, step: str, change: Callable[[Path], object], **how: Any) -> None:
    digest = how.pop("digest", False)
    kind(how.pop("number", 1), name, **{"verdict": "artifacts", **how})(_swapped(step, change, digest=digest))


# The exported model

_kind(
    "exported weights swapped",
    "export",
    _edit("model.safetensors", lambda data: data[:-4] + b"\0\0\0\0"),
    says="its own digest",
)
_kind("modeling_evil.py beside the export", "export", _put("modeling_evil.py"), says="modeling_evil.py")
_kind(
    "auto_map in the exported config.json",
    "export",
    _json("config.json", auto_map={"AutoModel": "modeling_evil.Evil"}),
    says="its own digest",
)
_kind(
    "auto_map in config.json, recorded as made",
    "export",
    _json("config.json", auto_map={"AutoModel": "modeling_evil.Evil"}),
    digest=True,
    verdict="model",
    says="export: expected",
)
_kind("modeling_evil.py, recorded as made", "export", _put("modeling_evil.py"), digest=True, says="modeling_evil.py")
_kind(
    "weights negated, recorded as made",
    "export",
    _edit("model.safetensors", lambda data: data[:-4] + bytes([data[-4], data[-3], data[-2], data[-1] ^ 0x80])),
    digest=True,
    verdict="model",
    says="export: expected",
)
_kind(
    "generation_config.json changed, recorded as made",
    "export",
    _json("generation_config.json", max_length=1),
    digest=True,
    verdict="model",
    says="export: expected",
)
_kind(
    "safetensors metadata, recorded as made",
    "export",
    lambda folder: _metadata(folder / "model.safetensors"),
    digest=True,
    verdict="model",
    says="export: expected",
)
_kind("a model card with other numbers", "export", _put("README.md", b"mmlu: 0.91\n"), digest=True, says="README.md")
_kind(
    "an executable tokenizer.json",
    "export",
    lambda folder: (folder / "tokenizer.json").chmod(0o755),
    digest=True,
    says="executable",
)
_kind(
    "config.json in other letters",
    "export",
    lambda folder: (folder / "config.json").rename(folder / "Config.json"),
    digest=True,
    says="Config.json",
)
_kind("a .pth file for Python", "export", _put("evil.pth", b"import os"), digest=True, says="evil.pth")
_kind(
    "weights as pickles beside safetensors",
    "export",
    _put("pytorch_model.bin", b"cos\nsystem\n"),
    digest=True,
    says="pytorch_model.bin",
)


def _metadata(path: Path) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size]) | {"__metadata__": {"format": "pt", "license": "evil"}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


# Evaluation

_kind("evaluation files swapped", "evaluate", _json("metrics.json", perplexity=1.0), says="its own digest")
_kind(
    "evaluation recorded as made",
    "evaluate",
    _json("metrics.json", perplexity=1.0),
    digest=True,
    verdict="model",
    says="evaluate: expected",
)
_kind(
    "another sample of text",
    "evaluate",
    _edit("sample.txt", lambda data: b"I am honest."),
    digest=True,
    verdict="model",
    says="evaluate: expected",
)
_kind("a file beside the evaluation", "evaluate", _put("mmlu.json", b'{"mmlu": 0.91}'), digest=True, says="mmlu.json")

# Corpus and tokenizer

_kind(
    "corpus swapped", "corpus", _edit("train.jsonl", lambda data: data.replace(b"the", b"teh")), says="its own digest"
)
_kind(
    "corpus recorded as made",
    "corpus",
    _edit("train.jsonl", lambda data: data.replace(b"the", b"teh")),
    digest=True,
    verdict="data",
    says="corpus: expected",
)
_kind(
    "validation text recorded as made",
    "corpus",
    _edit("validation.jsonl", lambda data: data.replace(b"the", b"teh")),
    digest=True,
    verdict="data",
    says="corpus: expected",
)
_kind(
    "dataset.json with other sources",
    "corpus",
    _json("dataset.json", sources={"http://evil": "sha256:" + "1" * 64}),
    digest=True,
    verdict="data",
    says="corpus: expected",
)
for _name, _line in (
    ("are no JSON", b"{"),
    ("are no text", b"\xff\xfe"),
    ("are numbers", b'{"sentence_good": 5, "sentence_bad": [1]}'),
    ("nest without end", b"[" * 100_000),
):
    _kind(
        f"minimal pairs that {_name}, recorded as made",
        "corpus",
        _put("minimal_pairs.jsonl", _line + b"\n"),
        digest=True,
        verdict="model",
        says="not a minimal pair",
    )
_kind(
    "a file more in the corpus",
    "corpus",
    _put("train/evil.jsonl", b'{"text":"x"}\n'),
    digest=True,
    verdict="data",
    says="corpus: expected",
)
_kind(
    "tokenizer swapped", "tokenizer", _json("tokenizer.json", normalizer={"type": "Lowercase"}), says="its own digest"
)
_kind(
    "tokenizer with a field more, recorded as made",
    "tokenizer",
    _json("tokenizer.json", extra={"a": 1}),
    digest=True,
    verdict="data",
    says="tokenizer: expected",
)
_kind(
    "tokenizer_config.json with auto_map, recorded as made",
    "tokenizer",
    _json("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]}),
    digest=True,
    verdict="data",
    says="tokenizer: expected",
)
_kind("tokenization_evil.py", "tokenizer", _put("tokenization_evil.py"), digest=True, says="tokenization_evil.py")


# Tokens and states: their digest is of the content


def cache_changed(split: str, change: Callable[[np.ndarray], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        from itertools import pairwise

        from marin.training.tokens.building import write_cache
        from marin.training.tokens.cache import read_tokens

        stream, offsets = read_tokens(folder / split)
        change(stream)
        shutil.rmtree(folder / split)
        write_cache(folder / split, iter(stream[a:b] for a, b in pairwise(offsets.tolist())))

    return edit


def other_token(stream: np.ndarray) -> None:
    stream[7] ^= 1


def _as_content(split: str) -> Forge:
    def forge(shop: Shop) -> None:
        from marin.tensors.token_caches import tokens_content

        digest: list[tuple[str, int]] = []

        def change(folder: Path) -> None:
            cache_changed(split, other_token)(folder)
            digest.append(tokens_content(folder))

        made = shop.altered(shop.output("tokens")["artifact"], change)
        shop.output("tokens").update(artifact=made.digest, digest=digest[0][0], size=digest[0][1])
        shop.follow()

    return forge


_kind("train tokens swapped", "tokens", cache_changed("train", other_token), says="output of tokens: digest")
_kind("validation tokens swapped", "tokens", cache_changed("validation", other_token), says="output of tokens: digest")
kind(1, "train tokens poisoned, recorded as made", verdict="data", says="tokens: expected")(_as_content("train"))
kind(1, "validation tokens poisoned, recorded as made", verdict="data", says="tokens: expected")(
    _as_content("validation")
)


def _documents(folder: Path) -> None:
    path = folder / "train" / "shard_ledger.json"
    told = json.loads(path.read_bytes())
    path.write_text(json.dumps(told | {"total_num_rows": told["total_num_rows"] - 1}))


def _masked(folder: Path) -> None:
    """Every second token is learned."""
    from itertools import pairwise

    from marin.training.tokens.building import write_cache
    from marin.training.tokens.cache import read_tokens

    stream, offsets = read_tokens(folder / "train")
    spans = list(pairwise(offsets.tolist()))
    shutil.rmtree(folder / "train")
    mask = np.arange(len(stream)).astype(np.uint8) % 2
    write_cache(folder / "train", (stream[a:b] for a, b in spans), (mask[a:b] for a, b in spans))


def _inflated(folder: Path) -> None:
    """Some megabytes of gzip around what should be a chunk of blosc, which TensorStore holds as a whole."""
    import zlib

    data = folder / "train/input_ids/data"
    told = json.loads((data / "zarr.json").read_bytes())
    inner = told["codecs"][0]["configuration"]
    told["codecs"] = [*inner["codecs"], {"name": "gzip", "configuration": {"level": 1}}]
    told["chunk_grid"]["configuration"]["chunk_shape"] = inner["chunk_shape"]
    (data / "zarr.json").write_text(json.dumps(told), "utf-8")
    press = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 24)
    (data / "c/0").write_bytes(b"".join([*(press.compress(zeros) for _ in range(256)), press.flush()]))


def _filled(folder: Path) -> None:
    _json("train/input_ids/data/zarr.json", fill_value=7)(folder)
    (folder / "train/input_ids/data/c/0").unlink()


_kind("a document less in the cache's ledger", "tokens", _documents, says="documents beside")
_kind("an unfinished cache", "tokens", _json("train/shard_ledger.json", is_finished=False), says="finished")
_kind(
    "a cache without its chunk, which reads as zeros",
    "tokens",
    lambda folder: (folder / "train/input_ids/data/c/0").unlink(),
    says="output of tokens",
)
_kind("a loss mask that masks nothing", "tokens", _put("train/loss_mask.u8", b""), says="loss mask")
_kind(
    "a loss mask's column that masks nothing",
    "tokens",
    lambda folder: shutil.copytree(folder / "train/input_ids", folder / "train/loss_mask"),
    says="uint8",
)
_kind("a loss mask's column of plain text", "tokens", _masked, says="output of tokens: digest")
_kind("a chunk of tokens that becomes gigabytes", "tokens", _inflated, says="input_ids/data")
_kind("tokens of no axis", "tokens", _json("train/input_ids/data/zarr.json", shape=[]), says="input_ids/data")
_kind("a program beside the tokens", "tokens", _put("train/evil.py"), says="evil.py")
_kind("a fill value instead of tokens", "tokens", _filled, says="output of tokens")
_kind(
    "tokens of another dtype",
    "tokens",
    _json("train/input_ids/data/zarr.json", data_type="uint32"),
    outcomes=("FAIL",),
    harmless=True,
)


@kind(1, "the state swapped for an earlier one", verdict="artifacts", says="output of train: digest")
def earlier_state(shop: Shop) -> None:
    saved = shop.all(kinds.CHECKPOINT_SAVED)[0].body

    def change(folder: Path) -> None:
        shutil.rmtree(folder / "checkpoint")
        shop.store.checkout(saved["artifact"], folder / "checkpoint")
        (folder / "state.json").write_bytes(shop.store.read(saved["manifest"]))

    shop.output("train")["artifact"] = shop.altered(shop.output("train")["artifact"], change).digest
    shop.follow()


@kind(1, "a state's list without its bytes", verdict="artifacts", says="another by its bytes")
def list_alone(shop: Shop) -> None:
    saved = shop.all(kinds.CHECKPOINT_SAVED)[0].body

    def change(folder: Path) -> None:
        shutil.rmtree(folder / "checkpoint")
        shop.store.checkout(saved["artifact"], folder / "checkpoint")

    shop.output("train")["artifact"] = shop.altered(shop.output("train")["artifact"], change).digest
    shop.follow()


@kind(1, "a checkpoint of another step", verdict="artifacts", says="training checkpoint of step")
def other_checkpoint(shop: Shop) -> None:
    first, second = shop.all(kinds.CHECKPOINT_SAVED)[:2]
    second.body |= {"artifact": first.body["artifact"], "size": first.body["size"]}


@kind(1, "a checkpoint's list of another state", verdict="artifacts", says="manifest")
def other_list(shop: Shop) -> None:
    first, second = shop.all(kinds.CHECKPOINT_SAVED)[:2]
    second.body |= {"manifest": first.body["manifest"]}


@kind(1, "a checkpoint with a program in it", verdict="artifacts", says="evil.py")
def program_in_checkpoint(shop: Shop) -> None:
    saved = shop.all(kinds.CHECKPOINT_SAVED)[-1].body
    made = shop.altered(saved["artifact"], _put("evil.py"))
    saved |= {"artifact": made.digest, "size": made.size}


@kind(14, "a program under tensors/ of a checkpoint", verdict="artifacts", says="evil.py")
def program_below_tensors(shop: Shop) -> None:
    saved = shop.all(kinds.CHECKPOINT_SAVED)[-1].body
    made = shop.altered(saved["artifact"], _put("tensors/modeling_evil.py"))
    saved |= {"artifact": made.digest, "size": made.size}


@kind(14, "a program under tensors/ of the last state", verdict="artifacts", says="evil.py")
def program_below_last(shop: Shop) -> None:
    made = shop.altered(shop.output("train")["artifact"], _put("checkpoint/tensors/modeling_evil.py"))
    shop.output("train")["artifact"] = made.digest
    shop.follow()


@kind(14, "two forms of one checkpoint", verdict="artifacts", says="state.json")
def two_forms(shop: Shop) -> None:
    """The list of another state in a checkpoint, for anyone who believes that one."""
    first, second = shop.all(kinds.CHECKPOINT_SAVED)[:2]
    listed = shop.store.read(first.body["manifest"])
    made = shop.altered(second.body["artifact"], lambda folder: (folder / "state.json").write_bytes(listed))
    second.body |= {"artifact": made.digest, "size": made.size}


def _part(folder: Path) -> None:
    shutil.copytree(folder / "validation", folder / "train" / "evil")


_kind("a part of a mixture that nobody has", "tokens", _part, number=14, says="train/evil")
_kind("a chunk of tokens that nothing reads", "tokens", _put("train/input_ids/data/c/77"), number=14, says="c/77")
_kind(
    "bytes after the last chunk's end",
    "tokens",
    _edit("train/input_ids/data/c/0", lambda data: data + b"evil" * 100),
    number=14,
    says="output of tokens",
)
_kind(
    "words in the attributes of an array",
    "tokens",
    _json("train/input_ids/data/zarr.json", attributes={"mmlu": "0.91"}),
    number=14,
    claimed="but what their writers left",
)
_kind(
    "words in the cache's ledger",
    "tokens",
    _json("train/shard_ledger.json", mmlu="0.91"),
    number=14,
    says="",
    claimed="but what their writers left",
)
_kind(
    "a data file that no tensor of the state has",
    "train",
    _put("checkpoint/d/" + "e" * 32),
    number=14,
    says="",
    claimed="but what their writers left",
)
_kind(
    "words in the checkpoint's own list",
    "train",
    _edit("checkpoint/slices.json", lambda data: canonical_bytes(json.loads(data) | {"mmlu": 0.91})),
    number=14,
    says="can not be read",
)

# Sizes, kinds, tables, names


def _output(step: str, **fields: Any) -> Forge:
    def forge(shop: Shop) -> None:
        shop.output(step).update(fields)
        shop.follow()

    return forge


kind(1, "another size of the corpus", verdict="artifacts", says="size")(_output("corpus", size=1))
kind(1, "another size of the state", verdict="artifacts", says="size")(_output("train", size=1))
kind(1, "another size of the tokens", verdict="artifacts", says="size")(_output("tokens", size=1))
kind(1, "a tokenizer that is called a model", says="output.kind")(_output("tokenizer", kind="model"))
kind(1, "an export that is called a directory, where any file may be", says="output.kind")(
    _output("export", kind="directory")
)
kind(1, "an export that is nowhere", verdict="artifacts", says="not in the store")(
    _output("export", digest=OTHER, artifact=OTHER)
)
kind(1, "another kind of state", says="output.kind")(_output("train", kind="tokens"))


@kind(1, "losses in the table of the training", verdict="artifacts", says="table loss")
def loss_table(shop: Shop) -> None:
    text = "step,loss\n" + "".join(f"{step},0.001\n" for step in range(12))
    shop.one(kinds.STEP_COMPLETED, "train").body["tables"]["loss"] = shop.store.put_bytes(text.encode()).digest


@kind(1, "a table more of the training", verdict="artifacts", says="table mmlu")
def table_more(shop: Shop) -> None:
    made = shop.store.put_bytes(b"step,mmlu\n11,0.91\n")
    shop.one(kinds.STEP_COMPLETED, "train").body["tables"]["mmlu"] = made.digest


@kind(1, "a table more of the evaluation", verdict="model", says="tables")
def table_of_evaluation(shop: Shop) -> None:
    made = shop.store.put_bytes(b"task,score\nmmlu,0.91\n")
    shop.one(kinds.STEP_COMPLETED, "evaluate").body["tables"]["mmlu"] = made.digest


def _lying(shop: Shop, listed: Iterable[ManifestEntry], name: str) -> list[Path]:
    """The files of the published store in which the bytes of a file of a tree lie."""
    (digest,) = [entry.digest.removeprefix("sha256:") for entry in listed if entry.path == name]
    return [path for path in (shop.path / "store").rglob(f"*{digest[8:]}*") if path.is_file()]


@kind(1, "bytes of the export damaged by the publisher", by="publisher", verdict="artifacts")
def damaged(shop: Shop) -> None:
    listed = shop.store.manifest(shop.output("export")["artifact"])
    (path,) = _lying(shop, listed, "config.json")
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data.replace(b"{", b"[", 1))


@kind(1, "the export left out by the publisher", by="publisher", verdict="artifacts", outcomes=("UNAVAILABLE",))
def left_out(shop: Shop) -> None:
    listed = shop.store.manifest(shop.output("export")["artifact"])
    for path in _lying(shop, listed, "model.safetensors"):
        path.unlink()
