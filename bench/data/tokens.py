"""Tokenizing beside the library's own batch encoding: the same texts, the same tokenizer, all cores for both, in turns.

python -m bench.data tokens      texts of the shipped pages; ours reads documents, encodes them and writes Levanter's cache
python -m bench.data workers     the same in shards on so many workers of a Ray (``--workers 1,2``), without its start
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.data.steps import texts_of_pages
from marin.data.documents import stretches


def workers(count: int, numbers: list[int]) -> Iterator[dict[str, Any]]:
    """Bytes of text a second between the first shard that comes back and the last, by workers of a core each."""
    from marin.runners.ray.pool import RayRunner
    from marin.training.tokens.encoding import SHARD_BYTES, Setup, start, unpacked

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = _documents(folder, count)
        setup = msgspec.json.encode(Setup(_tokenizer(folder).read_text("utf-8"), [0], False, path.name))
        tasks = [path.read_bytes()[at:end] for at, end in stretches(path, SHARD_BYTES // 4)]
        rates: dict[int, float] = {}
        for number in numbers:
            runner = RayRunner(number, variables={"TOKENIZERS_PARALLELISM": "false"})
            with runner.run(start, setup, tasks) as results:
                for _ in range(number):  # one of each worker: all are there
                    next(results)
                begun, found = time.perf_counter(), 0
                for result in results:
                    found += sum(len(ids) for ids, _ in unpacked(result))
                seconds = time.perf_counter() - begun
            rates[number] = sum(map(len, tasks[number:])) / seconds
            share = rates[number] / rates[numbers[0]] * numbers[0] / number
            yield {"what": "workers", "workers": number, "bytes_per_second": round(rates[number]), "tokens": found,
                   "of_so_many_alone": round(share, 3)}  # fmt: skip


def _documents(folder: Path, count: int) -> Path:
    found = texts_of_pages()
    path = folder / "train.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            text = found[number % len(found)]
            file.write(json.dumps({"text": text, "source": "pages", "metadata": {}}, ensure_ascii=False) + "\n")
    return path


def _tokenizer(folder: Path) -> Path:
    """Trained on these documents."""
    from marin.pipeline.tokenizer import trained
    from marin.recipe.schema import Recipe, Tokenizer

    path = folder / "tokenizer.json"
    path.write_bytes(trained(folder, Recipe(tokenizer=Tokenizer(vocab_size=8192))))
    return path


def tokens(count: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Bytes of text a second of wall time, the faster of several rounds."""
    from marin.data.documents import read_documents
    from marin.training.tokens.cache import write_cache
    from marin.training.tokens.encoding import encoded, encoded_split, load_tokenizer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = _documents(folder, count)
        texts = [document.text for document in read_documents(path)]
        _tokenizer(folder)
        library, places = load_tokenizer(folder), iter(range(10_000))

        def alone() -> None:
            library.encode_batch(texts, add_special_tokens=False)

        def fast() -> None:
            library.encode_batch_fast(texts, add_special_tokens=False)

        def encoding() -> None:
            for _ in encoded(library, read_documents(path), [0], masked=False):
                pass

        def whole() -> None:
            write_cache(
                folder / f"cache-{next(places)}", (ids for ids, _ in encoded_split(folder, path, [0], masked=False))
            )

        works = {"library": alone, "library_fast": fast, "ours": encoding, "ours_with_cache": whole}
        best: dict[str, float] = {}
        least: dict[str, float] = {}
        for _ in range(rounds):
            for work, run in works.items():
                begun, spent = time.perf_counter(), time.process_time()
                run()
                best[work] = min(time.perf_counter() - begun, best.get(work, float("inf")))
                least[work] = min(time.process_time() - spent, least.get(work, float("inf")))
        size = sum(len(text.encode()) for text in texts)
        yield {
            "what": "tokenizing",
            "documents": count,
            "text_bytes": size,
            "tokens": sum(len(one.ids) for one in library.encode_batch_fast(texts, add_special_tokens=False)),
            **{f"{work}_bytes_per_second": round(size / seconds) for work, seconds in best.items()},
            **{f"{work}_bytes_per_cpu_second": round(size / seconds) for work, seconds in least.items()},
            "ours_over_library": round(best["library"] / best["ours"], 3),
            "ours_over_library_fast": round(best["library_fast"] / best["ours"], 3),
            "ours_with_cache_over_library": round(best["library"] / best["ours_with_cache"], 3),
        }
