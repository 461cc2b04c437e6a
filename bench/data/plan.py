"""What a corpus would need, from figures that the other benchmarks printed: nothing is measured here.

    for what in html rules exact near tokens; do python -m bench.data $what; done > figures.jsonl
    python -m bench.data plan --figures figures.jsonl --bytes 50e9,15e12 --cores 64,1024

Work that tasks do grows with bytes of text and is divided by cores; what is done in columns by the calling process (exact
duplicates, and a bit and a label for each document) is not divided. Nothing is added for a network or a slow disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCUMENT = 3000
"""Bytes of text of a web page, about what FineWeb has."""
LABEL = 25
"""Bytes of memory for a document in the calling process, while components are found: a bit, and three numbers of 8 bytes."""
COLUMNS = 16 + 32 + 20 * 8
"""Bytes of files for a document in the columns of tasks: id, digest and the keys of 20 bands."""
TOKEN_BYTES = 4
"""Of the token cache, as it is in memory."""


def plan(figures: Path, sizes: list[float], cores: list[int]) -> Iterator[dict[str, Any]]:
    """One line for each size of a corpus."""
    found = {}
    for line in figures.read_text("utf-8").splitlines():
        one = json.loads(line)
        found[one["what"]] = one
    html, rules, exact = found["text from HTML"], found["reading and rules"], found["exact duplicates by columns"]
    near, tokens = found["of it near-duplicates alone"], found["tokenizing"]
    plain = found["read, exact duplicates, write"]
    seconds_a_byte = {
        "text from HTML": 1 / (html["from_warc_pages_per_cpu_second"] * html["text_bytes"] / html["pages"]),
        "reading and rules": 1 / (rules["documents_per_cpu_second"] * rules["text_bytes"] / rules["documents"]),
        "exact duplicates and writing": 1
        / (plain["documents_per_cpu_second"] * near["text_bytes"] / near["documents"]),
        "near-duplicates": 1 / (near["documents_per_cpu_second"] * near["text_bytes"] / near["documents"]),
        "tokenizing": 1 / tokens["ours_with_cache_bytes_per_cpu_second"],
    }
    for size, count in zip(sizes, cores, strict=True):
        documents = size / DOCUMENT
        hours = {name: round(size * seconds / 3600, 1) for name, seconds in seconds_a_byte.items()}
        alone = documents / exact["documents_per_cpu_second"] / 3600
        yield {
            "what": "plan",
            "text_bytes": int(size),
            "html_bytes": int(size * html["html_bytes"] / html["text_bytes"]),
            "documents": int(documents),
            "core_hours": hours | {"all of it": round(sum(hours.values()), 1)},
            "calling_process_hours": round(alone, 2),
            "calling_process_memory_bytes": int(documents * LABEL),
            "columns_bytes": int(documents * COLUMNS),
            "token_cache_bytes": int(size * TOKEN_BYTES * tokens["tokens"] / tokens["text_bytes"]),
            "cores": count,
            "hours": round(sum(hours.values()) / count + alone, 1),
        }
