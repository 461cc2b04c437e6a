"""Tokenizing beside the library's own batch encoding: the same texts, the same tokenizer, all cores for both, in turns.

python -m bench.data tokens      texts of the shipped pages; ours reads documents, encodes them and writes Levanter's cache
python -m bench.data workers     the same in shards on so many workers of a Ray (``--workers 1,2``), without its start, beside as
many processes that have nothing to do with each other: what the machine can do
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.data.steps import texts_of_pages
from marin.data.documents import stretches
from marin.training.tokens.encoding import SHARD_BYTES, WORKER, EncodingSetup, unpacked


def workers(count: int, numbers: list[int], rounds: int) -> Iterator[dict[str, Any]]:
    """Bytes of lines a second, the faster of several rounds: between the first shards that come back and the last."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = _documents(folder, count)
        setup = EncodingSetup(_tokenizer(folder).read_text("utf-8"), [0], False, path.name)
        lines = path.read_bytes()
        tasks = [lines[at:end] for at, end in stretches(path, SHARD_BYTES // 4)]
        best: dict[tuple[str, int], float] = {}
        for _ in range(rounds):
            for number in numbers:
                for who, rate in (("ray", _on_ray), ("alone", _alone)):
                    best[who, number] = max(rate(setup, tasks, number), best.get((who, number), 0.0))
        one = best["ray", numbers[0]] / numbers[0]
        for number in numbers:
            yield {
                "what": "workers",
                "workers": number,
                "bytes_per_second": round(best["ray", number]),
                "processes_bytes_per_second": round(best["alone", number]),
                "over_so_many_times_one": round(best["ray", number] / one / number, 3),
                "over_processes": round(best["ray", number] / best["alone", number], 3),
            }


def _on_ray(setup: EncodingSetup, tasks: list[bytes], number: int) -> float:
    from marin.plugins.ray.pool import RayRunner

    runner = RayRunner(number, variables={"TOKENIZERS_PARALLELISM": "false"})
    with WORKER.run(runner.run, setup, tasks) as results:
        for _ in range(number):  # one of each worker: all are there
            next(results)
        begun = time.perf_counter()
        for result in results:
            for _ in unpacked(result):
                pass
        return sum(map(len, tasks[number:])) / (time.perf_counter() - begun)


def _alone(setup: EncodingSetup, tasks: list[bytes], number: int) -> float:
    """Processes that do an equal share each, of which nobody waits for another."""
    context = multiprocessing.get_context("spawn")
    together, rates = context.Barrier(number), context.Queue()
    running = [
        context.Process(target=_share, args=(setup, tasks[place::number], together, rates)) for place in range(number)
    ]
    for process in running:
        process.start()
    found = float(sum(rates.get() for _ in running))
    for process in running:
        process.join()
    return found


def _share(setup: EncodingSetup, tasks: list[bytes], together: Any, rates: Any) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    work = WORKER.begin(setup)
    work(tasks[0])
    together.wait()
    begun = time.perf_counter()
    for task in tasks[1:]:
        work(task)
    rates.put(sum(map(len, tasks[1:])) / (time.perf_counter() - begun))


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
    from marin.data.tokenizer import load_tokenizer
    from marin.training.tokens.building import write_cache
    from marin.training.tokens.encoding import encode_documents, encoded_split

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = _documents(folder, count)
        texts = [document.text for document in read_documents(path)]
        _tokenizer(folder)
        library, places = load_tokenizer(folder, as_recorded=True), iter(range(10_000))  # as one trained here is

        def alone() -> None:
            library.encode_batch(texts, add_special_tokens=False)

        def fast() -> None:
            library.encode_batch_fast(texts, add_special_tokens=False)

        def encoding() -> None:
            for _ in encode_documents(library, read_documents(path), [0], masked=False):
                pass

        def whole() -> None:
            documents = encoded_split(folder, path, [0], masked=False, as_recorded=True)
            write_cache(folder / f"cache-{next(places)}", (ids for ids, _ in documents))

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
