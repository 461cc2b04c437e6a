"""What the parts of a collection cost on one core, each beside what others do with the same documents.

python -m bench.data html                        pages of data/pages.warc.gz: the step beside the extractor alone
python -m bench.data rules --peers PYTHON        reading and rules beside datatrove's reader and filters
python -m bench.data exact                       exact duplicates by columns, beside Arrow's grouping
python -m bench.data near --peers PYTHON         near-duplicates, verified, beside datasketch, rensa and datatrove, and what
                                                 each removes wrongly and misses, by brute force over all pairs that can count
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.data import peers
from bench.data.corpus import Generated, documents
from bench.data.scale import build

PAGES = Path(__file__).resolve().parents[2] / "data" / "pages.warc.gz"
THRESHOLD = 0.8


def html(rounds: int) -> Iterator[dict[str, Any]]:
    """Pages a second of a core, the faster of several rounds, in turns."""
    from resiliparse.extract.html2text import extract_plain_text

    from marin.plugins.collections.document import Document
    from marin.plugins.collections.sources.warc import read_warc
    from marin.plugins.collections.steps.extraction import Html

    def pages() -> list[Document]:
        return [item for item in read_warc(PAGES, "pages") if isinstance(item, Document)]

    read, step = pages(), Html().make()

    def alone() -> None:
        for page in read:
            extract_plain_text(page.text, preserve_formatting=True, main_content=True, list_bullets=False)

    def ours() -> None:
        for page in read:
            step.judge(page)

    def from_warc() -> None:
        for page in pages():
            step.judge(page)

    best = _best({"alone": alone, "ours": ours, "from_warc": from_warc}, rounds)
    yield {
        "what": "text from HTML",
        "pages": len(read),
        "html_bytes": sum(len(page.text.encode()) for page in read),
        "text_bytes": sum(len(text.encode()) for text in texts_of_pages()),
        **{f"{name}_pages_per_cpu_second": round(len(read) / seconds) for name, seconds in best.items()},
        "step_over_extractor": round(best["alone"] / best["ours"], 3),
        "reading_and_step_over_extractor": round(best["alone"] / best["from_warc"], 3),
    }


def _best(works: Mapping[str, Any], rounds: int) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, work in works.items():
            begun = time.process_time()
            work()
            seconds = time.process_time() - begun
            best[name] = min(seconds, best.get(name, seconds))
    return best


def texts_of_pages() -> list[str]:
    """The texts of the shipped pages."""
    from marin.plugins.collections.document import Document
    from marin.plugins.collections.sources.warc import read_warc
    from marin.plugins.collections.steps.extraction import Html

    step = Html().make()
    return [
        judged.text
        for item in read_warc(PAGES, "pages")
        if isinstance(item, Document) and (judged := step.judge(item).document) is not None
    ]


def rules(count: int, python: str) -> Iterator[dict[str, Any]]:
    """Reading JSON lines and the rules of Gopher, C4 and FineWeb over texts of the shipped pages, again and again."""
    texts = texts_of_pages()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        path = folder / "raw" / "texts.jsonl"
        with path.open("w", encoding="ascii") as file:
            for number in range(count):
                file.write(json.dumps({"text": texts[number % len(texts)], "id": str(number)}) + "\n")
        steps = [{"kind": kind} for kind in ("gopher_repetition", "gopher_quality", "c4", "fineweb")]
        few = folder / "few.jsonl"
        few.write_text(json.dumps({"text": texts[0]}) + "\n", "ascii")
        reading_and_judging(few, folder / "first", steps)  # imports, as the peer has done them when its clock begins
        seconds = reading_and_judging(path, folder / "build", steps)
        size = sum(len(texts[number % len(texts)].encode()) for number in range(count))
        rate = round(count / seconds)
        yield {"what": "reading and rules", "documents": count, "text_bytes": size, "documents_per_cpu_second": rate}
        if python:
            told = peers.ask(python, "datatrove's filters", path)
            rate = round(count / told["seconds"])
            yield {"what": "the same by datatrove", "documents_per_cpu_second": rate, "kept": told["kept"]}
            yield {"what": "ours over datatrove's", "ratio": round(told["seconds"] / seconds, 2)}


def reading_and_judging(path: Path, folder: Path, steps: list[dict[str, Any]]) -> float:
    """Processor seconds of the tasks ``read`` and ``judge`` over one file, with all that they write."""

    from marin.plugins.collections.settings import settings_of
    from marin.plugins.collections.sources.finding import find
    from marin.plugins.collections.tasks.task import Setup, Task
    from marin.plugins.collections.tasks.work import Tasks

    folder.mkdir()
    settings = settings_of({"near": None, "steps": steps}, where="bench")
    found = find([str(path)])
    tasks = [Task(kind, f"{n:06d}", 0, n) for kind in ("read", "judge") for n in range(len(found[0].slices))]
    work = Tasks(Setup(settings, found, [], [], str(folder)))
    begun = time.process_time()
    for task in tasks:
        work(task)
    return time.process_time() - begun


def exact(count: int) -> Iterator[dict[str, Any]]:
    """Of digests, a fifth of them copies; beside them Arrow's grouping of the same columns on one thread, which gives the least
    id of each digest and not yet who goes."""
    import pyarrow as pa

    from marin.plugins.collections.making.exact import copies
    from marin.plugins.collections.making.rows import as_bytes

    draw = np.random.default_rng(1)
    digests = draw.integers(0, 1 << 63, (count, 4), np.uint64)
    digests[draw.integers(0, count, count // 5)] = digests[: count // 5]
    ids = draw.integers(0, 1 << 63, (count, 2), np.uint64)
    begun = time.process_time()
    removed, _ = copies(digests, ids)
    seconds = time.process_time() - begun
    columns = {"digest": digests, "id": ids}
    table = pa.table({name: pa.array(map(bytes, as_bytes(column)), pa.binary()) for name, column in columns.items()})
    begun = time.process_time()
    groups = table.group_by("digest", use_threads=False).aggregate([("id", "min")])
    theirs = time.process_time() - begun
    if count - len(groups) != len(removed):
        raise SystemExit(f"Arrow finds {count - len(groups)} copies, ours {len(removed)}")
    yield {
        "what": "exact duplicates by columns",
        "documents": count,
        "removed": len(removed),
        "documents_per_cpu_second": round(count / seconds),
        "arrow_documents_per_cpu_second": round(count / theirs),
        "ours_over_arrow": round(theirs / seconds, 2),
    }


def near(count: int, python: str) -> Iterator[dict[str, Any]]:
    """Whole builds, with and without, and the peers; what each finds is held against the documents' own shingles."""
    made = list(documents(count))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        path = folder / "raw" / "all.jsonl"
        with path.open("w", encoding="ascii") as file:
            for number, one in enumerate(made):
                file.write(json.dumps({"text": one.text, "number": number}) + "\n")
        plain = build(folder / "plain", str(path), {"near": None})
        ours = build(folder / "near", str(path), {})
        yield {"what": "read, exact duplicates, write", **_rates(count, plain["cpu_seconds"])}
        yield {"what": "the same with near-duplicates, verified", **_rates(count, ours["cpu_seconds"]), **ours}
        more = ours["cpu_seconds"] - plain["cpu_seconds"]
        size = sum(len(one.text) for one in made)
        yield {"what": "of it near-duplicates alone", "documents": count, "text_bytes": size, **_rates(count, more)}
        truth = Truth(made)
        yield {"what": "ours", **truth.judged(_ours(folder / "near" / "root", made))}
        for peer in ("datasketch", "rensa", "datatrove") if python else ():
            told = peers.ask(python, peer, path)
            found = {int(number) for number, _ in told["removed"]}
            yield {"what": peer, **_rates(count, told["seconds"]), **truth.judged(found)}


def _rates(count: int, seconds: float) -> dict[str, Any]:
    return {"cpu_seconds": round(seconds, 1), "documents_per_cpu_second": round(count / seconds)}


def _ours(root: Path, made: list[Generated]) -> set[int]:
    from marin.plugins.collections.queries.documents import collections
    from marin.record.root import open_root

    (collection,) = collections(open_root(str(root)))
    kept = {json.loads(row["metadata"])["number"] for row in collection.documents(("metadata",))}
    return set(range(len(made))) - kept


class Truth:
    """By brute force: which documents are similar to another one of their family (a document of the pool, its copies and its
    edited copies; no others have shingles in common), and whether what was removed has a kept one that it is similar to."""

    def __init__(self, made: list[Generated]) -> None:
        pool = [number for number, one in enumerate(made) if one.label == "own"]
        self.families: dict[int, list[int]] = {}
        for number, one in enumerate(made):
            if one.of >= 0:
                self.families.setdefault(pool[one.of], [pool[one.of]]).append(number)
        self._collection = made

    def judged(self, removed: set[int]) -> dict[str, Any]:
        """``wrongly``: removed without a kept one that it is similar to; ``missed``: kept beside a kept one that it is similar
        to, the least that would have to go."""
        wrongly, missed = len(removed - {number for family in self.families.values() for number in family}), 0
        for family in self.families.values():
            sets = {number: _shingles(self._collection[number].text) for number in family}
            kept = [number for number in family if number not in removed]
            for number in family:
                if number in removed:
                    wrongly += not any(_similar(sets[number], sets[other]) for other in kept)
            alone: list[int] = []
            for number in kept:
                if any(_similar(sets[number], sets[other]) for other in alone):
                    missed += 1
                else:
                    alone.append(number)
        return {"removed": len(removed), "wrongly": wrongly, "missed": missed}


def _shingles(text: str) -> frozenset[str]:
    words = text.split()
    return frozenset(" ".join(words[i : i + 5]) for i in range(max(1, len(words) - 4)))


def _similar(mine: frozenset[str], theirs: frozenset[str]) -> bool:
    return len(mine & theirs) >= THRESHOLD * len(mine | theirs)
