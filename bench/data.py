"""Collections: reading, exact and near duplicates, memory; each beside its peer on the same input in the same run.

    python -m bench.data [--documents 100000] [--words 200] [--peers FOLDER] [--only build,exact,near] [--json]

Documents are generated: words of a Zipf distribution, a tenth of them exact copies, a tenth near copies. ``--peers`` names the
Python of an environment with datasketch and rensa, which are no part of this project's (`uv venv F && uv pip install
--python F/bin/python datasketch rensa numpy`). Figures are seconds of one core and the largest memory of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PEER = """
import json, sys, time
from itertools import combinations
name, path = sys.argv[1:3]
texts = [json.loads(line)["text"] for line in open(path)]
begun = time.perf_counter()
def grams(text):
    words = text.lower().split()
    return {" ".join(words[i:i + 5]) for i in range(max(1, len(words) - 4))}
kept, removed = 0, []
if name == "datasketch":
    from datasketch import MinHash, MinHashLSH
    index = MinHashLSH(num_perm=120, params=(20, 6))
    for number, text in enumerate(texts):
        one = MinHash(num_perm=120)
        one.update_batch([gram.encode() for gram in grams(text)])
        if index.query(one): removed.append(number)
        else: index.insert(number, one)
else:
    from rensa import RMinHash, RMinHashLSH
    index = RMinHashLSH(threshold=0.8, num_perm=120, num_bands=20)
    for number, text in enumerate(texts):
        one = RMinHash(num_perm=120, seed=1)
        one.update(list(grams(text)))
        if index.query(one): removed.append(number)
        else: index.insert(number, one)
print(json.dumps({"seconds": time.perf_counter() - begun, "removed": len(removed)}))
"""


def generate(path: Path, documents: int, words: int, seed: int = 1) -> int:
    """Write JSON lines; returns the bytes."""
    draw = random.Random(seed)  # noqa: S311 - for texts, not for secrets
    lexicon = ["".join(draw.choices("etaoinshrdlucmfw", k=draw.randint(2, 9))) for _ in range(50_000)]
    weights = [1 / (rank + 10) for rank in range(len(lexicon))]
    before: list[list[str]] = []
    with path.open("w") as file:
        for number in range(documents):
            if number % 10 == 8 and before:
                listed = draw.choice(before)
            elif number % 10 == 9 and before:
                listed = list(draw.choice(before))
                for _ in range(max(1, len(listed) // 100)):
                    listed[draw.randrange(len(listed))] = draw.choice(lexicon)
            else:
                listed = draw.choices(lexicon, weights, k=draw.randint(words // 2, words * 3 // 2))
                if len(before) < 10_000:
                    before.append(listed)
            file.write(json.dumps({"text": " ".join(listed)}) + "\n")
    return path.stat().st_size


def measure_build(path: Path, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """A whole build in a process of its own."""
    code = (
        "import json,resource,sys,time; from marin.record.root import create_root; from marin.collection.build import *\n"
        "from marin.collection.settings import settings_of\n"
        "root=create_root(sys.argv[1]); begun=time.perf_counter()\n"
        "made=build(root, Asked((sys.argv[2],), settings_of(json.loads(sys.argv[3]), where='bench')))\n"
        "print(json.dumps({'seconds': time.perf_counter()-begun, 'kept': made.kept, 'removed': dict(made.removed),"
        "'memory': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, 'artifact': made.artifact}))"
    )
    environment = os.environ | {"XDG_CONFIG_HOME": str(folder / "config"), "MARIN_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "root"), str(path), json.dumps(settings)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_exact(documents: int) -> float:
    """Documents a second of exact deduplication by columns."""
    import numpy as np

    from marin.collection.making.exact import copies

    draw = np.random.default_rng(1)
    digests = draw.integers(0, 1 << 63, (documents, 4), np.uint64)
    digests[draw.integers(0, documents, documents // 5)] = digests[: documents // 5]
    ids = draw.integers(0, 1 << 63, (documents, 2), np.uint64)
    begun = time.perf_counter()
    copies(digests, ids)
    return documents / (time.perf_counter() - begun)


def figures(documents: int, words: int, peers: str, only: list[str]) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "documents.jsonl"
        size = generate(path, documents, words)
        yield {"what": "input", "documents": documents, "bytes": size}
        if "exact" in only:
            yield {"what": "exact duplicates by columns, documents/s", "rate": round(measure_exact(1_000_000))}
        if "build" in only:
            made = measure_build(path, folder / "plain", {"near": None})
            yield {"what": "read, exact duplicates, write", "rate": round(documents / made["seconds"]), **made}
        if "near" in only:
            made = measure_build(path, folder / "near", {})
            yield {
                "what": "the same with near-duplicates, verified",
                "rate": round(documents / made["seconds"]),
                **made,
            }
            for peer in ("datasketch", "rensa") if peers else ():
                done = subprocess.run([peers, "-c", PEER, peer, str(path)], capture_output=True, text=True, check=True)
                told = json.loads(done.stdout)
                yield {"what": f"{peer}, by signatures alone", "rate": round(documents / told["seconds"]), **told}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--peers", default="", metavar="PYTHON")
    parser.add_argument("--only", default="exact,build,near")
    given = parser.parse_args()
    for figure in figures(given.documents, given.words, given.peers, given.only.split(",")):
        sys.stdout.write(json.dumps(figure) + "\n")
        sys.stdout.flush()
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    sys.stdout.write(json.dumps({"what": "largest memory of a child", "bytes": memory}) + "\n")


if __name__ == "__main__":
    main()
