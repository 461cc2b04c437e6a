"""What others do with the same documents, in an environment of theirs: they are no part of this project's.

    uv venv PEERS
    uv pip install --python PEERS/bin/python "datatrove[io]" tokenizers "xxhash<3.6" datasketch rensa resiliparse regex nltk

Each script reads JSON lines of texts (its second argument) and prints one JSON object: ``seconds`` of processor time, and
``removed``: numbers of the documents that it removes, with the number of the one that each is a copy of, where it says so.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

_BEGIN = """
import json, sys, time
name, path = sys.argv[1:3]
def lines():
    for line in open(path):
        yield json.loads(line)["text"]
def grams(text):
    words = text.lower().split()
    return {" ".join(words[i:i + 5]) for i in range(max(1, len(words) - 4))}
def done(begun, removed, **more):
    print(json.dumps({"seconds": time.process_time() - begun, "removed": removed, **more}))
begun = time.process_time()
"""
DATASKETCH = (
    _BEGIN
    + """
from datasketch import MinHash, MinHashLSH
index, removed = MinHashLSH(num_perm=120, params=(20, 6)), []
for number, text in enumerate(lines()):
    one = MinHash(num_perm=120)
    one.update_batch([gram.encode() for gram in grams(text)])
    found = index.query(one)
    if found:
        removed.append([number, min(found)])
    else:
        index.insert(number, one)
done(begun, removed)
"""
)
RENSA = (
    _BEGIN
    + """
from rensa import RMinHash, RMinHashLSH
index, removed = RMinHashLSH(threshold=0.8, num_perm=120, num_bands=20), []
for number, text in enumerate(lines()):
    one = RMinHash(num_perm=120, seed=1)
    one.update(list(grams(text)))
    found = index.query(one)
    if found:
        removed.append([number, min(found)])
    else:
        index.insert(number, one)
done(begun, removed)
"""
)
DATATROVE = (
    _BEGIN
    + """
import contextlib, io, os, tempfile, time
from pathlib import Path
from datatrove.pipeline.dedup import minhash
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature)
from datatrove.pipeline.readers import JsonlReader
from datatrove.data import Document
from datatrove.utils.hashing import HashConfig
class Spaces:  # words are cut there for all; its own way needs spaCy
    def word_tokenize(self, text): return text.split()
minhash.load_word_tokenizer = lambda language: Spaces()
config = MinhashConfig(num_buckets=20, hashes_per_bucket=6, n_grams=5, hash_config=HashConfig(precision=64))
with tempfile.TemporaryDirectory() as folder:
    reader = lambda: JsonlReader(os.path.dirname(path), glob_pattern=os.path.basename(path), id_key="number")
    begun = time.process_time()
    for _ in (MinhashDedupSignature(f"{folder}/sigs", config=config).run(reader().run(), 0, 1) or ()): pass
    for bucket in range(20):
        for _ in (MinhashDedupBuckets(f"{folder}/sigs", f"{folder}/buckets", config=config).run(None, bucket, 20) or ()): pass
    for _ in (MinhashDedupCluster(f"{folder}/buckets", f"{folder}/remove", config=config).run(None, 0, 1) or ()): pass
    kept = [int(document.id) for document in
            MinhashDedupFilter(f"{folder}/remove").run(reader().run(), 0, 1)]
total = sum(1 for _ in lines())
done(begun, [[number, -1] for number in sorted(set(range(total)) - set(kept))])
"""
)
RULES = (
    _BEGIN
    + """
import os
from datatrove.pipeline.filters import c4_filters, fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter
from datatrove.pipeline.readers import JsonlReader
for module in (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter):
    module.split_into_words = lambda text, language: text.split()
filters = (
    gopher_repetition_filter.GopherRepetitionFilter(),
    gopher_quality_filter.GopherQualityFilter(),
    c4_filters.C4QualityFilter(
        filter_no_terminal_punct=False, min_num_sentences=-1, min_words_per_line=5, remove_citations=False),
    fineweb_quality_filter.FineWebQualityFilter(char_duplicates_ratio=0.1, new_line_ratio=float("inf")),
)
begun = time.process_time()
data = JsonlReader(os.path.dirname(path), glob_pattern=os.path.basename(path)).run()
for one in filters:
    data = one.run(data)
kept = sum(1 for _ in data)
done(begun, [], kept=kept)
"""
)
SCRIPTS = {"datasketch": DATASKETCH, "rensa": RENSA, "datatrove": DATATROVE, "datatrove's filters": RULES}


def ask(python: str, name: str, path: Path) -> dict[str, Any]:
    """What a peer says."""
    done = subprocess.run([python, "-c", SCRIPTS[name], name, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
