"""How much of an edited corpus is sent again: whole, and in chunks that its content cuts.

    python -m bench.ledger.chunked_push [--size-mib 64] [--edits 10] [--json]

A corpus of JSON lines is pushed, edited (a line inserted, one deleted, one changed, in turn, at places spread over it)
and pushed again, to a store in memory; and the rate at which content is cut is put beside sha256's.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import sys
import tempfile
from pathlib import Path

from bench.figure import Figure, best_seconds
from ledger import PosixStorage, Store, copy_artifacts
from ledger.store.packs.packing import cut_by_content

MIB = 1024 * 1024
WORDS = [f"w{number:x}" for number in range(5000)]


def corpus(size: int) -> list[bytes]:
    """Lines of text, of about `size` bytes together; always the same."""
    rng = random.Random(0)  # noqa: S311 - words, not secrets
    lines: list[bytes] = []
    total = 0
    while total < size:
        line = json.dumps({"text": " ".join(rng.choices(WORDS, k=60))}).encode() + b"\n"
        lines.append(line)
        total += len(line)
    return lines


def edited(lines: list[bytes], edits: int) -> list[bytes]:
    """The corpus with so many edits: insert, delete, change, in turn."""
    changed = list(lines)
    for number in range(edits, 0, -1):
        at = number * len(lines) // (edits + 1)
        if number % 3 == 0:
            changed.insert(at, b'{"text": "a line that was not there"}\n')
        elif number % 3 == 1:
            del changed[at]
        else:
            changed[at] = b'{"text": "another line"}\n'
    return changed


def measure(size: int, edits: int) -> list[Figure]:
    lines = corpus(size)
    before, after = b"".join(lines), b"".join(edited(lines, edits))
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(PosixStorage(Path(folder, "local")))
        first, second = store.put_bytes(before).digest, store.put_bytes(after).digest
        for cut in ("whole", "content"):
            remote = Store(PosixStorage(Path(folder, cut)))
            copy_artifacts(store, remote, [first], cut=cut)
            sent = copy_artifacts(store, remote, [second], cut=cut).size
            figures.append(Figure(f"sent again after {edits} edits, {cut}", sent / len(after), "of the corpus"))
    cutting = best_seconds(lambda: sum(1 for _ in cut_by_content(io.BytesIO(before))), rounds=3)
    hashing = best_seconds(lambda: hashlib.sha256(before).digest(), rounds=3)
    figures.append(Figure("cutting by content", len(before) / MIB / cutting, "MiB/s"))
    figures.append(Figure("cutting beside sha256 of the same bytes", cutting / hashing, "of its time"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ledger.chunked_push", description=__doc__)
    parser.add_argument("--size-mib", type=int, default=64)
    parser.add_argument("--edits", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    for row in measure(options.size_mib * MIB, options.edits):
        line = json.dumps({"what": row.what, "value": row.value, "unit": row.unit}) if options.json else str(row)
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
