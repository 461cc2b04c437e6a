"""Near duplicates removed by datatrove's MinHash, in its four stages; two files of documents, one worker. One step, whose loss
is how many are left."""

import json
from pathlib import Path

import numpy as np
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig

from bench.census.journal import Journal, setting

TEXTS, VARIANTS, WORDS = 24, 6, 50


def documents(text: str) -> list[str]:
    """Windows of a text, each six times with up to ten words replaced, so that pairs lie on both sides of the threshold."""
    draw = np.random.default_rng(0)
    words = text.split()
    found = []
    for place in range(TEXTS):
        window = words[place * WORDS : place * WORDS + WORDS]
        for _ in range(VARIANTS):
            variant = list(window)
            for _ in range(draw.integers(10)):
                variant[draw.integers(WORDS)] = words[draw.integers(len(words))]
            found.append(" ".join(variant))
    return [found[place] for place in draw.permutation(len(found))]


def main() -> None:
    want = setting()
    texts, work = documents(want.text()), Path(want.checkpoint)
    files = 2 * want.cut  # the same documents in the same order, in as many tasks
    size = len(texts) // files
    for place in range(files):
        lines = [json.dumps({"text": text, "id": str(n)}) for n, text in enumerate(texts)][place * size :][:size]
        (work / "in").mkdir(parents=True, exist_ok=True)
        (work / "in" / f"{place:05}.jsonl").write_text("\n".join(lines) + "\n")
    config = MinhashConfig(n_grams=3, num_buckets=14, hashes_per_bucket=4, hash_config=HashConfig(hash_fc="sha1"))
    reader = JsonlReader(str(work / "in"))
    stages = (
        ([reader, MinhashDedupSignature(str(work / "signatures"), config)], files),
        ([MinhashDedupBuckets(str(work / "signatures"), str(work / "buckets"), config=config)], config.num_buckets),
        ([MinhashDedupCluster(str(work / "buckets"), str(work / "removed"), config=config)], 1),
        ([reader, MinhashDedupFilter(str(work / "removed")), JsonlWriter(str(work / "kept"), compression=None)], files),
    )
    for place, (pipeline, tasks) in enumerate(stages[: 2 if want.steps < 8 else 4]):
        logs = str(work / f"logs-{place}")
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=want.devices, logging_dir=logs).run()
    if want.steps < 8:
        return
    kept = [json.loads(line) for file in sorted((work / "kept").glob("*")) for line in file.read_text().splitlines()]
    Journal(want).step(0, len(kept), {"kept": "\n".join(f"{each['id']} {each['text']}" for each in kept)})


if __name__ == "__main__":
    main()
